"""The cache with real launchers, a real hub and mirror on loopback, real locks, users and read-only folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from launcher import process
from launcher.commands import download
from launcher.dispatch import guarded
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, broken_locks, finished, folder_of, launcher_in, wait_for_request
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Asked, Body, Fault, Reply, Server
from tests.unit.remotes import tree
from tests.unit.shards import shard

MODEL = "hf://org/model"
WEIGHTS = shard({"a": ("F32", (1024, 1024))})
CONTENT = {
    "README.md": b"# model",
    "config.json": b'{"model_type": "llama"}',
    "draft/config.json": b"{}",
    "model.safetensors": WEIGHTS,
}
DRAFT = {"config.json": b'{"draft": 1}', "model.safetensors": shard({"d": ("F32", (256, 1024))})}
SIZE = sum(map(len, CONTENT.values()))


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("org/model", CONTENT)
    hub.add("org/draft", DRAFT)
    return hub


@pytest.fixture
def launcher(hub: Hub, place: Path) -> Launcher:
    return launcher_in(place, HF_ENDPOINT=hub.url)


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


@pytest.fixture
def volume(place: Path) -> Iterator[Path]:
    """A file system of 6 MiB of its own at the cache's place."""
    (place / "cache").mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "none", str(place / "cache")]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    yield place / "cache"
    subprocess.run(["umount", "-l", str(place / "cache")], check=True)


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_cache_of_somebody_else_is_denied(hub: Hub, launcher: Launcher, place: Path) -> None:
    (place / "cache").mkdir(mode=0o755)
    ran = launcher.run_as_stranger("download", "--model-uri", MODEL)
    assert ran.code == 4
    assert (
        f"cannot write to the cache {place}/cache: Permission denied; {place}/cache belongs to 0:0 with mode" in ran.err
    )
    assert hub.content <= 1


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


@pytest.fixture
def bucket() -> Iterator[SmallS3]:
    yield SmallS3({f"m/model/{path}": data for path, data in CONTENT.items()} | {"m/model-v2/config.json": b"other"})


@pytest.fixture
def store(bucket: SmallS3) -> Iterator[Server]:
    server = Server(bucket)
    yield server
    server.close()


def keyed(launcher: Launcher, store: Server) -> Launcher:
    return launcher.with_(
        AWS_ENDPOINT_URL=store.url, AWS_ACCESS_KEY_ID="key-id-of-test", AWS_SECRET_ACCESS_KEY="secret"
    )


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


