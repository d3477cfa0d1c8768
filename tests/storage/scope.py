"""A ModelScope hub on loopback, after the requests of its own client (modelscope-hub 0.5), which accepts it.

The name of a listing's commit (``LatestCommitter.Id``) is not read by that client; other programs rely on it, and the
service is known to leave it empty at times: ``Hub.names_commit`` switches it.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.storage.web import Asked, Body, Reply, Server, digest_of, json_reply, tree

TOKEN = "ms-loopback-token"
_LARGE = 1 << 20  # bytes from which a file lies in another store; weights always do


class Scope:
    """Repositories by name; files by revision (a branch and its commit both lead to them)."""

    def __init__(self, cut: int = 3000) -> None:
        self.models: dict[str, dict[str, dict[str, Body]]] = {}
        self.private: set[str] = set()
        self.cut = cut  # entries after which a listing silently ends
        self.names_commit = True
        self.storage = Server(self._stored, host="127.0.0.2")
        self.server = Server(self._answer)
        self.url = self.server.url
        self.ledger = self.server.ledger

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    def add(
        self, name: str, files: Mapping[str, bytes] | Path, branch: str = "master", *, private: bool = False
    ) -> str:
        """Put ``files`` on a branch as a new commit; returns the commit."""
        bodies = tree(files)
        told = repr([(path, digest_of(body, "sha256")) for path, body in bodies.items()])
        commit = hashlib.sha1(told.encode()).hexdigest()
        self.models.setdefault(name, {}).update({branch: bodies, commit: bodies})
        (self.private.add if private else self.private.discard)(name)
        return commit

    @property
    def content(self) -> int:
        return self.ledger.content + self.storage.ledger.content

    def _answer(self, asked: Asked) -> Reply:
        found = re.fullmatch(r"/(?:api|openapi)/v1/models/([^/]+/[^/]+)(/repo/files|/repo|/revisions)?", asked.path)
        if found is None:
            return _refused(404, 10010200001, "no such route")
        token = asked.headers.get("authorization", "")
        if token and token != f"Bearer {TOKEN}":
            return _refused(401, 10010103009, "AccessToken is invalid or expired")
        name, kind = found[1], found[2]
        revisions = self.models.get(name)
        if revisions is None or (name in self.private and not token):
            return _refused(404, 10010205001, "模型不存在")
        if kind == "/revisions":
            branches = [{"Revision": one, "CreatedAt": 0} for one in revisions if len(one) != 40]
            return _reply({"RevisionMap": {"Branches": branches, "Tags": []}})
        if kind is None:
            return _reply({"Id": 1, "Name": name.partition("/")[2], "Path": name.partition("/")[0]})
        files = revisions.get(asked.first("Revision", "master"))
        if files is None:
            return _refused(404, 10010205002, f"revision {asked.first('Revision')} not found")
        if kind == "/repo":
            return self._file(name, asked, files)
        commit = next((one for one, bodies in revisions.items() if len(one) == 40 and bodies is files), "")
        return self._files(asked, files, commit if self.names_commit else "")

    def _files(self, asked: Asked, files: Mapping[str, Body], commit: str) -> Reply:
        root = asked.first("Root").strip("/")
        start = f"{root}/" if root else ""
        below = {path: body for path, body in files.items() if path.startswith(start)}
        if root and not below:
            return _refused(404, 10010205003, "path not found")
        folders = {parent for path in below for parent in _parents(path) if parent.startswith(start)}
        entries = [_entry(path, None, commit) for path in sorted(folders)]
        entries += [_entry(path, body, commit) for path, body in below.items()]
        if asked.first("Recursive") != "True":
            entries = [entry for entry in entries if "/" not in entry["Path"].removeprefix(start)]
        latest = {"Id": commit, "ShortId": commit[:8], "Message": "loopback"}
        return _reply({"Files": entries[: self.cut], "IsVisual": 0, "LatestCommitter": latest})

    def _file(self, name: str, asked: Asked, files: Mapping[str, Body]) -> Reply:
        path = asked.first("FilePath")
        body = files.get(path)
        if body is None:
            return _refused(404, 10010205003, "file not found")
        if body.size < _LARGE and not path.endswith(".safetensors"):
            return Reply(200, {"ETag": '"small"'}, body, content=True)  # neither redirected nor ranged
        quoted = urllib.parse.quote(f"{name}/{asked.first('Revision', 'master')}/{path}")
        digest = digest_of(body, "sha256")
        return Reply(302, {"Location": f"{self.storage.url}/{quoted}?sign=loopback", "X-Linked-ETag": f'"{digest}"'})

    def _stored(self, asked: Asked) -> Reply:
        if "authorization" in asked.headers or "cookie" in asked.headers:
            return Reply(400, {}, Body(b"Only one auth mechanism allowed"))
        org, model, revision, path = asked.path.lstrip("/").split("/", 3)
        return Reply(
            200, {"Accept-Ranges": "bytes"}, self.models[f"{org}/{model}"][revision][path], ranges=True, content=True
        )


def _entry(path: str, body: Body | None, commit: str) -> dict[str, Any]:
    entry = {"Name": path.rpartition("/")[2], "Path": path, "Revision": commit, "CommittedDate": 0, "Mode": "33188"}
    if body is None:
        return entry | {"Type": "tree", "Size": 0, "Sha256": "", "IsLFS": False}
    return entry | {
        "Type": "blob",
        "Size": body.size,
        "Sha256": digest_of(body, "sha256"),
        "IsLFS": False,
    }


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _reply(data: Any) -> Reply:
    return json_reply({"Code": 200, "Data": data, "Message": "success", "RequestId": "loopback", "Success": True})


def _refused(status: int, code: int, said: str) -> Reply:
    document = {"Code": code, "Data": None, "Message": said, "RequestId": "loopback", "Success": False}
    return json_reply(document, status)
