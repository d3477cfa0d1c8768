"""Complete snapshots: finding one, and saying what proves that nothing of it is missing.

Our own manifest is the best proof.  Snapshots that other tools left in a hub cache are proved by the hub's own listing
(trees), or by configuration and weight index, which tell what must be there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launcher.cache import manifest as manifests
from launcher.cache.layout import Shelf, in_hub
from launcher.cache.manifest import Manifest, Newer
from launcher.errors import IntegrityError, LauncherError
from launcher.fetch.duplicates import Wishes, choose
from launcher.fetch.names import is_component, is_hex, is_safe
from launcher.fetch.remote import Digest, RemoteFile
from launcher.typing import Any, NamedTuple

MANIFEST, TREES, INDEX = "manifest", "trees", "index"
_CONFIGS = ("config.json", "params.json")
_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json", "pytorch_model.bin.index.json")
_COMMIT_LENGTH = 40
# What a server does without, and what tools that fetch by pattern therefore leave out.
_DISPENSABLE = (".md", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".gitignore", ".gitattributes")
_DISPENSABLE_STEMS = ("license", "notice", "readme", "usage_policy")


class Known(NamedTuple):
    """A complete snapshot."""

    folder: str  # absolute
    revision: str
    proof: str  # MANIFEST, TREES or INDEX
    files: tuple[RemoteFile, ...]  # () where only the index proves it: whatever lies in the folder
    date: str  # when it was complete, as a sentence says it
    skipped: tuple[RemoteFile, ...] = ()


class Damaged(NamedTuple):
    """A snapshot whose manifest names files that are no longer there as they were."""

    folder: str
    revision: str
    files: tuple[str, ...]


def pinned_revision(scheme: str, revision: str | None) -> str | None:
    """The revision of a source that can never change, as the user wrote it: a commit, or a version on NGC."""
    if revision is None:
        return None
    if scheme == "ngc":
        return revision
    commit = revision.lower()
    is_commit = len(commit) == _COMMIT_LENGTH and set(commit) <= set("0123456789abcdef")
    return commit if is_commit and scheme in ("hf", "modelscope") else None


def recorded(place: Shelf, asked: str | None, hubs: Sequence[str], wishes: Wishes) -> Known | Damaged | None:
    """The newest complete snapshot that is known for a source.

    ``asked`` is the revision as the user wrote it.  ``hubs`` are further hub caches to look into.  A damaged snapshot
    is only the answer where there is no complete one.
    """
    pinned = pinned_revision(place.scheme, asked)
    damaged: Damaged | None = None
    for revision in (pinned,) if pinned else dict.fromkeys(_revisions(place, asked, hubs)):
        known = find(place, revision, hubs, wishes)
        if isinstance(known, Known):
            return known
        damaged = damaged or known
    return damaged


def find(place: Shelf, revision: str, hubs: Sequence[str], wishes: Wishes) -> Known | Damaged | None:
    """The complete snapshot of one revision."""
    for aside in (False, True):
        manifest = manifests.read(place.manifest(revision, aside=aside))
        if isinstance(manifest, Manifest):
            known = _by_manifest(place, manifest, place.snapshot(revision, aside=aside), wishes)
            if isinstance(known, Known) or not place.is_hub:
                return known
            return _in_hubs(place, revision, hubs, wishes) or known
        if manifest is None:
            break
    return _in_hubs(place, revision, hubs, wishes) if place.is_hub else None


def has_all(known: Known, files: Iterable[RemoteFile]) -> bool:
    """Whether ``known`` is complete by a listing of its revision too: an index tells nothing of other files."""
    return known.proof != INDEX or _lacks_only_papers(known.folder, lacking(known.folder, files))


def is_aside(place: Shelf, revision: str) -> bool:
    """Whether a newer launcher owns this revision's place in the cache, so that ours is beside it."""
    return isinstance(manifests.read(place.manifest(revision)), Newer)


