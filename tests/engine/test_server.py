"""The harness itself, with servers that need no engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.engine.server import Counters, parse_counters, start, survivors

METRICS = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="tiny"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="2"} 20.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 130.0
"""
# Answers every request, and leaves a child behind when asked to.
SERVER = """\
import http.server, subprocess, sys
if "--litter" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer).serve_forever()
"""


def test_counters() -> None:
    counters = parse_counters(METRICS)
    assert counters == Counters(drafts=40, draft_tokens=120, accepted=90, per_position=(40, 30, 20))
    assert (counters.rate, counters.length) == (0.75, 3.25)
    assert counters - Counters(10, 30, 20, (10, 6, 4)) == Counters(30, 90, 70, (30, 24, 16))


def test_no_counters_without_speculation() -> None:
    assert parse_counters("vllm:generation_tokens_total 130.0\n") is None


def test_a_server_that_dies_is_reported_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with pytest.raises(AssertionError, match="ended with 1 before it was ready:\nno such model"):
        start(command, {}, tmp_path / "log")


def test_an_exit_code_other_than_0_is_reported(tmp_path: Path) -> None:
    server = start([sys.executable, "-c", SERVER], {}, tmp_path / "log")
    with pytest.raises(AssertionError, match="exit code -15"), server.stopped_cleanly():
        assert server.ask("/health").status == 200


def test_a_process_left_behind_is_reported_and_ended(tmp_path: Path) -> None:
    server = start([sys.executable, "-c", SERVER, "--litter"], {}, tmp_path / "log")
    with pytest.raises(AssertionError, match="still running after SIGTERM"):
        server.stop()
    assert survivors(server.process.pid, patience=10.0) == []  # a killed process needs a moment to be gone
