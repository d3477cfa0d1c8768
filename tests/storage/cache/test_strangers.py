"""What others put into a cache, a hub or a mirror leads nowhere, and counts for what it is."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.storage.cache.model import CONTENT, DRAFT, MODEL, WEIGHTS, keyed
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, folder_of
from tests.storage.web import Server
from tests.unit.remotes import tree

UP = "../" * 12


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_cache_of_somebody_else_is_denied(hub: Hub, launcher: Launcher, place: Path) -> None:
    (place / "cache").mkdir(mode=0o755)
    ran = launcher.run_as_stranger("download", "--model-uri", MODEL)
    assert ran.code == 4
    assert (
        f"cannot write to the cache {place}/cache: Permission denied; {place}/cache belongs to 0:0 with mode" in ran.err
    )
    assert hub.content <= 1


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
