"""``launcher healthcheck``: whom it asks, and what it makes of the answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from launcher.commands import healthcheck


def process(folder: Path, number: int, *words: str) -> None:
    (folder / str(number)).mkdir()
    (folder / str(number) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


@contextmanager
def server(status: int) -> Iterator[int]:
    """vLLM's /health with an answer of one kind; the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    serving = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield serving.server_port
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = healthcheck.run({}, str(folder))
    return code, capsys.readouterr().out.strip()


@pytest.mark.parametrize("spelling", ["--port {}", "--port={}"])
def test_the_port_is_the_one_that_vllm_was_given(
    spelling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(200) as port:
        words = spelling.format(port).split()
        process(tmp_path, 1, "/usr/bin/python3", "/usr/local/bin/vllm", "serve", "/w", "--port", "1", *words)
        assert asked(tmp_path, capsys) == (0, "ready")


def test_an_engine_that_died_is_not_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(503) as port:
        process(tmp_path, 1, "vllm", "serve", "/w", "--port", str(port))
        assert asked(tmp_path, capsys) == (1, "vLLM answers /health with 503")


def test_nothing_listens_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(200) as port:
        pass
    process(tmp_path, 1, "vllm", "serve", "/w", "--port", str(port))
    code, said = asked(tmp_path, capsys)
    assert code == 1 and said.startswith("vLLM does not listen yet")


def test_a_download_is_not_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process(tmp_path, 1, "/usr/bin/python3", "/usr/local/bin/launcher", "serve", "hf://org/vllm")
    assert asked(tmp_path, capsys) == (1, "vLLM was not started yet")


def test_a_node_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process(tmp_path, 1, "vllm", "serve", "/w", "--headless")
    assert asked(tmp_path, capsys) == (0, "ready")


def test_behind_an_init_the_oldest_serves(tmp_path: Path) -> None:
    process(tmp_path, 1, "/sbin/docker-init", "--", "launcher")
    process(tmp_path, 9, "VLLM::EngineCore")
    process(tmp_path, 30, "python3", "/usr/local/bin/vllm", "serve", "/child")
    process(tmp_path, 7, "python3", "/usr/local/bin/vllm", "serve", "/main", "--port", "9")
    (tmp_path / "self").mkdir()
    (tmp_path / "8").mkdir()  # ended while we looked
    assert healthcheck.serving(str(tmp_path)) == ["/main", "--port", "9"]