def test_verify_tells_each_kind_of_difference(launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    blob = (folder / "model.safetensors").resolve()
    for words in ([], [MODEL], [str(folder)], [str(folder), "--level", "names"]):
        ran = launcher.run("verify", *words)
        assert (ran.code, ran.out[:3]) == (0, "ok ")
    blob.write_bytes(WEIGHTS[:-1] + b"\1")
    assert launcher.run("verify", "--level", "structure").code == 0
    ran = launcher.run("verify")
    assert ran.code == 7
    assert "1 of 4 files differ: model.safetensors has the sha256 " in ran.err
    blob.write_bytes(b"<html>" + WEIGHTS[6:])
    assert launcher.run("verify", "--level", "sizes").code == 0
    assert launcher.run("verify", "--level", "structure").code == 7
    blob.write_bytes(WEIGHTS[:-1])
    assert launcher.run("verify", "--level", "names").code == 0
    assert launcher.run("verify", "--level", "sizes").code == 7
    (folder / "model.safetensors").unlink()
    for words in ([], [MODEL], [str(folder)]):
        assert launcher.run("verify", *words, "--level", "names").code == 7


def test_a_store_is_verified_where_it_was_carried_to(launcher: Launcher, place: Path) -> None:
    ran = launcher.run("create-model-store", "--model-repo", MODEL, "-m", str(place / "store"))
    assert (ran.code, ran.out) == (0, f"{place}/store\n")
    shutil.copytree(place / "store", place / "carried")
    nowhere = launcher.with_(HF_HUB_OFFLINE="1", NIM_CACHE_PATH=str(place / "empty"))
    assert nowhere.run("verify", str(place / "carried")).code == 0
    assert {path: data for path, data in tree(place / "carried").items() if path[0] != "."} == CONTENT
    weights = place / "carried/model.safetensors"
    weights.write_bytes(WEIGHTS[:-1] + b"\1")
    assert nowhere.run("verify", str(place / "carried")).code == 7
    weights.unlink()
    assert nowhere.run("verify", str(place / "carried"), "--level", "names").code == 7


def test_a_store_follows_its_source(hub: Hub, launcher: Launcher, place: Path) -> None:
    words = ("create-model-store", "--model-repo", MODEL, "-m", str(place / "store"))
    assert launcher.run(*words).code == 0
    changed = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    hub.add("org/model", changed)
    assert launcher.run(*words).code == 0
    assert {path: data for path, data in tree(place / "store").items() if path[0] != "."} == changed
    assert tree(folder_of(launcher.run("download", "--model-uri", MODEL))) == changed
    other = launcher.run("create-model-store", "--model-repo", "hf://org/draft", "-m", str(place / "store"))
    assert other.code == 2
    assert f"the store {place}/store holds {MODEL}, not hf://org/draft" in other.err


def test_a_store_replaces_nothing_of_somebody_else(launcher: Launcher, place: Path) -> None:
    (place / "store").mkdir()
    (place / "store/config.json").write_text("mine")
    ran = launcher.run("create-model-store", "--model-repo", MODEL, "-m", str(place / "store"))
    assert ran.code == 2
    assert tree(place / "store") == {"config.json": b"mine"}


@pytest.fixture
def mirror(place: Path) -> Iterator[Server]:
    """The folder ``mirror``, as any web server would serve it."""

    def answer(asked: Asked) -> Reply:
        path = place / "mirror" / asked.path.lstrip("/")
        return Reply(200, {}, Body(path=path), ranges=True, content=True) if path.is_file() else Reply(404)

    server = Server(answer)
    yield server
    server.close()


def test_a_mirror_takes_the_place_of_the_hub(hub: Hub, launcher: Launcher, place: Path, mirror: Server) -> None:
    for extra in ([], [f":{hub.models['org/model'].branches['main']}"]):
        text = "".join([MODEL, *extra])
        ran = launcher.run("create-model-store", "--model-repo", text, "-m", str(place / "mirror"), "--mirror")
        assert (ran.code, ran.out) == (0, f"{place}/mirror/hf/org/model/{''.join(extra)[1:] or 'latest'}\n")
    assert launcher.run("verify", str(place / "mirror/hf/org/model/latest")).code == 0
    hub.close()
    elsewhere = launcher.with_(NIM_CACHE_PATH=str(place / "other"), NIM_REPOSITORY_OVERRIDE=mirror.url)
    folder = folder_of(elsewhere.run("download", "--model-uri", MODEL))
    assert tree(folder) == CONTENT
    assert folder.parent == place / "other/huggingface/hub/models--org--model/snapshots"
    missing = elsewhere.run("download", "--model-uri", "hf://org/other")
    assert missing.code == 3
    assert "hf://org/other is not on the mirror of NIM_REPOSITORY_OVERRIDE" in missing.err


def test_a_wrong_byte_of_a_mirror_is_seen(launcher: Launcher, place: Path, mirror: Server) -> None:
    words = ("create-model-store", "--model-repo", MODEL, "-m", str(place / "mirror"), "--mirror")
    assert launcher.run(*words).code == 0
    weights = place / "mirror/hf/org/model/latest/model.safetensors"
    weights.unlink()
    weights.write_bytes(WEIGHTS[:-1] + b"\1")
    elsewhere = launcher.with_(NIM_CACHE_PATH=str(place / "other"), NIM_REPOSITORY_OVERRIDE=mirror.url)
    assert elsewhere.run("download", "--model-uri", MODEL).code == 7
    assert not (place / "other/huggingface/hub/models--org--model/snapshots").exists()


def test_the_list_and_the_manifest(hub: Hub, launcher: Launcher, place: Path) -> None:
    ran = launcher.run("download", "--model-uri", MODEL, "--manifest-file", str(place / "m.json"))
    folder = folder_of(ran)
    manifest = json.loads((place / "m.json").read_text())
    assert (manifest["source"], manifest["revision"], len(manifest["files"])) == (MODEL, folder.name, 4)
    listed = json.loads(launcher.run("cache", "ls", "--json").out)
    assert [(entry["source"], entry["unfinished"]) for entry in listed] == [(MODEL, 0)]
    (snapshot,) = listed[0]["snapshots"]
    assert (snapshot["folder"], snapshot["bytes"], snapshot["current"]) == (str(folder), SIZE, True)
    assert launcher.run("cache", "ls").out.startswith(f"{MODEL}  {folder.name[:12]}  4 files  4.19 MB  20")
    shutil.copytree(folder, place / "carried")
    assert launcher.run("verify", str(place / "carried"), "--manifest-file", str(place / "m.json")).code == 0


def test_prune_removes_what_nothing_leads_to(hub: Hub, launcher: Launcher) -> None:
    old = folder_of(launcher.run("download", "--model-uri", MODEL))
    hub.add("org/model", {**CONTENT, "model.safetensors": WEIGHTS[:-1] + b"\1"})
    new = folder_of(launcher.run("download", "--model-uri", MODEL))
    blobs = new.parents[1] / "blobs"
    for blob in blobs.iterdir():
        os.utime(blob, (0, 0))
    (new.parents[1] / ".parts/0.00000000ffffffffffffffff.part").write_bytes(b"left")
    os.utime(new.parents[1] / ".parts/0.00000000ffffffffffffffff.part", (0, 0))
    planned = launcher.run("cache", "prune", "--dry-run")
    assert planned.code == 0 and old.exists()
    ran = launcher.run("cache", "prune")
    assert ran.code == 0, ran.err
    assert not old.exists()
    assert sorted(path.name for path in blobs.iterdir()) == sorted(
        {path.resolve().name for path in new.rglob("*") if path.is_file()}
    )
    assert list((new.parents[1] / ".parts").iterdir()) == []
    assert launcher.run("verify").code == 0
    assert launcher.with_(HF_HUB_OFFLINE="1").run("download", "--model-uri", MODEL).code == 0
    assert launcher.run("cache", "prune", MODEL).code == 0
    assert not new.exists()
    assert launcher.run("cache", "ls").out == ""
    assert launcher.run("cache", "prune", MODEL).code == 3


def test_prune_needs_sole_use(hub: Hub, launcher: Launcher) -> None:
    hub.storage.ledger.faults.append(Fault("model.safetensors", delay=3.0))
    first = launcher.start("download", "--model-uri", MODEL)
    wait_for_request(hub.storage, "model.safetensors")
    ran = launcher.run("cache", "prune")
    assert ran.code == 10
    assert f"the download of {MODEL} is held by process {first.pid} on " in ran.err
    assert tree(folder_of(finished(first))) == CONTENT


def test_what_is_busy_keeps_nothing_else_from_being_pruned(hub: Hub, launcher: Launcher) -> None:
    old = folder_of(launcher.run("download", "--model-uri", MODEL))
    hub.add("org/model", {**CONTENT, "config.json": b'{"model_type": "qwen2"}'})
    new = folder_of(launcher.run("download", "--model-uri", MODEL))
    hub.storage.ledger.faults.append(Fault("org/draft", delay=3.0))
    draft = launcher.start("download", "--model-uri", "hf://org/draft")
    wait_for_request(hub.storage, "org/draft")
    ran = launcher.run("cache", "prune")
    assert ran.code == 10
    assert f"the download of hf://org/draft is held by process {draft.pid} on " in ran.err
    assert f"removed {MODEL} at {old.name[:12]}" in ran.out and not old.exists()
    assert tree(new) == {**CONTENT, "config.json": b'{"model_type": "qwen2"}'}
    assert tree(folder_of(finished(draft))) == DRAFT


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


def test_a_store_is_no_part_of_a_model_or_of_the_cache(hub: Hub, launcher: Launcher, place: Path) -> None:
    cache = place / "cache"
    snapshot = folder_of(launcher.run("download", "--model-uri", MODEL))
    model = place / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    before = sorted(path for path in place.rglob("*"))
    for repository, store, said in (
        (MODEL, cache, "among the launcher's own folders"),
        (MODEL, snapshot, "among the launcher's own folders"),
        (str(model), model, f"the store would lie in the model {model}"),
        (str(model), model / "below", f"the store would lie in the model {model}"),
        (MODEL, "", "-m names no folder"),
    ):
        ran = launcher.run("create-model-store", "--model-repo", repository, "-m", str(store))
        assert (ran.code, said in ran.err) == (2, True), ran.err
    assert launcher.run("create-model-store", "--model-repo", MODEL, "-m", str(cache), "--mirror").code == 2
    assert launcher.run("verify", "").code == 2
    assert sorted(path for path in place.rglob("*")) == before
    assert launcher.run("create-model-store", "--model-repo", MODEL, "-m", str(cache / "store")).code == 0


def test_a_mirror_is_verified_as_a_whole(launcher: Launcher, place: Path) -> None:
    root = place / "mirror"
    for text in (MODEL, "hf://org/draft"):
        assert launcher.run("create-model-store", "--model-repo", text, "-m", str(root), "--mirror").code == 0
    ran = launcher.run("verify", str(root))
    assert ran.code == 0
    folders = [f"{root}/hf/org/{name}/latest" for name in ("draft", "model")]
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [f"ok {folder}" for folder in folders]
    weights = Path(folders[1], "model.safetensors")
    weights.unlink()
    weights.write_bytes(WEIGHTS[:-1] + b"\1")
    ran = launcher.run("verify", str(root))
    assert ran.code == 7
    assert f"{folders[1]}: 1 of 4 files differ: model.safetensors has the sha256" in ran.err


def test_a_group_of_commands_says_what_it_has(launcher: Launcher) -> None:
    ran = launcher.run("cache")
    assert ran.code == 2
    assert "launcher cache needs a command. It has: ls, prune. (exit code 2" in ran.err
    assert "No such command 'rm'. See 'launcher cache --help'." in launcher.run("cache", "rm").err


def test_what_is_unfinished_is_named_by_its_source(launcher: Launcher, bucket: SmallS3, store: Server) -> None:
    """Before there is a manifest, nothing in the cache says what the folder of a bucket's prefix was fetched from."""
    keyed_launcher = keyed(launcher, store)
    store.ledger.faults.append(Fault("model.safetensors", delay=20.0, method="GET", times=9))
    process = keyed_launcher.start("download", "--model-uri", "s3://models/m/model")
    parts = Path(launcher.environ["NIM_CACHE_PATH"], "s3")
    end = time.monotonic() + 20
    while not list(parts.glob("*/.parts/*.owner")):
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    finished(process)
    (folder,) = parts.iterdir()
    assert keyed_launcher.run("cache", "ls").out.startswith(f"s3/{folder.name}  unfinished  ")
    assert keyed_launcher.run("cache", "prune", "s3://models/m/model").code == 0
    assert not folder.exists()


def test_words_that_make_no_sense(launcher: Launcher) -> None:
    for words in (
        ("download-to-cache",),
        ("download-to-cache", "--model-uri", "org/model"),
        ("create-model-store", "--model-repo", MODEL),
        ("create-model-store", "-m", "/tmp/x"),
        ("create-model-store", "--model-repo", "/tmp", "-m", "/tmp/x", "--mirror"),
        ("verify", "--level", "deep"),
        ("verify", "--manifest-file", "x"),
        ("cache", "shrink"),
    ):
        assert launcher.run(*words).code == 2, words
    assert launcher.run("download-to-cache", "--model-uri", MODEL, "--profiles", "x").code == 9
    assert launcher.run("verify").code == 3
    assert launcher.with_(NIM_REPOSITORY_OVERRIDE="ftp://x/y").run("download", "--model-uri", MODEL).code == 2


UP = "../" * 12


def evil_trees(victim: Path) -> Iterator[Mapping[str, object]]:
    """Entries of a hub's listing that would be written over ``victim``, were their names believed."""
    out = f"{UP}{victim}".replace("//", "/")
    empty, some = {"type": "file", "path": "config.json", "size": 0}, {"type": "file", "path": "config.json", "size": 2}
    yield {**empty, "oid": out}
    yield {**empty, "oid": str(victim)}
    yield {**empty, "oid": "0" * 40, "lfs": {"oid": out, "size": 0}}
    yield {**some, "oid": out}
    yield {**some, "oid": ".."}
    yield {**some, "oid": ""}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("verify", ["digest", "size"])
def test_a_hub_cannot_name_files_outside_the_cache(
    hub: Hub, launcher: Launcher, place: Path, number: int, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = place / "victim"
    victim.write_text("mine")
    entry = list(evil_trees(victim))[number]
    monkeypatch.setattr(hub, "_entry", lambda path, one: dict(entry))
    ran = launcher.with_(NIM_FETCH_VERIFY=verify).run("download", "--model-uri", MODEL)
    assert (ran.code, "which is none" in ran.err) == (7, True), ran.err
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in place.iterdir()) == ["victim"]


@pytest.mark.parametrize("source", [MODEL, "s3://models/m/model"])
def test_a_link_in_the_cache_does_not_lead_out_of_it(
    launcher: Launcher, place: Path, store: Server, source: str
) -> None:
    """Somebody who shares the cache put a link where a folder of the model will be."""
    victim = place / "victim"
    victim.mkdir()
    started = keyed(launcher, store)
    folder = folder_of(started.run("download", "--model-uri", source))
    shutil.rmtree(folder / "draft")
    (folder / "draft").symlink_to(victim)
    ran = started.run("download", "--model-uri", source)
    assert ran.code == 7, ran.err
    assert f"{folder}/draft in the cache is a link where a folder belongs" in ran.err
    assert list(victim.iterdir()) == []
    (folder / "draft").unlink()
    assert tree(folder_of(started.run("download", "--model-uri", source))) == CONTENT


def evil_manifests(whole: str, victim: Path) -> Iterator[Mapping[str, object]]:
    """Manifests of a mirror that would be written over ``victim``."""
    document = json.loads(whole)
    out = f"{UP}{victim}".replace("//", "/")
    for change in (
        {"identity": out, "digest": None},
        {"identity": str(victim), "digest": None, "size": 0},
        {"digest": f"sha256:{out}"},
        {"digest": f"sha1:{out}", "size": 0},
        {"path": out},
        {"path": str(victim)},
    ):
        yield {**document, "files": [{**document["files"][0], **change}]}
    for revision in (out, str(victim), "..", "", "main"):
        yield {**document, "revision": revision}


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("verify", ["digest", "size"])
def test_a_mirror_cannot_name_files_outside_the_cache(
    launcher: Launcher, place: Path, mirror: Server, number: int, verify: str
) -> None:
    words = ("create-model-store", "--model-repo", MODEL, "-m", str(place / "mirror"), "--mirror")
    assert launcher.run(*words).code == 0
    victim = place / "victim"
    victim.write_text("mine")
    there = place / "mirror/hf/org/model/latest/manifest.json"
    there.write_text(json.dumps(list(evil_manifests(there.read_text(), victim))[number]))
    before = sorted(path.name for path in place.iterdir())
    elsewhere = launcher.with_(
        NIM_CACHE_PATH=str(place / "other"), NIM_REPOSITORY_OVERRIDE=mirror.url, NIM_FETCH_VERIFY=verify
    )
    ran = elsewhere.run("download", "--model-uri", MODEL)
    assert ran.code == 7, ran.err
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in place.iterdir()) == before


