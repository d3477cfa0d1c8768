"""A small Cloud Storage that asks for credentials, and what hands them out: no emulator does either."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from tests.storage.conformance import content_digest
from tests.storage.web import Asked, Body, Reply, json_reply

GENERATION = "1700000000000001"


class SmallGcs:
    """Answers for one bucket of fixed objects, and as the token endpoint (``/token``) for its readers.

    The attributes say how it is difficult; each may be changed while it runs.
    """

    def __init__(self, objects: Mapping[str, bytes], bucket: str = "models") -> None:
        self.objects = dict(objects)
        self.bucket = bucket
        self.page_size = 1000
        self.token: str | None = "good-token"  # what a request must bear; None: nothing
        self.lasts = 3600  # seconds that a token is said to last
        self.pays = False  # whether requests must name the project that pays
        self.encoded: set[str] = set()  # objects that were uploaded compressed
        self.grant: Reply | None = None  # instead of a token

    def __call__(self, asked: Asked) -> Reply:
        if asked.path == "/token":
            return self.grant or json_reply({"access_token": self.token, "expires_in": self.lasts})
        return self._unwilling(asked) or self._answer(asked)

    def _unwilling(self, asked: Asked) -> Reply | None:
        bearer = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.token and not bearer:
            return error(401, "Anonymous caller does not have storage.objects.list access", "required")
        if self.token and bearer != self.token:
            return error(403, "reader@test does not have storage.objects.list access", "forbidden")
        if self.pays and not asked.first("userProject"):
            return error(400, "Bucket is a requester pays bucket but no user project provided.", "required")
        return None

    def _answer(self, asked: Asked) -> Reply:
        listing = f"/storage/v1/b/{self.bucket}/o"
        path = asked.raw.partition("?")[0]
        if path == listing:
            return self._list(asked)
        key = unquote(path.removeprefix("/download").removeprefix(f"{listing}/"))
        if key not in self.objects:
            return error(404, "The specified bucket does not exist.", "notFound")
        if path.startswith("/download/"):
            if asked.first("generation") != GENERATION:
                return error(404, "No such object", "notFound")
            return Reply(200, {}, Body(self.objects[key]), ranges=True, content=True)
        return json_reply({"name": key})

    def _list(self, asked: Asked) -> Reply:
        start = asked.first("pageToken")
        keys = sorted(key for key in self.objects if key.startswith(asked.first("prefix")) and key >= start)
        shown, rest = keys[: self.page_size], keys[self.page_size :]
        items = [self._item(key) for key in shown]
        return json_reply({"items": items, **({"nextPageToken": rest[0]} if rest else {})})

    def _item(self, key: str) -> dict[str, str]:
        data = self.objects[key]
        checksum = base64.b64encode(bytes.fromhex(content_digest("crc32c", data))).decode()
        encoding = {"contentEncoding": "gzip"} if key in self.encoded else {}
        return {"name": key, "size": str(len(data)), "generation": GENERATION, "crc32c": checksum, **encoding}


def error(status: int, message: str, reason: str) -> Reply:
    """A refusal in the form of Google's JSON APIs."""
    return json_reply({"error": {"code": status, "message": message, "errors": [{"reason": reason}]}}, status)


def key_file(folder: Path, token_uri: str) -> Path:
    """The key of a service account that gets its tokens at ``token_uri``."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    document = {
        "type": "service_account",
        "project_id": "test",
        "client_email": "reader@test",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "token_uri": token_uri,
    }
    path = folder / "key.json"
    path.write_text(json.dumps(document))
    return path
