"""Amazon S3 and what speaks its protocol.

boto3 finds the credentials, lists and signs; the bytes come over links that it signed in advance, so that the transfer
engine needs to know no S3.  Permission to list the bucket and to read its objects is all that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from launcher.errors import IntegrityError, LauncherError
from launcher.fetch.object_store import Place, listed, nothing_below, one_object, place_of, seal
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.s3_client import CONNECTIONS, Connection, pays
from launcher.fetch.s3_errors import refusals, refused_only, region_of
from launcher.sources import ModelSource
from launcher.typing import Any, NamedTuple

_LINK_LASTS = 3600  # seconds; an expired link is renewed
_MOST_QUESTIONS = 1000  # objects whose stored checksum is asked for, each a request
_MD5 = re.compile("[0-9a-f]{32}").fullmatch
# Checksums that a store may keep of the whole object, the cheapest to compute first.  Its SHA1 has no counterpart here.
_STORED = (
    ("ChecksumCRC32C", "crc32c"),
    ("ChecksumSHA256", "sha256"),
    ("ChecksumCRC32", "crc32"),
    ("ChecksumCRC64NVME", "crc64nvme"),
)


def open_remote(source: ModelSource, environ: Mapping[str, str]) -> S3Remote:
    """An S3 prefix, with the credentials that the SDK's own chain finds, or else without any.

    Raises ConfigurationError for settings that cannot be used, and DeniedError, NotFoundError or NetworkError when
    credentials that are configured cannot be had.
    """
    return S3Remote(place_of(source), environ)


class S3Remote:
    """One prefix, and the client for the region that its bucket turns out to be in."""

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self.place = place
        # The parameter that every request to a requester-pays bucket must carry.
        self._payer = {"RequestPayer": "requester"} if pays(environ) else {}
        self._connection = Connection(place, environ)
        self._client = self._connection.client()

    def listing(self) -> Listing:
        """Every object below the prefix.

        The digest is the ETag where that is an MD5, else the whole-object checksum that the store keeps, if it does.
        """
        with refusals(self.place, "listing", self._connection.anonymous):
            found = self._found()
            listing = listed(self.place, (item.file for item in found))
            if not listing.files:
                raise self._nothing()
            md5 = self._etags_are_md5([item for item in found if item.file.digest])
            files = listing.files if md5 else tuple(file._replace(digest=None) for file in listing.files)
            return seal(self.place, self._with_stored_checksums(files))

    def locate(self, file: RemoteFile) -> Location:
        """A signed link.  ``If-Match`` makes the store refuse (412) an object that was replaced since the listing."""
        parameters = {"Bucket": self.place.bucket, "Key": self.place.prefix + file.path, **self._payer}
        with self._connection.environment(), refusals(self.place, "signing"):
            url: str = self._client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=_LINK_LASTS)
        paying = (("x-amz-request-payer", "requester"),) if self._payer else ()
        return Location(url, (*paying, ("If-Match", f'"{file.identity}"')))

    def _found(self) -> tuple[_Found, ...]:
        """What `_objects` gives; a bucket of another region is asked again there, once."""
        from botocore.exceptions import ClientError

        try:
            return tuple(self._objects())
        except ClientError as error:
            region = region_of(error)
            if region in (None, self._client.meta.region_name):
                raise
            self._client = self._connection.client(region)
        return tuple(self._objects())

    def _objects(self) -> Iterator[_Found]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.place.bucket, Prefix=self.place.prefix, **self._payer
        )
        for page in pages:
            for entry in page.get("Contents", ()):
                etag = entry.get("ETag", "").strip('"')
                digest = Digest("md5", etag) if _MD5(etag) else None
                path = entry["Key"].removeprefix(self.place.prefix)
                yield _Found(RemoteFile(path, entry["Size"], etag, digest), entry["LastModified"].timestamp())

    def _etags_are_md5(self, whole: list[_Found]) -> bool:
        """Whether the ETags of objects that were uploaded in one part are MD5s.

        They are not where a key service encrypts the bucket, which no listing tells.  A bucket's encryption is switched
        at one moment, so its oldest and its newest object speak for those between.
        """
        if not whole or self.place.bucket.endswith("--x-s3"):  # directory buckets have ETags of their own kind
            return False
        ends = {found.file for found in (min(whole, key=_modified), max(whole, key=_modified))}
        heads = [self._head(self.place.prefix + file.path) for file in ends]
        return not any(
            head.get("ServerSideEncryption", "").startswith("aws:kms") or "SSECustomerAlgorithm" in head
            for head in heads
        )

    def _with_stored_checksums(self, files: tuple[RemoteFile, ...]) -> tuple[RemoteFile, ...]:
        """Ask about the objects whose ETag says nothing; the largest first, should there be too many."""
        from concurrent.futures import ThreadPoolExecutor

        silent = sorted((file for file in files if not file.digest), key=lambda file: -file.size)[:_MOST_QUESTIONS]
        if not silent:
            return files
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            answers = pool.map(lambda file: self._head(self.place.prefix + file.path, ChecksumMode="ENABLED"), silent)
            digests = {file.path: _stored_digest(head) for file, head in zip(silent, answers, strict=True)}
        return tuple(file._replace(digest=digests.get(file.path, file.digest)) for file in files)

    def _head(self, key: str, **more: str) -> dict[str, Any]:
        """What the store says about one object; nothing, if it does not understand the question."""
        from botocore.exceptions import ClientError

        try:
            head: dict[str, Any] = self._client.head_object(Bucket=self.place.bucket, Key=key, **more, **self._payer)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 404:
                raise IntegrityError(
                    f"{self.place}: {key!r} disappeared after it was listed", "Start again once the upload is complete"
                ) from None
            if status in (400, 405, 501):
                return {}
            raise
        return head

    def _nothing(self) -> LauncherError:
        """Why nothing was found, which costs two more requests."""
        with refused_only():
            if self.place.prefix:
                key = self.place.prefix.removesuffix("/")
                self._client.head_object(Bucket=self.place.bucket, Key=key, **self._payer)
                return one_object(self.place)
        siblings: Iterable[str] = ()
        with refused_only():
            page = self._client.list_objects_v2(
                Bucket=self.place.bucket, Prefix=self.place.parent, Delimiter="/", **self._payer
            )
            siblings = [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        return nothing_below(self.place, siblings)


class _Found(NamedTuple):
    file: RemoteFile
    modified: float  # seconds since 1970


def _modified(found: _Found) -> float:
    return found.modified


def _stored_digest(head: Mapping[str, Any]) -> Digest | None:
    """The checksum of the whole object, where one is kept.

    One over the checksums of its parts ends in ``-N``, or is said to be composite; of an object in parts, a checksum
    that does not say of which kind it is cannot be used.
    """
    from base64 import b64decode

    in_parts = "-" in head.get("ETag", "")
    if head.get("ChecksumType", "COMPOSITE" if in_parts else "FULL_OBJECT") != "FULL_OBJECT":
        return None
    for field, algorithm in _STORED:
        value = head.get(field, "")
        if value and "-" not in value:
            with suppress(ValueError):  # no base64: some store's own idea of a checksum
                return Digest(algorithm, b64decode(value, validate=True).hex())
    return None
