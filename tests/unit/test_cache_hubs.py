"""Hub caches of other tools: used as they are when complete, drawn from when not, never written to."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir, snapshot_download
from huggingface_hub.errors import IncompleteSnapshotError

from launcher.cache.layout import shelf
from launcher.cache.snapshots import Known, recorded
from launcher.fetch.duplicates import Wishes
from launcher.fetch.remote import RemoteFile
from tests.unit.remotes import MemoryRemote, files_below, fill, look, options, remote_file, tree
from tests.unit.shards import shard

HUB = "hf://org/m"
SHARD = shard({"a": ("F32", (2,))})
CONTENT = {
    ".gitattributes": b"",
    "README.md": b"# m",
    "config.json": b"{}",
    "model.safetensors": SHARD,
    "tokenizer.json": b"[]",
}
COMMIT = "c" * 40


def hub_cache(
    hub: Path, content: dict[str, bytes], commit: str = COMMIT, *, listed: dict[str, bytes] | None = None
) -> Path:
    """A repository as Hugging Face's own tools leave it; ``listed`` is what its tree holds."""
    repository = hub / "models--org--m"
    for path, data in content.items():
        blob = repository / "blobs" / remote_file(path, data, hub=True).identity
        link = repository / "snapshots" / commit / path
        for place in (blob, link):
            place.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs/main").write_text(commit)
    if listed is not None:
        rows = {path: row(remote_file(path, data, hub=True)) for path, data in listed.items()}
        (repository / "trees").mkdir(exist_ok=True)
        (repository / f"trees/{commit}.json").write_text(json.dumps({"format_version": 1, "files": rows}))
    return repository / "snapshots" / commit


def row(file: RemoteFile) -> dict[str, object]:
    assert file.digest is not None
    if file.digest.algorithm == "sha1":
        return {"size": file.size, "blob_id": file.identity}
    return {"size": file.size, "blob_id": "0" * 40, "lfs_sha256": file.identity, "lfs_size": file.size}


def proof(hub: Path, cache: Path) -> str | None:
    known = recorded(shelf(str(cache), "hf", "org/m"), None, [str(hub)], Wishes())
    return known.proof if isinstance(known, Known) else None


def test_other_tools_take_our_cache_for_their_own(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, {**CONTENT, "draft/config.json": b"{}"})
    found = fill(remote, options(tmp_path))
    hub = tmp_path / "huggingface/hub"
    scanned = scan_cache_dir(hub)
    assert scanned.warnings == []
    (repository,) = scanned.repos
    (revision,) = repository.revisions
    assert (repository.repo_id, revision.commit_hash, revision.refs) == ("org/m", remote.revision, frozenset({"main"}))
    assert revision.nb_files == 6
    for asked in ("main", remote.revision):
        folder = snapshot_download("org/m", revision=asked, cache_dir=hub, local_files_only=True)
        assert folder == found.folder


