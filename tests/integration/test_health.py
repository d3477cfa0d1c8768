"""NIM_HEALTH_PORT: a process of its own that answers before, during and after the exec."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.integration.health import ask, begin, child_of, engine, executed, free_port, is_gone, until
from tests.integration.standin import Installation, stop

LIVE = "/v1/health/live"


def test_it_follows_vllm_through_the_exec(launcher: Installation, models: Path) -> None:
    port, served = free_port(), free_port()
    environ = {"NIM_HEALTH_PORT": str(port), "NIM_SERVER_PORT": str(served)}
    process = launcher.start("serve", str(models / "plain"), **environ)
    live, loading = ask(port, LIVE), ask(port)
    assert live is not None and live.status == 200
    assert loading is not None and loading.status == 503
    assert loading.document["phase"] == "loading"
    assert "does not listen yet" in loading.document["message"]
    with engine(served) as vllm:
        ready = ask(port)
        assert ready is not None and (ready.status, ready.document["phase"]) == (200, "ready")
        assert vllm.asked == ["/health"]
        vllm.status = 503
        failing = ask(port)
        assert failing is not None and (failing.status, failing.document["phase"]) == (503, "failing")
        assert "/health with 503" in failing.document["message"]
        vllm.status = 200
        again = ask(port)
        assert again is not None and again.status == 200
        assert ask(port, LIVE, "HEAD") == (200, {})
    listener = child_of(process)
    assert stop(process) == 0
    until(lambda: is_gone(listener), 2)
    assert ask(port, LIVE) is None


def test_a_vllm_that_hangs_is_not_ready_and_the_launch_still_live(launcher: Installation, models: Path) -> None:
    port, served = free_port(), free_port()
    process = launcher.start("serve", str(models / "plain"), NIM_HEALTH_PORT=str(port), NIM_SERVER_PORT=str(served))
    with engine(served) as vllm:
        vllm.delay = 4.0
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            waiting.sendall(b"GET /v1/health/ready HTTP/1.1\r\n\r\n")
            live = ask(port, LIVE)
            assert live is not None and live.status == 200
            assert time.monotonic() - began < 1
            assert waiting.recv(100).startswith(b"HTTP/1.1 503 ")
        assert 1.5 < time.monotonic() - began < 3.5
    assert stop(process) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_goes_with_vllm(number: signal.Signals, launcher: Installation, models: Path) -> None:
    port = free_port()
    process = launcher.start("serve", str(models / "plain"), NIM_HEALTH_PORT=str(port))
    listener = child_of(process)
    process.send_signal(number)
    process.communicate(timeout=10)
    until(lambda: is_gone(listener), 2)
    assert ask(port, LIVE) is None


def test_signals_to_the_whole_group_are_meant_for_vllm(launcher: Installation, models: Path) -> None:
    port = free_port()
    process = launcher.start("serve", str(models / "plain"), NIM_HEALTH_PORT=str(port))
    listener = child_of(process)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(listener, number)
    live = ask(port, LIVE)
    assert live is not None and live.status == 200
    assert stop(process) == 0


def test_it_is_small_and_holds_nothing(launcher: Installation, models: Path) -> None:
    port = free_port()
    words = ("serve", str(models / "mtp"), "--api-key", "a-key-of-clients")
    process = launcher.start(*words, NIM_HEALTH_PORT=str(port), NIM_SPECDEC_ENABLE="1", HF_TOKEN="a-token-of-ours")
    assert ask(port) is not None
    listener = Path(f"/proc/{child_of(process)}")
    status = dict(line.split(":", 1) for line in (listener / "status").read_text().splitlines())
    assert int(status["VmRSS"].split()[0]) < 15_000  # kB
    assert status["Name"].strip() == "health-listener"
    assert int(status["Threads"]) == 2
    assert (listener / "cmdline").read_bytes().strip(b"\0") == b"health-listener"
    assert (listener / "environ").read_bytes().strip(b"\0") == b""
    kinds = sorted(str(one.readlink()).partition(":")[0] for one in (listener / "fd").iterdir())
    assert kinds == ["/dev/null"] * 3 + ["pipe"] * 2 + ["socket"]
    assert stop(process) == 0


def test_a_port_that_is_taken_is_refused_before_anything_else(launcher: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = launcher.run("serve", "hf://org/nothing", NIM_HEALTH_PORT=str(port))
    assert (ran.code, ran.record) == (2, None)
    assert f"NIM_HEALTH_PORT: port {port} is taken by another process" in ran.last_line


@pytest.mark.parametrize("port", ["0", "http", "65536"])
def test_what_is_no_port(port: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), NIM_HEALTH_PORT=port)
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_HEALTH_PORT" in ran.last_line


def test_on_vllms_own_port_it_ends_before_the_exec(launcher: Installation, models: Path) -> None:
    port = free_port()
    process = launcher.start("serve", str(models / "plain"), NIM_HEALTH_PORT=str(port), NIM_SERVER_PORT=str(port))
    assert ask(port, LIVE) is None
    assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text() == ""  # no zombie either
    assert stop(process) == 0


def test_a_refusal_closes_the_port(launcher: Installation) -> None:
    port = free_port()
    ran = launcher.run("serve", "/no/such/folder", NIM_HEALTH_PORT=str(port))
    assert ran.code == 3
    assert ask(port, LIVE) is None


def test_a_dry_run_opens_nothing(launcher: Installation, models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = launcher.run("serve", "--dry-run", str(models / "plain"), NIM_HEALTH_PORT=str(taken.getsockname()[1]))
    assert ran.code == 0, ran.err


def test_strangers(launcher: Installation, models: Path) -> None:
    port = free_port()
    process = launcher.start("serve", str(models / "plain"), NIM_HEALTH_PORT=str(port))
    for path, method, status in (
        ("/", "GET", 404), ("/metrics", "GET", 404), (LIVE, "POST", 405), (f"{LIVE}?x=1", "GET", 200),
    ):  # fmt: skip
        answer = ask(port, path, method)
        assert answer is not None and answer.status == status
    for garbage, reply in ((b"\x16\x03\x01\x02\r\n\r\n", b"HTTP/1.1 400 "), (b"x" * 9000, b"HTTP/1.1 400 ")):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(garbage)
            assert stranger.recv(100).startswith(reply)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    live = ask(port, LIVE)
    assert live is not None and live.status == 200
    listener = Path(f"/proc/{child_of(process)}")
    assert len(list((listener / "fd").iterdir())) < 80
    for stranger in idle:
        stranger.close()
    until(lambda: len(list((listener / "fd").iterdir())) == 6)
    assert stop(process) == 0


def test_each_start_waits_for_nobody(launcher: Installation, models: Path) -> None:
    """The exec comes as soon as without a listener, even if that one is stopped."""
    port = free_port()
    process = begin(launcher, "serve", str(models / "plain"), NIM_HEALTH_PORT=str(port))
    listener = until(lambda: ask(port, LIVE) and child_of(process))
    os.kill(listener, signal.SIGSTOP)
    until(lambda: executed(launcher), 5)
    assert stop(process) == 0
    until(lambda: is_gone(listener), 2)