def lacking(folder: str, files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """Those of ``files`` that are not in ``folder`` with their size."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return list(files)
    try:
        return [file for file in files if _size(file.path, descriptor) != file.size]
    finally:
        os.close(descriptor)


def refuse_other_source(place: Shelf, manifest: Manifest) -> None:
    """Raise IntegrityError when a cache entry was made for another source: two URLs must never share one."""
    if manifest.source != place.source:
        raise IntegrityError(
            f"the cache entry {place.manifests} belongs to {manifest.source}, not to {place.source}",
            "Remove it, or set NIM_CACHE_PATH to another folder",
        )


def tree_files(path: str) -> tuple[RemoteFile, ...] | None:
    """The listing that a hub's own tools keep; None where there is none that can be read."""
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
        if document["format_version"] != 1:
            return None
        files = [_tree_file(name, row) for name, row in sorted(document["files"].items())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return tuple(files) if all(is_safe(file.path) for file in files) else None


def _tree_file(path: str, row: Mapping[str, Any]) -> RemoteFile:
    sha256 = row.get("lfs_sha256")
    name = row["blob_id"] if sha256 is None else sha256
    if not is_hex(name, 40 if sha256 is None else 64):
        raise ValueError(name)
    if sha256 is None:
        return RemoteFile(path, int(row["size"]), row["blob_id"], Digest("sha1", row["blob_id"]))
    return RemoteFile(path, int(row["lfs_size"]), sha256, Digest("sha256", sha256))


def _size(path: str, descriptor: int) -> int:
    try:
        return os.stat(path, dir_fd=descriptor).st_size
    except OSError:
        return -1


def _revisions(place: Shelf, asked: str | None, hubs: Sequence[str]) -> Iterator[str]:
    """Where a mutable reference led, the surest first."""
    if place.is_hub:
        yield from _first_words([place.reference(asked)])
    yield from _first_words([place.record(asked)])
    if place.is_hub:
        yield from _first_words([in_hub(place, hub).reference(asked) for hub in hubs])


def _first_words(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                word = file.read(1000).strip()
        except (OSError, ValueError):
            continue
        if is_component(word):
            yield word


def _by_manifest(place: Shelf, manifest: Manifest, folder: str, wishes: Wishes) -> Known | Damaged | None:
    refuse_other_source(place, manifest)
    if manifest.wishes != wishes:
        everything = tuple(sorted((*manifest.files, *manifest.skipped)))
        wanted = choose(everything, wishes, place.source).files
        if not set(wanted) <= set(manifest.files):
            return None
    missing = lacking(folder, manifest.files)
    if missing:
        return Damaged(folder, manifest.revision, tuple(file.path for file in missing))
    return Known(folder, manifest.revision, MANIFEST, manifest.files, manifest.date, manifest.skipped)


def _in_hubs(place: Shelf, revision: str, hubs: Sequence[str], wishes: Wishes) -> Known | None:
    for other in (place, *(in_hub(place, hub) for hub in hubs)):
        folder = other.snapshot(revision)
        if os.path.isdir(folder):
            known = _foreign(other, revision, folder, wishes)
            if known is not None:
                return known
    return None


def _foreign(place: Shelf, revision: str, folder: str, wishes: Wishes) -> Known | None:
    """A snapshot that some other tool made."""
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(os.stat(folder).st_mtime))
    listed = tree_files(place.tree(revision))
    if listed is not None:
        choice = choose(listed, wishes, place.source)
        missing = lacking(folder, choice.files)
        if not missing:
            return Known(folder, revision, TREES, choice.files, date, choice.skipped)
        if not _lacks_only_papers(folder, missing):
            return None
    return Known(folder, revision, INDEX, (), date) if is_whole(folder) else None


def is_whole(folder: str) -> bool:
    """Whether a folder has a configuration and every shard that its index names, each with its structure right."""
    from launcher.cache.verify import faults_of_structure

    try:
        names = frozenset(os.listdir(folder))
        return any(name in names for name in _CONFIGS) and weights_of(folder, names) and not faults_of_structure(folder)
    except (OSError, LauncherError):
        return False


def weights_of(folder: str, names: frozenset[str]) -> bool:
    """Whether a folder holds weights at all, and all that an index names."""
    from launcher.tensors import parse_index

    for index in _INDEXES:
        if index in names:
            with open(f"{folder}/{index}", "rb") as file:
                listed = set(parse_index(file.read(), f"{folder}/{index}").values())
            return listed <= names
    return any(name.endswith((".safetensors", ".bin", ".gguf")) for name in names)


def _lacks_only_papers(folder: str, missing: Iterable[RemoteFile]) -> bool:
    """Whether a server does without all that is missing; what is there with another size was broken off."""
    return all(_is_dispensable(file.path) and not os.path.lexists(f"{folder}/{file.path}") for file in missing)


def _is_dispensable(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(_DISPENSABLE) or name.startswith(_DISPENSABLE_STEMS)
