"""From a request to a replay: the real capture, the real AIPerf, and what arrives."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.aiperf.conftest import MODEL, Both, url
from tests.aiperf.test_bench import PAYLOADS
from tests.engine.server import Server


def captured(file: Path, past: int, count: int) -> list[dict[str, Any]]:
    """The ``count`` lines after the first ``past``, once the server's writer has put them there."""
    limit = time.monotonic() + 20
    while True:
        lines = file.read_text().splitlines()[past:] if file.exists() else []
        if len(lines) >= count or time.monotonic() > limit:
            return [json.loads(line) for line in lines]
        time.sleep(0.1)


def lines_in(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def ask(server: Server, payload: dict[str, Any]) -> None:
    answer = server.ask("/v1/chat/completions", payload)
    assert answer.status == 200, answer.body


def test_what_was_captured_is_what_is_replayed(both: Both, tmp_path: Path) -> None:
    """Requests to one server, its trace through AIPerf to the other, whose own capture holds the same payloads.

    The trace is what the first server captured, as it is, and the launcher finds nothing in it that would stop AIPerf.
    """
    past, there = lines_in(both.captures["off"]), lines_in(both.captures["on"])
    for payload in PAYLOADS:
        ask(both.off, payload)
    rows = captured(both.captures["off"], past, len(PAYLOADS))
    assert [row["payload"] for row in rows] == PAYLOADS
    trace = tmp_path / "traffic.jsonl"
    trace.write_text("".join(both.captures["off"].read_text().splitlines(keepends=True)[past:]))
    valid = subprocess.run(
        ["launcher", "capture", "validate", str(trace)], env=dict(both.environment), capture_output=True, text=True
    )
    assert valid.returncode == 0, valid.stderr
    command = [
        "aiperf", "profile",
        "--model", MODEL,
        "--endpoint-type", "chat", "--streaming",
        "--url", url(both.on),
        "--custom-dataset-type", "mooncake_trace",
        "--input-file", str(trace),
        "--server-metrics", f"http://{url(both.on)}/v1/metrics",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=dict(both.environment), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    replayed = captured(both.captures["on"], there, len(PAYLOADS))
    assert [row["payload"] for row in replayed] == PAYLOADS
