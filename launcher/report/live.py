"""The metrics of a running server, over HTTP."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.proxies import proxy_for
from launcher.fetch.trust import authorities
from launcher.report.scrape import State, samples, states
from launcher.settings.values import Secret
from launcher.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import IO

WITHIN = 10.0  # seconds for a silent server, and three times as many for a whole page
LARGEST = 64 << 20  # bytes: a page of a busy server has some hundred kilobytes
_PATHS = ("/v1/metrics", "/metrics")  # the first is there with this launcher and with NIM, the second is vLLM's own


class Page(NamedTuple):
    """One reading.  ``time`` is of a clock that only runs forward, in seconds."""

    url: str
    time: float
    text: str
    states: tuple[State, ...]


class Server(NamedTuple):
    """How to reach a server."""

    url: str  # as given
    key: Secret | None
    environ: Mapping[str, str]

    def read(self) -> Page:
        """Its metrics, now.  Raises NetworkError, DeniedError or NotFoundError for what cannot be had, and
        ConfigurationError for a URL that is none or leads to something else.
        """
        first: LauncherError | None = None
        for url in addresses(self.url):
            try:
                text = get(url, self.key, self.environ)
            except (NotFoundError, DeniedError) as error:
                first = first or error
                continue
            return Page(url, time.monotonic(), text, states(samples(text, url), url))
        assert first is not None
        raise first


def addresses(url: str) -> tuple[str, ...]:
    """Where the metrics of a server may be.  Raises ConfigurationError for what is no URL."""
    parts = _parts(url)
    path = parts.path.rstrip("/")
    paths = _PATHS if path in ("", "/v1") else (parts.path,)
    return tuple(urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")) for path in paths)


def root(url: str) -> str:
    """The address of the server itself, of which ``url`` may be that of the metrics.  Raises ConfigurationError."""
    parts = _parts(url)
    path = parts.path.rstrip("/")
    for ending in (*_PATHS, "/v1"):
        path = path.removesuffix(ending)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _parts(url: str) -> SplitResult:
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username is not None or any(blank in text for blank in " \t\r\n"):
        raise ConfigurationError(f"{url!r} is no address of a server", "Write http://host:port")
    return parts


def get(url: str, key: Secret | None, environ: Mapping[str, str]) -> str:
    """The text under ``url``.  Raises the LauncherError that says why there is none."""
    request = Request(url, headers={"Accept": "text/plain"})
    if key is not None:
        request.add_unredirected_header("Authorization", f"Bearer {key.reveal()}")
    try:
        with opener(url, environ).open(request, timeout=WITHIN) as answer:
            return _body(answer, url)
    except HTTPError as error:
        error.close()
        raise _refused(url, error.code, key) from None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise NetworkError(
                f"{url} shows a certificate that is not trusted: {error.reason.verify_message}",
                "Name the file of its authority in SSL_CERT_FILE",
            ) from None
        if isinstance(error.reason, ssl.SSLError) and error.reason.reason == "WRONG_VERSION_NUMBER":
            raise NetworkError(f"{url} does not speak TLS", "Write http://") from None
        reason = getattr(error.reason, "strerror", None) or str(error.reason)
        raise NetworkError(f"{url} cannot be reached: {reason}", _CHECK) from None
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise NetworkError(f"{url} does not answer: {reason}", _CHECK) from None


def opener(url: str, environ: Mapping[str, str]) -> OpenerDirector:
    """By the proxy and the certificate authorities that the environment names; never by a proxy to this machine."""
    host = urlsplit(url).hostname or ""
    proxy = None if host == "localhost" or host.startswith("127.") or host == "::1" else proxy_for(url, environ)
    handlers = [ProxyHandler({"http": proxy, "https": proxy} if proxy else {}), HTTPRedirectHandler()]
    if url.startswith("https:"):
        return build_opener(*handlers, HTTPSHandler(context=authorities(environ)))
    return build_opener(*handlers)


def _body(answer: IO[bytes], url: str) -> str:
    end = time.monotonic() + 3 * WITHIN
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise ConfigurationError(f"{url} is no page of metrics: it does not end", "Check the URL")
        if time.monotonic() > end:
            raise NetworkError(f"{url} does not answer: no end after {3 * WITHIN:.0f} s", _CHECK)
    return b"".join(pieces).decode("utf-8", "replace")


def _refused(url: str, status: int, key: Secret | None) -> LauncherError:
    if status in (401, 403):
        todo = "Check VLLM_API_KEY" if key else "Set VLLM_API_KEY to a key of that server"
        return DeniedError(f"{url} answers {status}", todo)
    if status in (404, 405):
        return NotFoundError(f"{url} answers {status}", "Give the address of the server's metrics")
    return NetworkError(f"{url} answers {status}", _CHECK)


_CHECK = "Check the address, and that the server is up"
