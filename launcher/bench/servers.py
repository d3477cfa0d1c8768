"""A server of the benchmark's own: ``launcher serve`` with the user's words, on loopback, for the length of a block."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from launcher import logs
from launcher.bench.processes import starting
from launcher.errors import TREE, ConfigurationError, LauncherError

WITHOUT_SPECULATION = ("--speculative-config", "none")
# What must not go on while a benchmark runs: its requests would be captured.
_QUIET = {"NIM_CAPTURE_ENABLE": "0"}
# Ports are the service's, and nobody listens in on loopback.
_DROPPED = ("NIM_HEALTH_PORT", "NIM_SERVER_PORT", "NIM_HTTP_API_PORT", "NIM_SSL_MODE", "NIM_SSL_KEY_PATH",
            "NIM_SSL_CERTS_PATH", "NIM_SSL_CA_CERTS_PATH")  # fmt: skip
# Under these a server would not answer plain HTTP on the port that it is given here.
ELSEWHERE = ("--ssl-keyfile", "--ssl-certfile", "--uds", "--headless")
_REPORT_EVERY = 30.0  # seconds


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What such a server gets of ours."""
    return {name: value for name, value in environ.items() if name not in _DROPPED} | _QUIET


@contextmanager
def serving(words: Sequence[str], environ: Mapping[str, str], log: str, patience: float, what: str) -> Iterator[str]:
    """Its URL, once it is healthy.

    Raises the LauncherError of the exit code that it ended with, or ConfigurationError after ``patience`` seconds.
    """
    port = _free_port()
    command = [sys.executable, "-m", "launcher", "serve", *words, "--host", "127.0.0.1", "--port", str(port)]
    with starting(command, environment(environ), log) as process:
        _wait_until_healthy(process, port, log, patience, what)
        yield f"http://127.0.0.1:{port}"


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: str, patience: float, what: str) -> None:
    begin = said = time.monotonic()
    while not _healthy(port):
        code = process.poll()
        now = time.monotonic()
        if code is not None:
            raise _ended(code, log, what)
        if now - begin > patience:
            raise ConfigurationError(
                f"the server {what} was not ready after {patience:.0f} s", f"See {log}, or raise --timeout"
            )
        if now - said > _REPORT_EVERY:
            said = now
            logs.info(f"waiting for the server {what}, {now - begin:.0f} s so far ({log})")
        time.sleep(0.2)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _ended(code: int, log: str, what: str) -> LauncherError:
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    last = lines[-1].partition("] ")[2] or lines[-1] if lines else "it said nothing"
    kind = next((kind for kind in TREE if kind.code == code), ConfigurationError)
    return kind(f"the server {what} ended with {code}: {logs.mask(last)[:300]}", f"See {log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
