"""Google Cloud Storage.

google-auth finds and renews the credentials.  The listing is one question of the JSON API, page by page; the client
library for it would bring its own retries of two minutes, and 17 MiB of memory, for the same loop.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NotFoundError
from launcher.fetch.gs_identity import EMULATOR, HOW_TO_SIGN_IN, KEY_FILE, Identity
from launcher.fetch.object_store import Place, listed, nothing_below, one_object, place_of
from launcher.fetch.proxies import proxy_for
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.rest import Answer, Service, address
from launcher.fetch.sdk_environment import given
from launcher.sources import ModelSource
from launcher.typing import Any, NamedTuple

_GOOGLE = "https://storage.googleapis.com"
_PAGE = 1000
_FIELDS = "items(name,size,generation,crc32c,contentEncoding),nextPageToken"


def open_remote(source: ModelSource, environ: Mapping[str, str]) -> GcsRemote:
    """A prefix in Cloud Storage, with the application's default credentials, or else without any.

    Raises NotFoundError, ConfigurationError, DeniedError or NetworkError when credentials that are configured cannot be
    used.
    """
    place = place_of(source)
    proxy_for(address(environ, EMULATOR, _GOOGLE, scheme="http"), environ)  # before google-auth tries it
    identity = Identity(place, environ)
    base = address(environ, EMULATOR, f"https://storage.{identity.universe()}", scheme="http")
    payer = given(environ, "GOOGLE_CLOUD_QUOTA_PROJECT")
    return GcsRemote(place, Service("Cloud Storage", base, environ), identity, {"userProject": payer} if payer else {})


class GcsRemote(NamedTuple):
    place: Place
    service: Service
    identity: Identity
    payer: Mapping[str, str]  # the parameter that names who pays for the request

    def listing(self) -> Listing:
        """Every object below the prefix, each at its present generation."""
        listing = listed(self.place, self._objects())
        if not listing.files:
            raise self._nothing()
        return listing

    def locate(self, file: RemoteFile) -> Location:
        """The object at the generation that was listed: a replaced one is not found (404), never mixed up with it."""
        query = urlencode({"alt": "media", "generation": file.identity, **self.payer})
        path = f"/download/storage/v1/b/{quote(self.place.bucket)}/o/{quote(self.place.prefix + file.path, safe='')}"
        return Location(f"{self.service.base}{path}?{query}", self.identity.headers())

    def _objects(self) -> Iterator[RemoteFile]:
        for page in self._pages({"prefix": self.place.prefix, "fields": _FIELDS}):
            for item in page.items:
                if item.encoding not in ("", "identity"):
                    raise IntegrityError(
                        f"{self.place}: {item.name!r} is stored compressed ({item.encoding})",
                        "Upload it as it is, without gzip encoding",
                    )
                digest = Digest("crc32c", item.crc32c) if item.crc32c else None
                yield RemoteFile(item.name.removeprefix(self.place.prefix), item.size, item.generation, digest)

    def _pages(self, question: Mapping[str, str]) -> Iterator[_Page]:
        token: dict[str, str] = {}
        while True:
            page = self._ask("", {**question, "maxResults": str(_PAGE), **token}).read(_page)
            yield page
            if not page.next:
                return
            token = {"pageToken": page.next}

    def _ask(self, path: str, question: Mapping[str, str]) -> Answer:
        """What the JSON API says about the bucket's objects, or one of them.  Raises what a refusal stands for."""
        url = f"/storage/v1/b/{quote(self.place.bucket)}/o{path}?{urlencode({**question, **self.payer})}"
        answer = self.service.ask(url, dict(self.identity.headers()))
        if answer.status == 401 and self.identity.look_again():
            answer = self.service.ask(url, dict(self.identity.headers()))
        if answer.status != 200:
            raise _refused(self.place, answer, self.identity.anonymous)
        return answer

    def _nothing(self) -> LauncherError:
        """Why nothing was found, which costs two more requests."""
        if self.place.prefix:
            try:
                self._ask(f"/{quote(self.place.prefix.removesuffix('/'), safe='')}", {"fields": "name"})
            except (NotFoundError, DeniedError):
                pass
            else:
                return one_object(self.place)
        try:
            question = {"prefix": self.place.parent, "delimiter": "/", "fields": "prefixes,nextPageToken"}
            siblings = next(self._pages(question)).folders
        except (NotFoundError, DeniedError):
            siblings = ()
        return nothing_below(self.place, siblings)


class _Item(NamedTuple):
    name: str
    size: int  # bytes
    generation: str
    crc32c: str  # hex; "" where there is none
    encoding: str


class _Page(NamedTuple):
    items: tuple[_Item, ...]
    folders: tuple[str, ...]  # whole prefixes
    next: str  # the token of the next page; "" on the last one


def _page(document: Any) -> _Page:
    items = tuple(
        _Item(
            name=item["name"],
            size=int(item["size"]),
            generation=str(item["generation"]),
            crc32c=b64decode(item.get("crc32c", "")).hex(),
            encoding=item.get("contentEncoding", ""),
        )
        for item in document.get("items", ())
    )
    return _Page(items, tuple(document.get("prefixes", ())), document.get("nextPageToken", ""))


def _refused(place: Place, answer: Answer, anonymous: bool) -> LauncherError:
    said = _message(answer)
    if answer.status == 401 or (answer.status == 403 and anonymous):
        return DeniedError(f"{place} needs credentials, or does not exist ({said})", HOW_TO_SIGN_IN)
    if answer.status == 403:
        return DeniedError(
            f"{place}: access is denied ({said})",
            "The account needs storage.objects.list and storage.objects.get on the bucket (the role Storage Object "
            f"Viewer); another account is used with {KEY_FILE}",
        )
    if answer.status == 404:
        return NotFoundError(f"{place}: the bucket {place.bucket!r} does not exist ({said})", "Check its name")
    if _reason(answer) == "required":
        return DeniedError(
            f"{place}: the requester pays for this bucket ({said})",
            "Set GOOGLE_CLOUD_QUOTA_PROJECT to the project that pays",
        )
    return ConfigurationError(
        f"{place}: Cloud Storage refused the request ({said})", "Check the bucket's name and STORAGE_EMULATOR_HOST"
    )


def _message(answer: Answer) -> str:
    """The status, and what the JSON API says about it."""
    said = str(_error(answer).get("message", "")).rstrip(".")
    return f"{answer.status}: {said}" if said else str(answer.status)


def _reason(answer: Answer) -> str:
    """The API's own word for what is wrong; "required" stands for a missing userProject, the one thing left out."""
    first = (_error(answer).get("errors") or [{}])[0]
    return str(first.get("reason", "")) if isinstance(first, dict) else ""


def _error(answer: Answer) -> dict[str, Any]:
    import json

    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
