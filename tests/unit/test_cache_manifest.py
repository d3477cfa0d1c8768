"""The manifest: what is written can be read, by older and newer launchers too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cache import manifest as manifests
from launcher.cache.layout import in_hub, shelf
from launcher.cache.manifest import Manifest, Newer, from_json, read, to_json, write
from launcher.errors import IntegrityError
from launcher.fetch.duplicates import Wishes
from launcher.fetch.names import is_safe
from launcher.fetch.remote import Digest, RemoteFile

FILES = (
    RemoteFile("a/b.json", 3, "etag", Digest("md5", "0" * 32)),
    RemoteFile("model.safetensors", 5_000_000_000, "gen-1", None),
)
MANIFEST = Manifest("s3://b/m", "r1", False, "2026-01-31T12:34:56Z", FILES, FILES[:1], Wishes(("*.json",), (), True))


def test_the_document_is_stable() -> None:
    document = json.loads(to_json(MANIFEST))
    assert document == {
        "format": 1,
        "source": "s3://b/m",
        "revision": "r1",
        "pinned": False,
        "time": "2026-01-31T12:34:56Z",
        "wishes": {"include": ["*.json"], "exclude": [], "mistral": True},
        "files": [
            {"path": "a/b.json", "size": 3, "identity": "etag", "digest": f"md5:{'0' * 32}"},
            {"path": "model.safetensors", "size": 5_000_000_000, "identity": "gen-1", "digest": None},
        ],
        "skipped": [{"path": "a/b.json", "size": 3, "identity": "etag", "digest": f"md5:{'0' * 32}"}],
    }
    assert MANIFEST.date == "2026-01-31 12:34 UTC"
    assert MANIFEST.size == 5_000_000_003


@given(
    st.lists(
        st.builds(
            RemoteFile,
            st.text().filter(is_safe),
            st.integers(0, 2**60),
            st.text(),
            st.just(Digest("sha256", "ab" * 32)),
            st.just(""),
        )
    )
)
def test_what_is_written_is_read(files: list[RemoteFile]) -> None:
    manifest = MANIFEST._replace(files=tuple(files), source="hf://o/é", revision="a" * 40, skipped=())
    assert from_json(to_json(manifest).encode("ascii")) == manifest


def test_unknown_keys_are_left_alone() -> None:
    document = json.loads(to_json(MANIFEST)) | {"new": 1}
    document["files"][0]["new"] = 2
    assert from_json(json.dumps(document).encode()) == MANIFEST


def test_a_newer_format_is_told_apart() -> None:
    assert from_json(b'{"format": 7}') == Newer(7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": "1"}',
        to_json(MANIFEST)[:-10],
        to_json(MANIFEST).replace("5000000000", "-1"),
        to_json(MANIFEST).replace("5000000000", "true"),
        to_json(MANIFEST).replace('"s3://b/m"', "3"),
        to_json(MANIFEST).replace("md5:", "md5-"),
        to_json(MANIFEST).replace("md5:", "md5:../"),
        to_json(MANIFEST).replace("md5:", "sum:"),
        to_json(MANIFEST).replace('"etag"', "null"),
        to_json(MANIFEST).replace("a/b.json", "../b.json"),
        to_json(MANIFEST).replace('"r1"', '"../r1"'),
        to_json(MANIFEST).replace("s3://b/m", "hf://b/m"),  # whose revisions are commits
        to_json(MANIFEST._replace(source="hf://b/m", revision="a" * 40)),  # and whose files all have a digest
    ],
)
def test_what_is_no_manifest_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    assert read(str(path)) is None


def test_it_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new/m.json"
    write(str(path), MANIFEST)
    write(str(path), MANIFEST._replace(revision="r2"))
    found = read(str(path))
    assert isinstance(found, Manifest) and found.revision == "r2"
    assert [entry.name for entry in path.parent.iterdir()] == ["m.json"]


def test_a_failed_write_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.json"
    write(str(path), MANIFEST)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(str(path), MANIFEST._replace(revision="r2"))
    assert read(str(path)) == MANIFEST
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.json"]


def test_there_is_only_one_time_format() -> None:
    assert len(manifests.now()) == len(MANIFEST.time)


def test_two_sources_never_share_a_place() -> None:
    names = ["b/m", "b/m.", "b-m", "b/M", "b/" + "x" * 300, "b/" + "x" * 299, "b/m#1", "b/m?1"]
    places = {shelf("/c", "s3", name).folder for name in names} | {shelf("/c", "gs", name).folder for name in names}
    assert len(places) == 2 * len(names)
    assert all(len(part) <= 200 for place in places for part in place.split("/"))


@pytest.mark.parametrize("revision", ["..", ".hidden", "a/b", "-x", "x" * 300, "", "newest?file=a"])
def test_every_revision_has_a_harmless_name(revision: str) -> None:
    place = shelf("/c", "ngc", "org/m")
    for path in (place.snapshot(revision), place.manifest(revision), place.record(revision)):
        head, _, name = path.rpartition("/")
        assert head in (place.folder, place.manifests)
        assert name[0] not in ".-" and len(name) < 200


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "/x", "a/../../x", "a\0"])
def test_no_name_leads_out_of_a_hub(name: str) -> None:
    place = shelf("/c", "hf", "org/m")
    for make in (place.snapshot, place.tree, place.blob, lambda text: place.reference(text or "/")):
        with pytest.raises(IntegrityError, match="would lead out of its folder in the cache"):
            make(name)
    for path in (place.building(name), place.manifest(name), place.record(name)):
        assert path.rpartition("/")[0] in (f"{place.folder}/.building", place.manifests)
    assert place.reference("a/b") == f"{place.folder}/refs/a/b"


def test_a_repository_in_another_hub() -> None:
    other = in_hub(shelf("/c", "hf", "org/m"), "/hub")
    assert other.snapshot("abc") == "/hub/models--org--m/snapshots/abc"
    assert other.reference(None) == "/hub/models--org--m/refs/main"
