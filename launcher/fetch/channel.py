"""The kept-alive connections of one thread: proxies, certificates, redirects by hand, and an end from outside.

http.client reads straight into a buffer of ours; everything above it copies each byte once more.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPSConnection,
    InvalidURL,
)
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import launcher
from launcher.errors import NetworkError
from launcher.fetch.answer import Answer
from launcher.fetch.proxies import proxy_for
from launcher.fetch.remote import Location
from launcher.fetch.retry import broken_off, shown
from launcher.fetch.trust import authorities
from launcher.typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from ssl import SSLContext

# What a failing connection raises; ValueError comes from a TLS socket that was ended by another thread.
FAILURES = (OSError, HTTPException, ValueError)

_OWN_HEADERS = {"User-Agent": f"specdec-launcher/{launcher.__version__}", "Accept": "*/*"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
_CONNECT = 10.0  # seconds
_KEPT = 2  # connections: a service and the store that it redirects to
_PORTS = {"http": 80, "https": 443}
_STALE = (BadStatusLine, ConnectionError)  # how a kept connection shows that the server had closed it meanwhile
_DRAINED = 64 * 1024  # bytes of an unwanted body that are read to keep the connection
_NEAR = 2_000  # microseconds of round trip below which a small window is as fast
_SMALL_WINDOW = 512 * 1024  # bytes
_RTT_OFFSET = 68  # of tcpi_rtt in the kernel's struct tcp_info


class Route(NamedTuple):
    """How this process reaches the network; shared by all its threads."""

    environ: Mapping[str, str]  # proxies
    stall: float  # seconds without a byte after which a connection counts as dead
    trust: Callable[[], SSLContext]


def route(environ: Mapping[str, str], stall: float) -> Route:
    """Raises ConfigurationError for a certificate bundle that is named but missing, before anything is fetched."""
    lock, made = threading.Lock(), list["SSLContext"]()

    def trust() -> SSLContext:
        with lock:
            if not made:
                made.append(authorities(environ, also=("AWS_CA_BUNDLE",)))
            return made[0]

    if any(environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")):
        trust()
    return Route(environ, stall, trust)


class Channel:
    """Connections for one thread.  Only `cut` may be called from another one."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._kept: dict[tuple[str, str], _Plain] = {}
        self._cut = False

    def open(self, location: Location, headers: Mapping[str, str], name: str) -> tuple[Answer, Location]:
        """Send one GET and follow its redirects; the answer, whatever its status, and the location that gave it.

        The location's own headers end where another host begins.  Raises Hindrance (what may pass), NetworkError,
        ConfigurationError for an unusable proxy.
        """
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._send(location, headers, name)
            target = response.fields.get("location")
            if response.status not in _REDIRECTS or not target:
                return response, location
            self._finish(response)
            location = _redirected(location, target, name)
        raise NetworkError(
            f"{name} is redirected more than {_MOST_REDIRECTS} times, at last to {shown(location.url)}",
            "Check the address of the source",
        )

    def drop(self, response: Answer | None = None) -> None:
        """Close the connections: after a failure, or to leave the rest of an answer unread."""
        if response is not None:
            with suppress(*FAILURES):
                response.close()
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    def cut(self) -> None:
        """End whatever the channel's thread waits for, for good."""
        self._cut = True
        self.interrupt()

    def interrupt(self) -> None:
        """Fail what the channel's thread waits for, once."""
        for connection in list(self._kept.values()):
            connection.interrupt()

    def _send(self, location: Location, headers: Mapping[str, str], name: str) -> Answer:
        parts = urlsplit(location.url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise NetworkError(f"{name} is to be had from {shown(location.url)}, which is no web address", "Check it")
        proxy = proxy_for(location.url, self._route.environ)
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        sent = {**_OWN_HEADERS, **dict(location.headers), **headers}
        if proxy and parts.scheme == "http":
            path, sent = f"http://{parts.netloc}{path}", {**sent, **_proxy_headers(proxy)}
        while True:
            connection, fresh = self._connection(parts, proxy)
            try:
                connection.request("GET", path, headers=sent)
                return cast("Answer", connection.getresponse())
            except FAILURES as error:
                self.drop()
                if isinstance(error, InvalidURL):
                    raise NetworkError(
                        f"{name}: {shown(location.url)} is no web address: {error}", "Check it"
                    ) from None
                if fresh or self._cut or not isinstance(error, _STALE):
                    raise broken_off(name, location.url, reason(error)) from None

    def _connection(self, parts: SplitResult, proxy: str | None) -> tuple[_Plain, bool]:
        """A connection to the host of ``parts``, and whether it is a new one."""
        key = (f"{parts.scheme}://{parts.netloc}", proxy or "")
        if key in self._kept:
            return self._kept[key], False
        while len(self._kept) >= _KEPT:
            self._kept.pop(next(iter(self._kept))).close()
        connection = self._new_connection(parts, proxy)
        self._kept[key] = connection
        if self._cut:
            raise broken_off("the file", parts.geturl(), "stopped")
        return connection, True

    def _new_connection(self, parts: SplitResult, proxy: str | None) -> _Plain:
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if proxy is None:
            there, there_port = host, port
        else:
            via = urlsplit(proxy)
            there, there_port = via.hostname or "", via.port or _PORTS["http"]
        patience = min(_CONNECT, self._route.stall)
        if parts.scheme == "http":
            connection = _Plain(there, there_port, timeout=patience)
        else:
            connection = _Tls(there, there_port, timeout=patience, context=self._route.trust())
            if proxy is not None:
                connection.set_tunnel(host, port, _proxy_headers(proxy))
        connection.stall = self._route.stall
        return connection

    def _finish(self, response: Answer) -> None:
        """Read what is left of a small unwanted body, so that the connection can be used again."""
        try:
            response.read(_DRAINED)
            if not response.isclosed():
                self.drop(response)
        except FAILURES:
            self.drop(response)


class _Plain(HTTPConnection):
    """Remembers its socket, which http.client hands over to the response."""

    response_class = Answer
    stall = 0.0
    _live: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self._live = _prepared(self.sock, self.stall)

    def interrupt(self) -> None:
        _shut(self._live)


class _Tls(_Plain, HTTPSConnection):
    """The same over TLS: its own connect comes between those of the two classes above."""


def _shut(live: socket.socket | None) -> None:
    """End both directions below TLS: its own shutdown would let the reader take ciphertext for content."""
    if live is not None:
        with suppress(OSError):
            socket.socket.shutdown(live, socket.SHUT_RDWR)


def _prepared(live: socket.socket, stall: float) -> socket.socket:
    """A new connection: from now on it may be silent for ``stall`` seconds, and has a small window if its end is near.

    A near server fills any window at once, and all that is in it is lost when this process is killed.
    """
    live.settimeout(stall)
    with suppress(OSError, struct.error):
        facts = live.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        if struct.unpack_from("I", facts, _RTT_OFFSET)[0] < _NEAR:
            live.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_WINDOW)
    return live


