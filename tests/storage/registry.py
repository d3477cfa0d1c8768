"""An NGC registry on loopback: token service, model registry, and the store behind its presigned links.

NVIDIA's own client accepts it (test_ngc.py), which is what it is worth.
"""

from __future__ import annotations

import base64
import re
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.storage.web import Asked, Body, Reply, Server, digest_of, json_reply, tree

PERSONAL = "nvapi-loopback-personal"  # of the organisation "acme"
LEGACY = "bGVnYWN5a2V5bG9vcGJhY2s6"  # of "acme" and "nvidia"
_ORGS = {PERSONAL: ("acme",), LEGACY: ("acme", "nvidia")}
_STATUS = {401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 412: "INVALID_REQUEST"}


class Version(NamedTuple):
    files: dict[str, Body]
    status: str = "UPLOAD_COMPLETE"
    licence: bool = True  # accepted
    digests: bool = True  # whether the registry knows them


class Registry:
    """Models by ``(org, team, model)``, team "" for none; models of "nvidia" are public."""

    def __init__(self, page: int = 1000, tls: tuple[Path, Path] | None = None) -> None:
        self.models: dict[tuple[str, str, str], dict[str, Version]] = {}
        self.page = page  # files of one page of links; the listing's page is as large as asked for, at most
        self.warning = ""
        self.lifetime = 600  # seconds of a token
        self.generation = 0  # links of an older one have expired
        self.tokens: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()
        # Another host; with TLS another port, since the certificate is for one host.
        self.storage = Server(self._stored, host="127.0.0.1" if tls else "127.0.0.2", tls=tls)
        self.server = Server(self._answer, tls=tls)
        self.url = self.server.url
        self.ledger = self.server.ledger

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    def add(
        self, org: str, model: str, version: str, files: Mapping[str, bytes] | Path, team: str = "", *,
        status: str = "UPLOAD_COMPLETE", licence: bool = True, digests: bool = True,
    ) -> None:  # fmt: skip
        versions = self.models.setdefault((org, team, model), {})
        versions[version] = Version(tree(files), status, licence, digests)

    @property
    def content(self) -> int:
        return self.storage.ledger.content

    def environ(self, **more: str) -> dict[str, str]:
        return {"NGC_CLI_API_URL": self.url, "NGC_CLI_AUTH_URL": self.url, **more}

    def _answer(self, asked: Asked) -> Reply:
        reply = self._route(asked)
        return (
            reply._replace(headers={**reply.headers, "nv-ngc-response-warning-message": self.warning})
            if self.warning
            else reply
        )

    def _route(self, asked: Asked) -> Reply:
        if asked.path == "/token":
            return self._token(asked)
        if asked.path == "/v3/keys/get-caller-info":
            return _caller(asked)
        orgs = self._orgs(asked)
        if isinstance(orgs, Reply):
            return orgs
        if asked.path == "/v2/orgs":
            return _page("organizations", [{"name": org, "displayName": org} for org in orgs or ()])
        if found := re.fullmatch(r"/v2/org/([^/]+)/teams", asked.path):
            return _page("teams", [{"name": team} for org, team, _ in self.models if org == found[1] and team])
        address = _address(asked.path)
        if address is None:
            return _refused(404, f"no route {asked.path}")
        if orgs is None and asked.path.startswith("/v2/org/"):
            return _refused(401, "Missing credentials")
        if (orgs is None and address.org != "nvidia") or (orgs is not None and address.org not in (*orgs, "nvidia")):
            return _refused(403, f"No access to {address.org}")
        versions = self.models.get((address.org, address.team, address.model))
        if versions is None:
            return _refused(404, f"Model {address.model} not found")
        return self._model(asked, address, versions)

    def _model(self, asked: Asked, found: _Address, versions: dict[str, Version]) -> Reply:
        if not found.version:
            latest = next(reversed(versions), "")
            named = {"name": found.model, "orgName": found.org, "teamName": found.team, "latestVersionIdStr": latest}
            return _reply({"model": named})
        version = versions.get(found.version)
        if version is None:
            return _refused(404, f"Version {found.version} not found")
        if found.kind == "version":
            size = sum(body.size for body in version.files.values())
            facts = {
                "versionId": found.version,
                "status": version.status,
                "totalFileCount": len(version.files),
                "totalSizeInBytes": size,
            }
            return _reply({"model": {"name": found.model}, "modelVersion": facts})
        if not version.licence:
            return _refused(412, "The terms of this model are not accepted")
        return self._files(asked, found, version) if found.kind == "files" else self._link_list(asked, found, version)

    def _files(self, asked: Asked, found: _Address, version: Version) -> Reply:
        names, about = _cut(asked, list(version.files), self.page)
        entries: list[dict[str, Any]] = []
        for name in names:
            entry: dict[str, Any] = {"path": name, "sizeInBytes": version.files[name].size}
            entries.append(entry | ({"sha256_base64": _digest(version.files[name])} if version.digests else {}))
        return _reply({"modelFiles": entries, "paginationInfo": about})

    def _link_list(self, asked: Asked, found: _Address, version: Version) -> Reply:
        wanted = asked.first("path")
        names = [name for name in version.files if not wanted or name == wanted.lstrip("/")]
        if wanted and not names:
            return _refused(404, f"File {wanted} not found")
        names, about = _cut(asked, names, self.page)
        links = [self._link(found, name) for name in names]
        document: dict[str, Any] = {"urls": links}
        if not wanted:
            digests = [_digest(version.files[name]) for name in names]
            document |= {"filepath": names, "sha256_base64": digests, "paginationInfo": about}
        return _reply(document)

    def _link(self, found: _Address, name: str) -> str:
        place = urllib.parse.quote("/".join((found.org, found.team or "_", found.model, found.version, name)))
        return f"{self.storage.url}/{place}?X-Generation={self.generation}&X-Signature=loopback"

    def _stored(self, asked: Asked) -> Reply:
        if "authorization" in asked.headers:
            return Reply(400, {}, Body(b"Only one auth mechanism allowed"))
        if asked.first("X-Signature") != "loopback" or asked.first("X-Generation") != str(self.generation):
            return Reply(403, {}, Body(b"Request has expired"))
        org, team, model, version, name = asked.path.lstrip("/").split("/", 4)
        body = self.models[org, "" if team == "_" else team, model][version].files[name]
        return Reply(200, {"Accept-Ranges": "bytes", "ETag": f'"{body.size:x}"'}, body, ranges=True, content=True)

    def _token(self, asked: Asked) -> Reply:
        kind, _, coded = asked.headers.get("authorization", "").partition(" ")
        user, _, key = base64.b64decode(coded).decode().partition(":") if kind == "Basic" else ("", "", "")
        if user != "$oauthtoken" or key != LEGACY:
            return json_reply({"error": "invalid key"}, 401)
        scopes = asked.query.get("scope", [])
        if any(scope.removeprefix("group/ngc:").split("/")[0] not in _ORGS[key] for scope in scopes):
            return json_reply({"error": "invalid scope"}, 403)
        with self._lock:
            token = f"loopback-token-{len(self.tokens)}"
            self.tokens[token] = _ORGS[key]
        return json_reply({"token": token, "expires_in": self.lifetime})

    def _orgs(self, asked: Asked) -> tuple[str, ...] | Reply | None:
        """The organisations of the caller; None for a guest."""
        bearer = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if not bearer:
            return None
        orgs = _ORGS[PERSONAL] if bearer == PERSONAL else self.tokens.get(bearer)
        return orgs if orgs is not None else _refused(401, "Token expired or invalid")


