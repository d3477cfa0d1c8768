"""Putting a snapshot together: verified files are placed aside, and the whole gets its name in one step.

A file in the building folder is finished: it was checked before it was placed there, by a rename.  So whoever comes
after a killed process goes on where that one stopped, and two that build the same revision only do each other's work.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from launcher.cache import manifest as manifests
from launcher.cache.layout import Shelf
from launcher.cache.manifest import Manifest
from launcher.cache.snapshots import lacking, pinned_revision
from launcher.errors import DeniedError, IntegrityError, LauncherError, NoSpaceError
from launcher.fetch.remote import RemoteFile
from launcher.places import let_group_write, make_shared, why_not_writable
from launcher.typing import Any, NamedTuple

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
STRONG = ("sha256", "sha1", "md5")  # equal values mean equal content
_BLOCK = 1024 * 1024
_MOST_OTHERS = 8  # launchers that may finish in the middle of one step


class Site(NamedTuple):
    """One revision that is being put together.  ``files`` are all that it will have."""

    shelf: Shelf
    revision: str
    files: tuple[RemoteFile, ...]
    aside: bool = False  # the revision's proper place belongs to a newer format of the cache

    @property
    def final(self) -> str:
        return self.shelf.snapshot(self.revision, aside=self.aside)

    @property
    def folder(self) -> str:
        """Where files are placed: aside, unless somebody already put this revision under its final name."""
        return self.final if os.path.isdir(self.final) else self.shelf.building(self.revision, aside=self.aside)

    @property
    def scratch(self) -> str:
        """Where names are made before they are put in place; what a killed process leaves here is in no snapshot."""
        return f"{self.shelf.folder}/.aside"

    def lacking(self) -> list[RemoteFile]:
        return lacking(self.folder, self.files)

    def place(self, path: str, file: RemoteFile) -> None:
        """Move the finished file at ``path`` to where ``file`` belongs.  Raises OSError; see `explained`."""
        if not self.shelf.is_hub:
            _renamed(path, self.place_of(file))
            return
        blob = self.blob(file)
        _renamed(path, blob)
        self.link(blob, file)

    def place_of(self, file: RemoteFile) -> str:
        """Where ``file`` belongs.  Raises IntegrityError where a folder on the way is a link, which may lead out."""
        path = self.folder
        for name in file.path.split("/")[:-1]:
            path = f"{path}/{name}"
            if os.path.islink(path):
                raise IntegrityError(
                    f"{path} in the cache is a link where a folder belongs: nothing is written through it", "Remove it"
                )
        return f"{self.folder}/{file.path}"

    def blob(self, file: RemoteFile) -> str:
        """Of a hub's repository: where the content of ``file`` lies."""
        name = file.digest.value if file.digest else file.identity
        return self.shelf.blob(name)

    def link(self, blob: str, file: RemoteFile) -> None:
        """Make ``file`` out of a blob: a relative link, which holds wherever the cache is mounted."""
        place = self.place_of(file)
        climb = "../" * (file.path.count("/") + 2)
        try:
            _replaced(lambda aside: os.symlink(f"{climb}blobs/{os.path.basename(blob)}", aside), place, self.scratch)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            copy_file(blob, place, self.scratch)  # a file system without links, such as some network shares

    def finish(self, manifest: Manifest, asked: str | None) -> None:
        """Give the snapshot its name, and then its manifest.  Raises IntegrityError when a file is still lacking."""
        missing = self.lacking()
        if missing:
            raise IntegrityError(
                f"{self.shelf.source}: {len(missing)} files vanished from the cache while it was filled, such as "
                f"{missing[0].path}",
                "Start again; no other program may clean up the cache meanwhile",
            )
        if self.shelf.is_hub and not manifest.skipped:
            self._write_tree()
        self._publish()
        self._clear()
        manifests.write(self.shelf.manifest(self.revision, aside=self.aside), manifest)
        note(self.shelf, asked, self.revision)

    def _publish(self) -> None:
        building = self.shelf.building(self.revision, aside=self.aside)
        if not os.path.isdir(self.final):
            make_shared(os.path.dirname(self.final))
            try:
                os.rename(building, self.final)
            except OSError:
                if lacking(self.final, self.files):  # else somebody else was quicker
                    raise
            manifests.sync_folder(os.path.dirname(self.final))

    def _clear(self) -> None:
        """Remove the empty folders of the building, and what a quicker process made needless."""
        from shutil import rmtree

        rmtree(self.shelf.building(self.revision, aside=self.aside), ignore_errors=True)
        for folder in (f"{self.shelf.folder}/.building", self.scratch):
            with suppress(OSError):  # not empty: somebody else is at work
                os.rmdir(folder)

    def _write_tree(self) -> None:
        """The listing as the hub's own tools keep it, so that they can work offline too."""
        path = self.shelf.tree(self.revision)
        if not os.path.exists(path):
            document = {"format_version": 1, "files": {file.path: _tree_row(file) for file in self.files}}
            manifests.write_whole(path, json.dumps(document, indent=1).encode("ascii"))


