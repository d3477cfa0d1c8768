"""``ngc://``: one version of a model in NVIDIA's NGC registry."""

from __future__ import annotations

import binascii
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import quote

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.names import checked
from launcher.fetch.ngc_key import Access, find_access
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.rest import Answer, Service, address
from launcher.sources import ModelSource
from launcher.typing import Any, NamedTuple

API = "https://api.ngc.nvidia.com"
_NAME = "NGC"
_CATALOG = "https://catalog.ngc.nvidia.com"
_PAGE = 1000  # files
_MOST_PAGES = 10_000
_COMPLETE = "UPLOAD_COMPLETE"
_WARNING = "nv-ngc-response-warning-message"


class Target(NamedTuple):
    org: str
    team: str  # "": none
    model: str
    version: str  # "": the newest
    file: str  # "": all of them

    @property
    def text(self) -> str:
        """The canonical source, without version."""
        return f"ngc://{'/'.join(part for part in (self.org, self.team, self.model) if part)}"


def parse_target(source: ModelSource) -> Target:
    """Split ``org[/team]/model[:version][?file=NAME]``.  Raises ConfigurationError for another query."""
    name, mark, query = source.name.partition("?")
    version = source.revision or ""
    if not mark:
        version, mark, query = version.partition("?")
    if mark and not query.startswith("file="):
        raise ConfigurationError(f"{source.text!r} asks for {query!r}", "Write ngc://org/team/model:version?file=NAME")
    parts = name.split("/")
    if not 2 <= len(parts) <= 3:
        raise ConfigurationError(f"{source.text!r} is not a model's name", "Write ngc://org[/team]/model[:version]")
    team = parts[1] if len(parts) == 3 and parts[1] != "no-team" else ""
    return Target(parts[0], team, parts[-1], version, query.removeprefix("file="))


def open_remote(source: ModelSource, environ: Mapping[str, str]) -> Model:
    """The model version that ``source`` names.

    Reads NGC_CLI_API_KEY, else NGC_API_KEY (public models need neither); NGC_CLI_ORG and NGC_CLI_TEAM, the scope of the
    key; NGC_CLI_API_URL and NGC_CLI_AUTH_URL, and the variables of proxies and certificates.
    """
    target = parse_target(source)
    base = address(environ, "NGC_CLI_API_URL", API)
    service = Service(_NAME if base == API else f"NGC at {base}", base, environ)
    return Model(target, service, find_access(environ, target.org, target.team))


