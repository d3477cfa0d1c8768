"""One request before the server listens, so that a first request which fails is a start that fails (NIM_WARMUP).

The server's ``startup complete`` is held back until the request has been answered.  Nothing is open until then: no
probe, no client and no listener on NIM_HEALTH_PORT takes the server for ready.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping

from launcher.typing import Any, NoReturn

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]
Send = Callable[[Message], Awaitable[None]]

PATH = "/v1/completions"
EXIT_CODE = 1  # of the server when the request fails
WITHIN = 600.0  # seconds: kernels may be compiled for it
_TOKENS = 16  # enough for several steps of any method
_KEYS = ("VLLM_API_KEY", "LAUNCHER_1_API_KEY")  # the clients' key, in this process's environment

log = logging.getLogger("vllm.launcher")


class Failed(Exception):
    """The first request had no good answer; the text says what came instead."""


def held_back(app: App, lifespan: Mapping[str, Any], send: Send, model: str) -> Send:
    """``send`` of the server's lifespan, which says that the start is complete only after ``model`` has answered."""

    async def held(message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            await _first_request(app, lifespan, model)
        await send(message)

    return held


async def _first_request(app: App, lifespan: Mapping[str, Any], model: str) -> None:
    began = time.monotonic()
    try:
        status = await asyncio.wait_for(_asked(app, lifespan, model), WITHIN)
        if status >= 500:
            raise Failed(f"it was answered with {status}")
    except Exception as error:
        reason = f"no answer within {WITHIN:.0f} s" if isinstance(error, TimeoutError) else str(error) or repr(error)
        log.critical("NIM_WARMUP: the first request failed, so the server does not start: %s", reason)
        asyncio.get_running_loop().call_soon(_end)
        await asyncio.Event().wait()  # until the loop takes this task down with all others
    if status == 200:
        log.info("NIM_WARMUP: the first request was answered after %.1f s", time.monotonic() - began)
    else:
        log.warning("NIM_WARMUP: %s answers %d here; the server starts without a first request", PATH, status)


def _end() -> NoReturn:
    """Unwinds the event loop, so that everything that is open is closed on the way."""
    raise SystemExit(EXIT_CODE)


async def _asked(app: App, lifespan: Mapping[str, Any], model: str) -> int:
    """The status of one greedy completion, asked of the application in this very process."""
    wanted = {"model": model, "prompt": "Hello", "max_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}
    body = json.dumps(wanted).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    key = next((os.environ[name] for name in _KEYS if os.environ.get(name)), None)
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    scope = {
        **lifespan,
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": PATH,
        "raw_path": PATH.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 0), "server": ("127.0.0.1", 0),
    }  # fmt: skip
    said: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    statuses: list[int] = []

    async def receive() -> Message:
        if not said:
            await asyncio.Event().wait()  # the client stays to hear the answer
        return said.pop()

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, keep)
    if not statuses:
        raise Failed("it had no answer")
    return statuses[0]
