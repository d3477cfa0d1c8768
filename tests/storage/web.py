"""The part that all our loopback services share: a threaded HTTP server over real sockets, with faults and a ledger."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = 1 << 20


class Body(NamedTuple):
    """Bytes in memory, or a file on disk where ``path`` is set."""

    data: bytes = b""
    path: Path | None = None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path else len(self.data)

    def blocks(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from ``start`` to before ``stop``, in pieces."""
        if self.path is None:
            for place in range(start, stop, _BLOCK):
                yield self.data[place : min(stop, place + _BLOCK)]
            return
        with self.path.open("rb") as file:
            file.seek(start)
            while start < stop:
                block = file.read(min(_BLOCK, stop - start))
                if not block:
                    return
                start += len(block)
                yield block

    def whole(self) -> bytes:
        return b"".join(self.blocks(0, self.size))


@lru_cache(10_000)
def digest_of(body: Body, algorithm: str, before: bytes = b"") -> str:
    """The digest of a body, after ``before``.  What was stored once does not change."""
    digest = hashlib.new(algorithm, before)
    for block in body.blocks(0, body.size):
        digest.update(block)
    return digest.hexdigest()


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    path: str  # decoded
    raw: str  # path and query, as sent
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    host: str  # that it was sent to, with port

    def first(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str] = {}
    body: Body = Body()
    ranges: bool = False  # whether Range is honoured
    content: bool = False  # whether the body is a file's: the ledger counts its bytes


class Fault(NamedTuple):
    """What goes wrong with the next ``times`` requests whose path and query contain ``part``."""

    part: str
    times: int = 1
    status: int = 0  # answered instead
    headers: Mapping[str, str] = {}
    method: str = ""  # "": any
    delay: float = 0.0  # seconds before the answer
    cut: int = -1  # the connection is closed after so many bytes of the body
    flip: int = -1  # the byte at this place of the file is wrong
    bare: bool = False  # no Content-Length: the end of the connection is the end of the body


class Ledger:
    """What a server was asked and what it gave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[Asked] = []
        self.content = 0  # bytes of files, over all requests
        self.faults: list[Fault] = []

    def take_fault(self, asked: Asked) -> Fault:
        with self.lock:
            for place, fault in enumerate(self.faults):
                if fault.times > 0 and fault.part in asked.raw and fault.method in ("", asked.method):
                    self.faults[place] = fault._replace(times=fault.times - 1)
                    return fault
        return Fault("")

    def asked(self, part: str = "", method: str = "") -> list[Asked]:
        """The requests whose path and query contain ``part``."""
        with self.lock:
            return [one for one in self.requests if part in one.raw and method in ("", one.method)]


def json_reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, {"Content-Type": "application/json", **(headers or {})}, Body(json.dumps(document).encode()))


class Server:
    """``answer`` over HTTP (or HTTPS, with a certificate and its key) on ``host``, until `close`."""

    def __init__(
        self,
        answer: Callable[[Asked], Reply],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[Path, Path] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.ledger = ledger or Ledger()
        self._http = _Listener((host, port), answer, self.ledger)
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"{self.scheme}://{host}:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], answer: Callable[[Asked], Reply], ledger: Ledger) -> None:
        self.answer = answer
        self.ledger = ledger
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: tests read the ledger."""

    def do_GET(self) -> None:
        asked = self._asked()
        ledger = self.server.ledger
        with ledger.lock:
            ledger.requests.append(asked)
        fault = ledger.take_fault(asked)
        if fault.delay:
            time.sleep(fault.delay)
        if fault.status:
            reply = Reply(fault.status, {"Content-Type": "text/plain", **fault.headers}, Body(b"a fault of the test"))
        else:
            reply = self.server.answer(asked)
        self._send(asked, reply, fault)

    do_HEAD = do_POST = do_GET

    def _asked(self) -> Asked:
        parts = urllib.parse.urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(
            method=self.command,
            path=urllib.parse.unquote(parts.path),
            raw=self.path,
            query=urllib.parse.parse_qs(parts.query, keep_blank_values=True),
            headers=headers,
            body=self.rfile.read(int(headers.get("content-length") or 0)),
            host=headers.get("host", ""),
        )

    def _send(self, asked: Asked, reply: Reply, fault: Fault) -> None:
        size = reply.body.size
        start, stop, status, headers = 0, size, reply.status, dict(reply.headers)
        wanted = asked.headers.get("range", "") if reply.ranges and status == 200 else ""
        if wanted.startswith("bytes="):
            span = _span(wanted[6:], size)
            if span is None:
                status, headers, start, stop = 416, {"Content-Range": f"bytes */{size}"}, 0, 0
            else:
                (start, stop), status = span, 206
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault.bare:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if asked.method != "HEAD" and stop > start:
            self._send_body(reply, start, stop, fault)

    def _send_body(self, reply: Reply, start: int, stop: int, fault: Fault) -> None:
        if fault.cut >= 0:
            stop = min(stop, start + fault.cut)
            self.close_connection = True
        self.wfile.flush()
        plain = not isinstance(self.connection, ssl.SSLSocket)
        pieces = self._straight if reply.body.path and fault.flip < 0 and plain else self._copied
        for count in pieces(reply.body, start, stop, fault.flip):
            if reply.content:
                with self.server.ledger.lock:
                    self.server.ledger.content += count

    def _straight(self, body: Body, start: int, stop: int, flip: int) -> Iterator[int]:
        """From the file to the socket without a copy, for benchmarks; yields the sizes of what was sent."""
        assert body.path
        with body.path.open("rb") as file:
            while start < stop:
                count = os.sendfile(self.connection.fileno(), file.fileno(), start, min(_BLOCK, stop - start))
                if not count:
                    return
                start += count
                yield count

    def _copied(self, body: Body, start: int, stop: int, flip: int) -> Iterator[int]:
        for block in body.blocks(start, stop):
            if start <= flip < start + len(block):
                place = flip - start
                block = block[:place] + bytes((block[place] ^ 0xFF,)) + block[place + 1 :]
            self.connection.sendall(block)
            start += len(block)
            yield len(block)


def _span(text: str, size: int) -> tuple[int, int] | None:
    """From ``first-last`` to a half-open span; None where nothing of the file is in it."""
    first, _, last = text.partition("-")
    if not first:
        return (max(0, size - int(last)), size) if int(last) and size else None
    start, stop = int(first), min(size, int(last) + 1 if last and not last.startswith("-") else size)
    return (start, stop) if start < stop else None


def serve_until_killed(server: Server) -> None:
    """For a server in a process of its own: print where it is, and end with the parent."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    print(server.url, flush=True)
    threading.Event().wait()


def tree(files: Mapping[str, bytes] | Path) -> dict[str, Body]:
    """Bodies by relative path, from memory or from a folder."""
    if isinstance(files, Path):
        return {
            path.relative_to(files).as_posix(): Body(path=path) for path in sorted(files.rglob("*")) if path.is_file()
        }
    return {path: Body(data) for path, data in sorted(files.items())}