def test_an_empty_file_is_checked_too(hub: Hub, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"type": "file", "path": "config.json", "size": 0, "oid": "0" * 40}
    monkeypatch.setattr(hub, "_entry", lambda path, one: dict(entry))
    ran = launcher.run("download", "--model-uri", MODEL)
    assert ran.code == 7
    assert "config.json is said to be empty, and to have the sha1 0000" in ran.err


def test_a_branch_cannot_lead_out_of_the_cache(hub: Hub, launcher: Launcher, place: Path) -> None:
    hub.add("org/model", CONTENT, "../../../../../evil")
    ran = launcher.run("download", "--model-uri", f"{MODEL}:../../../../../evil")
    assert ran.code in (2, 7), ran.err
    assert not [path for path in place.rglob("*") if path.name == "evil"]


def test_a_branch_below_another_one(hub: Hub, launcher: Launcher) -> None:
    commits = {branch: hub.add("org/model", {**CONTENT, f"{branch[-1]}.json": b"1"}, branch) for branch in ("a", "a/b")}
    for branch in ("a", "a/b", "a"):
        assert folder_of(launcher.run("download", "--model-uri", f"{MODEL}:{branch}")).name == commits[branch]
    offline = launcher.with_(HF_HUB_OFFLINE="1")
    for branch, commit in commits.items():
        assert folder_of(offline.run("download", "--model-uri", f"{MODEL}:{branch}")).name == commit