def test_the_listing_we_write_is_believed(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    found = fill(remote, options(tmp_path))
    Path(found.folder, "tokenizer.json").unlink()
    with pytest.raises(IncompleteSnapshotError, match=r"tokenizer\.json"):
        snapshot_download("org/m", cache_dir=tmp_path / "huggingface/hub", local_files_only=True)


def test_other_tools_complete_what_we_left_out(tmp_path: Path) -> None:
    """Without a listing of ours they take the snapshot as it is offline, and list the repository online."""
    found = fill(MemoryRemote(HUB, {**CONTENT, "pytorch_model.bin": b"x"}), options(tmp_path))
    assert snapshot_download("org/m", cache_dir=tmp_path / "huggingface/hub", local_files_only=True) == found.folder


def test_a_foreign_snapshot_with_all_of_its_tree(tmp_path: Path) -> None:
    hub_cache(tmp_path / "hub", CONTENT, listed=CONTENT)
    assert proof(tmp_path / "hub", tmp_path / "cache") == "trees"


def test_a_foreign_snapshot_without_known_duplicates(tmp_path: Path) -> None:
    hub_cache(tmp_path / "hub", CONTENT, listed={**CONTENT, "pytorch_model.bin": b"x", "original/x.pth": b"x"})
    assert proof(tmp_path / "hub", tmp_path / "cache") == "trees"


def test_a_foreign_snapshot_without_its_papers(tmp_path: Path) -> None:
    """What an engine that fetches by pattern leaves behind."""
    kept = {path: CONTENT[path] for path in ("config.json", "model.safetensors", "tokenizer.json")}
    hub_cache(tmp_path / "hub", kept, listed={**CONTENT, "LICENSE": b"x", "assets/logo.png": b"x"})
    assert proof(tmp_path / "hub", tmp_path / "cache") == "index"


@pytest.mark.parametrize("lost", ["tokenizer.json", "config.json", "model.safetensors"])
def test_a_foreign_snapshot_that_lacks_what_its_tree_lists(tmp_path: Path, lost: str) -> None:
    hub_cache(tmp_path / "hub", {path: data for path, data in CONTENT.items() if path != lost}, listed=CONTENT)
    assert proof(tmp_path / "hub", tmp_path / "cache") is None


def test_a_foreign_file_of_the_wrong_size(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub", CONTENT, listed=CONTENT)
    os.truncate(snapshot / "README.md", 1)
    assert proof(tmp_path / "hub", tmp_path / "cache") is None


def test_without_a_tree_the_index_proves(tmp_path: Path) -> None:
    hub_cache(tmp_path / "hub", {"config.json": b"{}", "model.safetensors": SHARD})
    assert proof(tmp_path / "hub", tmp_path / "cache") == "index"


def sharded(present: list[str]) -> dict[str, bytes]:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    return {
        "config.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        **dict.fromkeys(present, SHARD),
    }


def test_every_shard_of_the_index_must_be_there(tmp_path: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    hub_cache(tmp_path / "whole", sharded([first, second]))
    hub_cache(tmp_path / "half", sharded([first]))
    assert proof(tmp_path / "whole", tmp_path / "cache") == "index"
    assert proof(tmp_path / "half", tmp_path / "cache") is None


@pytest.mark.parametrize("broken", [SHARD[:-1], b"version https://git-lfs.github.com/spec/v1\n", b"<html>", b""])
def test_every_shard_must_be_whole(tmp_path: Path, broken: bytes) -> None:
    hub_cache(tmp_path / "hub", {"config.json": b"{}", "model.safetensors": broken})
    assert proof(tmp_path / "hub", tmp_path / "cache") is None


def test_a_snapshot_without_its_blobs(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub", CONTENT)
    shutil.rmtree(snapshot.parents[1] / "blobs")
    assert proof(tmp_path / "hub", tmp_path / "cache") is None


def test_no_configuration_no_proof(tmp_path: Path) -> None:
    hub_cache(tmp_path / "hub", {"model.safetensors": SHARD})
    assert proof(tmp_path / "hub", tmp_path / "cache") is None


@pytest.mark.parametrize("tree_text", ["no json", '{"format_version": 2, "files": {}}', '{"format_version": 1}'])
def test_a_tree_that_cannot_be_read_is_none(tmp_path: Path, tree_text: str) -> None:
    snapshot = hub_cache(tmp_path / "hub", CONTENT, listed=CONTENT)
    (snapshot.parents[1] / f"trees/{COMMIT}.json").write_text(tree_text)
    assert proof(tmp_path / "hub", tmp_path / "cache") == "index"


def test_a_tree_that_climbs_out_is_none(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub", CONTENT, listed={**CONTENT, "../../../x": b"x"})
    assert snapshot.is_dir()
    assert proof(tmp_path / "hub", tmp_path / "cache") == "index"


def test_a_foreign_snapshot_is_served_where_it_lies(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    snapshot = hub_cache(tmp_path / "hub", CONTENT, remote.revision, listed=CONTENT)
    before = files_below(tmp_path / "hub")
    found = fill(remote, options(tmp_path / "cache", hubs=(str(tmp_path / "hub"),)))
    assert (found.folder, found.proof, remote.fetched) == (str(snapshot), "trees", [])
    assert files_below(tmp_path / "hub") == before
    assert tree(found.folder) == CONTENT


def test_a_foreign_snapshot_serves_offline(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    snapshot = hub_cache(tmp_path / "hub", CONTENT, listed=CONTENT)
    settings = options(tmp_path / "cache", hubs=(str(tmp_path / "hub"),), offline="HF_HUB_OFFLINE")
    assert (look(remote, settings).folder, remote.listings) == (str(snapshot), 0)
    assert not (tmp_path / "cache").exists()


def test_blobs_of_another_cache_are_not_fetched_again(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, {**CONTENT, "config.json": b'{"new": 1}'})
    hub_cache(tmp_path / "hub", CONTENT, listed=CONTENT)
    before = {path: (tmp_path / "hub" / path).read_bytes() for path in files_below(tmp_path / "hub")}
    found = fill(remote, options(tmp_path / "cache", hubs=(str(tmp_path / "hub"),)))
    assert remote.fetched == ["config.json"]
    assert tree(found.folder) == remote.content
    assert {path: (tmp_path / "hub" / path).read_bytes() for path in files_below(tmp_path / "hub")} == before


@pytest.mark.parametrize(("digests", "fetched"), [(True, ["model.safetensors"]), (False, [])])
def test_a_blob_that_nobody_checked_is_checked(tmp_path: Path, digests: bool, fetched: list[str]) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    hub = tmp_path / "cache/huggingface/hub"  # our own, where another tool was at work
    hub_cache(hub, {path: data for path, data in CONTENT.items() if path != "tokenizer.json"}, "d" * 40)
    blob = hub / "models--org--m/blobs" / remote_file("model.safetensors", SHARD, hub=True).identity
    blob.write_bytes(SHARD[:-1] + b"?")
    fill(remote, options(tmp_path / "cache", digests=digests))
    assert sorted(remote.fetched) == [*fetched, "tokenizer.json"]
    assert blob.read_bytes() == (SHARD if digests else SHARD[:-1] + b"?")


def test_a_half_snapshot_of_another_tool_is_completed_in_place(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    hub_cache(tmp_path / "huggingface/hub", {"config.json": b"{}"}, remote.revision, listed=CONTENT)
    found = fill(remote, options(tmp_path))
    assert (found.proof, tree(found.folder)) == ("manifest", CONTENT)
    assert "config.json" not in remote.fetched
