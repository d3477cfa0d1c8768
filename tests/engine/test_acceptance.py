"""What is shown of a real server: ``launcher report`` against figures worked out here, and the dashboard's queries."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import BIN, Launch
from tests.engine.prometheus import prometheus
from tests.engine.server import FAST, Server, inherited, start
from tests.models.drafts import forgetful_acceptance
from tests.unit.test_dashboard import EXPRESSIONS, OBSERVABILITY
from tests.unit.test_report_scrape import OFF

SERIES = Path(__file__).parent / "data" / "series.txt"
PROMPT = tuple(b"Please recite: ")
COUNT = 120
WINDOW = "10s"
ABOUT_SPECULATION = re.compile("spec_decode")


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A target with an EAGLE3 draft of three tokens that forgets some letters."""
    folder = tmp_path_factory.mktemp("acceptance")
    variables = {
        **FAST,
        "NIM_MODEL_PATH": str(models / "plain"),
        "NIM_DRAFT_MODEL_PATH": str(models / "eagle3-forgetful"),
        "NIM_SPECDEC_ENABLE": "1",
        "NIM_CACHE_PATH": str(folder / "cache"),
        "NIM_WORKSPACE": str(folder / "workspace"),
        "NIM_MAX_MODEL_LEN": "512",
        "NIM_DISABLE_CUDA_GRAPH": "1",
    }
    running = start([str(BIN / "launcher"), "serve"], variables, folder / "server.log")
    with running.stopped_cleanly():
        yield running


def report(*words: str) -> dict[str, Any]:
    command = [str(BIN / "launcher"), "report", "--format", "json", *words]
    done = subprocess.run(command, env=inherited(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def port(server: Server) -> int:
    assert isinstance(server.address, int)
    return server.address


def test_the_figures_are_those_of_the_counters(server: Server, tmp_path: Path) -> None:
    """From two saved pages, live since the start, and live over an interval with a request in it."""
    pages: list[Path] = []
    counted = []
    for _ in range(2):
        server.complete(PROMPT, COUNT)
        pages.append(tmp_path / f"{len(pages)}.txt")
        pages[-1].write_bytes(server.ask("/metrics").body)
        counted.append(server.counters())
    before, after = counted
    assert before is not None and after is not None
    between = after - before

    (run,) = report("--scrapes", str(pages[0]), str(pages[1]))["runs"]
    assert run["drafts"] == between.drafts > 0
    assert run["acceptance_rate"] == pytest.approx(between.rate)
    assert run["acceptance_length"] == pytest.approx(between.length)
    positions = [count / between.drafts for count in between.per_position]
    assert run["acceptance_by_position"] == pytest.approx(positions)
    assert run["output_tokens"] == COUNT
    expected = forgetful_acceptance(PROMPT[-1], COUNT, drafted=3)
    assert (run["drafts"], run["accepted_tokens"]) == (expected.drafts, sum(expected.by_position))

    (whole,) = report("--url", f"127.0.0.1:{port(server)}", "--interval", "0")["runs"]
    assert (whole["drafts"], whole["accepted_tokens"]) == (after.drafts, after.accepted)

    asking = threading.Thread(target=lambda: server.complete(PROMPT, COUNT))
    asking.start()
    recent, _ = report("--url", f"127.0.0.1:{port(server)}", "--interval", "4")["runs"]
    asking.join()
    assert recent["output_tokens"] <= COUNT
    assert recent["draft_tokens_per_second"] == pytest.approx(recent["draft_tokens"] / recent["seconds"])


def test_the_metrics_are_those_that_the_dashboard_was_made_for(server: Server) -> None:
    """Run with UPDATE_SERIES=1 after a new vLLM, and look at what changed."""
    server.complete(PROMPT, COUNT)
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(
        r"^(vllm:\w+)(?:\{(.*)\})? \S+$", server.ask("/metrics").body.decode(), re.MULTILINE
    ):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    text = "".join(f"{' '.join((name, *sorted(found)))}\n" for name, found in sorted(labels.items()))
    if os.environ.get("UPDATE_SERIES"):
        SERIES.write_text(text)
    assert SERIES.read_text() == text


@contextmanager
def plain_server() -> Iterator[int]:
    """Metrics of a server without speculation, whose tokens rise."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = OFF.replace("100.0", str(int(time.time()))).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def filled_in(expression: str, job: str) -> str:
    values = {"$__rate_interval": WINDOW, "$job": job, "$model_name": ".*", "$instance": ".*"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


def test_every_panel_has_data_and_the_right_data(server: Server, tmp_path: Path) -> None:
    """Prometheus evaluates each query of the dashboard; a server that does not speculate has none about drafts."""
    rules = OBSERVABILITY / "rules.yml"
    with plain_server() as plain, prometheus(tmp_path, {"vllm": port(server), "plain": plain}, rules) as database:
        end = time.monotonic() + 12
        while time.monotonic() < end:
            server.complete(PROMPT, COUNT)
            time.sleep(0.2)
        found = {(title, text): database.query(filled_in(text, "vllm")) for title, text in EXPRESSIONS}
        without = {text: database.query(filled_in(text, "plain")) for _, text in EXPRESSIONS}
        counters = server.counters()
    assert counters is not None
    empty = [key for key, series in found.items() if not series]
    assert empty == []
    odd = {key: series for key, series in found.items() if not all(math.isfinite(value) for _, value in series)}
    assert odd == {}
    values = {title: series for (title, _), series in found.items()}
    assert values["Acceptance rate"][0][1] == pytest.approx(counters.rate, abs=0.02)
    assert values["Mean acceptance length"][0][1] == pytest.approx(counters.length, abs=0.06)
    by_position = {labels["position"]: value for labels, value in values["Acceptance by position"]}
    for place, count in enumerate(counters.per_position):
        assert by_position[str(place)] == pytest.approx(count / counters.drafts, abs=0.03)
    assert [text for text, series in without.items() if series and ABOUT_SPECULATION.search(text)] == []
    assert sum(bool(series) for series in without.values()) >= 2  # its tokens and its requests


def test_a_draft_that_guesses_everything_is_reported_so(models: Path, launch: Launch) -> None:
    """The other end of the scale.  (Acceptance that is set, ``rejection_sample_method: synthetic``, needs a GPU.)"""
    with launch(models / "plain", NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH=str(models / "eagle3")) as server:
        server.complete(PROMPT, COUNT)
        (run,) = report("--url", f"127.0.0.1:{port(server)}", "--interval", "0")["runs"]
    assert run["acceptance_rate"] == pytest.approx(1.0, abs=0.1)
    assert run["acceptance_length"] == pytest.approx(4.0, abs=0.1)
    assert run["acceptance_by_position"] == pytest.approx([1.0] * 3, abs=0.1)