def begun_elsewhere(snapshots: Path, commit: str, *, weights: bytes = WEIGHTS) -> Path:
    """What another tool has of the model: enough for an index to prove it, and less than the listing has."""
    folder = snapshots / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(CONTENT["config.json"])
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_snapshot_of_another_tool_that_lacks_what_is_listed(hub: Hub, launcher: Launcher, place: Path) -> None:
    commit = hub.models["org/model"].branches["main"]
    theirs = begun_elsewhere(place / "hf/hub/models--org--model/snapshots", commit)
    reading = launcher.with_(HF_HOME=str(place / "hf"))
    folder = folder_of(reading.run("download", "--model-uri", MODEL))
    assert folder.is_relative_to(place / "cache")
    assert tree(folder) == CONTENT
    assert set(tree(theirs)) == {"config.json", "model.safetensors"}


def test_a_snapshot_that_another_tool_began_in_our_cache_is_checked(hub: Hub, launcher: Launcher, place: Path) -> None:
    commit = hub.models["org/model"].branches["main"]
    wrong = WEIGHTS[:-1] + b"\1"
    begun_elsewhere(place / "cache/huggingface/hub/models--org--model/snapshots", commit, weights=wrong)
    assert tree(folder_of(launcher.run("download", "--model-uri", MODEL))) == CONTENT
    assert launcher.run("verify").code == 0


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_users_of_one_group_share_a_cache(hub: Hub, launcher: Launcher, place: Path) -> None:
    (place / "cache").mkdir()
    (place / "cache").chmod(0o2775)
    folder_of(launcher.run("download", "--model-uri", MODEL))
    assert tree(folder_of(launcher.run_as_stranger("download", "--model-uri", "hf://org/draft"))) == DRAFT
    changed = {**CONTENT, "config.json": b'{"new": 1}'}
    hub.add("org/model", changed)
    assert tree(folder_of(launcher.run_as_stranger("download", "--model-uri", MODEL))) == changed
    pruned = launcher.run_as_stranger("cache", "prune", MODEL)
    assert pruned.code == 0, pruned.err
    modes = {path.stat().st_mode & 0o2070 for path in (place / "cache").rglob("*") if path.is_dir()}
    assert modes == {0o2070}