def note(shelf: Shelf, asked: str | None, revision: str) -> None:
    """Record where a mutable reference led, for us and (of a hub) for other tools.  Raises OSError."""
    if pinned_revision(shelf.scheme, asked) is not None:
        return
    if _text(shelf.record(asked)) != revision:
        manifests.write_whole(shelf.record(asked), revision.encode("utf-8"))
    if shelf.is_hub and _text(shelf.reference(asked)) != revision:
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):  # of branches a and a/b, one has a place
            manifests.write_whole(shelf.reference(asked), revision.encode("utf-8"))


def distinct(files: Sequence[RemoteFile]) -> list[list[RemoteFile]]:
    """Files by content: what is there twice is fetched once."""
    groups: dict[tuple[str, ...], list[RemoteFile]] = {}
    for file in files:
        strong = file.digest is not None and file.digest.algorithm in STRONG
        key = (*file.digest, str(file.size)) if strong and file.digest else (file.path,)
        groups.setdefault(key, []).append(file)
    return list(groups.values())


def place_all(site: Site, path: str, group: Sequence[RemoteFile]) -> None:
    """Place a finished file under each name that its content has.  Raises OSError."""
    first, *others = group
    site.place(path, first)
    for file in others:
        if site.shelf.is_hub and os.path.exists(site.blob(first)):
            site.link(site.blob(first), file)
        else:
            _named_too(site, first, file)


def _named_too(site: Site, first: RemoteFile, file: RemoteFile) -> None:
    """Give the placed ``first`` the name of ``file`` too; both may get their final folder in the middle of it."""
    _in_spite_of_others(lambda: link_or_copy(site.place_of(first), site.place_of(file), site.scratch))


def link_or_copy(source: str, path: str, scratch: str) -> None:
    """Another name for a finished file; a copy where the file system has no such thing.  Raises OSError.

    ``scratch`` is a folder on the file system of ``path``.
    """
    try:
        _replaced(lambda aside: os.link(os.path.realpath(source), aside), path, scratch)
    except OSError as error:
        if error.errno in _FULL:
            raise
        copy_file(source, path, scratch)


def copy_file(source: str, path: str, scratch: str) -> None:
    """Copy, in the kernel where it can.  Raises OSError."""

    def copy(aside: str) -> None:
        with open(source, "rb") as reading, open(aside, "xb") as writing:
            let_group_write(writing.fileno())
            left = os.fstat(reading.fileno()).st_size
            try:
                while left > 0 and (done := os.copy_file_range(reading.fileno(), writing.fileno(), left)) > 0:
                    left -= done
            except OSError as error:
                if error.errno in _FULL:
                    raise
            while block := reading.read(_BLOCK):  # both positions are where the kernel stopped
                writing.write(block)

    _replaced(copy, path, scratch)


def same_file(one: str, other: str) -> bool:
    """Whether both are names of the very file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def explained(error: OSError, cache: str) -> LauncherError:
    """An error of writing to the cache, as a refusal."""
    if error.errno in _FULL:
        return NoSpaceError(
            f"no space left in {cache}: {error.strerror}", "Free some space, or set NIM_CACHE_PATH to a larger volume"
        )
    if error.errno == errno.EROFS:
        return DeniedError(
            f"cannot write to the cache {cache}: {error.strerror}",
            "Mount it writable until the model is complete in it, or set NIM_CACHE_PATH to a writable folder",
        )
    return DeniedError(
        f"cannot write to the cache {cache}: {error.strerror}; {why_not_writable(cache)}",
        "Make it writable for that user or its group, or set NIM_CACHE_PATH to a writable folder",
    )


def leftovers(shelf: Shelf) -> Iterator[str]:
    """Folders of revisions that were begun and never finished."""
    with suppress(OSError):
        for name in os.listdir(f"{shelf.folder}/.building"):
            yield f"{shelf.folder}/.building/{name}"


def _renamed(path: str, place: str) -> None:
    def rename() -> None:
        make_shared(os.path.dirname(place))
        os.replace(path, place)

    _in_spite_of_others(rename)


def _in_spite_of_others(step: Callable[[], None]) -> None:
    """Carry out a step that makes the folders which it needs.

    A launcher that works on the same revision without locks, and is done, removes those that are empty or of no more
    use: also between their making and their use here.
    """
    for others in range(_MOST_OTHERS, -1, -1):
        try:
            return step()
        except FileNotFoundError:
            if not others:
                raise


def _replaced(make: Callable[[str], None], place: str, scratch: str) -> None:
    """Make something in ``scratch`` and give it the name ``place`` in one step."""
    aside = f"{scratch}/{os.urandom(8).hex()}"

    def replace() -> None:
        make_shared(os.path.dirname(place))
        make_shared(scratch)
        try:
            make(aside)
            os.replace(aside, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise

    _in_spite_of_others(replace)


def _tree_row(file: RemoteFile) -> dict[str, Any]:
    if file.digest is None or file.digest.algorithm != "sha256":
        return {"size": file.size, "blob_id": file.digest.value if file.digest else file.identity}
    return {
        "size": file.size,
        "blob_id": _pointer_id(file.digest.value, file.size),
        "lfs_sha256": file.digest.value,
        "lfs_size": file.size,
    }


def _pointer_id(sha256: str, size: int) -> str:
    """The git blob id of the file that stands in a repository for one in large-file storage."""
    from hashlib import sha1

    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode("ascii")
    return sha1(b"blob %d\0" % len(pointer) + pointer, usedforsecurity=False).hexdigest()


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return None
