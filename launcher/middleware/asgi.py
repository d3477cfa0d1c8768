"""The ASGI middleware: a few routes of its own, all else passed on to vLLM as it came.

vLLM makes one in each process of its API server, before that listens, and puts it around its own application and its
check of API keys; middlewares that the user names stand around this one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping

from launcher.middleware import access_log, endpoints, headers, warmup
from launcher.middleware.configuration import VARIABLE, Configuration, from_json
from launcher.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.middleware.capture import Recorder
    from launcher.middleware.watch import Watch

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# Below vLLM's own logger, so that its handlers, level and layout hold for this one too.
log = logging.getLogger("vllm.launcher")


class Middleware:
    """Instantiated by vLLM with the application around which it stands."""

    def __init__(self, app: App) -> None:
        self.app = app
        configuration = configured(os.environ.get(VARIABLE))
        self._routes = endpoints.routes(app, configuration)
        self._doors = endpoints.Doors(app)
        self._answering = headers.Answering(configuration.cors)
        self._recorder = _recorder(configuration)
        self._watch = _watch(configuration)
        self._warmup = configuration.models[0].name if configuration.warmup and configuration.models else None
        access_log.silence_probes()
        headers.mark_records()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine function: what is passed on costs no frame of its own."""
        kind = scope["type"]
        if kind == "http":
            path = scope["path"]
            root = scope.get("root_path")
            if root and path.startswith(root) and path[len(root) : len(root) + 1] == "/":
                path = path[len(root) :]
            method = scope["method"]
            route = self._routes.get(path)
            send = self._answering.wrapped(scope, send)
            if route is not None and method in ("GET", "HEAD"):
                return route(scope, receive, send)
            if method == "POST":
                if self._recorder is not None:
                    receive = self._recorder.tapped(path, receive)
                if endpoints.is_side_door(path):
                    return self._doors(scope, receive, send)
        elif kind == "lifespan":
            receive = self._heard(receive)
            if self._warmup is not None:
                send = warmup.held_back(self.app, scope, send, self._warmup)
        return self.app(scope, receive, send)

    def _heard(self, receive: Receive) -> Receive:
        """The server's own messages about its life: what works in threads starts and ends with it."""

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await asyncio.to_thread(self.close)
            return message

        return heard

    def close(self) -> None:
        """Write what is still to be written, and end the threads."""
        if self._watch is not None:
            self._watch.stop()
        if self._recorder is not None:
            self._recorder.close()


def configured(text: str | None) -> Configuration:
    """The launcher's configuration; without one, or with one that cannot be read, the routes still answer."""
    if not text:
        return Configuration()
    try:
        return from_json(text)
    except ValueError as error:
        log.warning("%s cannot be read, and is ignored: %s", VARIABLE, error)
        return Configuration()


def _recorder(configuration: Configuration) -> Recorder | None:
    if configuration.capture is None:
        return None
    from launcher.middleware.capture import Recorder  # lazy: most servers record nothing

    return Recorder(configuration.capture, server_number())


def _watch(configuration: Configuration) -> Watch | None:
    """Over a launcher's vLLM, in the first of its API servers."""
    told = configuration.speculation
    if not configuration.launcher or server_number() != 1:
        return None
    from launcher.middleware.watch import Watch, counted  # lazy: it needs prometheus_client

    watch = Watch(told, configuration.min_acceptance if told.enabled else None, counted)
    watch.start()
    return watch


def server_number() -> int:
    """Which of vLLM's API servers this process is, from 1: vLLM calls them ApiServer_0, ApiServer_1 …"""
    import multiprocessing

    name, _, number = multiprocessing.current_process().name.rpartition("_")
    return int(number) + 1 if name == "ApiServer" and number.isdecimal() else 1
