"""The ASGI middleware: a few routes of its own, all else passed on to vLLM as it came.

vLLM makes one in each process of its API server, before that listens, and puts it around its own application and its
check of API keys; middlewares that the user names stand around this one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, MutableMapping

from launcher.middleware import access_log, endpoints
from launcher.middleware.configuration import VARIABLE, Configuration, from_json
from launcher.typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("launcher.middleware")


class Middleware:
    """Instantiated by vLLM with the application around which it stands."""

    def __init__(self, app: App) -> None:
        self.app = app
        configuration = configured(os.environ.get(VARIABLE))
        self._routes = endpoints.routes(app, configuration)
        access_log.silence_probes()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine function: what is passed on costs no frame of its own."""
        if scope["type"] == "http":
            path = scope["path"]
            root = scope.get("root_path")
            if root and path.startswith(root):
                path = path[len(root) :]
            route = self._routes.get(path)
            if route is not None and scope["method"] in ("GET", "HEAD"):
                return route(scope, receive, send)
        return self.app(scope, receive, send)


def configured(text: str | None) -> Configuration:
    """The launcher's configuration; without one, or with one that cannot be read, the routes still answer."""
    if not text:
        return Configuration()
    try:
        return from_json(text)
    except ValueError as error:
        log.warning("%s cannot be read, and is ignored: %s", VARIABLE, error)
        return Configuration()
