"""The headers that answers get, and the request id in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from launcher.middleware import headers
from launcher.middleware.asgi import Middleware
from launcher.middleware.configuration import VARIABLE, Configuration, Cors, to_json
from tests.unit.asgi import Reply, call

ALLOWED = (b"Access-Control-Allow-Origin", b"*")


def ask(
    monkeypatch: pytest.MonkeyPatch,
    sent: list[tuple[str, str]],
    *,
    cors: Cors = Cors(),  # noqa: B008
    answered: tuple[tuple[bytes, bytes], ...] = (),
    method: str = "POST",
) -> tuple[Reply, Any]:
    """The reply, and the ``send`` that the application below got."""
    monkeypatch.setenv(VARIABLE, to_json(Configuration(cors=cors).document()))
    seen: list[Any] = []

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        seen.append(send)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-from", b"engine"), *answered]})
        for piece in (b"a", b"b", b""):
            await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})

    reply = asyncio.run(call(Middleware(engine), method, "/v1/chat/completions", headers=sent))
    return reply, seen[0]


def test_a_request_id_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reply, _ = ask(monkeypatch, [("X-Request-Id", "abc-1")])
    assert reply.headers == {"x-from": "engine", "x-request-id": "abc-1"}
    assert reply.chunks == (b"a", b"b", b"")


def test_vllms_own_answer_to_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    reply, _ = ask(monkeypatch, [("X-Request-Id", "abc-1")], answered=((b"X-Request-Id", b"other"),))
    assert reply.headers["X-Request-Id"] == "other"
    assert "x-request-id" not in reply.headers


def test_without_one_send_is_passed_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reply, send = ask(monkeypatch, [("Origin", "https://a.example")], answered=(ALLOWED,))
    assert send.__qualname__ == "call.<locals>.send"
    assert set(reply.headers) == {"x-from", "Access-Control-Allow-Origin"}


def test_exposed_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    cors = Cors(("X-Request-Id", "Date"), 60)
    origin = [("Origin", "https://a.example")]
    reply, _ = ask(monkeypatch, origin, cors=cors, answered=(ALLOWED,))
    assert reply.headers["access-control-expose-headers"] == "X-Request-Id, Date"
    assert "access-control-max-age" not in reply.headers
    refused, _ = ask(monkeypatch, origin, cors=cors)  # vLLM did not allow the origin
    assert set(refused.headers) == {"x-from"}
    plain, send = ask(monkeypatch, [], cors=cors, answered=(ALLOWED,))
    assert send.__qualname__ == "call.<locals>.send"
    assert "access-control-expose-headers" not in plain.headers


def test_how_long_a_browser_may_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "POST")]
    answered = (ALLOWED, (b"Access-Control-Max-Age", b"600"))
    reply, _ = ask(monkeypatch, asked, cors=Cors((), 0), answered=answered, method="OPTIONS")
    assert reply.headers["access-control-max-age"] == "0"
    assert "Access-Control-Max-Age" not in reply.headers
    as_it_was, _ = ask(monkeypatch, asked, cors=Cors(("X",), None), answered=answered, method="OPTIONS")
    assert as_it_was.headers["Access-Control-Max-Age"] == "600"


def test_the_routes_of_the_middleware_answer_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    reply = asyncio.run(call(Middleware(nothing), "GET", "/v1/version", headers=[("X-Request-Id", "v")]))
    assert reply.headers["x-request-id"] == "v"


def test_log_records_carry_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    factory = logging.getLogRecordFactory()
    monkeypatch.setattr(logging, "_logRecordFactory", factory)  # put back at the end
    monkeypatch.setenv(VARIABLE, "")

    async def engine(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        logging.getLogger("vllm.engine").warning("inside")
        await send({"type": "http.response.start", "status": 200, "headers": []})

    app = Middleware(engine)

    async def both() -> None:
        named = (call(app, "POST", "/v1/x", headers=[("X-Request-Id", name)]) for name in ("one", "two\n\x1b[31m"))
        await asyncio.gather(*map(asyncio.create_task, named), asyncio.create_task(call(app, "POST", "/v1/x")))

    asyncio.run(both())
    logging.getLogger("vllm.engine").warning("outside")
    assert [getattr(record, "request_id", None) for record in caplog.records] == ["one", "two??[31m", "", ""]
    assert headers.request_id() == ""
