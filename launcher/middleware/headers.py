"""Headers that the middleware adds to answers, and the request id that the log carries.

Only an answer to a request that brings ``X-Request-Id``, or ``Origin`` where CORS is set up, passes through a function
of ours; that changes the headers of the first message, and no message waits or is split.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar

from launcher.middleware.configuration import Cors
from launcher.typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Pairs = list[tuple[bytes, bytes]]

REQUEST_ID, ORIGIN = b"x-request-id", b"origin"
_LONGEST = 128  # characters of a request id in the log
_ID: ContextVar[str] = ContextVar("launcher_request_id", default="")


class Answering:
    """Wraps ``send`` for the requests that need it."""

    def __init__(self, cors: Cors) -> None:
        self._expose = ", ".join(cors.expose_headers).encode()
        self._max_age = b"" if cors.max_age is None else str(cors.max_age).encode()
        self._cors = bool(self._expose or self._max_age)

    def wrapped(self, scope: MutableMapping[str, Any], send: Send) -> Send:
        """``send`` itself, unless the answer gets headers of ours."""
        identity, origin = b"", False
        for name, value in scope["headers"]:
            if name == REQUEST_ID:
                identity = value
            elif name == ORIGIN and self._cors:
                origin = True
        if identity:
            _ID.set(_shown(identity))
        elif not origin:
            return send
        preflight = scope["method"] == "OPTIONS"

        def added(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if origin:
                    self._add_cors(headers, preflight)
                if identity and not _has(headers, REQUEST_ID):
                    headers.append((REQUEST_ID, identity))
                message = {**message, "headers": headers}
            return send(message)

        return added

    def _add_cors(self, headers: Pairs, preflight: bool) -> None:
        """What vLLM's own check of origins let pass, and nothing else."""
        if not _has(headers, b"access-control-allow-origin"):
            return
        if preflight and self._max_age:
            headers[:] = [pair for pair in headers if pair[0].lower() != b"access-control-max-age"]
            headers.append((b"access-control-max-age", self._max_age))
        elif not preflight and self._expose:
            headers.append((b"access-control-expose-headers", self._expose))


def request_id() -> str:
    """The id that the client gave the request in whose course this is asked; empty without one."""
    return _ID.get()


def mark_records() -> None:
    """Give each log record of this process the id of its request, as ``record.request_id``."""
    make = logging.getLogRecordFactory()
    if getattr(make, "marks_requests", False):
        return

    def marked(*words: Any, **named: Any) -> logging.LogRecord:
        record = make(*words, **named)
        record.request_id = _ID.get()
        return record

    marked.marks_requests = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(marked)


def _has(headers: Pairs, name: bytes) -> bool:
    return any(key.lower() == name for key, _ in headers)


def _shown(identity: bytes) -> str:
    """An id as a log can hold it: clients choose it."""
    text = identity[:_LONGEST].decode("ascii", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)
