"""Repairs of a damaged cache while other launchers work and serve: real processes, one cache."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from launcher.cache.layout import shelf
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, broken_locks, finished, folder_of, launcher_in, wait_for_request
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Fault, Server
from tests.unit.remotes import tree
from tests.unit.shards import shard

MODEL = "hf://org/model"
WEIGHTS = shard({"a": ("F32", (1024, 1024))})
WRONG = WEIGHTS[:-1] + b"\1"
CONTENT = {"config.json": b'{"model_type": "llama"}', "model.safetensors": WEIGHTS}
REPAIR = ("download", "--model-uri", MODEL, "--verify-checksums")


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("org/model", CONTENT)
    return hub


@pytest.fixture
def launcher(hub: Hub, place: Path) -> Launcher:
    return launcher_in(place, HF_ENDPOINT=hub.url)


@pytest.fixture
def damaged(hub: Hub, launcher: Launcher) -> Path:
    """The weights of a complete snapshot, of which one byte is wrong."""
    weights = folder_of(launcher.run("download", "--model-uri", MODEL)) / "model.safetensors"
    weights.resolve().write_bytes(WRONG)
    hub.storage.ledger.requests.clear()
    return weights


def seen_while(path: Path, *running: subprocess.Popen[str]) -> set[bytes | None]:
    """What a reader found at ``path`` over and over again, until all processes had ended; None: nothing."""
    seen: set[bytes | None] = set()
    while any(process.poll() is None for process in running):
        try:
            seen.add(path.read_bytes())
        except FileNotFoundError:
            seen.add(None)
        time.sleep(0.002)
    return seen


def test_two_repairs_at_once_fetch_it_once_and_never_take_it_away(hub: Hub, launcher: Launcher, damaged: Path) -> None:
    before = hub.content
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=1.0))
    first = launcher.start(*REPAIR)
    wait_for_request(hub.storage, "model.safetensors")
    second = launcher.start(*REPAIR)
    seen = seen_while(damaged, first, second)
    assert seen <= {WRONG, WEIGHTS}
    one, other = finished(first), finished(second)
    assert tree(folder_of(one)) == tree(folder_of(other)) == CONTENT
    assert f"waiting for the download of {MODEL}" in other.err
    assert len(WEIGHTS) <= hub.content - before <= len(WEIGHTS) * 1.02
    assert launcher.run("verify").code == 0


def test_a_repair_waits_for_a_download_of_the_source(hub: Hub, launcher: Launcher, damaged: Path) -> None:
    """The download brings a new revision; the repair must neither disturb it nor be lost."""
    hub.add("org/model", {**CONTENT, "model.safetensors": WEIGHTS + b"!"}, branch="next")
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=1.0))
    download = launcher.start("download", "--model-uri", f"{MODEL}:next")
    wait_for_request(hub.storage, "model.safetensors")
    repair = launcher.start(*REPAIR)
    assert seen_while(damaged, download, repair) <= {WRONG, WEIGHTS}
    repaired, brought = finished(repair), finished(download)
    assert f"waiting for the download of {MODEL}" in repaired.err
    assert tree(folder_of(repaired)) == CONTENT
    assert (folder_of(brought) / "model.safetensors").read_bytes() == WEIGHTS + b"!"


@pytest.mark.parametrize("limit", [True, False], ids=["after the limit", "where locks are refused"])
def test_repairs_without_the_lock_lose_nothing(
    hub: Hub, launcher: Launcher, damaged: Path, place: Path, limit: bool
) -> None:
    environ = {"NIM_LOCK_TIMEOUT": "0"} if limit else {"PYTHONPATH": broken_locks(place)}
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=0.7, times=2))
    running = [launcher.with_(**environ).start(*REPAIR) for _ in range(3)]
    assert seen_while(damaged, *running) <= {WRONG, WEIGHTS}
    for ran in [finished(process) for process in running]:
        assert tree(folder_of(ran)) == CONTENT
    assert launcher.run("verify").code == 0


def test_a_killed_repair_leaves_the_snapshot_and_is_taken_up(hub: Hub, launcher: Launcher, damaged: Path) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=5.0))
    first = launcher.start(*REPAIR)
    wait_for_request(hub.storage, "model.safetensors")
    first.kill()
    finished(first)
    assert damaged.read_bytes() == WRONG
    assert tree(folder_of(launcher.run(*REPAIR))) == CONTENT


def test_a_repair_that_cannot_fetch_leaves_the_snapshot(hub: Hub, launcher: Launcher, damaged: Path) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", times=1000, status=404))
    assert launcher.run(*REPAIR).code == 3
    assert damaged.read_bytes() == WRONG


def test_a_wrong_file_is_mended_under_all_its_names(place: Path) -> None:
    """Snapshots of a bucket share what did not change: the wrong byte is in each, and would get into the next."""
    bucket = SmallS3({f"m/{path}": data for path, data in CONTENT.items()})
    with closing(Server(bucket)) as server:
        launcher = launcher_in(
            place, AWS_ENDPOINT_URL=server.url, AWS_ACCESS_KEY_ID="key-id-of-test", AWS_SECRET_ACCESS_KEY="secret"
        )
        words = ("download", "--model-uri", "s3://models/m")
        old = folder_of(launcher.run(*words))
        bucket.objects["m/config.json"] = b"{}"
        new = folder_of(launcher.run(*words))
        assert old != new and (old / "model.safetensors").samefile(new / "model.safetensors")
        (new / "model.safetensors").write_bytes(WRONG)
        assert folder_of(launcher.run(*words, "--verify-checksums")) == new
        assert (new / "model.safetensors").read_bytes() == (old / "model.safetensors").read_bytes() == WEIGHTS
        assert launcher.run("verify").code == 0


def test_a_prune_keeps_what_a_download_has_just_made_current(hub: Hub, launcher: Launcher, place: Path) -> None:
    """The prune looks, finds a snapshot superseded, and has to wait for nobody; meanwhile the branch moved back."""
    old = folder_of(launcher.run("download", "--model-uri", MODEL))
    hub.add("org/model", {**CONTENT, "config.json": b'{"new": 1}'})
    assert folder_of(launcher.run("download", "--model-uri", MODEL)) != old
    site = place / "slow"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'prune' in sys.argv or 'prune' in sys.orig_argv:\n"
        "    from launcher.cache import locks\n"
        "    take = locks.acquire_now\n"
        f"    def slow(*words, go={str(place / 'go')!r}, there={str(place / 'there')!r}):\n"
        "        open(there, 'w').close()\n"
        "        while not os.path.exists(go):\n"
        "            time.sleep(0.01)\n"
        "        return take(*words)\n"
        "    locks.acquire_now = slow\n"
    )
    prune = launcher.with_(PYTHONPATH=f"{site}:{launcher.environ['PYTHONPATH']}").start("cache", "prune")
    while not (place / "there").exists():
        assert prune.poll() is None
        time.sleep(0.01)
    hub.add("org/model", CONTENT)
    assert folder_of(launcher.run("download", "--model-uri", MODEL)) == old
    (place / "go").touch()
    assert finished(prune).code == 0
    assert tree(old) == CONTENT


def test_a_prune_sees_a_download_that_has_no_lock(hub: Hub, launcher: Launcher, place: Path) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=2.0))
    unlocked = launcher.with_(PYTHONPATH=broken_locks(place))
    download = unlocked.start("download", "--model-uri", MODEL)
    wait_for_request(hub.storage, "model.safetensors")
    ran = unlocked.run("cache", "prune", "--all")
    assert ran.code == 10
    assert f"the download of {MODEL} is going on in another process" in ran.err
    assert tree(folder_of(finished(download))) == CONTENT


def test_a_prune_leaves_what_is_being_copied_to_a_store(hub: Hub, launcher: Launcher, place: Path) -> None:
    folder_of(launcher.run("download", "--model-uri", MODEL))
    used = shelf(str(place / "cache"), "hf", "org/model").used
    Path(used).unlink()
    writer = launcher.start("create-model-store", "--model-repo", MODEL, "-m", str(place / "store"))
    while not Path(used).exists():
        assert writer.poll() is None
        time.sleep(0.001)
    os.kill(writer.pid, signal.SIGSTOP)  # in the middle of its work
    try:
        pruned = launcher.run("cache", "prune", MODEL)
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    assert pruned.code == 10 and f"{MODEL} is in use by another process" in pruned.err
    assert finished(writer).code == 0
    assert tree(place / "store") | CONTENT == tree(place / "store")
