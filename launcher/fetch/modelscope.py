"""``modelscope://``: a repository of ModelScope at one revision.

The service documents no way to page through a listing: one answer ends at 3,000 entries without saying so, and the rest
is only seen by asking for each folder.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode

from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.names import checked
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.rest import Answer, Service, address
from launcher.sources import ModelSource
from launcher.typing import Any, NamedTuple

ENDPOINT = "https://modelscope.cn"
_NAME = "ModelScope"
_DEFAULT = "master"
_CUT = 3000  # entries at which one answer ends
_MOST_FOLDERS = 2000
_TOKEN = "MODELSCOPE_API_TOKEN"


def open_remote(source: ModelSource, environ: Mapping[str, str]) -> Repository:
    """The repository that ``source`` names.

    Reads MODELSCOPE_API_TOKEN, MODELSCOPE_ENDPOINT (another address, such as that of the international site), and the
    variables of proxies and certificates.
    """
    base = address(environ, "MODELSCOPE_ENDPOINT", ENDPOINT)
    service = Service(_NAME if base == ENDPOINT else f"ModelScope at {base}", base, environ)
    return Repository(source.name, source.revision, service, environ.get(_TOKEN, "").strip())


class _Entry(NamedTuple):
    file: RemoteFile
    is_folder: bool


class _Page(NamedTuple):
    """One answer of a listing.  ``commit``: the last one of the revision; "" where the service does not tell."""

    entries: tuple[_Entry, ...]
    commit: str


class Repository:
    """One repository.  Files are fetched at the commit that the listing names, else at the revision."""

    def __init__(self, name: str, revision: str | None, service: Service, token: str) -> None:
        self.name = name
        self.revision = revision or _DEFAULT
        self._service = service
        self._token = token
        self._lock = threading.Lock()
        self._commit = self.revision.lower() if _is_commit(self.revision) else ""
        self._pinned = bool(self._commit)
        self._readable = False  # a listing was allowed

    def listing(self) -> Listing:
        """Every file, with size and sha256.

        The revision is the commit where the service tells it, else a digest of the listing.  Raises NotFoundError,
        DeniedError, NetworkError, and IntegrityError for a folder that cannot be listed to its end.
        """
        source = f"modelscope://{self.name}"
        with self._lock:
            entries = list(self._entries())
        files = checked((entry.file for entry in entries if not entry.is_folder), source)
        if not files:
            raise NotFoundError(f"{source} has no files at revision {self.revision}", "Check the revision")
        return Listing(source, self._commit or _digest_of(files), self._pinned, files)

    def locate(self, file: RemoteFile) -> Location:
        query = urlencode({"Revision": self._commit or self.revision, "FilePath": file.path})
        return Location(
            f"{self._service.base}/api/v1/models/{quote(self.name)}/repo?{query}", tuple(self._credentials())
        )

    def _credentials(self) -> list[tuple[str, str]]:
        """Older routes of the service know the cookie, newer ones the header; its own client sends both."""
        if not self._token:
            return []
        return [("Authorization", f"Bearer {self._token}"), ("Cookie", f"m_session_id={self._token}")]

    def _entries(self) -> Iterator[_Entry]:
        """The whole tree in one answer, or where that is cut off, the trees of its folders, and so on."""
        whole = self._tree("", recursive=True)
        if len(whole) < _CUT:
            yield from whole
            return
        folders = [""]
        for _ in range(_MOST_FOLDERS):
            if not folders:
                return
            folder = folders.pop()
            below = self._tree(folder, recursive=True) if folder else whole
            if len(below) < _CUT:
                yield from below
                continue
            children = self._tree(folder, recursive=False)
            if len(children) >= _CUT:
                raise self._unlisted(f"more than {_CUT - 1} entries in {folder or 'its top folder'}")
            yield from children
            folders += [child.file.path for child in children if child.is_folder]
        raise self._unlisted(f"more than {_MOST_FOLDERS} large folders")

    def _unlisted(self, why: str) -> IntegrityError:
        return IntegrityError(
            f"modelscope://{self.name} has {why}, and ModelScope lists no more: a copy could not be known to be whole",
            "Fetch it from another hub, or copy it by git and give the folder",
        )

    def _tree(self, folder: str, *, recursive: bool) -> Sequence[_Entry]:
        fields = {"Revision": self._commit or self.revision, "Recursive": str(recursive)}
        query = urlencode({**fields, "Root": folder} if folder else fields)
        # Within one listing the service denies now and then what it just allowed: after a first answer, that passes.
        passing = (403,) if self._readable else ()
        path = f"/api/v1/models/{quote(self.name)}/repo/files?{query}"
        answer = self._service.ask(path, dict(self._credentials()), also_transient=passing)
        page = self._accepted(answer).read(_page)
        self._readable = True
        self._commit = self._commit or page.commit
        return page.entries

    def _accepted(self, answer: Answer) -> Answer:
        """Raises what a refusal means.  The service wraps some of them in a status of 200."""
        status = answer.status if answer.status >= 400 else answer.read(_refused)
        if status:
            raise self._refusal(answer, status, _message(answer))
        return answer

    def _refusal(self, answer: Answer, status: int, said: str) -> LauncherError:
        source = f"modelscope://{self.name}"
        if status == 401 and self._token:
            return DeniedError(f"{answer.service} does not accept the token from {_TOKEN}{said}", "Renew the token")
        if status in (401, 403):
            who = f"the account of the token from {_TOKEN}" if self._token else "a caller without a token"
            todo = f"Ask for access, or set {_TOKEN} to a token of an account that has it"
            return DeniedError(f"{source} is not open to {who}{said}", todo)
        if status != 404:
            return NetworkError(f"{answer.service} answered {status} for {source}{said}", "Try again later")
        known = self._revisions()
        if not known:
            seen = "" if self._token else ", or is private and no token is set"
            return NotFoundError(f"{source} does not exist on {answer.service}{seen}{said}", "Check the name")
        import difflib

        near = difflib.get_close_matches(self.revision, known, 1)
        todo = f"Did you mean {near[0]!r}?" if near else "Check the revision"
        return NotFoundError(f"{source} has no revision {self.revision!r}{said}", todo)

    def _revisions(self) -> list[str]:
        """Branches and tags, where the repository can be seen; asked for a better sentence, so no failure counts."""
        try:
            answer = self._service.within(2.0).ask(
                f"/api/v1/models/{quote(self.name)}/revisions", dict(self._credentials())
            )
            return answer.read(_revision_names)
        except LauncherError:
            return []


def _page(facts: Mapping[str, Any]) -> _Page:
    """Data is the list of entries itself, or an object around it."""
    data = facts["Data"]
    around = data if isinstance(data, dict) else {"Files": data}
    commit = str((around.get("LatestCommitter") or {}).get("Id") or "").lower()
    listed = around["Files"] or ()
    entries = tuple(_Entry(_file(entry), entry.get("Type") == "tree") for entry in listed)
    return _Page(entries, commit if _is_commit(commit) else "")


def _refused(facts: Mapping[str, Any]) -> int:
    """The status that an answer should have had, or 0 for a success."""
    if facts.get("Success", True) and facts.get("Data") is not None:
        return 0
    code = facts.get("Code")
    return code if code in (401, 403) else 404


def _revision_names(facts: Mapping[str, Any]) -> list[str]:
    known = facts["Data"]["RevisionMap"]
    return [str(entry["Revision"]) for kind in ("Branches", "Tags") for entry in known.get(kind) or ()]


def _file(entry: Mapping[str, Any]) -> RemoteFile:
    size, sha256 = int(entry.get("Size") or 0), str(entry.get("Sha256") or "").lower()
    digest = Digest("sha256", sha256) if len(sha256) == 64 else None
    return RemoteFile(
        str(entry["Path"]), size, sha256 or f"{entry.get('Revision') or entry.get('Id') or ''}-{size}", digest
    )


def _digest_of(files: Sequence[RemoteFile]) -> str:
    text = "\n".join(f"{file.path}\0{file.size}\0{file.identity}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()


def _message(answer: Answer) -> str:
    """What the service says about a refusal, in brackets, or "": a gateway in front of it may answer instead."""
    try:
        said = answer.read(lambda facts: str(facts.get("Message") or "").strip().rstrip(".。"))
    except NetworkError:
        return ""
    return f" ({said})" if said else ""


def _is_commit(revision: str) -> bool:
    return len(revision) == 40 and not set(revision.lower()) - set("0123456789abcdef")
