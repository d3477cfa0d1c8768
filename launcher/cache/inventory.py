"""What the cache holds, and what of it can go."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from launcher.cache import manifest as manifests
from launcher.cache.building import leftovers
from launcher.cache.layout import HUB, Shelf, shelf
from launcher.cache.manifest import Manifest
from launcher.cache.parts import Owner
from launcher.sources import REMOTE_SCHEMES
from launcher.typing import NamedTuple

_SETTLED = 3600.0  # seconds after which a blob that nothing links to is no other tool's work in progress


class Snapshot(NamedTuple):
    """A complete snapshot with our manifest.  ``current``: it is what a reference leads to, or somebody named it."""

    folder: str
    manifest: Manifest
    manifest_path: str
    current: bool


class Entry(NamedTuple):
    """One source in the cache."""

    shelf: Shelf
    snapshots: tuple[Snapshot, ...]
    unfinished: tuple[str, ...]  # parts and half-built folders
    unreadable: tuple[str, ...] = ()  # manifests, each of a snapshot that is as good as not there

    @property
    def source(self) -> str:
        return self.snapshots[0].manifest.source if self.snapshots else self.shelf.source


def entries(cache: str) -> Iterator[Entry]:
    """Every source of which there is something, sorted by place."""
    known = {place.folder: place for place in _with_manifests(cache)}
    for place in _on_disk(cache):
        known.setdefault(place.folder, place)
    for _, place in sorted(known.items()):
        entry = Entry(place, tuple(_snapshots(place)), tuple(_unfinished(place)), tuple(_unreadable(place)))
        if entry.snapshots or os.path.isdir(place.folder):
            yield entry


def superseded(entry: Entry) -> Iterator[Snapshot]:
    """Snapshots that no reference leads to any more."""
    return (snapshot for snapshot in entry.snapshots if not snapshot.current)


def abandoned(entry: Entry) -> tuple[str, ...]:
    """Unfinished files that nobody works on."""
    parts = entry.shelf.parts
    others = tuple(path for path in entry.unfinished if not path.startswith(f"{parts}/"))
    if len(others) == len(entry.unfinished):
        return others
    with Owner(parts) as owner:
        return (*others, *owner.leftovers())


def unlinked_blobs(place: Shelf) -> list[str]:
    """Of a hub's repository: content that no snapshot uses."""
    if not place.is_hub:
        return []
    used = {os.path.realpath(f"{folder}/{name}") for folder, _, names in _walk(place) for name in names}
    latest = time.time() - _SETTLED
    found = []
    for name in _names(place.blobs):
        path = f"{place.blobs}/{name}"
        with suppress(OSError):
            if "." not in name and os.path.realpath(path) not in used and os.stat(path).st_mtime < latest:
                found.append(path)
    return found


def size_of(path: str) -> int:
    """Bytes on disk below ``path`` that go with it: files with another name elsewhere do not."""
    total = 0
    paths = [path] if not os.path.isdir(path) or os.path.islink(path) else []
    for folder, _, names in os.walk(path):
        paths += [f"{folder}/{name}" for name in names]
    for each in paths:
        with suppress(OSError):
            status = os.lstat(each)
            total += status.st_size if status.st_nlink == 1 else 0
    return total


def _with_manifests(cache: str) -> Iterator[Shelf]:
    for scheme in REMOTE_SCHEMES:
        for name in _names(f"{cache}/manifests/{scheme}"):
            for document in _names(f"{cache}/manifests/{scheme}/{name}"):
                manifest = manifests.read(f"{cache}/manifests/{scheme}/{name}/{document}")
                if isinstance(manifest, Manifest):
                    yield shelf(cache, scheme, manifest.source.partition("://")[2])
                    break


def _on_disk(cache: str) -> Iterator[Shelf]:
    """Sources of which only unfinished files, or snapshots of other tools, may be there."""
    for name in _names(f"{cache}/{HUB}"):
        if name.startswith("models--"):
            yield shelf(cache, "hf", name.removeprefix("models--").replace("--", "/"))
    for scheme in REMOTE_SCHEMES:
        if scheme != "hf":
            for name in _names(f"{cache}/{scheme}"):
                key = f"{scheme}/{name}"
                yield Shelf(cache, scheme, key, key, f"{cache}/{key}")


def _snapshots(place: Shelf) -> Iterator[Snapshot]:
    current = set(_current(place))
    for name in _names(place.manifests):
        path = f"{place.manifests}/{name}"
        manifest = manifests.read(path) if name.endswith(".json") else None
        if isinstance(manifest, Manifest):
            stem = name.removesuffix(".json")
            folder = place.snapshot(manifest.revision) if place.is_hub else f"{place.folder}/{stem}"
            is_current = manifest.pinned or manifest.revision in current
            yield Snapshot(folder, manifest, path, is_current)


def _unreadable(place: Shelf) -> Iterator[str]:
    for name in _names(place.manifests):
        if name.endswith(".json") and manifests.read(f"{place.manifests}/{name}") is None:
            yield f"{place.manifests}/{name}"


def _current(place: Shelf) -> Iterator[str]:
    paths = [f"{place.manifests}/{name}" for name in _names(place.manifests) if name.endswith(".current")]
    for folder, _, names in os.walk(f"{place.folder}/refs" if place.is_hub else ""):
        paths += [f"{folder}/{name}" for name in names]
    for path in paths:
        with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
            yield file.read(1000).strip()


def _unfinished(place: Shelf) -> Iterator[str]:
    yield from leftovers(place)
    for folder in (place.parts, f"{place.folder}/.aside"):
        yield from (f"{folder}/{name}" for name in _names(folder))


def _walk(place: Shelf) -> Iterator[tuple[str, list[str], list[str]]]:
    yield from os.walk(f"{place.folder}/snapshots")


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
