"""``hf://``: a repository of the Hugging Face hub, or of a mirror of it, at one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, urlsplit

from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.hf_token import Token, find_token
from launcher.fetch.names import checked, is_hex
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.rest import Answer, Service, address
from launcher.sources import ModelSource
from launcher.typing import Any

ENDPOINT = "https://huggingface.co"
_NAME = "the Hugging Face hub"
_DEFAULT = "main"
_MOST_PAGES = 10_000  # of a listing; each has some hundred files
# The hub's content network serves no larger file in one piece; such a file is only to be had from its Xet storage.
_LARGEST_PLAIN = 50_000_000_000  # bytes


def open_remote(source: ModelSource, environ: Mapping[str, str]) -> Repository:
    """The repository that ``source`` names.

    Reads HF_ENDPOINT, HF_TOKEN (else the file that ``hf auth login`` writes), and the variables of proxies and
    certificates.  Raises ConfigurationError for an unusable one of these.
    """
    endpoint = address(environ, "HF_ENDPOINT", ENDPOINT)
    service = Service(_NAME if endpoint == ENDPOINT else f"the hub at {endpoint}", endpoint, environ)
    return Repository(source.name, source.revision, service, find_token(environ))


class Repository:
    """One repository.  The commit is chosen once, when it is first needed, and used for every file."""

    def __init__(self, name: str, revision: str | None, service: Service, token: Token | None) -> None:
        self.name = name
        self.environ = service.environ
        self.revision = revision
        self._service = service
        self._token = token
        self._lock = threading.Lock()
        self._commit = revision.lower() if revision and _is_commit(revision) else ""
        self._pinned = bool(self._commit)
        self._open = False  # known not to be gated

    def listing(self) -> Listing:
        """Every file of the commit, with size and digest; checks access to a file as well, where access is limited.

        Raises NotFoundError (repository, revision), DeniedError (private, gated, refused token), NetworkError
        (unreachable, rate limit) and IntegrityError (names that cannot be files).
        """
        source = f"hf://{self.name}"
        commit = self._resolved()
        files = checked(self._tree(commit), source)
        if not files:
            raise NotFoundError(f"{source} has no files at revision {self.revision or _DEFAULT}", "Check the revision")
        if not self._open:
            self._check_access(max(files, key=lambda file: file.size))
        return Listing(source, commit, self._pinned, files)

    def locate(self, file: RemoteFile) -> Location:
        url = f"{self._service.base}/{quote(self.name)}/resolve/{self._resolved()}/{quote(file.path)}"
        return Location(url, tuple(self._credentials().items()))

    def xet_location(self) -> Location:
        """Where the keys to the Xet storage of this commit are to be had."""
        url = f"{self._service.base}/api/models/{quote(self.name)}/xet-read-token/{self._resolved()}"
        return Location(url, tuple(self._credentials().items()))

    def ask(self, path: str) -> Answer:
        """Ask the hub, with the token.  Raises what its refusal means."""
        answer = self._service.ask(path, self._credentials())
        if answer.status >= 400:
            raise self._refusal(answer)
        return answer

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.value}"} if self._token else {}

    def _resolved(self) -> str:
        with self._lock:
            if not self._commit:
                wanted = quote(self.revision or _DEFAULT, safe="")
                answer = self.ask(f"/api/models/{quote(self.name)}/revision/{wanted}")
                self._commit, self._open = answer.read(_commit_and_openness)
            return self._commit

    def _tree(self, commit: str) -> Iterator[RemoteFile]:
        """The files of the commit's tree, to the last page.

        Only the query of the link to a next page is used: a mirror may hand on the address of the hub behind it.
        """
        query = "recursive=true&expand=false"
        for _ in range(_MOST_PAGES):
            answer = self.ask(f"/api/models/{quote(self.name)}/tree/{commit}?{query}")
            yield from answer.read(_files)
            query = _next_query(answer.headers.get("link", ""))
            if not query:
                return
        raise NetworkError(f"{self._service.name} lists hf://{self.name} without end", "Check HF_ENDPOINT")

    def _check_access(self, file: RemoteFile) -> None:
        """Ask for a file without fetching it: the hub lists the files of a gated repository to everybody."""
        path = f"/{quote(self.name)}/resolve/{self._commit}/{quote(file.path)}"
        answer = self._service.ask(path, self._credentials(), method="HEAD", follow=False)
        if answer.status in (401, 403):  # some mirrors know no HEAD
            raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> LauncherError:
        source = f"hf://{self.name}"
        code = answer.headers.get("x-error-code", "")
        if code == "GatedRepo":
            return self._gated(source)
        if answer.status == 401 and self._token:
            return DeniedError(
                f"{answer.service} does not accept the token from {self._token.origin} (401 for {source})",
                "Renew the token, or unset it for a public repository",
            )
        if answer.status == 401:
            return DeniedError(
                f"{source} is private or does not exist: without a token {answer.service} answers 401 to both",
                "Check the name, or set HF_TOKEN to a token that may read it",
            )
        if code == "RevisionNotFound" or (answer.status == 404 and "/tree/" in answer.url):
            return self._no_revision(source)
        if answer.status == 404:
            seen = f", or the token from {self._token.origin} may not see it" if self._token else ""
            return NotFoundError(f"{source} does not exist on {answer.service}{seen}", "Check the name")
        said = answer.headers.get("x-error-message", "") or f"it answered {answer.status} to {answer.url}"
        if answer.status in (403, 451):
            return DeniedError(f"{answer.service} refuses {source}: {said}", "Check what the token may read")
        return NetworkError(f"{answer.service} could not be asked for {source}: {said}", "Check HF_ENDPOINT")

    def _gated(self, source: str) -> DeniedError:
        page = f"{self._service.base}/{quote(self.name)}"
        if self._token is None:
            return DeniedError(
                f"{source} is gated, and no token is set",
                f"Ask for access at {page} and set HF_TOKEN to a token of the account that has it",
            )
        return DeniedError(
            f"{source} is gated, and the account of the token from {self._token.origin} has no access",
            f"Ask for access at {page}, or use the token of an account that has it",
        )

    def _no_revision(self, source: str) -> NotFoundError:
        revision = self.revision or _DEFAULT
        near = self._nearest(revision) if not self._pinned else ""
        return NotFoundError(
            f"{source} has no revision {revision!r}", f"Did you mean {near!r}?" if near else "Check the revision"
        )

    def _nearest(self, revision: str) -> str:
        """The branch or tag that ``revision`` resembles most; asked for a hint, so no failure of it counts."""
        import difflib

        try:
            answer = self._service.within(2.0).ask(f"/api/models/{quote(self.name)}/refs", self._credentials())
            names = answer.read(_reference_names)
        except LauncherError:
            return ""
        return next(iter(difflib.get_close_matches(revision, names, 1)), "")


def _commit_and_openness(facts: Mapping[str, Any]) -> tuple[str, bool]:
    commit = str(facts["sha"])
    if not _is_commit(commit):
        raise ValueError(commit)
    return commit, not facts.get("gated", True)


def _reference_names(refs: Mapping[str, Any]) -> list[str]:
    return [str(ref["name"]) for kind in ("branches", "tags") for ref in refs.get(kind) or ()]


def _files(entries: Iterable[Mapping[str, Any]]) -> list[RemoteFile]:
    return [_file(entry) for entry in entries if entry["type"] == "file"]


def _file(entry: Mapping[str, Any]) -> RemoteFile:
    """A file with the digest that the hub knows: sha256 in large-file storage, else the id of the git blob."""
    path, large = str(entry["path"]), entry.get("lfs")
    name = str(large["oid"] if large else entry["oid"]).lower()
    if not is_hex(name, 64 if large else 40):  # it becomes a file's name in the cache
        raise IntegrityError(f"the hub gives {path!a} the digest {name[:100]!a}, which is none", "Check HF_ENDPOINT")
    if not large:
        return RemoteFile(path, int(entry["size"]), name, Digest("sha1", name))
    size, sha256 = int(large["size"]), name
    xet = str(entry.get("xetHash") or "") if size > _LARGEST_PLAIN else ""
    return RemoteFile(path, size, sha256, Digest("sha256", sha256), xet)


def _next_query(links: str) -> str:
    """The query of the link with ``rel="next"``, or ""."""
    import re

    found = re.search(r'<([^>]*)>\s*;[^<]*\brel="?next\b', links)
    return urlsplit(found[1]).query if found else ""


def _is_commit(revision: str) -> bool:
    return len(revision) == 40 and not set(revision.lower()) - set("0123456789abcdef")
