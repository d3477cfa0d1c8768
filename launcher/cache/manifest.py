"""The manifest: what a complete snapshot consists of.  Written last, it is the proof of completeness.

A document of a newer format than ours is left alone: it belongs to a newer launcher that shares the cache.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress

from launcher.cache.layout import FORMAT
from launcher.fetch.duplicates import Wishes
from launcher.fetch.names import is_hex, is_revision, is_safe
from launcher.fetch.remote import Digest, RemoteFile
from launcher.places import let_group_write, make_shared
from launcher.typing import Any, NamedTuple

_DIGITS = {"sha256": 64, "sha1": 40, "md5": 32, "crc32c": 8, "crc64nvme": 16, "crc32": 8}  # hexadecimal, by algorithm


class Manifest(NamedTuple):
    """A snapshot's files.  ``skipped`` are those of the listing that were left out, by choice or as duplicates."""

    source: str  # canonical text, without revision
    revision: str
    pinned: bool
    time: str  # UTC, "2026-01-31T12:00:00Z": when the snapshot was complete
    files: tuple[RemoteFile, ...]  # sorted by path
    skipped: tuple[RemoteFile, ...] = ()
    wishes: Wishes = Wishes()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def date(self) -> str:
        """The time as a sentence says it."""
        return f"{self.time[:10]} {self.time[11:16]} UTC"


class Newer(NamedTuple):
    """A manifest of a format that this version cannot read."""

    format: int


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def to_json(manifest: Manifest) -> str:
    """The document, one file a line, so that people can compare two of them."""
    head = {
        "format": FORMAT,
        "source": manifest.source,
        "revision": manifest.revision,
        "pinned": manifest.pinned,
        "time": manifest.time,
        "wishes": manifest.wishes._asdict(),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines += [f'"files": {_rows(manifest.files)}', f'"skipped": {_rows(manifest.skipped)}']
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(data: bytes) -> Manifest | Newer:
    """Raises ValueError for what is no manifest, or names anything that could lead out of the cache."""
    try:
        document = json.loads(data)
        if document["format"] > FORMAT:
            return Newer(document["format"])
        source = _text(document["source"])
        scheme = source.partition("://")[0]
        wishes = document.get("wishes", {})
        return Manifest(
            source=source,
            revision=_revision(document["revision"], scheme),
            pinned=document["pinned"] is True,
            time=_text(document["time"]),
            files=_files(document["files"], scheme),
            skipped=_files(document.get("skipped", []), scheme),
            wishes=Wishes(
                tuple(wishes.get("include", ())), tuple(wishes.get("exclude", ())), wishes.get("mistral") is True
            ),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no manifest: {error}") from None


def read(path: str) -> Manifest | Newer | None:
    """The manifest at ``path``; None where there is none, or nothing readable."""
    try:
        with open(path, "rb") as file:
            return from_json(file.read())
    except (OSError, ValueError):
        return None


def write(path: str, manifest: Manifest) -> None:
    """Put the manifest in place, whole and on the disk.  Raises OSError."""
    write_whole(path, to_json(manifest).encode("ascii"))


def write_whole(path: str, data: bytes) -> None:
    """Replace a small file by a rename, so that readers see the old or the new one.  Raises OSError."""
    folder = os.path.dirname(path)
    make_shared(folder)
    aside = f"{folder}/.{os.urandom(8).hex()}"  # not the process id: containers share those
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb") as file:
            let_group_write(descriptor)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make the names in a folder last; file systems that cannot are taken as they are."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _rows(files: Iterable[RemoteFile]) -> str:
    rows = [json.dumps(_row(file)) for file in files]
    return "[\n" + ",\n".join(rows) + "\n]" if rows else "[]"


def _row(file: RemoteFile) -> dict[str, Any]:
    digest = None if file.digest is None else f"{file.digest.algorithm}:{file.digest.value}"
    return {"path": file.path, "size": file.size, "identity": file.identity, "digest": digest}


def _files(rows: Iterable[Any], scheme: str) -> tuple[RemoteFile, ...]:
    files = tuple(
        [
            RemoteFile(_path(row["path"]), _size(row["size"]), _text(row["identity"]), _digest(row["digest"]))
            for row in rows
        ]
    )
    if scheme == "hf":  # whose blobs are called by these
        for file in files:
            if not is_hex(file.digest.value if file.digest else file.identity, 40, 64):
                raise TypeError(f"{file.path} has no digest")
    return files


def _digest(text: Any) -> Digest | None:
    if text is None:
        return None
    algorithm, colon, value = text.partition(":")
    if not colon or not is_hex(value, _DIGITS.get(algorithm, 0)):
        raise TypeError(f"digest {text!r}")
    return Digest(algorithm, value)


def _path(value: Any) -> str:
    path = _text(value)
    if not is_safe(path):
        raise TypeError(f"{path!r} is no file name")
    return path


def _revision(value: Any, scheme: str) -> str:
    revision = _text(value)
    if not is_revision(scheme, revision):
        raise TypeError(f"{revision!r} is no revision")
    return revision


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no size")
    return value
