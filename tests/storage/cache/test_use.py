"""The cache with real launchers, a real hub on loopback, real locks, users and read-only folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher import process
from launcher.commands import download
from launcher.dispatch import guarded
from tests.storage.cache.model import CONTENT, DRAFT, MODEL, SIZE, WEIGHTS, keyed
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, broken_locks, finished, folder_of, wait_for_request
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Fault, Server
from tests.unit.remotes import tree
from tests.unit.shards import shard


def test_one_download_serves_ever_after(hub: Hub, launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download-to-cache", "--model-uri", MODEL))
    assert tree(folder) == CONTENT
    assert SIZE <= hub.content <= SIZE + 10
    before = hub.content
    assert folder_of(launcher.run("download-to-cache", "--model-uri", MODEL, "--verify-checksums")) == folder
    assert hub.content == before
    asked = len(hub.ledger.requests)
    assert folder_of(launcher.with_(HF_HUB_OFFLINE="1").run("download-to-cache", "--model-uri", MODEL)) == folder
    assert folder_of(launcher.with_(NIM_REFRESH="never").run("download-to-cache", "--model-uri", MODEL)) == folder
    assert len(hub.ledger.requests) == asked


def test_offline_and_not_cached_is_not_found(hub: Hub, launcher: Launcher) -> None:
    for name in ("HF_HUB_OFFLINE", "NIM_DISABLE_MODEL_DOWNLOAD"):
        ran = launcher.with_(**{name: "1"}).run("download-to-cache", "--model-uri", MODEL)
        assert ran.code == 3
        assert f"{MODEL} is not complete in the cache, and {name} forbids fetching it" in ran.err
    assert hub.ledger.requests == []


def test_the_reason_stands_where_kubernetes_looks_for_it(
    launcher: Launcher, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "termination-log").touch()
    monkeypatch.setattr(process, "TERMINATION_LOG", str(place / "termination-log"))
    environ = {**launcher.environ, "HF_HUB_OFFLINE": "1"}
    assert guarded(lambda: download.run(download.Wanted(MODEL), environ)) == 3
    assert (place / "termination-log").read_text() == (
        f"{MODEL} is not complete in the cache, and HF_HUB_OFFLINE forbids fetching it. Fill the cache with "
        "download-to-cache where there is a network, or unset HF_HUB_OFFLINE. (exit code 3: not found)"
    )


def test_a_relative_cache_is_refused_before_anything_is_made(hub: Hub, launcher: Launcher) -> None:
    ran = launcher.with_(NIM_CACHE_PATH="cache").run("download", "--model-uri", MODEL)
    assert ran.code == 2
    assert "NIM_CACHE_PATH: 'cache' is a relative path" in ran.err
    assert hub.ledger.requests == [] and not Path("/cache").exists()


@pytest.mark.parametrize("launchers", [2, 4])
def test_launchers_at_once_fetch_each_byte_once(hub: Hub, launcher: Launcher, launchers: int) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=1.0))
    words = ("download-to-cache", "--model-uri", MODEL, "--draft-uri", "hf://org/draft")
    ran = [finished(process) for process in [launcher.start(*words) for _ in range(launchers)]]
    for one in ran:
        assert tree(folder_of(one)) == CONTENT
        assert tree(folder_of(one, "draft")) == DRAFT
    whole = SIZE + sum(map(len, DRAFT.values()))
    assert hub.content <= whole * 1.02
    waited = [one for one in ran if "waiting for the download of hf://org/" in one.err]
    assert len(waited) == launchers - 1


def test_launchers_at_once_without_locks(hub: Hub, launcher: Launcher, place: Path) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=0.5, times=2))
    unlocked = launcher.with_(PYTHONPATH=broken_locks(place))
    ran = [finished(process) for process in [unlocked.start("download", "--model-uri", MODEL) for _ in range(3)]]
    for one in ran:
        assert tree(folder_of(one)) == CONTENT
        assert one.err.count("cannot be locked (No locks available)") == 1
    assert launcher.run("verify").code == 0


def test_a_wait_ends(hub: Hub, launcher: Launcher, place: Path) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=3.0))
    first = launcher.start("download", "--model-uri", MODEL)
    wait_for_request(hub.storage, "model.safetensors")
    second = launcher.with_(NIM_LOCK_TIMEOUT="1").run("download", "--model-uri", MODEL)
    assert tree(folder_of(second)) == CONTENT
    assert "going on without the lock" in second.err
    assert tree(folder_of(finished(first))) == CONTENT
    assert launcher.run("verify").code == 0


def test_a_killed_launcher_leaves_no_lock(hub: Hub, launcher: Launcher) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=5.0))
    first = launcher.start("download", "--model-uri", MODEL)
    wait_for_request(hub.storage, "model.safetensors")
    first.kill()
    finished(first)
    start = time.monotonic()
    assert tree(folder_of(launcher.run("download", "--model-uri", MODEL))) == CONTENT
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_wait_for_a_lock(hub: Hub, launcher: Launcher, number: signal.Signals, code: int) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=4.0))
    first = launcher.start("download", "--model-uri", MODEL)
    wait_for_request(hub.storage, "model.safetensors")
    second = launcher.start("download", "--model-uri", MODEL)
    assert second.stderr is not None
    for line in second.stderr:
        if "waiting for" in line:
            break
    start = time.monotonic()
    second.send_signal(number)
    second.wait(10)
    assert time.monotonic() - start < 2
    assert second.returncode == code
    finished(second)
    finished(first)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("environ", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_a_complete_cache_needs_no_write(hub: Hub, launcher: Launcher, place: Path, environ: dict[str, str]) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    for path in (place / "cache").rglob("*"):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    (place / "cache").chmod(0o555)
    before = {path: path.lstat().st_mtime_ns for path in (place / "cache").rglob("*")}
    ran = launcher.with_(**environ).run_as_stranger("download", "--model-uri", MODEL)
    assert folder_of(ran) == folder
    assert launcher.with_(**environ).run_as_stranger("verify").code == 0
    assert {path: path.lstat().st_mtime_ns for path in (place / "cache").rglob("*")} == before


def test_a_read_only_volume_serves(hub: Hub, launcher: Launcher, volume: Path) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    subprocess.run(["mount", "-o", "remount,ro", str(volume)], check=True)
    assert folder_of(launcher.run("download", "--model-uri", MODEL, "--verify-checksums")) == folder
    hub.add("org/model", {**CONTENT, "new.json": b"{}"})
    ran = launcher.run("download", "--model-uri", MODEL)
    assert ran.code == 4
    assert f"cannot write to the cache {volume}: Read-only file system. Mount it writable until" in ran.err
    ran = launcher.run("cache", "prune")
    assert ran.code == 4
    assert f"cannot write to the cache at {volume}/locks: Read-only file system. Mount it writable" in ran.err
    assert folder_of(launcher.with_(NIM_REFRESH="never").run("download", "--model-uri", MODEL)) == folder


def test_a_disk_too_small_for_both_is_known_beforehand(hub: Hub, launcher: Launcher, volume: Path) -> None:
    hub.add("org/big", {"config.json": b"{}", "model.safetensors": shard({"a": ("F32", (700, 1024))})})
    ran = launcher.run("download", "--model-uri", MODEL, "--draft-uri", "hf://org/big")
    assert ran.code == 6
    assert f"{MODEL} and hf://org/big still need 7.09 MB, and {volume} has 6.28 MB free" in ran.err
    assert hub.content <= 2
    assert tree(folder_of(launcher.run("download", "--model-uri", MODEL))) == CONTENT


def test_a_cache_that_is_a_file(hub: Hub, launcher: Launcher, place: Path) -> None:
    (place / "cache").write_text("")
    ran = launcher.run("download", "--model-uri", MODEL)
    assert ran.code == 4
    assert f"cannot write to the cache {place}/cache: Not a directory" in ran.err
    assert hub.content <= 1


def test_patterns_that_leave_nothing_are_refused(launcher: Launcher, place: Path) -> None:
    ran = launcher.with_(NIM_FETCH_INCLUDE="*.gguf").run("download", "--model-uri", MODEL)
    assert ran.code == 2
    assert f"{MODEL}: NIM_FETCH_INCLUDE leaves out all of its 4 files, such as README.md" in ran.err
    assert not (place / "cache/manifests").exists()


def test_an_output_that_takes_nothing_is_said(launcher: Launcher) -> None:
    folder_of(launcher.run("download", "--model-uri", MODEL))
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "launcher", "cache", "ls"]
        ran = subprocess.run(words, env=launcher.environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 6
    assert ran.stderr.count("\n") == 1 and "the output cannot be written: No space left on device" in ran.stderr


def test_a_gated_draft_stops_before_the_target_is_fetched(hub: Hub, launcher: Launcher, place: Path) -> None:
    hub.add("org/draft", DRAFT, gated=True)
    ran = launcher.run("download", "--model-uri", MODEL, "--draft-uri", "hf://org/draft")
    assert ran.code == 4
    assert "hf://org/draft is gated" in ran.err
    assert hub.content <= 2
    assert not (place / "cache/huggingface").exists()


def test_a_hub_that_fails_midway_never_gives_the_old_for_the_new(hub: Hub, launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    changed = {**CONTENT, "model.safetensors": shard({"b": ("F32", (512, 512))})}
    commit = hub.add("org/model", changed)
    hub.storage.ledger.faults.append(Fault("model.safetensors", status=404, times=1000))
    ran = launcher.run("download", "--model-uri", MODEL)
    assert ran.code == 3
    assert ran.out == ""
    assert not (folder.parent / commit).exists()
    hub.storage.ledger.faults.clear()
    assert tree(folder_of(launcher.run("download", "--model-uri", MODEL))) == changed
    assert tree(folder) == CONTENT


def test_a_hub_that_is_away_is_not_waited_for(hub: Hub, launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    away = launcher.with_(HF_ENDPOINT="http://127.0.0.1:9")
    start = time.monotonic()
    ran = away.run("download", "--model-uri", MODEL)
    assert folder_of(ran) == folder
    assert time.monotonic() - start < 9
    assert f"{MODEL} could not be asked for changes" in ran.err and "which was complete on 20" in ran.err
    assert "cannot be reached at http://127.0.0.1:9/api" in ran.err and "Connection refused" in ran.err


def test_a_hub_that_is_away_is_an_error_where_its_word_is_required(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_waiting: None
) -> None:
    """In this process: a launcher of its own would ask for a minute, as patiently as for a first download."""
    folder_of(launcher.run("download", "--model-uri", MODEL))
    away = {**launcher.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "NIM_REFRESH": "required"}
    code = guarded(lambda: download.run(download.Wanted(MODEL), away))
    assert code == 5
    assert "cannot be reached at http://127.0.0.1:9" in capsys.readouterr().err


def test_only_the_changed_objects_of_a_bucket_are_fetched(launcher: Launcher, bucket: SmallS3, store: Server) -> None:
    keyed_launcher = keyed(launcher, store)
    first = folder_of(keyed_launcher.run("download", "--model-uri", "s3://models/m/model"))
    assert tree(first) == CONTENT
    bucket.objects["m/model/config.json"] = b'{"model_type": "qwen2"}'
    before = store.ledger.content
    second = folder_of(keyed_launcher.run("download", "--model-uri", "s3://models/m/model/"))
    assert tree(second) == {**CONTENT, "config.json": b'{"model_type": "qwen2"}'}
    assert tree(first) == CONTENT
    assert store.ledger.content - before < 100
    assert (first / "model.safetensors").samefile(second / "model.safetensors")
    asked = len(store.ledger.requests)
    offline = keyed_launcher.with_(HF_HUB_OFFLINE="1")
    assert folder_of(offline.run("download", "--model-uri", "s3://models/m/model")) == second
    assert len(store.ledger.requests) == asked
    assert launcher.run("verify").out.count("ok s3://models/m/model at ") == 2
    assert launcher.run("cache", "prune").code == 0
    assert (first.exists(), tree(second)["model.safetensors"] == WEIGHTS) == (False, True)


def test_a_bucket_is_a_mirror_too(hub: Hub, launcher: Launcher, bucket: SmallS3, store: Server) -> None:
    bucket.objects = {f"copy/hf/org/model/latest/{path}": data for path, data in CONTENT.items()}
    mirrored = keyed(launcher, store).with_(NIM_REPOSITORY_OVERRIDE="s3://models/copy")
    assert tree(folder_of(mirrored.run("download", "--model-uri", MODEL))) == CONTENT
    assert hub.ledger.requests == []


def test_a_target_in_a_bucket_and_a_draft_on_the_hub(launcher: Launcher, store: Server) -> None:
    words = ("download", "--model-uri", "s3://models/m/model", "--draft-uri", "hf://org/draft")
    ran = keyed(launcher, store).run(*words)
    assert tree(folder_of(ran)) == CONTENT
    assert tree(folder_of(ran, "draft")) == DRAFT
    assert "secret" not in ran.err


def test_what_would_fail_after_a_download_is_said_before_it(hub: Hub, launcher: Launcher, place: Path) -> None:
    (place / "file").write_text("")
    (place / "model").mkdir()
    store = place / "store"
    assert launcher.run("store", "--model-repo", "hf://org/draft", "-m", str(store)).code == 0
    before = len(hub.ledger.requests)
    download, create = ("download", "--model-uri", MODEL, "--manifest-file"), ("store", "--model-repo", MODEL, "-m")
    for words, code, said in (
        ((*download, str(place)), 4, f"--manifest-file: cannot write {place}: it is a folder"),
        ((*download, f"{place}/file/x"), 4, f"--manifest-file: cannot write {place}/file/x: Not a directory"),
        ((*create, f"{place}/file"), 2, f"-m {place}/file: a file is where the folder belongs"),
        ((*create, str(store)), 2, f"the store {store} holds hf://org/draft, not {MODEL}"),
        (
            ("download", "--model-uri", f"{place}/model", "--draft-uri", MODEL, "--manifest-file", f"{place}/m"), 2,
            f"--manifest-file: the folder {place}/model has no manifest",
        ),
    ):  # fmt: skip
        ran = launcher.run(*words)
        assert (ran.code, said in ran.err) == (code, True), ran.err
    assert len(hub.ledger.requests) == before
