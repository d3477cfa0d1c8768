"""Small questions to a model service over HTTP: listings, tokens, links.  The bytes of models go another way.

A listing is a handful of requests, so each has a connection of its own.  Everything is bounded: the tries, the time of
one request, the size of an answer, and the time for all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from itertools import count
from socket import gaierror
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import (
    AbstractHTTPHandler,
    HTTPErrorProcessor,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import launcher
from launcher import logs
from launcher.errors import ConfigurationError, NetworkError
from launcher.fetch.proxies import proxy_for
from launcher.fetch.remote import TOO_LATE
from launcher.fetch.trust import authorities
from launcher.fetch.urls import is_web_address
from launcher.typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from typing import IO

Read = TypeVar("Read")

PATIENCE = 60.0  # seconds for which a question that fails is asked again
LONGEST_PATIENCE = 180.0  # the same where the service itself names a time to wait
_TRIES_OF_A_NAME = 5  # one that does not exist is mostly a mistake
_REQUEST = 30.0  # seconds until the first byte of an answer, and between any two
_WHOLE = 120.0  # seconds for one whole answer
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds; doubled from try to try, unless the service names a time
_LARGEST = 256 * 1024 * 1024  # bytes of one answer; a page of a listing has about one
_BLOCK = 64 * 1024
_TRANSIENT = frozenset((408, 425, 429, 500, 502, 503, 504))
_SECRET_HEADERS = ("Authorization", "Cookie")
_OWN = {
    "User-Agent": f"specdec-launcher/{launcher.__version__}",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
}


class Answer(NamedTuple):
    """What a service answered, whatever the status."""

    service: str
    url: str  # without its query: it may be shown
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def read(self, reader: Callable[[Any], Read]) -> Read:
        """What ``reader`` makes of the decoded JSON.

        Raises NetworkError for a body that is no JSON (proxies and portals answer with pages of HTML), or none that
        ``reader`` can take: it may raise KeyError, TypeError, ValueError and AttributeError for it.
        """
        import json

        try:
            document = json.loads(self.body)
        except ValueError:
            kind = self.headers.get("content-type", "something")
            raise NetworkError(
                f"{self.service} answered {self.url} with {kind} instead of JSON",
                "Check the address, and whether a proxy or a login page answers in its place",
            ) from None
        try:
            return reader(document)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise NetworkError(
                f"{self.service} answered {self.url} with JSON of a form that is not known here",
                "Check the address; a newer launcher may know it",
            ) from None


class _Silence(NamedTuple):
    """No answer, and why; ``is_of_name``: the host's name leads nowhere."""

    error: NetworkError
    is_of_name: bool


class Service(NamedTuple):
    """One model service and the way to it."""

    name: str  # as messages call it
    base: str  # scheme, host and perhaps a path, without the final slash
    environ: Mapping[str, str]  # where proxies and certificate authorities are named
    deadline: float = float("inf")  # on time.monotonic(); nothing is tried again after it
    pause: Callable[[float], None] = time.sleep

    def within(self, seconds: float) -> Service:
        """The same service, for questions that must all be answered within ``seconds`` from now."""
        return self._replace(deadline=time.monotonic() + seconds)

    def ask(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        follow: bool = True,
        also_transient: Container[int] = (),
    ) -> Answer:
        """Ask ``path`` (below `base`, or a whole URL) until there is an answer that another try would not change.

        ``follow``: go where redirects lead, without the credentials once the host changes.  Raises NetworkError when
        the service cannot be reached, or still fails or limits the rate after all tries.
        """
        url = self.base + path if path.startswith("/") else path
        began, waited = time.monotonic(), 0.0
        last = min(self.deadline, TOO_LATE.get(), began + LONGEST_PATIENCE)
        opener = self._opener(url, follow)
        for number in count(1):
            outcome = self._try(opener, Request(url, headers={**_OWN, **headers}, method=method), last)
            if isinstance(outcome, Answer):
                if outcome.status not in _TRANSIENT and outcome.status not in also_transient:
                    return outcome
                problem, asked = _unwilling(outcome), _named_wait(outcome.headers)
            else:
                problem, asked = outcome.error, None
                if outcome.is_of_name and number >= _TRIES_OF_A_NAME:
                    raise problem
            wait = _wait(number) if asked is None else asked + _wait(1) * _share()
            spent = max(waited, time.monotonic() - began) + wait
            if spent > (PATIENCE if asked is None else LONGEST_PATIENCE) or time.monotonic() + wait > last:
                raise problem
            self.pause(wait)
            waited += wait
        raise AssertionError("counting ended")

    def _opener(self, url: str, follow: bool) -> OpenerDirector:
        proxy = proxy_for(url, self.environ)
        proxies = {urlsplit(url).scheme: proxy} if proxy else {}
        return build_opener(ProxyHandler(proxies), _Encrypted(self.environ), _Statuses(follow), _Redirects())

    def _try(self, opener: OpenerDirector, request: Request, deadline: float) -> Answer | _Silence:
        left = deadline - time.monotonic()
        try:
            with opener.open(request, timeout=max(0.1, min(_REQUEST, left))) as response:
                body = _read(response, min(deadline, time.monotonic() + _WHOLE))
        except HTTPError as error:  # every status is an answer, but that of a redirect which leads nowhere
            error.close()
            raise NetworkError(
                f"{self.name} redirects {_shown(request.full_url)} without end, or to what is no web address",
                "Check the address, and whether a proxy or a login page answers in its place",
            ) from None
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            problem = _unreachable(self.name, _shown(request.full_url), reason)
            return _Silence(problem, isinstance(reason, gaierror))
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(self.name, _shown(response.url), response.status, headers, body)


