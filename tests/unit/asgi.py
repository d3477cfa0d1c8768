"""Driving an ASGI application without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    chunks: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def scope(method: str, path: str, headers: Iterable[tuple[str, str]] = (), **more: Any) -> Message:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": raw,
        **more,
    }


async def call(
    app: Callable[..., Awaitable[None]],
    method: str,
    path: str,
    *,
    body: Sequence[bytes] = (b"",),
    headers: Iterable[tuple[str, str]] = (),
    **more: Any,
) -> Reply:
    pieces = list(body)
    sent: list[Message] = []

    async def receive() -> Message:
        if not pieces:
            await asyncio.sleep(0)
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope(method, path, headers, **more), receive, send)
    start, *rest = sent
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Reply(start["status"], found, tuple(message.get("body", b"") for message in rest))


class Engine:
    """Stands in for vLLM's application: its routes, its check of keys, and all that it was asked."""

    def __init__(self, key: str | None = None, health: int = 200) -> None:
        self.key = key
        self.health = health
        self.asked: list[Message] = []
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        self.asked.append(scope)
        if scope["type"] != "http":
            return
        path, headers = scope["path"], dict(scope["headers"])
        if self.key and path.startswith("/v1") and headers.get(b"authorization") != f"Bearer {self.key}".encode():
            await reply(send, 401, b'{"error":"Unauthorized"}')
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        if path == "/health":
            await reply(send, self.health, b"")
        elif path == "/metrics":
            await reply(send, 200, b"vllm:one 1\n")
        elif path == "/v1/models":
            await reply(send, 200, b'{"data":[]}')
        elif path == "/v1/chat/completions":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/x")]})
            for piece in (b"data: 1\n\n", b"data: 2\n\n", b""):
                await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
        else:
            await reply(send, 404, b'{"detail":"Not Found"}')


async def reply(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"x-from", b"engine")]})
    await send({"type": "http.response.body", "body": body})
