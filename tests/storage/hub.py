"""A Hugging Face hub on loopback: what huggingface_hub and the launcher need of the real one, and its ways to refuse.

As a process of its own, for the bench: ``python -m tests.storage.hub FOLDER`` serves FOLDER/ORG/MODEL/… and prints its
address.
"""

from __future__ import annotations

import hashlib
import re
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.storage.web import Asked, Body, Ledger, Reply, Server, digest_of, json_reply, serve_until_killed, tree

TOKEN = "hf_loopbackloopbackloopback"
STRANGER = "hf_strangerstrangerstranger"  # known to the hub, without access to anything limited
_LARGE = 1 << 20  # bytes from which a file is kept in large-file storage; weights always are
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pth")


class Stored(NamedTuple):
    body: Body
    oid: str  # the git blob's id
    sha256: str  # "": not in large-file storage


class Model(NamedTuple):
    """A repository.  ``branches`` lead to commits, ``commits`` to files."""

    branches: dict[str, str]
    commits: dict[str, dict[str, Stored]]
    private: bool = False
    gated: bool = False


class Hub:
    """``url`` is the hub, ``storage.url`` the host that large files are redirected to."""

    def __init__(self, page: int = 1000) -> None:
        self.models: dict[str, Model] = {}
        self.page = page  # files of one page of a tree
        self.xet: set[str] = set()  # paths that are said to be in Xet storage
        self.lfs_redirects = True
        self.declared: dict[str, int] = {}  # sizes to claim in the tree, by path
        self.link_base = ""  # what pages link to; "": this hub
        self.ledger = Ledger()
        self.storage = Server(self._stored, host="127.0.0.2")
        self.server = Server(self._answer, ledger=self.ledger)
        self.url = self.server.url

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    def add(
        self, name: str, files: Mapping[str, bytes] | Path, branch: str = "main", *, private: bool = False,
        gated: bool = False,
    ) -> str:  # fmt: skip
        """Put ``files`` on a branch as a new commit; returns the commit."""
        stored = {path: _store(path, body) for path, body in tree(files).items()}
        told = repr([(path, one.oid, one.sha256) for path, one in stored.items()])
        commit = hashlib.sha1(told.encode()).hexdigest()
        model = self.models.get(name) or Model({}, {}, private, gated)
        model.branches[branch] = commit
        model.commits[commit] = stored
        self.models[name] = model._replace(private=private, gated=gated)
        return commit

    @property
    def content(self) -> int:
        """Bytes of files served so far, by both hosts."""
        return self.ledger.content + self.storage.ledger.content

    def _answer(self, asked: Asked) -> Reply:
        if found := re.fullmatch(
            r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|refs|xet-read-token))?(?:/(.+))?", asked.path
        ):
            return self._api(asked, found[1], found[2] or "revision", found[3] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", asked.path):
            return self._resolve(asked, *found.groups())
        return _error(404, "", "no such page")

    def _model(self, asked: Asked, name: str) -> Model | Reply:
        token = asked.headers.get("authorization", "")
        if token and token not in (f"Bearer {TOKEN}", f"Bearer {STRANGER}"):
            return _error(401, "", "Invalid credentials in Authorization header")
        model = self.models.get(name)
        if model is None or (model.private and token != f"Bearer {TOKEN}"):
            return _error(
                404 if token else 401,
                "RepoNotFound",
                "Repository not found" if token else "Invalid username or password.",
            )
        return model

    def _commit(self, model: Model, revision: str) -> str | Reply:
        commit = model.branches.get(revision, revision)
        return commit if commit in model.commits else _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _api(self, asked: Asked, name: str, kind: str, revision: str) -> Reply:
        model = self._model(asked, name)
        if isinstance(model, Reply):
            return model
        if kind == "refs":
            branches = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": at} for name, at in model.branches.items()
            ]
            return json_reply({"branches": branches, "tags": [], "converts": []})
        commit = self._commit(model, revision)
        if isinstance(commit, Reply):
            return commit
        if kind == "tree":
            return self._tree(asked, model.commits[commit])
        if kind == "xet-read-token":
            keys = {
                "X-Xet-Cas-Url": self.storage.url,
                "X-Xet-Access-Token": "keys",
                "X-Xet-Token-Expiration": "9999999999",
            }
            return json_reply({}, 200, keys)
        siblings = [{"rfilename": path} for path in model.commits[commit]]
        return json_reply(
            {
                "_id": "0", "id": name, "modelId": name, "sha": commit, "private": model.private,
                "gated": "manual" if model.gated else False, "disabled": False, "tags": [], "downloads": 0, "likes": 0,
                "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z",
                "siblings": siblings,
            }
        )  # fmt: skip

    def _tree(self, asked: Asked, files: Mapping[str, Stored]) -> Reply:
        start = int(asked.first("cursor", "0"))
        folders = sorted({path.rpartition("/")[0] for path in files} - {""})
        entries: list[dict[str, Any]] = [
            {"type": "directory", "oid": "0" * 40, "size": 0, "path": name} for name in folders
        ]
        entries += [self._entry(path, one) for path, one in files.items()]
        stop = start + self.page
        headers = {}
        if stop < len(entries):
            path = urllib.parse.quote(asked.path)
            query = f"recursive=true&expand=false&cursor={stop}"
            headers["Link"] = f'<{self.link_base or self.url}{path}?{query}>; rel="next"'
        return json_reply(entries[start:stop], 200, headers)

    def _entry(self, path: str, one: Stored) -> dict[str, Any]:
        size = self.declared.get(path, one.body.size)
        entry: dict[str, Any] = {"type": "file", "oid": one.oid, "size": size, "path": path}
        if one.sha256:
            entry["lfs"] = {"oid": one.sha256, "size": size, "pointerSize": 134}
        if path in self.xet:
            entry["xetHash"] = one.sha256
        return entry

    def _resolve(self, asked: Asked, name: str, revision: str, path: str) -> Reply:
        model = self._model(asked, name)
        if isinstance(model, Reply):
            return model
        token = asked.headers.get("authorization", "")
        if model.gated and token != f"Bearer {TOKEN}":
            return _error(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted")
        commit = self._commit(model, revision)
        if isinstance(commit, Reply):
            return commit
        one = model.commits[commit].get(path)
        if one is None:
            return _error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{one.oid}"', "Accept-Ranges": "bytes"}
        if not one.sha256 or not self.lfs_redirects:
            return Reply(200, headers, one.body, ranges=True, content=True)
        goal = f"{self.storage.url}/{name}/{commit}/{urllib.parse.quote(path)}?Signature=loopback"
        linked = {"X-Linked-Etag": f'"{one.sha256}"', "X-Linked-Size": str(one.body.size), "Location": goal}
        return Reply(302, headers | linked)

    def _stored(self, asked: Asked) -> Reply:
        """The storage behind the hub: its links are signed, and it refuses a second way of proving oneself."""
        if "authorization" in asked.headers or "cookie" in asked.headers:
            return _error(400, "", "Only one auth mechanism allowed")
        if asked.first("Signature") != "loopback":
            return _error(403, "", "AccessDenied")
        org, name, commit, path = asked.path.lstrip("/").split("/", 3)
        one = self.models[f"{org}/{name}"].commits[commit][path]
        return Reply(200, {"ETag": f'"{one.sha256}"', "Accept-Ranges": "bytes"}, one.body, ranges=True, content=True)


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    named = {"X-Error-Code": code} if code else {}
    return json_reply({"error": message}, status, {**named, "X-Error-Message": message, **(headers or {})})


def _store(path: str, body: Body) -> Stored:
    if body.size < _LARGE and not path.endswith(_WEIGHTS):
        return Stored(body, digest_of(body, "sha1", b"blob %d\0" % body.size), "")
    sha256 = digest_of(body, "sha256")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {body.size}\n".encode()
    return Stored(body, digest_of(Body(pointer), "sha1", b"blob %d\0" % len(pointer)), sha256)


if __name__ == "__main__":
    served = Hub()
    for place in sorted(Path(sys.argv[1]).glob("*/*/")):
        served.add(f"{place.parent.name}/{place.name}", place)
    serve_until_killed(served.server)
