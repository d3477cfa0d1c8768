"""``launcher bench`` against two servers that stream, count and fail as they are told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.standin import Installation

REPOSITORY = Path(__file__).parents[2]
KEY = "sk-bench-clients-key"
WORDS = ("one ", "two ", "three ", "four")  # an answer: one chunk each


class Model:
    """A server of one model; each answer of four tokens takes two drafts of three tokens, of which two are accepted."""

    def __init__(self, *, speculates: bool, key: str | None = None, longest: int = 4096) -> None:
        self.speculates, self.key, self.longest = speculates, key, longest
        self.fail_with: int | None = None  # the status of every answer
        self.fail_on: str | None = None  # only where this is asked
        self.break_off = False
        self.bodies: list[dict[str, Any]] = []
        self.answers = 0
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = ""

    def metrics(self) -> str:
        labels = '{engine="0",model_name="tiny"}'
        lines = [f"vllm:generation_tokens_total{labels} {4 * self.answers}"]
        if self.speculates:
            lines += [
                f"vllm:spec_decode_num_drafts_total{labels} {2 * self.answers}",
                f"vllm:spec_decode_num_draft_tokens_total{labels} {6 * self.answers}",
                f"vllm:spec_decode_num_accepted_tokens_total{labels} {2 * self.answers}",
            ]
        return "\n".join(lines) + "\n"


@contextmanager
def serving(model: Model) -> Iterator[Model]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/metrics":
                self._say(200, model.metrics())
            elif self._may():
                models = [{"id": "tiny", "max_model_len": model.longest}, {"id": "other"}]
                self._say(200, json.dumps({"object": "list", "data": models}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self._may():
                return
            with model.lock:
                model.bodies.append(body)
                model.at_once += 1
                model.most_at_once = max(model.most_at_once, model.at_once)
            try:
                self._answer(body)
            finally:
                with model.lock:
                    model.at_once -= 1

        def _may(self) -> bool:
            if model.key is None or self.headers.get("Authorization") == f"Bearer {model.key}":
                return True
            self._say(401, '{"error":"Unauthorized"}')
            return False

        def _answer(self, body: dict[str, Any]) -> None:
            asked = body["messages"][-1]["content"]
            if model.fail_with and (model.fail_on is None or model.fail_on in asked):
                self._say(model.fail_with, '{"error":{"message":"no room"}}')
                return
            self.send_response(200)
            self.end_headers()
            for number, word in enumerate(WORDS):
                self._event({"choices": [{"index": 0, "delta": {"content": word}}]})
                if model.break_off and number == 1:
                    return
            self._event({"choices": [], "usage": {"completion_tokens": 4}})
            with model.lock:
                model.answers += 1
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, document: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(document)}\n\n".encode())
            self.wfile.flush()

        def _say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        model.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield model
        finally:
            server.shutdown()


@pytest.fixture
def off() -> Iterator[Model]:
    with serving(Model(speculates=False)) as model:
        yield model


@pytest.fixture
def on() -> Iterator[Model]:
    with serving(Model(speculates=True)) as model:
        yield model


def bench(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", "bench", "--client", "built-in", *words]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def both(off: Model, on: Model) -> tuple[str, ...]:
    return ("--off", off.url, "--on", on.url)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_the_built_in_questions(off: Model, on: Model, tmp_path: Path) -> None:
    done = bench(*both(off, on), "--requests", "4", "--format", "json", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [pair["traffic"] for pair in document["pairs"]] == ["coding", "math", "summarization", "writing"]
    for pair in document["pairs"]:
        assert pair["on"]["acceptance_rate"] == pytest.approx(1 / 3)
        assert pair["on"]["acceptance_length"] == 2.0
        assert pair["off"]["acceptance_rate"] is None
        assert pair["same_answers"] == {"equal": 4, "of": 4}
        for side in ("off", "on"):
            assert pair[side]["requests"] == 4
            assert pair[side]["output_tokens"] == 16
            assert pair[side]["output_tokens_per_second"] == pytest.approx(16 / pair[side]["seconds"])
            assert 0 < pair[side]["first_token_ms"] <= pair[side]["latency_ms"]
    bodies = off.bodies[1:]  # the first one warmed up
    assert len(off.bodies) == len(on.bodies) == 1 + 4 * 4
    assert {(body["temperature"], body["max_completion_tokens"], body["model"]) for body in bodies} == {
        (0.0, 512, "tiny")
    }
    again = subprocess.run(
        [sys.executable, "-m", "launcher", "report", "--format", "json", "--compare", str(tmp_path / "out" / "off"),
         str(tmp_path / "out" / "on")],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    kept = json.loads(again.stdout)
    assert kept["overall"] == document["overall"]


def test_turns_carry_what_was_said(off: Model, on: Model) -> None:
    assert bench(*both(off, on), "--category", "math", "--concurrency", "1").returncode == 0
    conversation = next(body["messages"] for body in off.bodies if len(body["messages"]) > 1)
    assert [turn["role"] for turn in conversation] == ["user", "assistant", "user"]
    assert conversation[1]["content"] == "".join(WORDS)


def test_no_more_at_once_than_asked(off: Model, on: Model) -> None:
    assert bench(*both(off, on), "--concurrency", "3").returncode == 0
    assert 1 <= off.most_at_once <= 3 and on.most_at_once <= 3


def test_answers_are_fitted_to_what_the_server_takes(on: Model) -> None:
    with serving(Model(speculates=False, longest=300)) as small:
        done = bench("--off", small.url, "--on", on.url, "--category", "math", "--requests", "1")
    # The other side too: longer answers there would compare two things.
    assert [side.bodies[-1]["max_completion_tokens"] for side in (small, on)] == [150, 150]
    assert done.stderr.count("--max-tokens 150 instead of 512: the server takes 300 tokens in all") == 1
    assert "at most 150 tokens an answer" in done.stdout


def test_a_category_that_is_not_there(off: Model, on: Model) -> None:
    done = bench(*both(off, on), "--category", "poems")
    assert done.returncode == 2
    said = "the built-in set has no category 'poems'. It has coding, math, summarization, writing."
    assert said in last_line(done)


def test_failures_are_counted_and_named(off: Model, on: Model) -> None:
    off.fail_with, off.fail_on = 400, "four-digit"
    done = bench(*both(off, on), "--category", "math")
    assert done.returncode == 0, done.stderr
    assert "errors off" in done.stdout
    assert 'note: math: 1 failed, the first with: HTTP 400: {"error":{"message":"no room"}}' in done.stdout


def test_nothing_works(off: Model, on: Model) -> None:
    on.fail_with = 500
    done = bench(*both(off, on))
    assert done.returncode == 5
    assert "every request to" in last_line(done) and "HTTP 500" in last_line(done)


def test_answers_that_break_off_are_failures(off: Model, on: Model) -> None:
    on.break_off = True
    done = bench(*both(off, on))
    assert done.returncode == 5
    assert "the answer broke off" in last_line(done)


def test_the_key(on: Model) -> None:
    with serving(Model(speculates=False, key=KEY)) as guarded:
        without = bench("--off", guarded.url, "--on", on.url, "--requests", "1", "--category", "math")
        done = bench("--off", guarded.url, "--on", on.url, "--requests", "1", "--category", "math", VLLM_API_KEY=KEY)
        refused = bench("--off", guarded.url, "--on", on.url, "--client", "aiperf", VLLM_API_KEY=KEY)
    assert without.returncode == 5 and "401" in last_line(without)
    assert done.returncode == 0, done.stderr
    assert refused.returncode == 2 and "on its command line" in last_line(refused)
    assert KEY not in done.stdout + done.stderr + refused.stderr


def test_speculation_must_be_off_and_on(off: Model, on: Model) -> None:
    with serving(Model(speculates=True)) as second, serving(Model(speculates=False)) as third:
        swapped = bench("--off", on.url, "--on", second.url, "--requests", "1")
        silent = bench("--off", off.url, "--on", third.url, "--requests", "1")
    assert swapped.returncode == 2 and "should be without speculation has acceptance" in last_line(swapped)
    assert silent.returncode == 2 and "should speculate does not" in last_line(silent)


@pytest.mark.parametrize(("floor", "code"), [("0.3", 0), ("0.4", 11)])
def test_the_floor(floor: str, code: int, off: Model, on: Model) -> None:
    done = bench(*both(off, on), "--requests", "1", NIM_SPECDEC_MIN_ACCEPTANCE=floor)
    assert done.returncode == code
    assert "0.333" in done.stdout


def trace(path: Path, *payloads: dict[str, Any], timed: bool = True) -> str:
    lines = [
        json.dumps({"timestamp": 1_795_982_564_123.5 + 200 * number, "payload": payload} if timed else payload)
        for number, payload in enumerate(payloads)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def payload(number: int, model: str = "tiny") -> dict[str, Any]:
    return {
        "model": model, "messages": [{"role": "user", "content": f"é \U0001d11e {number}"}], "stream": True,
        "temperature": 0.7, "max_tokens": number + 1,
    }  # fmt: skip


@pytest.mark.parametrize(("timed", "ignored"), [(True, False), (False, False), (True, True)])
def test_a_trace_is_sent_as_it_is(timed: bool, ignored: bool, off: Model, on: Model, tmp_path: Path) -> None:
    payloads = [payload(number) for number in range(4)]
    words = [*(["--concurrency", "1"] if ignored or not timed else []), *(["--ignore-times"] if ignored else [])]
    done = bench(
        *both(off, on), "--trace", trace(tmp_path / "t.jsonl", *payloads, timed=timed), *words, "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    assert off.bodies[1:] == on.bodies[1:] == payloads
    (pair,) = json.loads(done.stdout)["pairs"]
    assert (pair["off"]["seconds"] > 0.6) == (timed and not ignored)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"timestamp": 1, "payload": {"model": "tiny", "messages": [{"content": NaN}]}}', "line 1: broken JSON"),
        ('{"timestamp": 1, "payload": {}}', "line 1: no payload"),
        ('{"timestamp": "now", "payload": {"messages": []}}', "line 1: the timestamp"),
        ('{"timestamp": 1, "payload": {"messages": []}}\n{"payload": {"messages": []}}', "on some lines only"),
        ('{"timestamp": 1, "payload": {"messages": []}}\n{"timestamp": 1, "payload": {"prompt": "x"}}', "mixes chat"),
        ('{"timestamp": 1, "payload": {"model": "gone", "messages": []}}', "does not serve 'gone' but tiny, other"),
        ('{"timestamp": 1, "payl', "line 1: broken JSON"),
        ("", "holds no requests"),
    ],
)
def test_a_trace_that_cannot_be_replayed(lines: str, said: str, off: Model, on: Model, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(lines)
    done = bench(*both(off, on), "--trace", str(tmp_path / "t.jsonl"))
    assert done.returncode == 2
    assert said in last_line(done), done.stderr
    assert "Traceback" not in done.stderr and off.bodies == []


GOOD = {"question_id": "0" * 32, "category": "coding", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({"question_id": "0" * 31}, (), "question_id is not a text of 32 characters"),
        ({"category": "codding"}, (), "'codding' is no category"),
        ({"messages": []}, (), "no messages"),
        ({"messages": [{"role": "user", "content": ""}]}, (), "without role and text"),
        ({"messages": [{"role": "user", "content": "FULL BENCHMARK DATA SHOULD BE FETCHED …"}]}, (), "never fetched"),
        ({}, ("--category", "codin"), "has no category 'codin'. Did you mean 'coding'?"),
    ],
)
def test_questions_that_aiperf_would_refuse(
    change: dict[str, Any], words: tuple[str, ...], said: str, off: Model, on: Model, tmp_path: Path
) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({**GOOD, **change}) + "\n")
    done = bench(*both(off, on), "--speed-bench", str(tmp_path / "q.jsonl"), *words)
    assert done.returncode == 2
    assert said in last_line(done), done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--off", "localhost:1"), 2, "--off and --on belong together"),
        (("--off", "localhost:1", "--on", "localhost:1"), 2, "are the same server"),
        (("--off", "localhost:1", "--on", "localhost:2", "--", "/m"), 2, "would start others"),
        (("--off", "127.0.0.1:1", "--on", "127.0.0.1:2"), 5, "cannot be reached: Connection refused"),
        (("--trace", "/nowhere.jsonl", "--off", "a", "--on", "b"), 3, "does not exist"),
        (("--trace", "a", "--category", "math"), 2, "a trace has no categories"),
        (("--", "/no/such/model"), 3, "/no/such/model"),
        ((), 2, "NIM_MODEL_PATH"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    done = bench(*words, NIM_CACHE_PATH=str(tmp_path / "cache"), NIM_WORKSPACE=str(tmp_path / "workspace"))
    assert done.returncode == code, done.stderr
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize("words", [("--uds", "/tmp/socket"), ("--headless",)])
def test_a_server_that_could_not_be_asked(words: tuple[str, ...], launcher: Installation, models: Path) -> None:
    """Rather than an hour of waiting for its health."""
    ran = launcher.run("bench", "--", str(models / "mtp"), *words, NIM_SPECDEC_ENABLE="1")
    assert (ran.code, ran.record) == (2, None)
    assert f"a server with {words[0]} cannot be asked over HTTP on loopback" in ran.last_line


def ask_for_servers(launcher: Installation, models: Path, **variables: str) -> subprocess.Popen[str]:
    """A benchmark that starts its own servers, which are stand-ins that never become healthy."""
    words = launcher.command(["bench", "--client", "built-in", "--", str(models / "mtp")])
    environment = launcher.environment({"NIM_SPECDEC_ENABLE": "1", **variables})
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_signal_ends_the_server_too(launcher: Installation, models: Path) -> None:
    record = launcher.folder / "record.json"
    with ask_for_servers(launcher, models, STANDIN_WAIT="1") as process:
        limit = time.monotonic() + 30
        while not record.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "stopped by SIGTERM; what was measured so far is in" in said.splitlines()[-1]
    seen = json.loads(record.read_text())
    assert not Path(f"/proc/{seen['pid']}").exists()
    assert "--speculative-config" not in seen["argv"]  # the one without speculation comes first
    assert seen["argv"][seen["argv"].index("--host") + 1] == "127.0.0.1"
    assert seen["environ"]["NIM_CAPTURE_ENABLE"] == "0"


def test_a_server_that_does_not_start_is_the_error(launcher: Installation, models: Path) -> None:
    with ask_for_servers(launcher, models, STANDIN_EXIT="3") as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "the server with speculation off ended with 3" in said.splitlines()[-1]


def test_results_do_not_mix(off: Model, on: Model, tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    done = bench(*both(off, on), "--output", str(tmp_path))
    assert done.returncode == 2 and "is not empty" in last_line(done)


def test_speculation_that_is_off_anyway_is_nothing_to_compare(models: Path, tmp_path: Path) -> None:
    places = {"NIM_CACHE_PATH": str(tmp_path / "cache"), "NIM_WORKSPACE": str(tmp_path / "workspace")}
    done = bench("--", str(models / "mtp"), **places)
    assert done.returncode == 2 and "nothing to compare" in last_line(done)
    laid_over = bench("--", str(models / "mtp"), "--spec-method", "mtp", **places)
    assert laid_over.returncode == 2 and "--off and --on" in last_line(laid_over), laid_over.stderr
