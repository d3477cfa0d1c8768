"""The routes under /v1 that NIM has and vLLM has not.

``/v1/health/…``, ``/v1/metrics``, ``/v1/version`` and ``/v1/license`` answer without a key, as vLLM's own ``/health``
and ``/metrics`` do.  ``/v1/metadata`` and ``/v1/manifest`` are answered to whoever may list the models: vLLM itself is
asked for ``/v1/models`` with the caller's headers, so that no key is ever known here.  The same holds for what vLLM's
check of keys does not cover (`Doors`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping

from launcher.middleware import about
from launcher.middleware.configuration import Configuration
from launcher.typing import Any, NamedTuple

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]
Route = Callable[[Any, Any, Any], Awaitable[None]]

LIVE, READY, METRICS = "/v1/health/live", "/v1/health/ready", "/v1/metrics"
VERSION, LICENSE, METADATA, MANIFEST = "/v1/version", "/v1/license", "/v1/metadata", "/v1/manifest"
MODELS = "/v1/models"  # vLLM's own, which needs the clients' key where there is one
_COVERED = ("/v1", "/v2", "/inference", "/cohere")  # beginnings of the paths that vLLM's check covers (0.32)
_PROBED = frozenset(("/health", "/ping"))
HEALTH = "/health"  # vLLM's own: 200 while the engine lives, else 503


class Answered(NamedTuple):
    """What the application below said."""

    status: int
    messages: tuple[Message, ...]


def routes(app: App, configuration: Configuration) -> dict[str, Route]:
    """Path -> ASGI application, for GET and HEAD."""
    facts = about.Facts(configuration)
    return {
        LIVE: _live,
        READY: _ready(app),
        METRICS: _elsewhere(app, "/metrics"),
        VERSION: _document(facts.version),
        LICENSE: _document(facts.license),
        METADATA: _guarded(app, _document(facts.metadata)),
        MANIFEST: _guarded(app, _document(facts.manifest)),
    }


async def _live(scope: Any, receive: Any, send: Any) -> None:
    """The event loop runs, or nobody would read this."""
    await answer_json(scope, send, 200, {"object": "health.response", "message": "Service is live."})


def _ready(app: App) -> Route:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        ready = (await ask(app, scope, HEALTH)).status == 200
        said = ("Service is ready.", "ready") if ready else ("Service is not ready.", "failing")
        content = {"object": "health.response", "message": said[0], "phase": said[1]}
        await answer_json(scope, send, 200 if ready else 503, content)

    return answer


def _elsewhere(app: App, path: str) -> Route:
    """The application's own answer to another path."""

    def forward(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        return app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return forward


def _document(facts: Callable[[], tuple[int, Mapping[str, Any]]]) -> Route:
    """Facts that may have to be read from files, which must not hold up the streams of this process."""

    async def document(scope: Any, receive: Any, send: Any) -> None:
        status, content = await asyncio.to_thread(facts)
        await answer_json(scope, send, status, content)

    return document


class Doors:
    """What vLLM's check of keys leaves open: requests that do something, outside the paths that it covers.

    ``/invocations`` serves completions, ``/tokenize`` and development routes reach the engine.  With a key they are
    answered to whoever may list the models.  Without one, nothing is asked but once.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._guarded = _guarded(app, app)
        self._open = False  # known to be: the models are listed to anybody

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._open:
            self._open = (await ask(self._app, {**scope, "headers": []}, MODELS)).status == 200
        await (self._app if self._open else self._guarded)(scope, receive, send)


def is_side_door(path: str) -> bool:
    """Whether a POST to this path passes by vLLM's check of keys and is no probe."""
    return not path.startswith(_COVERED) and path not in _PROBED


def _guarded(app: App, route: Route) -> Route:
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        answered = await ask(app, scope, MODELS)
        if answered.status == 200:
            await route(scope, receive, send)
            return
        for message in answered.messages:
            await send(message)

    return guarded


async def ask(app: App, scope: Any, path: str) -> Answered:
    """GET another path of the application in the caller's name; 503 where it fails without an answer."""
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    asked = {**scope, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    try:
        await app(asked, _no_body(), keep)
    except Exception:
        messages.clear()
    if not messages:
        body = b'{"error": "the server does not answer"}'
        start = {"type": "http.response.start", "status": 503, "headers": _headers(body)}
        messages = [start, {"type": "http.response.body", "body": body}]
    return Answered(messages[0]["status"], tuple(messages))


def _no_body() -> Callable[[], Awaitable[Message]]:
    """A client that has said all, and stays to hear the answer."""
    said = False

    async def receive() -> Message:
        nonlocal said
        if said:
            await asyncio.Event().wait()
        said = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


async def answer_json(scope: Any, send: Any, status: int, content: Mapping[str, Any]) -> None:
    body = json.dumps(content).encode()
    await send({"type": "http.response.start", "status": status, "headers": _headers(body)})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
