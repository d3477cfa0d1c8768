"""Capture of requests: the body is noted as it is read, and a thread of its own parses and writes it.

The event loop does as little as can be: it keeps the pieces of the body that pass by, and puts them into a bounded
queue.  Whatever does not fit is dropped and counted; no request waits for a disk, and none is changed.
"""

from __future__ import annotations

import atexit
import logging
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from threading import Event, Thread

from launcher.middleware import metrics
from launcher.middleware.configuration import Capture
from launcher.middleware.records import Unusable, line
from launcher.middleware.traces import Trace, naming
from launcher.typing import Any, NamedTuple

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

MOST_WAITING = 4096  # requests in the queue
MOST_BYTES = 64 << 20  # bytes in the queue
LARGEST = 32 << 20  # bytes of one body
MOST_ENDPOINTS = 16  # files: a pattern that matches everything must not let clients make thousands
_LINGER = 0.02  # seconds for which the writer lets requests gather
_CLOSING = 5.0  # seconds that the end of the server may take because of what still waits
_REMIND = 60.0  # seconds between two warnings of the same kind
# The endpoints that have a body to capture; the first that the pattern matches gets the file of the given name.
_KNOWN = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/pooling",
    "/score", "/v1/score", "/rerank", "/v1/rerank",
)  # fmt: skip

# Below vLLM's own logger, so that its handlers, level and layout hold for this one too.
log = logging.getLogger("vllm.launcher.capture")


class Request(NamedTuple):
    timestamp: float  # epoch seconds at which its last byte had come
    endpoint: str
    pieces: tuple[bytes, ...]
    size: int  # bytes


class Recorder:
    """Takes requests on the event loop, writes them in its thread."""

    def __init__(self, told: Capture, number: int = 1) -> None:
        """``number``: which of the API servers this one is, from 1."""
        self.told = told
        self._number = number
        self._pattern = re.compile(told.endpoint_pattern)
        self._known: dict[str, bool] = {}
        self._primary = next((path for path in _KNOWN if self._pattern.search(path)), None)
        self._traces: dict[str, Trace] = {}
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._written_bytes = 0  # of the bodies that have left the queue
        self._warned: dict[str, float] = {}
        self._wake = Event()
        self._closing = False
        self._spent = 0.0  # seconds of processor time that the metrics know of
        self._metrics = metrics.capture()
        self._thread = Thread(target=self._run, name="launcher-capture", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # On the event loop ---------------------------------------------------------------------------------------------

    def tapped(self, path: str, receive: Receive) -> Receive:
        """``receive``, or what notes the body on its way where this request is to be captured."""
        wanted = self._known.get(path)
        if wanted is None:
            wanted = self._matches(path)
        if not wanted or (self.told.sample < 1 and random.random() >= self.told.sample):
            return receive
        pieces: list[bytes] = []
        size, done = 0, False

        async def tap() -> Message:
            nonlocal size, done
            message = await receive()
            if done:
                return message
            if message["type"] == "http.request":
                piece = message.get("body", b"")
                size += len(piece)
                if size <= LARGEST:
                    pieces.append(piece)
                else:
                    pieces.clear()
                if not message.get("more_body", False):
                    done = True
                    self._take(path, tuple(pieces), size)
            else:
                done = True
                self._drop("incomplete")
            return message

        return tap

    def _matches(self, path: str) -> bool:
        wanted = self._pattern.search(path) is not None
        if len(self._known) < 1024 and len(path) < 256:  # clients choose the paths
            self._known[path] = wanted
        return wanted

    def _take(self, endpoint: str, pieces: tuple[bytes, ...], size: int) -> None:
        if size > LARGEST:
            self._drop("too_large")
        elif len(self._waiting) >= MOST_WAITING or self._waiting_bytes - self._written_bytes + size > MOST_BYTES:
            self._drop("queue_full")
        else:
            self._metrics.taken.inc()
            self._waiting_bytes += size
            self._waiting.append(Request(time.time(), endpoint, pieces, size))
            if not self._wake.is_set():
                self._wake.set()

    def _drop(self, reason: str) -> None:
        self._metrics.taken.inc()
        self._metrics.dropped[reason].inc()

    # At the end of the server --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what waits, within a few seconds, and end the thread."""
        atexit.unregister(self.close)
        self._closing = True
        self._wake.set()
        self._thread.join(_CLOSING)

    # In the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._attempt(self._open_first)
        while True:
            self._wake.wait()
            if not self._closing:
                time.sleep(_LINGER)
            self._wake.clear()
            self._attempt(self._drain)
            if self._closing and not self._waiting:
                break
        for trace in self._traces.values():
            trace.close()

    def _attempt(self, step: Callable[[], None]) -> None:
        """Nothing that goes wrong here ends the thread, and with it the truth of the counters."""
        try:
            step()
        except Exception:
            log.exception("capture: unexpected")

    def _open_first(self) -> None:
        """At the start, so that a path that cannot be written shows before anybody relies on it."""
        if self._primary is None:
            return
        trace = self._trace(self._primary)
        assert trace is not None
        try:
            trace.open()
        except OSError as error:
            self._warn_of(trace.path, error)
        else:
            log.info("capture: requests are written to %s as %s", trace.path, self.told.format)

    def _drain(self) -> None:
        opened: set[Trace] = set()  # looked at in this batch: whether each file is still the one at its path
        while self._waiting:
            request = self._waiting.popleft()
            self._written_bytes += request.size
            trace = self._trace(request.endpoint)
            if trace is None:
                self._metrics.dropped["too_many_endpoints"].inc()
                continue
            try:
                data = line(self.told.format, request.timestamp * 1000, b"".join(request.pieces))
            except Unusable as reason:
                self._metrics.dropped["unusable"].inc()
                self._remind("unusable", "capture: a request to %.120r is left out: %s", request.endpoint, reason)
            else:
                self._write(trace, data, request.timestamp, opened)
        spent = time.thread_time()
        self._metrics.seconds.inc(spent - self._spent)
        self._spent = spent

    def _write(self, trace: Trace, data: bytes, timestamp: float, opened: set[Trace]) -> None:
        before = trace.rotations
        try:
            if trace not in opened:
                trace.open()
                opened.add(trace)
            trace.write(data, timestamp)
        except OSError as error:
            trace.close()
            opened.discard(trace)
            self._metrics.dropped["write_failed"].inc()
            self._warn_of(trace.path, error)
        else:
            self._metrics.written.inc()
            self._metrics.bytes.inc(len(data))
        self._metrics.rotations.inc(trace.rotations - before)

    def _trace(self, endpoint: str) -> Trace | None:
        """The file for an endpoint; None where there are too many."""
        if endpoint not in self._traces:
            if len(self._traces) >= MOST_ENDPOINTS:
                return None
            if self._primary is None:
                self._primary = endpoint
            told = self.told
            names = naming(told.path, "" if endpoint == self._primary else endpoint)
            self._traces[endpoint] = Trace(names, self._number, told.format, told.max_bytes, told.max_files)
        return self._traces[endpoint]

    def _warn_of(self, path: str, error: OSError) -> None:
        self._remind(
            "write", "capture: %s cannot be written (%s): requests are served, and not recorded", path, error.strerror
        )

    def _remind(self, kind: str, text: str, *words: object) -> None:
        now = time.monotonic()
        if now - self._warned.get(kind, -_REMIND) >= _REMIND:
            self._warned[kind] = now
            log.warning(text, *words)
