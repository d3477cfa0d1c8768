"""Files that need no network: they lie in an older snapshot, or in another tool's hub cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from launcher.cache import manifest as manifests
from launcher.cache.building import STRONG, Site, link_or_copy, same_file
from launcher.cache.layout import Shelf, in_hub
from launcher.cache.manifest import Manifest
from launcher.cache.verify import digest_of
from launcher.fetch.remote import Digest, RemoteFile
from launcher.typing import NamedTuple


class Donor(NamedTuple):
    """A file on this machine with the wanted size.  ``vouched``: we checked its content when we fetched it."""

    path: str
    vouched: bool


class Stock(NamedTuple):
    """What is at hand for one source: finished files by content, and blobs by name."""

    by_identity: Mapping[tuple[str, str, int], str] = {}
    by_digest: Mapping[Digest, str] = {}
    vouched_blobs: frozenset[str] = frozenset()
    blob_folders: tuple[str, ...] = ()  # our own first

    def donors(self, file: RemoteFile) -> Iterator[Donor]:
        """Where the content of ``file`` may be had, the surest first."""
        for path in (
            self.by_identity.get((file.path, file.identity, file.size)),
            self.by_digest.get(file.digest) if file.digest else None,
        ):
            if path is not None and _has_size(path, file.size):
                yield Donor(path, True)
        for number, folder in enumerate(self.blob_folders):
            name = file.digest.value if file.digest else file.identity
            if _has_size(f"{folder}/{name}", file.size):
                yield Donor(f"{folder}/{name}", number == 0 and name in self.vouched_blobs)


def stock(shelf: Shelf, hubs: Sequence[str]) -> Stock:
    """Everything that the cache and the other hub caches hold of a source."""
    by_identity: dict[tuple[str, str, int], str] = {}
    by_digest: dict[Digest, str] = {}
    blobs: set[str] = set()
    for folder, manifest in own_manifests(shelf):
        for file in manifest.files:
            if shelf.is_hub:
                blobs.add(file.digest.value if file.digest else file.identity)
                continue
            by_identity[file.path, file.identity, file.size] = f"{folder}/{file.path}"
            if file.digest is not None and file.digest.algorithm in STRONG:
                by_digest[file.digest] = f"{folder}/{file.path}"
    folders = (shelf.blobs, *(in_hub(shelf, hub).blobs for hub in hubs)) if shelf.is_hub else ()
    return Stock(by_identity, by_digest, frozenset(blobs), folders)


def own_manifests(shelf: Shelf) -> Iterator[tuple[str, Manifest]]:
    """The snapshots of a source that have a manifest: (folder, manifest), in no order."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(shelf.manifests))
    for name in names:
        manifest = manifests.read(f"{shelf.manifests}/{name}") if name.endswith(".json") else None
        if isinstance(manifest, Manifest) and manifest.source == shelf.source:
            stem = name.removesuffix(".json")
            yield (
                shelf.snapshot(manifest.revision) if shelf.is_hub else f"{shelf.folder}/{stem}",
                manifest,
            )


def other_names(site: Site, file: RemoteFile) -> list[str]:
    """Where the source's other snapshots have another name of the very file that stands for ``file``."""
    found = []
    place = f"{site.folder}/{file.path}"
    for folder, manifest in () if site.shelf.is_hub else own_manifests(site.shelf):
        for known in manifest.files:
            path = f"{folder}/{known.path}"
            if (
                folder != site.folder
                and (known.digest, known.size) == (file.digest, file.size)
                and same_file(path, place)
            ):
                found.append(path)
    return found


def reuse(site: Site, group: Sequence[RemoteFile], at_hand: Stock, check: bool) -> bool:
    """Put a content into place under each of its names without fetching it; whether that was possible.

    ``check``: compute the digest of what nobody vouches for, instead of taking its size for enough.  Raises OSError.
    """
    first = group[0]
    for donor in at_hand.donors(first):
        if not (donor.vouched or not check or _is_right(donor.path, first)):
            continue
        if not site.shelf.is_hub:
            for file in group:
                link_or_copy(donor.path, site.place_of(file), site.scratch)
            return True
        blob = site.blob(first)
        if donor.path != blob:
            link_or_copy(donor.path, blob, site.scratch)
        for file in group:
            site.link(blob, file)
        return True
    return False


def _is_right(path: str, file: RemoteFile) -> bool:
    return file.digest is not None and digest_of(path, file.digest, file.size) == file.digest.value


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except OSError:
        return False
