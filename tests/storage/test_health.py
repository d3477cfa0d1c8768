"""The health listener during a download: what it says of its progress, and how it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.health import ask, begin, child_of, executed, free_port, is_gone, until
from tests.integration.standin import Installation, install, stop
from tests.models import files
from tests.storage.hub import Hub
from tests.storage.web import Fault

DRAFT = ("--speculative-config", '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}')


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/plain", files("plain"))
    hub.add("org/eagle3", files("eagle3"))
    yield hub
    hub.close()


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv", clients=True)


def slowed(hub: Hub, seconds: float) -> None:
    """Weights come late, after everything that a plan needs of them has been read."""
    hub.storage.ledger.faults.append(Fault("", times=100, delay=seconds))


def test_progress_of_target_and_draft(launcher: Installation, hub: Hub) -> None:
    port = free_port()
    slowed(hub, 1.0)
    environ = {"NIM_DRAFT_MODEL_PATH": "hf://org/eagle3", "HF_ENDPOINT": hub.url, "NIM_HEALTH_PORT": str(port)}
    process = begin(launcher, "serve", "hf://org/plain", *DRAFT, **environ)
    began = time.monotonic()
    seen = []
    while not executed(launcher) and process.poll() is None and time.monotonic() - began < 60:
        answer, live = ask(port), ask(port, "/v1/health/live")
        if answer is not None:
            assert live is not None and live.status == 200
            assert answer.status == 503
            seen.append(answer.document)
        time.sleep(0.05)
    assert process.poll() is None, process.stderr and process.stderr.read()
    phases = [document["phase"] for document in seen]
    assert phases[0] == "starting"
    fetching = [document for document in seen if document["phase"] == "fetching"]
    sizes = {"target": sum(map(len, files("plain").values())), "draft": sum(map(len, files("eagle3").values()))}
    for document in fetching:
        assert {label: share["total"] for label, share in document["progress"].items()} == sizes
        for share in document["progress"].values():
            assert share["percent"] == 100 * share["bytes"] // share["total"]
    got = [document["progress"]["target"]["bytes"] for document in fetching]
    assert got == sorted(got) and got[0] < sizes["target"]
    # On a busy machine nothing has come yet at the first look; something must have at one of them.
    assert any(share["bytes"] for document in fetching for share in document["progress"].values())
    assert "target " in fetching[-1]["message"] and "draft " in fetching[-1]["message"]
    after = until(lambda: (answer := ask(port)) and answer.document["phase"] == "loading" and answer)
    assert after.status == 503
    assert stop(process) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_during_the_download(number: signal.Signals, code: int, launcher: Installation, hub: Hub) -> None:
    port = free_port()
    slowed(hub, 3.0)
    process = begin(launcher, "serve", "hf://org/plain", HF_ENDPOINT=hub.url, NIM_HEALTH_PORT=str(port))
    until(lambda: (answer := ask(port)) and answer.document["phase"] == "fetching", 30)
    listener = child_of(process)
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=10)
    assert time.monotonic() - began < 2
    assert process.returncode == code
    assert is_gone(listener) and ask(port) is None


def test_a_kill_during_the_download_leaves_no_listener_and_no_lock(launcher: Installation, hub: Hub) -> None:
    port = free_port()
    slowed(hub, 3.0)
    process = begin(launcher, "serve", "hf://org/plain", HF_ENDPOINT=hub.url, NIM_HEALTH_PORT=str(port))
    until(lambda: (answer := ask(port)) and answer.document["phase"] == "fetching", 30)
    listener = child_of(process)
    process.kill()
    process.communicate(timeout=10)
    until(lambda: is_gone(listener), 2)
    hub.storage.ledger.faults.clear()
    again = launcher.start("serve", "hf://org/plain", HF_ENDPOINT=hub.url, NIM_HEALTH_PORT=str(port))
    assert executed(launcher)
    assert stop(again) == 0