class _Address(NamedTuple):
    org: str
    team: str
    model: str
    version: str
    kind: str  # "model", "version", "files" (the listing) or "links"


_KEYED = r"/v2/org/(?P<org>[^/]+)(?:/team/(?P<team>[^/]+))?/models/(?P<model>[^/]+)"
_GUEST = r"/v2/models/(?P<org>[^/]+)(?:/(?P<team>[^/]+))?/(?P<model>[^/]+)"
_VERSION = r"/(?P<version>[^/]+)"
_ROUTES = (
    (_KEYED, "model"),
    (f"{_KEYED}/versions{_VERSION}", "version"),
    (f"{_KEYED}/versions{_VERSION}/files", "files"),
    (f"{_KEYED}{_VERSION}/files", "links"),
    (f"/v2/models/org/(?P<org>[^/]+)(?:/team/(?P<team>[^/]+))?/(?P<model>[^/]+){_VERSION}/files", "links"),
    (f"{_GUEST}/versions{_VERSION}", "version"),
    (f"{_GUEST}/versions{_VERSION}/files", "files"),
    (_GUEST, "model"),
)


def _address(path: str) -> _Address | None:
    for pattern, kind in _ROUTES:
        if found := re.fullmatch(pattern, path):
            named = found.groupdict()
            return _Address(named["org"], named["team"] or "", named["model"], named.get("version") or "", kind)
    return None


def _reply(document: dict[str, Any], status: int = 200, code: str = "SUCCESS", said: str = "") -> Reply:
    about = {"statusCode": code, "requestId": "00000000-0000-0000-0000-000000000001"}
    return json_reply({**document, "requestStatus": about | ({"statusDescription": said} if said else {})}, status)


def _refused(status: int, said: str) -> Reply:
    return _reply({}, status, _STATUS[status], said)


def _page(name: str, entries: list[dict[str, Any]]) -> Reply:
    return _reply(
        {name: entries, "paginationInfo": {"index": 0, "size": 500, "totalPages": 1, "totalResults": len(entries)}}
    )


def _cut(asked: Asked, names: list[str], most: int) -> tuple[list[str], dict[str, int]]:
    size, number = min(int(asked.first("page-size", "100")), most), int(asked.first("page-number", "0"))
    pages = max(1, -(-len(names) // size))
    return names[number * size : (number + 1) * size], {
        "index": number,
        "size": size,
        "totalPages": pages,
        "totalResults": len(names),
    }


def _digest(body: Body) -> str:
    return base64.b64encode(bytes.fromhex(digest_of(body, "sha256"))).decode()


def _caller(asked: Asked) -> Reply:
    key = urllib.parse.parse_qs(asked.body.decode()).get("credentials", [""])[0]
    if key != PERSONAL:
        return _refused(401, "Invalid credentials")
    role = {"org": {"name": "acme", "displayName": "acme"}, "orgRoles": ["REGISTRY_READ"]}
    products = ["nvidia-catalog", "private-registry"]
    facts: dict[str, Any] = {
        "type": "PERSONAL_KEY",
        "orgName": "acme",
        "products": products,
        "user": {"id": 1, "roles": [role]},
    }
    return _reply(facts)
