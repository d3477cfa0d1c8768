"""An object server over real sockets that misbehaves as it is told to, and counts every byte that it gives away.

In a test's own process: ``with serving(objects) as store``.  As a process of its own, for what must not share the
test's interpreter: ``python -m tests.storage.faults FOLDER [RATE]`` prints its address and serves the folder's files
until it or its parent ends; ``GET /-/served`` tells the bytes.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

BLOCK = 256 * 1024


class Fault(NamedTuple):
    """What goes wrong with the next ``times`` requests for a path that ends in ``path``.

    Places are bytes of the object, not of the answer.
    """

    path: str = ""
    times: int = 1
    status: int = 0  # answered instead of the object
    headers: Mapping[str, str] = {}
    body: bytes = b""  # with ``status``
    reset_at: int = -1  # the connection is reset there
    cut_at: int = -1  # the connection is closed there
    stall_at: int = -1  # nothing comes after it, and the connection stays open
    drip_at: int = -1  # from there on a byte now and then
    flip_at: int = -1  # this byte is wrong
    bare: bool = False  # without Content-Length: the end of the connection is the end of the answer
    chunked: bool = False
    no_ranges: bool = False  # every answer is the whole object
    short_range: int = 0  # a range is answered with so many bytes at most
    extra: bytes = b""  # follows the object
    etag: str = ""
    says_size: int = -1  # the object's size in Content-Range


class Seen(NamedTuple):
    """One request."""

    method: str
    path: str  # decoded, without query
    query: str
    headers: Mapping[str, str]  # names in lower case
    target: str  # as it stood in the request line: a whole URL when this is a proxy


class Store:
    """The state that a server and its test share."""

    def __init__(self, objects: Mapping[str, bytes | Path]) -> None:
        self.url = ""
        self.objects = dict(objects)
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.served = 0  # bytes of objects
        self.rate = 0.0  # bytes a second that each connection gets; 0: no limit
        self.latency = 0.0  # seconds before each answer
        self.token = ""  # must come in Authorization
        self.link = ""  # must be the query; tests change it to let links expire
        self.redirect = ""  # where every object is to be had instead
        self.most_at_once = 0  # answers that were under way at one time
        self._under_way = 0
        self._lock = threading.Lock()

    def fault(self, path: str) -> Fault:
        with self._lock:
            for number, fault in enumerate(self.faults):
                if fault.times > 0 and path.endswith(fault.path):
                    self.faults[number] = fault._replace(times=fault.times - 1)
                    return fault
        return Fault()

    def count(self, number: int) -> None:
        with self._lock:
            self.served += number

    def enter(self, step: int) -> None:
        with self._lock:
            self._under_way += step
            self.most_at_once = max(self.most_at_once, self._under_way)

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.endswith(path)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        if self.store.rate:
            # What waits in here counts as given away: on loopback, 4 MB a connection while the client has no processor.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BLOCK)

    def do_CONNECT(self) -> None:
        """Be a proxy: connect both ways until one side closes."""
        self._note()
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as there:
            self.send_response(200)
            self.end_headers()
            threading.Thread(target=_pump, args=(there, self.connection), daemon=True).start()
            _pump(self.connection, there)
        self.close_connection = True

    def do_GET(self) -> None:
        seen = self._note()
        store = self.store
        store.enter(1)
        try:
            if store.latency:
                time.sleep(store.latency)
            if seen.path == "/-/served":
                self._answer(200, str(store.served).encode())
            else:
                self._object(seen, store.fault(seen.path))
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            store.enter(-1)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the store remembers."""

    def _note(self) -> Seen:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, unquote(parts.path), parts.query, headers, self.path)
        self.store.seen.append(seen)
        return seen

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _object(self, seen: Seen, fault: Fault) -> None:
        store = self.store
        content = store.objects.get(seen.path.lstrip("/"))
        if fault.status:
            self._answer(fault.status, fault.body, fault.headers)
        elif store.redirect:
            self._answer(302, b"moved", {"Location": f"{store.redirect}{seen.path}"})
        elif store.token and seen.headers.get("authorization") != f"Bearer {store.token}":
            self._answer(401)
        elif store.link and seen.query != store.link:
            self._answer(403, b"Request has expired")
        elif content is None:
            self._answer(404)
        else:
            self._content(content, seen, fault)

    def _content(self, content: bytes | Path, seen: Seen, fault: Fault) -> None:
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        start, stop = _range(seen.headers.get("range", ""), size)
        if start >= size > 0:
            self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
            return
        if fault.no_ranges:
            start, stop = 0, size
        elif fault.short_range and "range" in seen.headers:
            stop = min(stop, start + fault.short_range)
        partial = "range" in seen.headers and not fault.no_ranges
        self.send_response(206 if partial else 200)
        if partial:
            said = fault.says_size if fault.says_size >= 0 else size
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{said}")
        if fault.etag:
            self.send_header("ETag", fault.etag)
        if fault.bare:
            self.send_header("Connection", "close")
            self.close_connection = True
        elif fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(stop - start + len(fault.extra)))
        self.end_headers()
        self._body(content, start, stop, fault)

    def _body(self, content: bytes | Path, start: int, stop: int, fault: Fault) -> None:
        began, sent = time.monotonic(), 0
        ends = [place for place in (fault.reset_at, fault.cut_at, fault.stall_at, fault.drip_at) if place >= 0]
        end = min([stop, *(max(start, place) for place in ends)])
        position = start
        while position < end:
            # A limited connection gets a tenth of a second's bytes at a time.
            block = min(BLOCK, int(self.store.rate / 10) or BLOCK, end - position)
            data = _read(content, position, block)
            if position <= fault.flip_at < position + block:
                place = fault.flip_at - position
                data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            self._send(data, fault.chunked)
            position += block
            sent += block
            if self.store.rate:
                time.sleep(max(0.0, began + sent / self.store.rate - time.monotonic()))
        if position < stop or ends:
            self._misbehave(content, position, fault)
        elif fault.extra:
            self._send(fault.extra, fault.chunked)
        if fault.chunked and not self.close_connection:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, data: bytes, chunked: bool) -> None:
        if chunked:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.store.count(len(data))
            return
        view = memoryview(data)
        while view:
            count = self.connection.send(view)
            self.store.count(count)
            view = view[count:]

    def _misbehave(self, content: bytes | Path, position: int, fault: Fault) -> None:
        self.close_connection = True
        if fault.reset_at >= 0:
            # Closed with bytes unsent and no time to linger, a socket resets its connection.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        while fault.stall_at >= 0 or fault.drip_at >= 0:
            time.sleep(0.05)
            if fault.drip_at >= 0:
                self._send(_read(content, position, 1), False)
                position += 1
            elif _is_closed(self.connection):
                return


def _range(header: str, size: int) -> tuple[int, int]:
    unit, _, numbers = header.partition("=")
    if unit != "bytes":
        return 0, size
    first, _, last = numbers.partition("-")
    return int(first), min(size, int(last) + 1 if last else size)


def _read(content: bytes | Path, position: int, count: int) -> bytes:
    if isinstance(content, bytes):
        return content[position : position + count]
    with content.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), count, position)


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def _pump(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(BLOCK):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients of this server break off on purpose."""


@contextmanager
def serving(objects: Mapping[str, bytes | Path], tls: tuple[Path, Path] | None = None) -> Iterator[Store]:
    """A store on a free port of 127.0.0.1; ``tls``: a certificate and its key."""
    store = Store(objects)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    store.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def die_with_parent() -> None:
    """Servers that tests start must not outlive them, however these end."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    folder = Path(sys.argv[1])
    files: dict[str, bytes | Path] = {path.name: path for path in folder.iterdir() if path.is_file()}
    with serving(files) as store:
        store.rate = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
        print(store.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