def address(environ: Mapping[str, str], variable: str, default: str, scheme: str = "https") -> str:
    """The base of a service that ``variable`` may move elsewhere; ``scheme`` where it names none.

    Raises ConfigurationError for what is no web address, and for a password in it: it would show in every message.
    """
    text = environ.get(variable, "").strip() or default
    base = (text if "://" in text else f"{scheme}://{text}").rstrip("/")
    if not is_web_address(base):
        raise ConfigurationError(f"{variable}: {logs.mask(text)!r} is no web address", f"Write it like {default}")
    if "@" in urlsplit(base).netloc:
        raise ConfigurationError(
            f"{variable} holds a user or password", "Leave it out, and give the service's own token or key instead"
        )
    return base


def _read(response: HTTPResponse, end: float) -> bytes:
    body = bytearray()
    while block := response.read1(_BLOCK):
        body += block
        if len(body) > _LARGEST or time.monotonic() > end:
            raise TimeoutError("the answer does not end")
    if response.length:  # http.client's count of what is still to come
        raise HTTPException(f"the answer breaks off {response.length} bytes before its end")
    return bytes(body)


class _Encrypted(HTTPSHandler):
    """https with our own authorities, which are read when the first such connection is made."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        AbstractHTTPHandler.__init__(self)
        self._environ = environ

    def https_open(self, req: Request) -> HTTPResponse:
        response: HTTPResponse = self.do_open(HTTPSConnection, req, context=authorities(self._environ))
        return response


class _Statuses(HTTPErrorProcessor):
    """Hands every status to the caller, but redirects that are to be followed."""

    def __init__(self, follow: bool) -> None:
        self._follow = follow

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:
        if self._follow and response.status in (301, 302, 303, 307, 308):
            response = super().http_response(request, response)
        return response

    https_response = http_response


class _Redirects(HTTPRedirectHandler):
    """Hands credentials to nobody but the host that they are for."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            for name in _SECRET_HEADERS:
                request.remove_header(name)
        return request


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _shown(url: str) -> str:
    """``url`` without query and password: both can be secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _wait(number: int) -> float:
    """Seconds to wait after failed try ``number``: between half and the whole of a doubling time, so that many pods
    that failed together do not come back together."""
    most = min(_LONGEST_WAIT, _FIRST_WAIT * float(2 ** (number - 1)))
    return most * (0.5 + _share() / 2)


def _share() -> float:
    import random

    return random.random()


def _named_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds until the service wants to be asked again, from Retry-After or the ``t=`` of a RateLimit header."""
    text = headers.get("retry-after", "").strip()
    if not text:
        fields = headers.get("ratelimit", "").replace(";", ",").split(",")
        text = next((field.strip()[2:] for field in fields if field.strip().startswith("t=")), "")
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return _seconds_until(text)


def _seconds_until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except ValueError:
        return None


def _unwilling(answer: Answer) -> NetworkError:
    if answer.status != 429:
        return NetworkError(f"{answer.service} keeps answering {answer.status} to {answer.url}", "Try again later")
    asked = _named_wait(answer.headers)
    after = f"; it asks to wait {asked:.0f} s" if asked else ""
    return NetworkError(
        f"{answer.service} limits the rate of requests (429 to {answer.url}){after}",
        "Try again later, or with a token where none was used: known users have higher limits",
    )


def _unreachable(service: str, url: str, reason: object) -> NetworkError:
    """Why there was no answer.  Raises instead of returning what another try cannot change."""
    from ssl import SSLCertVerificationError

    if isinstance(reason, SSLCertVerificationError):
        raise NetworkError(
            f"{service} at {url} has a certificate that is not trusted here: {reason.verify_message}",
            "Where a company's own authority signs it, name its file in SSL_CERT_FILE",
        )
    said = str(getattr(reason, "strerror", None) or reason or type(reason).__name__)
    return NetworkError(
        f"{service} cannot be reached at {url}: {said}", "Check the network, the name's resolution and HTTPS_PROXY"
    )
