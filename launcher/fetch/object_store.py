"""What s3 and gs have in common: a bucket, a prefix that always ends in ``/``, literal keys, and no revisions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from launcher.errors import ConfigurationError, NotFoundError
from launcher.fetch.names import checked
from launcher.fetch.remote import Listing, RemoteFile
from launcher.sources import ModelSource
from launcher.typing import NamedTuple

_SHOWN = 3


class Place(NamedTuple):
    """Where a model lies in an object store.  ``prefix`` is empty for a whole bucket, and else ends in ``/``."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def parent(self) -> str:
        """The prefix one level up."""
        return self.prefix[: self.prefix.rstrip("/").rfind("/") + 1]


def place_of(source: ModelSource) -> Place:
    """Keys are literal: there is nothing to decode and nothing to cut off."""
    bucket, _, prefix = source.name.partition("/")
    return Place(source.scheme, bucket, f"{prefix}/" if prefix else "")


def listed(place: Place, files: Iterable[RemoteFile]) -> Listing:
    """The listing of ``place``; each file's ``path`` is its key without the prefix.

    Raises IntegrityError for keys that cannot be files here.  It may hold no file at all.
    """
    return seal(place, checked(files, str(place)))


def seal(place: Place, files: tuple[RemoteFile, ...]) -> Listing:
    """The listing with its revision: a store has none, so it is the digest of what was listed."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.identity}\0".encode())
    return Listing(str(place), digest.hexdigest(), False, files)


def nothing_below(place: Place, siblings: Iterable[str]) -> NotFoundError:
    """The refusal of a prefix without files; ``siblings`` are the folders beside it."""
    import difflib

    if not place.prefix:
        return NotFoundError(f"{place} holds no files", "Check the bucket's name")
    names = sorted(sibling[len(place.parent) :].rstrip("/") for sibling in siblings)
    own = place.prefix[len(place.parent) :].rstrip("/")
    near = difflib.get_close_matches(own, names, _SHOWN, 0.6) or names[:_SHOWN]
    folder = f"{place.scheme}://{place.bucket}/{place.parent}"
    beside = f"; {folder} holds {', '.join(near)}{', …' if len(names) > len(near) else ''}" if near else ""
    return NotFoundError(f"{place} holds no files{beside}", "Check the prefix: upper and lower case count")


def one_object(place: Place) -> ConfigurationError:
    """The refusal of a key where a prefix is wanted."""
    folder = f"{place.scheme}://{place.bucket}/{place.parent}".rstrip("/")
    return ConfigurationError(f"{place} is one object, not a model folder", f"Give its folder: {folder}")
