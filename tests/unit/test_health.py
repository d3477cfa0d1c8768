"""What the health listener knows and answers."""

from __future__ import annotations

import json

import pytest

from launcher.health.state import (
    State,
    Upstream,
    Verdict,
    followed,
    live,
    not_yet,
    phase_line,
    status_port,
    upstream_line,
    upstream_of,
)


def test_a_phase_with_its_progress() -> None:
    state = State().told(phase_line("fetching", {"target": 1000, "draft": 30}, {"target": 999}))
    answer = not_yet(state)
    assert answer.status == 503
    assert answer.document == {
        "object": "health.response",
        "message": "Service is fetching: target 99 %, draft 0 %.",
        "phase": "fetching",
        "progress": {
            "target": {"bytes": 999, "total": 1000, "percent": 99},
            "draft": {"bytes": 0, "total": 30, "percent": 0},
        },
    }


def test_the_hand_over_ends_what_was_told_before() -> None:
    upstream = Upstream(8000, socket="/run/vllm.sock")
    state = State().told(phase_line("fetching", {"target": 9}, {})).told(upstream_line(upstream))
    assert state == State("loading", {}, {}, upstream)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'"x"', b'{"upstream": {"nope": 1}}', b'{"phase": "x"}', b"\xff"])
def test_a_line_that_says_nothing(line: bytes) -> None:
    before = State("fetching", {"target": 9}, {"target": 3})
    assert before.told(line) == before


@pytest.mark.parametrize(
    ("ready", "was_ready", "status", "phase"),
    [(True, False, 200, "ready"), (False, False, 503, "loading"), (False, True, 503, "failing")],
)
def test_vllms_own_word(ready: bool, was_ready: bool, status: int, phase: str) -> None:
    answer = followed(State("loading"), Verdict(ready, "no answer"), was_ready)
    assert (answer.status, answer.document["phase"]) == (status, phase)


@pytest.mark.parametrize(
    ("flags", "upstream"),
    [
        ({}, Upstream(8000)),
        ({"--port": ("9001",), "--host": ("0.0.0.0",)}, Upstream(9001)),
        ({"--host": ("::",)}, Upstream(8000, host="::1")),
        ({"--host": ("10.1.2.3",)}, Upstream(8000, host="10.1.2.3")),
        ({"--uds": ("/run/s",)}, Upstream(8000, socket="/run/s")),
        ({"--headless": ()}, Upstream(0)),
        ({"--ssl-certfile": ("/c",), "--ssl-keyfile": ("/k",)}, Upstream(8000, tls=True)),
        (
            {"--ssl-certfile": ("/c",), "--ssl-keyfile": ("/k",), "--ssl-cert-reqs": ("2",)},
            Upstream(8000, tls=True, certificate="/c", key="/k"),
        ),
    ],
)
def test_where_vllm_answers(flags: dict[str, tuple[str, ...]], upstream: Upstream) -> None:
    assert upstream_of(flags) == upstream


def test_an_answer_on_the_wire() -> None:
    head, _, body = live().encoded().partition(b"\r\n\r\n")
    assert json.loads(body) == {"object": "health.response", "message": "Service is live."}
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}".encode() in head and b"Connection: close" in head
    assert live().encoded(head=True) == head + b"\r\n\r\n"


@pytest.mark.parametrize(("text", "port"), [("9090", 9090), ("", 0), ("-1", 0), ("x", 0)])
def test_where_a_worker_of_dynamo_answers(text: str, port: int) -> None:
    assert status_port(text) == Upstream(port)