def _redirected(location: Location, target: str, name: str) -> Location:
    url = urljoin(location.url, target)
    if urlsplit(url).scheme not in _PORTS:
        raise NetworkError(f"{name} is redirected to {shown(url)}, which is no web address", "Check the source")
    return Location(url, location.headers if _same_host(location.url, url) else ())


def _same_host(old: str, new: str) -> bool:
    """Whether credentials for ``old`` may be shown to ``new``: the same origin, or the same host made safer."""
    before, after = urlsplit(old), urlsplit(new)
    if before.hostname != after.hostname:
        return False
    ports = before.port or _PORTS[before.scheme], after.port or _PORTS[after.scheme]
    return (before.scheme, ports[0]) == (after.scheme, ports[1]) or (
        before.scheme == "http" and after.scheme == "https" and ports == (80, 443)
    )


def _proxy_headers(proxy: str) -> dict[str, str]:
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    from base64 import b64encode

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def reason(error: Exception) -> str:
    """Why a connection failed, in a few words."""
    verification = getattr(error, "verify_message", "")
    if verification:
        return f"its certificate is not trusted ({verification}); a private authority goes into SSL_CERT_FILE"
    if isinstance(error, TimeoutError):
        return "no byte arrived in time"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    return str(error) or type(error).__name__