def test_a_folder_that_is_no_model_is_not_verified(launcher: Launcher, place: Path) -> None:
    empty = place / "empty"
    empty.mkdir()
    for content, said in ((None, "holds no weights"), ("config.json", "holds no weights")):
        if content:
            (empty / content).write_text("{}")
        ran = launcher.run("verify", str(empty))
        assert (ran.code, said in ran.err) == (7, True), ran.err
    (empty / "model.safetensors").write_bytes(WEIGHTS)
    ran = launcher.run("verify", str(empty))
    assert ran.code == 0 and "no digests were compared" in ran.err
    (empty / "config.json").unlink()
    ran = launcher.run("verify", str(empty))
    assert ran.code == 7 and "holds no config.json" in ran.err


def test_the_hint_of_a_wrong_byte_repairs_it(launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    (folder / "model.safetensors").resolve().write_bytes(WEIGHTS[:-1] + b"\1")
    ran = launcher.run("verify")
    assert ran.code == 7
    words = f"download-to-cache --model-uri {MODEL}:{folder.name} --verify-checksums"
    assert f"Run {words}, which fetches what is wrong again" in ran.err
    assert launcher.run(*words.split()).code == 0
    assert launcher.run("verify").code == 0
    assert tree(folder) == CONTENT


def test_weights_that_are_broken_at_their_source_are_said(hub: Hub, launcher: Launcher) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    hub.add("org/pointer", {"config.json": b"{}", "model.safetensors": pointer})
    ran = launcher.run("download", "--model-uri", "hf://org/pointer")
    assert ran.code == 0
    assert "hf://org/pointer: model.safetensors is damaged (" in ran.err and "it is a Git-LFS pointer" in ran.err
    ran = launcher.run("download", "--model-uri", "hf://org/pointer", "--verify-checksums")
    assert ran.code == 7
    assert "The source itself gives them so: check the model there. (exit code 7" in ran.err


def test_without_a_network_a_wrong_byte_is_not_said_to_be_mended_by_itself(launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    (folder / "model.safetensors").resolve().write_bytes(WEIGHTS[:-1] + b"\1")
    offline = launcher.with_(HF_HUB_OFFLINE="1")
    ran = offline.run("download", "--model-uri", MODEL, "--verify-checksums")
    assert ran.code == 7
    assert "Unset HF_HUB_OFFLINE once, so that they can be fetched again" in ran.err


def test_verified_downloads_repair_what_is_wrong(hub: Hub, launcher: Launcher) -> None:
    folder = folder_of(launcher.run("download", "--model-uri", MODEL))
    blob = (folder / "model.safetensors").resolve()
    blob.write_bytes(WEIGHTS[:-1] + b"\1")
    words = ("download", "--model-uri", MODEL, "--verify-checksums")
    assert launcher.with_(HF_HUB_OFFLINE="1").run(*words).code == 7
    before = hub.content
    ran = launcher.run(*words)
    assert tree(folder_of(ran)) == CONTENT
    assert (
        f"{MODEL}: other content than the source gives is in 1 file, such as model.safetensors: fetched again"
        in ran.err
    )
    assert len(WEIGHTS) <= hub.content - before <= len(WEIGHTS) + 10
    assert launcher.run("verify").code == 0


def test_a_store_is_repaired_and_vouches_for_nothing_wrong(launcher: Launcher, place: Path) -> None:
    words = ("create-model-store", "--model-repo", MODEL, "-m", str(place / "store"))
    assert launcher.run(*words).code == 0
    (place / "store/model.safetensors").write_bytes(WEIGHTS[:-1] + b"\1")
    ran = launcher.run("verify", str(place / "store"))
    assert ran.code == 7 and "Write it again with create-model-store" in ran.err
    assert launcher.run(*words).code == 0
    assert (place / "store/model.safetensors").read_bytes() == WEIGHTS
    assert launcher.run("verify", str(place / "store")).code == 0


def test_a_store_that_cannot_be_written_names_its_option(launcher: Launcher) -> None:
    ran = launcher.run("create-model-store", "--model-repo", MODEL, "-m", "/proc/x")
    assert ran.code == 4
    assert "-m /proc/x: it cannot be written: " in ran.err


def test_the_list_tells_of_a_manifest_that_cannot_be_read(launcher: Launcher, place: Path) -> None:
    folder_of(launcher.run("download", "--model-uri", MODEL))
    (manifest,) = (place / "cache/manifests").rglob("*.json")
    manifest.write_text("{")
    assert launcher.run("cache", "ls").out == f"{MODEL}  manifest cannot be read  {manifest}\n"
    listed = json.loads(launcher.run("cache", "ls", "--json").out)
    assert [entry["unreadable"] for entry in listed] == [[str(manifest)]]
    ran = launcher.run("verify")
    assert ran.code == 7 and f"{MODEL}: the manifest {manifest} cannot be read" in ran.err
