"""A small S3 for what the real servers do not do: demands of a region, of a payer, refusals, failures, other ETags."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.storage.web import Asked, Body, Reply

_DATE = "2026-01-02T03:04:05.000Z"


class SmallS3:
    """Answers for one bucket of fixed objects, by path or by host name.

    The attributes say how it is difficult; each may be changed while it runs.
    """

    def __init__(self, objects: Mapping[str, bytes], bucket: str = "models") -> None:
        self.objects = dict(objects)
        self.bucket = bucket
        self.page_size = 1000
        self.region: str | None = None  # the one region in which requests must be signed
        self.pays = False  # whether requests must say that they pay
        self.public = False  # whether unsigned requests are answered
        self.knows_checksums = True
        self.refusal: tuple[int, str] | None = None  # status and code of every answer
        self.etags: dict[str, str] = {}  # by key, where it is not the MD5
        self.extra: dict[str, dict[str, str]] = {}  # headers of an object, by key

    def __call__(self, asked: Asked) -> Reply:
        return self._unwilling(asked) or self._answer(asked)

    def _unwilling(self, asked: Asked) -> Reply | None:
        if self.refusal:
            return _error(*self.refusal)
        signed = asked.headers.get("authorization") or asked.first("X-Amz-Credential")
        if not signed and not self.public:
            return _error(403, "AccessDenied")
        region = signing_region(asked)
        if signed and self.region and region != self.region:
            more = f"<Region>{self.region}</Region>"
            return _error(400, "AuthorizationHeaderMalformed", more, {"x-amz-bucket-region": self.region})
        if self.pays and asked.headers.get("x-amz-request-payer") != "requester":
            return _error(403, "AccessDenied")
        if not self.knows_checksums and any("checksum" in name for name in asked.headers):
            return _error(400, "InvalidArgument")
        return None

    def _answer(self, asked: Asked) -> Reply:
        key = asked.path.removeprefix("/")
        if not asked.host.startswith(f"{self.bucket}."):
            bucket, _, key = key.partition("/")
            if bucket != self.bucket:
                return _error(404, "NoSuchBucket")
        if not key:
            return Reply(200, {"Content-Type": "application/xml"}, Body(self._list(asked).encode()))
        if key not in self.objects:
            return _error(404, "NoSuchKey")
        headers = {"ETag": f'"{self._etag(key)}"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
        return Reply(200, {**headers, **self.extra.get(key, {})}, Body(self.objects[key]), ranges=True, content=True)

    def _etag(self, key: str) -> str:
        return self.etags.get(key) or hashlib.md5(self.objects[key]).hexdigest()

    def _list(self, asked: Asked) -> str:
        prefix, start = asked.first("prefix"), asked.first("continuation-token")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key >= start)
        shown, rest = keys[: self.page_size], keys[self.page_size :]
        contents = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>{_DATE}</LastModified><Size>{len(self.objects[key])}</Size>"
            f"<ETag>&quot;{self._etag(key)}&quot;</ETag></Contents>"
            for key in shown
        )
        token = f"<NextContinuationToken>{escape(rest[0])}</NextContinuationToken>" if rest else ""
        return (
            f"<ListBucketResult><Name>{self.bucket}</Name><EncodingType>url</EncodingType>"
            f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        )


def signing_region(asked: Asked) -> str:
    """The region of a signed request, in its header or in its link; "" for one that is not signed."""
    scope: Any = re.search(r"Credential=[^/]+/\d+/([^/]+)/s3", asked.headers.get("authorization", ""))
    if scope:
        return str(scope[1])
    return asked.first("X-Amz-Credential", "///").split("/")[2]


def _error(status: int, code: str, more: str = "", headers: Mapping[str, str] | None = None) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>no</Message>{more}</Error>"
    return Reply(status, {"Content-Type": "application/xml", **(headers or {})}, Body(body.encode()))
