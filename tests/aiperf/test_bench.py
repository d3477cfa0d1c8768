"""``launcher bench`` with AIPerf as its client, and AIPerf's replay of a captured trace."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.middleware.asgi import Middleware
from launcher.middleware.configuration import VARIABLE, Capture, Configuration, to_json
from tests.aiperf.conftest import MODEL, Both, url
from tests.aiperf.test_guide import write_questions
from tests.engine.conftest import BIN
from tests.models import write_snapshot
from tests.unit.asgi import Engine, call

TURN = {"role": "user", "content": "Please recite: "}
PAYLOADS: list[dict[str, Any]] = [
    {"model": MODEL, "messages": [TURN], "stream": True, "max_tokens": 8, "temperature": 0},
    {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "parts, and \U0001d11e é"}]}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 16,
        "vllm_xargs": {"a": 1},
    },
    {"model": MODEL, "messages": [TURN], "stream": False, "max_tokens": 4, "seed": 7},
]


def write_trace(path: Path, begin: float = 1_795_982_564_123.456) -> Path:
    """As the capture writes it: wall clock in milliseconds, two keys."""
    lines = [
        json.dumps({"timestamp": begin + 300.5 * number, "payload": payload}) for number, payload in enumerate(PAYLOADS)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def recording() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers every chat with one word and keeps the bodies, in the order of their arrival."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("text/plain", f'vllm:num_requests_running{{model_name="{MODEL}"}} 0\n')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            part = "delta" if body.get("stream") else "message"
            choice = {"index": 0, part: {"role": "assistant", "content": "word"}, "finish_reason": "stop"}
            answer = {"id": "1", "object": "chat.completion", "model": MODEL, "created": 1, "choices": [choice]}
            if not body.get("stream"):
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                self._answer("application/json", json.dumps(answer | {"usage": usage}))
                return
            event = json.dumps(answer | {"object": "chat.completion.chunk"})
            self._answer("text/event-stream", f"data: {event}\n\ndata: [DONE]\n\n")

        def _answer(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"localhost:{server.server_address[1]}", bodies
        finally:
            server.shutdown()


def captured(path: Path, payloads: Sequence[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace as the middleware writes it: sixteen streams at once through the very capture, with nothing behind it."""
    monkeypatch.setenv(VARIABLE, to_json(Configuration(capture=Capture(path=str(path))).document()))
    engine: Any = Engine()
    app = Middleware(engine)

    async def streams() -> None:
        waiting = iter(payloads)

        async def stream() -> None:
            for payload in waiting:
                body = json.dumps(payload, indent=1).encode()
                await call(app, "POST", "/v1/chat/completions", body=(body[:40], body[40:]))
                await asyncio.sleep(0.01)

        await asyncio.gather(*(stream() for _ in range(16)))

    asyncio.run(streams())
    app.close()
    return path


def test_what_the_middleware_captured_is_replayed_as_it_was(
    aiperf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = [{**PAYLOADS[number % 3], "user": f"n {number}"} for number in range(48)]
    trace = captured(tmp_path / "requests.jsonl", payloads, monkeypatch)
    checked = subprocess.run([BIN / "launcher", "capture", "validate", trace], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    write_snapshot("plain", tmp_path / "home" / "hub", MODEL)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HF_HOME": f"{tmp_path}/home",
        "HF_HUB_OFFLINE": "1",
    }
    with recording() as (address, bodies):
        command = [
            str(aiperf), "profile", "--model", MODEL, "--endpoint-type", "chat", "--streaming", "--url", address,
            "--custom-dataset-type", "mooncake_trace", "--input-file", str(trace), "--ui", "none",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert sorted(map(json.dumps, bodies)) == sorted(map(json.dumps, payloads))


def bench(both: Both, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    servers = ["--off", url(both.off), "--on", url(both.on)]
    return subprocess.run(
        ["launcher", "bench", *servers, *words],
        env={**both.environment, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_comparison_through_aiperf(both: Both, tmp_path: Path) -> None:
    """AIPerf is on PATH, so it is the client; with a folder for the tokenizer, offline settings do it no harm."""
    questions = write_questions(tmp_path)
    begin = time.monotonic()
    done = bench(
        both, "--speed-bench", str(questions), "--category", "math", "--requests", "2", "--max-tokens", "100",
        "--tokenizer", str(both.tokenizer), "--output", str(tmp_path / "out"), "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "AIPerf 0.13.0: temperature 0, at most 100 tokens an answer" in document["remarks"][0]
    (pair,) = document["pairs"]
    assert pair["traffic"] == "math"
    assert pair["off"]["speculation"] is False and pair["off"]["requests"] == pair["on"]["requests"] == 2
    assert 0.55 < pair["on"]["acceptance_rate"] < 0.75
    figures = [side["output_tokens_per_second"] for side in (pair["off"], pair["on"])]
    assert pair["speedup"] == figures[1] / figures[0]
    assert time.monotonic() - begin < 240


def test_the_built_in_client_agrees_on_acceptance(both: Both, tmp_path: Path) -> None:
    """The same questions through our own client: the same acceptance, the same texts on both sides, exit code 11
    above what the draft reaches.
    """
    questions = write_questions(tmp_path)
    words = ["--speed-bench", str(questions), "--category", "math", "--client", "built-in", "--format", "json"]
    done = bench(both, *words, "--min-acceptance", "0.9")
    assert done.returncode == 11, done.stderr
    (pair,) = json.loads(done.stdout)["pairs"]
    assert pair["same_answers"] == {"equal": 3, "of": 3}
    assert pair["off"]["requests"] == pair["on"]["requests"] == 4  # one of the three has two turns
    assert pair["off"]["output_tokens"] == pair["on"]["output_tokens"] == 4 * 63  # the text and its end
    assert 0.55 < pair["on"]["acceptance_rate"] < 0.75
    assert "below the floor of 0.9" in done.stderr.splitlines()[-1]


def test_a_trace_through_the_built_in_client(both: Both, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "traffic.jsonl")
    done = bench(both, "--trace", str(trace), "--client", "built-in", "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "recorded requests as they are, at their recorded times" in document["remarks"][0]
    (pair,) = document["pairs"]
    assert pair["off"]["output_tokens"] == pair["on"]["output_tokens"] == 8 + 16 + 4
    assert pair["off"]["seconds"] > 0.6  # the times of the trace are kept
