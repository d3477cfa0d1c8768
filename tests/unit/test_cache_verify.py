"""Offline comparison of a folder with its manifest, level by level."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cache.verify import DIGESTS, LEVELS, NAMES, SIZES, STRUCTURE, compare, digest_of, faults_of_structure
from launcher.errors import IntegrityError
from launcher.fetch.remote import Digest, RemoteFile
from tests.unit.remotes import remote_file
from tests.unit.shards import shard

SHARD = shard({"a": ("F32", (2,))})
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors"}}).encode()
CONTENT = {"config.json": b"{}", "model-1.safetensors": SHARD, "model.safetensors.index.json": INDEX, "sub/x": b"x"}
FILES = [remote_file(path, data, hub=True) for path, data in CONTENT.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in CONTENT.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


def differences(folder: Path) -> dict[str, tuple[str, ...]]:
    return {level: compare(str(folder), FILES, level).differences for level in LEVELS}


def test_a_whole_folder_has_no_differences(folder: Path) -> None:
    (folder / "unknown").write_bytes(b"does not count")
    assert differences(folder) == dict.fromkeys(LEVELS, ())
    report = compare(str(folder), FILES, DIGESTS)
    assert (report.files, report.bytes, report.without_digest) == (4, sum(map(len, CONTENT.values())), 0)


def test_a_lost_shard_is_seen_by_name(folder: Path) -> None:
    (folder / "model-1.safetensors").unlink()
    assert differences(folder) == dict.fromkeys(LEVELS, ("model-1.safetensors is missing",))


def test_a_short_file_is_seen_by_size(folder: Path) -> None:
    (folder / "sub/x").write_bytes(b"")
    assert differences(folder) == {NAMES: ()} | dict.fromkeys(LEVELS[1:], ("sub/x has 0 bytes instead of 1",))


def test_a_foreign_file_of_the_right_size_is_seen_by_structure(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(b"<html>" + bytes(len(SHARD) - 6))
    found = differences(folder)
    assert found[NAMES] == found[SIZES] == ()
    assert found[STRUCTURE] == found[DIGESTS]
    assert found[STRUCTURE][0].startswith("model-1.safetensors is damaged (")


def test_a_flipped_byte_is_seen_by_digest(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(SHARD[:-1] + b"\1")
    found = differences(folder)
    assert found[STRUCTURE] == ()
    (line,) = found[DIGESTS]
    assert line.startswith("model-1.safetensors has the sha256 ")
    assert line.endswith(f" instead of {FILES[1].identity}")


def test_a_dangling_link_says_where_it_leads(folder: Path) -> None:
    (folder / "sub/x").unlink()
    (folder / "sub/x").symlink_to("../../blobs/0")
    assert compare(str(folder), FILES, NAMES).differences == ("sub/x is a link that leads nowhere (../../blobs/0)",)


def test_an_index_that_names_what_is_not_listed(folder: Path) -> None:
    rest = [file for file in FILES if file.path != "model-1.safetensors"]
    (line,) = compare(str(folder), rest, STRUCTURE).differences
    assert line == "model.safetensors.index.json lists 1 of 1 files that are not there: model-1.safetensors"


def test_files_without_a_digest_are_counted(folder: Path) -> None:
    silent = [file._replace(digest=None) for file in FILES[:3]] + FILES[3:]
    report = compare(str(folder), silent, DIGESTS)
    assert (report.differences, report.without_digest) == ((), 3)


def test_differences_end_with_code_7(folder: Path) -> None:
    many = [RemoteFile(f"{number:02}", 1, "", None) for number in range(12)]
    with pytest.raises(IntegrityError) as caught:
        compare(str(folder), many, NAMES).settle("s3://b/m", "Fetch it again")
    assert caught.value.what.startswith("s3://b/m: 12 of 12 files differ: 00 is missing; 01 is missing; ")
    assert caught.value.what.endswith("; 09 is missing; and 2 more")


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [
        ("sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ("sha1", "e2e107ac61ac259b87c544f6e7a4eb03422c6c21"),  # of a git blob
        ("md5", "25f9e794323b453885f5181f1b624d0b"),
        ("crc32", "cbf43926"),
        ("crc32c", "e3069283"),
        ("crc64nvme", "ae8b14860a799888"),
    ],
)
def test_every_digest_that_a_source_may_give(tmp_path: Path, algorithm: str, value: str) -> None:
    (tmp_path / "f").write_bytes(b"123456789")
    assert digest_of(str(tmp_path / "f"), Digest(algorithm, ""), 9) == value


def test_structure_without_a_manifest(folder: Path) -> None:
    assert faults_of_structure(str(folder)) == ()
    (folder / "model-1.safetensors").unlink()
    assert faults_of_structure(str(folder)) == (
        "model.safetensors.index.json lists 1 of 1 files that are not there: model-1.safetensors",
    )
