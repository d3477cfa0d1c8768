"""Asking a health listener, and looking at its process."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.integration.standin import Installation


class Answer(NamedTuple):
    status: int
    document: dict[str, Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])


def ask(port: int, path: str = "/v1/health/ready", method: str = "GET") -> Answer | None:
    """The answer, or None where nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        return Answer(response.status, json.loads(body) if body else {})
    except ConnectionError:
        return None
    finally:
        connection.close()


def until(question: Callable[[], Any], limit: float = 10.0) -> Any:
    """The first true answer; fails after ``limit`` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def child_of(process: subprocess.Popen[str]) -> int:
    """The one child of a process."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def begin(launcher: Installation, *words: str, **environ: str) -> subprocess.Popen[str]:
    """Start the launcher without waiting for anything."""
    (launcher.folder / "record.json").unlink(missing_ok=True)
    return subprocess.Popen(
        launcher.command(words),
        env=launcher.environment({"STANDIN_WAIT": "1", **environ}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def executed(launcher: Installation) -> bool:
    return (launcher.folder / "record.json").exists()


class Engine:
    """What vLLM's HTTP server does for a listener: ``/health`` with a status that the test sets."""

    def __init__(self) -> None:
        self.status = 200
        self.delay = 0.0
        self.asked: list[str] = []


@contextmanager
def engine(port: int) -> Iterator[Engine]:
    state = Engine()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            time.sleep(state.delay)
            self.send_response(state.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield state
        server.shutdown()
