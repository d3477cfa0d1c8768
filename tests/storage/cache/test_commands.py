"""What people do to a cache: verify, repair, carry over, list, prune."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

from tests.storage.cache.model import CONTENT, DRAFT, MODEL, SIZE, WEIGHTS, keyed
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, finished, folder_of, wait_for_request
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Fault, Server
from tests.unit.remotes import tree


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
