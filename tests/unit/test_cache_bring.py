"""From a source to a snapshot: what is fetched, what is written where, and what a second start does."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from launcher.cache.layout import shelf
from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NoSpaceError, NotFoundError
from launcher.fetch.bring import bring
from launcher.fetch.describe import describe
from launcher.fetch.duplicates import Wishes
from launcher.fetch.incoming import Job
from launcher.fetch.progress import Progress
from launcher.fetch.remote import Remote
from launcher.sources import ModelSource, Patience, parse_source
from tests.unit.remotes import MemoryRemote, entries, files_below, fill, look, options, tree

S3 = "s3://bucket/models/m"
HUB = "hf://org/m"
CONTENT = {
    "config.json": b'{"model_type": "llama"}',
    "draft/config.json": b"{}",
    "draft/model.safetensors": b"draft",
    "empty.txt": b"",
    "model.safetensors": b"weights" * 100,
}


def refusal(action: Callable[[], object]) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("text", [S3, HUB])
def test_a_source_is_described_before_a_byte_is_fetched(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    found = look(remote, options(tmp_path))
    assert (found.proof, found.is_complete, found.revision) == ("", False, remote.revision)
    assert entries(found.reader.listing()) == [(path, len(data)) for path, data in CONTENT.items()]
    assert found.to_download() == found.size == sum(map(len, CONTENT.values()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [S3, HUB])
def test_a_snapshot_holds_exactly_the_files(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    found = fill(remote, options(tmp_path))
    assert found.proof == "manifest"
    assert tree(found.folder) == CONTENT
    assert entries(found.reader.listing()) == [(path, len(data)) for path, data in CONTENT.items()]
    assert found.reader.read("config.json", 2, 10) == b"model_type"
    assert sorted(remote.fetched) == sorted(path for path in CONTENT if path != "empty.txt")


def test_an_object_store_lies_under_its_name_and_hash(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    found = fill(remote, options(tmp_path))
    place = shelf(str(tmp_path), "s3", "bucket/models/m")
    assert found.folder == f"{tmp_path}/s3/{place.key[3:]}/{remote.revision}"
    assert place.key.startswith("s3/bucket-models-m-") and len(place.key) == len("s3/bucket-models-m-") + 32
    kept = files_below(tmp_path)
    assert {path for path in kept if not path.startswith("s3/")} == {
        f"manifests/{place.key}/{remote.revision}.json",
        f"manifests/{place.key}/newest.current",
        f"locks/{place.key.replace('/', '-')}.lock",
    }
    assert {path for path in kept if path.startswith("s3/")} == {
        f"{found.folder[len(str(tmp_path)) + 1 :]}/{path}" for path in CONTENT
    }


def test_a_hub_repository_has_the_standard_layout(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    found = fill(remote, options(tmp_path))
    repository = tmp_path / "huggingface/hub/models--org--m"
    assert found.folder == f"{repository}/snapshots/{remote.revision}"
    assert sorted(path.name for path in repository.iterdir()) == [".parts", "blobs", "refs", "snapshots", "trees"]
    assert (repository / "refs/main").read_text() == remote.revision
    link = Path(found.folder, "draft/model.safetensors")
    assert str(link.readlink()) == f"../../../blobs/{remote.listing().files[2].identity}"
    listed = json.loads((repository / f"trees/{remote.revision}.json").read_text())
    assert listed["format_version"] == 1 and sorted(listed["files"]) == sorted(CONTENT)


def test_a_snapshot_without_its_duplicates_leaves_no_listing_for_other_tools(tmp_path: Path) -> None:
    fill(MemoryRemote(HUB, {**CONTENT, "pytorch_model.bin": b"again"}), options(tmp_path))
    assert not (tmp_path / "huggingface/hub/models--org--m/trees").exists()


@pytest.mark.parametrize("text", [S3, HUB])
def test_a_complete_snapshot_is_listed_and_nothing_is_fetched(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    first = fill(remote, options(tmp_path))
    remote.fetched.clear()
    again = fill(remote, options(tmp_path))
    assert (again.folder, again.proof, again.to_download()) == (first.folder, "manifest", 0)
    assert (remote.listings, remote.fetched) == (2, [])


@pytest.mark.parametrize("text", [f"{HUB}:{'a' * 40}", "ngc://org/team/m:1.0"])
def test_a_pinned_source_is_never_asked_again(tmp_path: Path, text: str) -> None:
    class Pinned(MemoryRemote):
        @property
        def revision(self) -> str:
            return text.rpartition(":")[2]

    remote = Pinned(text.rpartition(":")[0], CONTENT, pinned=True)
    fill(remote, options(tmp_path), text)
    again = fill(remote, options(tmp_path, refresh="required"), text)
    assert (remote.listings, again.proof) == (1, "manifest")


@pytest.mark.parametrize("text", [S3, HUB])
def test_only_what_changed_is_fetched(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    first = fill(remote, options(tmp_path))
    remote.fetched.clear()
    remote.content["config.json"] = b"{}"
    remote.content["new.json"] = b"[]"
    second = fill(remote, options(tmp_path))
    assert remote.fetched == ["new.json"]  # what config.json is now, draft/config.json was before
    assert tree(second.folder) == remote.content
    assert tree(first.folder) == CONTENT
    assert Path(first.folder, "model.safetensors").samefile(f"{second.folder}/model.safetensors")


@pytest.mark.parametrize("text", [S3, HUB])
def test_a_renamed_file_is_not_fetched_again(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    fill(remote, options(tmp_path))
    remote.fetched.clear()
    remote.content["other/model.safetensors"] = remote.content.pop("model.safetensors")
    assert tree(fill(remote, options(tmp_path)).folder) == remote.content
    assert remote.fetched == []


@pytest.mark.parametrize("text", [S3, HUB])
def test_equal_files_are_fetched_once(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, {"a/model.safetensors": b"same", "b/model.safetensors": b"same", "config.json": b"{}"})
    assert tree(fill(remote, options(tmp_path)).folder) == remote.content
    assert sorted(remote.fetched) == ["a/model.safetensors", "config.json"]


def test_a_network_failure_falls_back_to_the_recorded_snapshot(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    first = fill(remote, options(tmp_path))
    remote.failure = NetworkError("the store is away", "Wait")
    again = look(remote, options(tmp_path))
    assert (again.folder, again.is_complete) == (first.folder, True)
    manifest = json.loads(next((tmp_path / "manifests").rglob("*.json")).read_text())
    assert again.warnings == (
        f"{S3} could not be asked for changes (the store is away): serving revision {remote.revision[:12]}, "
        f"which was complete on {manifest['time'][:10]} {manifest['time'][11:16]} UTC",
    )


def test_the_snapshot_that_was_current_last_is_the_one_to_fall_back_to(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, {"config.json": b"1"})
    first = fill(remote, options(tmp_path))
    remote.content = {"config.json": b"2"}
    fill(remote, options(tmp_path))
    remote.content = {"config.json": b"1"}
    fill(remote, options(tmp_path))
    remote.failure = NetworkError("away")
    assert look(remote, options(tmp_path)).folder == first.folder


def test_required_means_that_a_failed_listing_is_an_error(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path))
    remote.failure = NetworkError("away")
    assert refusal(lambda: look(remote, options(tmp_path, refresh="required"))).code == 5


@pytest.mark.parametrize("failure", [NotFoundError("gone"), DeniedError("not for you"), IntegrityError("bad names")])
def test_other_failures_stop_the_start(tmp_path: Path, failure: LauncherError) -> None:
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path))
    remote.failure = failure
    assert refusal(lambda: look(remote, options(tmp_path))) is failure


def test_never_asks_only_what_is_not_complete(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path, refresh="never"))
    remote.content["config.json"] = b"changed"
    fill(remote, options(tmp_path, refresh="never"))
    assert remote.listings == 1


def test_a_silent_source_is_waited_for_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    remote = MemoryRemote(S3, CONTENT)
    first = fill(remote, options(tmp_path))
    monkeypatch.setattr("launcher.fetch.refresh.BRIEF", 0.2)
    release = threading.Event()
    monkeypatch.setattr(remote, "listing", lambda: release.wait(30))
    again = look(remote, options(tmp_path))
    release.set()
    assert again.folder == first.folder
    assert "no answer within 0 s" in again.warnings[0]


def test_silent_sources_share_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remotes = [MemoryRemote(text, CONTENT) for text in ("hf://org/target", "hf://org/draft")]
    for remote in remotes:
        fill(remote, options(tmp_path))
    monkeypatch.setattr("launcher.fetch.refresh.BRIEF", 0.3)
    patience, silence = Patience(), threading.Event()

    def silent(source: ModelSource, environ: Mapping[str, str], override: str | None) -> Remote:
        silence.wait(5.0)
        raise NetworkError("too late")

    began = time.monotonic()
    for remote in remotes:
        found = describe(parse_source(remote.source, "test"), options(tmp_path), silent, patience)
        assert found.is_complete and "no answer within" in found.warnings[0]
    assert time.monotonic() - began < 0.55
    silence.set()


def test_offline_needs_a_complete_snapshot(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)
    offline = options(tmp_path, offline="HF_HUB_OFFLINE")
    error = refusal(lambda: look(remote, offline))
    assert (error.code, remote.listings) == (3, 0)
    assert error.what == f"{HUB} is not complete in the cache, and HF_HUB_OFFLINE forbids fetching it"
    fill(remote, options(tmp_path))
    assert look(remote, offline).proof == "manifest"
    assert remote.listings == 1


def test_offline_names_what_a_damaged_snapshot_lost(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    found = fill(remote, options(tmp_path))
    Path(found.folder, "model.safetensors").unlink()
    error = refusal(lambda: look(remote, options(tmp_path, offline="HF_HUB_OFFLINE")))
    assert isinstance(error, IntegrityError)
    assert "1 of its files are missing or changed, such as model.safetensors" in error.what


@pytest.mark.parametrize("text", [S3, HUB])
def test_a_damaged_snapshot_is_repaired(tmp_path: Path, text: str) -> None:
    remote = MemoryRemote(text, CONTENT)
    found = fill(remote, options(tmp_path))
    remote.fetched.clear()
    os.truncate(f"{found.folder}/model.safetensors", 3)
    look_again = look(remote, options(tmp_path))
    assert look_again.warnings[0].startswith(f"{found.folder} has lost 1 files, such as model.safetensors")
    assert tree(fill(remote, options(tmp_path)).folder) == CONTENT
    assert remote.fetched == ["model.safetensors"]


def test_a_change_that_cannot_be_completed_fails(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path))
    remote.content["model.safetensors"] = b"new"

    def broken(jobs: Sequence[Job], progress: Progress) -> None:
        raise NetworkError("503 for model.safetensors")

    settings = options(tmp_path)
    assert refusal(lambda: bring([look(remote, settings)], ["target"], settings, Progress(), broken)).code == 5
    assert not Path(look(remote, settings).folder).exists()


def test_what_arrived_before_a_failure_is_kept(tmp_path: Path) -> None:
    remote = MemoryRemote(HUB, CONTENT)

    def breaks_off(jobs: Sequence[Job], progress: Progress) -> None:
        remote.transfer(jobs[:2], progress)
        raise NetworkError("reset")

    settings = options(tmp_path)
    refusal(lambda: bring([look(remote, settings)], ["target"], settings, Progress(), breaks_off))
    parts = tmp_path / "huggingface/hub/models--org--m/.parts"
    assert not (tmp_path / "huggingface/hub/models--org--m/snapshots").exists()
    kept = {path.read_bytes() for path in parts.iterdir()}
    assert kept == {CONTENT["config.json"], CONTENT["draft/config.json"]}

    def goes_on(jobs: Sequence[Job], progress: Progress) -> None:
        assert {Path(job.part).read_bytes() for job in jobs if Path(job.part).exists()} == kept
        remote.transfer(jobs, progress)

    brought = bring([look(remote, settings)], ["target"], settings, Progress(), goes_on)
    assert tree(brought[0].folder) == CONTENT
    assert list(parts.iterdir()) == []


def test_target_and_draft_are_fetched_together(tmp_path: Path) -> None:
    target, draft = MemoryRemote(S3, CONTENT), MemoryRemote(HUB, {"config.json": b"{}"})
    settings = options(tmp_path)
    calls: list[list[tuple[str, str]]] = []

    def fetch(jobs: Sequence[Job], progress: Progress) -> None:
        calls.append([(job.label, job.file.path) for job in jobs])
        target.transfer(jobs, progress)

    both = [look(target, settings), look(draft, settings)]
    brought = bring(both, ["target", "draft"], settings, Progress(), fetch)
    assert len(calls) == 1
    assert {label for label, _ in calls[0]} == {"target", "draft"}
    assert [tree(found.folder) for found in brought] == [CONTENT, {"config.json": b"{}"}]


def test_both_must_fit_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = MemoryRemote(S3, {"a": b"x" * 9000}), MemoryRemote(HUB, {"b": b"x" * 9000})
    settings = options(tmp_path)
    real = os.statvfs

    def full(path: str) -> os.statvfs_result:
        values = list(real(path))
        values[0] = values[1] = 4096
        values[4] = 5
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", full)
    for remote in (target, draft):  # either alone would fit: 3 blocks of 5
        look(remote, settings)
    both = [look(target, settings), look(draft, settings)]
    error = refusal(lambda: bring(both, ["target", "draft"], settings, Progress(), target.transfer))
    assert isinstance(error, NoSpaceError)
    assert error.what == f"{S3} and {HUB} still need 24.6 kB, and {tmp_path} has 20.5 kB free"
    assert target.fetched + draft.fetched == []


def test_files_of_other_wishes_are_fetched_when_wanted(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, {**CONTENT, "pytorch_model.bin": b"pickle"})
    first = fill(remote, options(tmp_path))
    assert "pytorch_model.bin" not in tree(first.folder)
    remote.fetched.clear()
    everything = options(tmp_path, wishes=Wishes(include=("*",)))
    assert tree(fill(remote, everything).folder) == remote.content
    assert remote.fetched == ["pytorch_model.bin"]
    for settings in (options(tmp_path), everything):  # each finds its own complete, whoever came last
        assert look(remote, settings._replace(offline="HF_HUB_OFFLINE")).proof == "manifest"


def test_a_newer_format_is_left_alone_and_fetched_aside(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    place = shelf(str(tmp_path), "s3", "bucket/models/m")
    newer = Path(place.manifest(remote.revision))
    newer.parent.mkdir(parents=True)
    newer.write_text('{"format": 2, "what": "ever"}')
    Path(place.snapshot(remote.revision)).mkdir(parents=True)
    Path(place.snapshot(remote.revision), "other").write_bytes(b"layout")
    found = fill(remote, options(tmp_path))
    assert found.folder == f"{place.folder}/{remote.revision}~1"
    assert tree(found.folder) == CONTENT
    assert newer.read_text() == '{"format": 2, "what": "ever"}'
    assert tree(place.snapshot(remote.revision)) == {"other": b"layout"}
    remote.fetched.clear()
    assert look(remote, options(tmp_path, offline="HF_HUB_OFFLINE")).folder == found.folder


def test_an_entry_of_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path))
    manifest = next((tmp_path / "manifests").rglob("*.json"))
    manifest.write_text(manifest.read_text().replace(S3, "s3://bucket/other"))
    error = refusal(lambda: look(remote, options(tmp_path)))
    assert isinstance(error, IntegrityError)
    assert "belongs to s3://bucket/other, not to s3://bucket/models/m" in error.what


def test_a_lost_manifest_costs_no_byte(tmp_path: Path) -> None:
    """Killed between the snapshot's name and its manifest."""
    remote = MemoryRemote(S3, CONTENT)
    fill(remote, options(tmp_path))
    next((tmp_path / "manifests").rglob("*.json")).unlink()
    remote.fetched.clear()
    assert look(remote, options(tmp_path)).to_download() == 0
    assert fill(remote, options(tmp_path)).proof == "manifest"
    assert remote.fetched == []


def test_a_file_that_nobody_asked_for_does_not_count(tmp_path: Path) -> None:
    remote = MemoryRemote(S3, CONTENT)
    found = fill(remote, options(tmp_path))
    Path(found.folder, "notes.txt").write_text("mine")
    assert "notes.txt" not in [entry.path for entry in look(remote, options(tmp_path)).reader.listing()]


def test_a_cache_that_cannot_be_made_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.fetch.filling.can_make", lambda path: False)
    error = refusal(lambda: fill(MemoryRemote(S3, CONTENT), options(tmp_path)))
    assert isinstance(error, DeniedError)
    assert error.what.startswith(f"cannot write to the cache {tmp_path}: Permission denied; {tmp_path} belongs to ")