class Model:
    """One model.  The version is chosen once, when it is first needed."""

    def __init__(self, target: Target, service: Service, access: Access) -> None:
        self.target = target
        self._service = service
        self._access = access
        self._lock = threading.RLock()
        self._version = target.version
        # By path.  Each is handed out once: who asks for it again has found it expired.
        self._links: dict[str, str] | None = None
        self._warned: set[str] = set()

    def listing(self) -> Listing:
        """Every file of the version, or the one that was named.

        Raises NotFoundError (model, version, file; upload not finished), DeniedError (key, rights, licence),
        NetworkError, and IntegrityError (names that cannot be files).
        """
        version = self._resolved()
        self._check_complete(version)
        pages = self._pages(f"{self._versions()}/{quote(version, safe='')}/files?page-size={_PAGE}")
        files = checked((file for page in pages for file in page.read(partial(_files, version))), self._text)
        if not files:
            raise NotFoundError(f"{self._text}:{version} has no files", "Check the version")
        wanted, pinned = self.target.file, bool(self.target.version)
        if not wanted:
            return Listing(self._text, version, pinned, files)
        # A source of its own: one file is not the version, and must never be taken for it.
        return Listing(f"{self._text}?file={wanted}", version, pinned, self._only(wanted, files))

    def locate(self, file: RemoteFile) -> Location:
        """A presigned link.  It takes no credentials: the store refuses a request that is signed in two ways."""
        with self._lock:
            if self._links is None:
                self._links = {} if self.target.file else dict(self._presigned())
            link = self._links.pop(file.path, None)
        return Location(link or self._renewed(file.path))

    @property
    def _text(self) -> str:
        return self.target.text

    def _models(self) -> str:
        """The path of the model; the registry has one of its own for callers without a key."""
        org, team, model = (quote(part, safe="") for part in self.target[:3])
        if self._access.is_guest:
            return "/v2/models/" + "/".join(part for part in (org, team, model) if part)
        return f"/v2/org/{org}{f'/team/{team}' if team else ''}/models/{model}"

    def _versions(self) -> str:
        return f"{self._models()}/versions"

    def _link_list(self) -> str:
        org, team, model = (quote(part, safe="") for part in self.target[:3])
        scope = f"org/{org}{f'/team/{team}' if team else ''}"
        start = f"/v2/models/{scope}/{model}" if self._access.is_guest else f"/v2/{scope}/models/{model}"
        return f"{start}/{quote(self._resolved(), safe='')}/files"

    def _resolved(self) -> str:
        with self._lock:
            if not self._version:
                version = self._ask(f"{self._models()}?resolve-labels=false").read(_newest)
                if not version:
                    raise NotFoundError(f"{self._text} has no version that could be fetched", "Check the model's name")
                self._version = version
            return self._version

    def _check_complete(self, version: str) -> None:
        status = self._ask(f"{self._versions()}/{quote(version, safe='')}").read(_status)
        if status != _COMPLETE:
            raise NotFoundError(
                f"{self._text}:{version} is not complete at NGC yet (its status is {status})",
                "Wait until its upload is finished, or name another version",
            )

    def _pages(self, path: str) -> Iterator[Answer]:
        """Page after page; they are numbered from 0, and the first is the one without a number."""
        join = "&" if "?" in path else "?"
        for number in range(_MOST_PAGES):
            page = self._ask(f"{path}{join}page-number={number}" if number else path)
            yield page
            if number + 1 >= page.read(_page_count):
                return
        raise NetworkError(f"{self._service.name} lists {self._text} without end", "Check NGC_CLI_API_URL")

    def _presigned(self) -> Iterator[tuple[str, str]]:
        for page in self._pages(self._link_list()):
            yield from page.read(_links)

    def _renewed(self, path: str) -> str:
        links = self._ask(f"{self._link_list()}?path={quote(path, safe='')}").read(_urls)
        if not links:
            raise NotFoundError(f"{self._text} has no file {path} any more", "Check the version")
        return links[0]

    def _only(self, wanted: str, files: tuple[RemoteFile, ...]) -> tuple[RemoteFile, ...]:
        chosen = tuple(file for file in files if file.path == wanted)
        if not chosen:
            import difflib

            near = difflib.get_close_matches(wanted, [file.path for file in files], 1)
            raise NotFoundError(
                f"{self._text}:{self._version} has no file {wanted!r}",
                f"Did you mean {near[0]!r}?" if near else "Check the name of the file",
            )
        return chosen

    def _ask(self, path: str) -> Answer:
        """Ask the registry.  A token that is refused is renewed once."""
        answer = self._service.ask(path, self._access.headers())
        if answer.status == 401 and self._access.forget():
            answer = self._service.ask(path, self._access.headers())
        warning = answer.headers.get(_WARNING, "")
        if warning and warning not in self._warned:
            self._warned.add(warning)
            logs.warning(f"NGC about {self._text}: {warning}")
        if answer.status >= 400:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: Answer) -> LauncherError:
        named = f"{self._text}{f':{self._version}' if self._version else ''}"
        said = _description(answer)
        if answer.status == 401 or (answer.status == 403 and self._access.is_guest):
            return self._access.refused(named, said)
        if answer.status == 412:
            team = f"/teams/{self.target.team}" if self.target.team else ""
            page = f"{_CATALOG}/orgs/{self.target.org}{team}/models/{self.target.model}"
            return DeniedError(
                f"The licence of {named} is not accepted yet{said}", f"Accept it in the catalog, at {page}, then retry"
            )
        if answer.status in (402, 403):
            todo = "Check NGC_CLI_ORG and NGC_CLI_TEAM, and the key's role and products there"
            return DeniedError(f"The {self._access.key} may not read {named}{said}", todo)
        if answer.status == 404:
            seen = "without a key" if self._access.is_guest else f"with the {self._access.key}"
            todo = "Check organisation, team, model and version"
            return NotFoundError(f"{named} does not exist, or cannot be seen {seen}{said}", todo)
        return NetworkError(f"{answer.service} answered {answer.status} for {named}{said}", "Try again later")


def _description(answer: Answer) -> str:
    """What the registry says about a refusal, in brackets, or "": a gateway in front of it may answer instead."""
    try:
        said = answer.read(_said)
    except NetworkError:
        return ""
    return f" ({said})" if said else ""


def _said(facts: Mapping[str, Any]) -> str:
    status = facts.get("requestStatus") or {}
    said = status.get("statusDescription") or facts.get("detail") or facts.get("message") or status.get("statusCode")
    return str(said or "").strip().rstrip(".")


def _newest(facts: Mapping[str, Any]) -> str:
    """The version becomes the name of a folder, so the registry's word for it is not taken unseen."""
    version = str((facts["model"] or {}).get("latestVersionIdStr") or "")
    if not version.isprintable() or "/" in version or version in (".", ".."):
        raise ValueError(version)
    return version


def _status(facts: Mapping[str, Any]) -> str:
    return str(facts["modelVersion"]["status"])


def _page_count(page: Mapping[str, Any]) -> int:
    about = page.get("paginationInfo") or {}
    if about.get("totalPages") is not None:
        return int(about["totalPages"])
    size, results = int(about.get("size") or 0), int(about.get("totalResults") or 0)
    return -(-results // size) if size else 1


def _urls(page: Mapping[str, Any]) -> list[str]:
    return [str(url) for url in page.get("urls") or ()]


def _links(page: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(zip(page.get("filepath") or (), _urls(page), strict=True))


def _files(version: str, page: Mapping[str, Any]) -> list[RemoteFile]:
    return [_file(entry, version) for entry in page.get("modelFiles") or ()]


def _file(entry: Mapping[str, Any], version: str) -> RemoteFile:
    path, size = str(entry["path"]), int(entry["sizeInBytes"])
    digest = _digest(entry.get("sha256_base64"))
    # A version is never uploaded twice, so its name and the size stand in for a digest that is missing.
    return RemoteFile(path, size, digest.value if digest else f"{version}-{size}", digest)


def _digest(text: object) -> Digest | None:
    if not text:
        return None
    try:
        raw = b64decode(str(text), validate=True)
    except binascii.Error:
        return None
    return Digest("sha256", raw.hex()) if len(raw) == 32 else None
