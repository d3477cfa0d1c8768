"""Parts belong to one living process each: tested with real ones."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.cache import parts
from launcher.cache.parts import Owner, key_of
from launcher.errors import DeniedError
from launcher.fetch.remote import RemoteFile

FILE = RemoteFile("model.safetensors", 100, "etag", None)
REPOSITORY = Path(__file__).parents[2]
HOLD = """
import sys, time
from launcher.cache.parts import Owner
from launcher.fetch.remote import RemoteFile
owner = Owner(sys.argv[1]).__enter__()
part = owner.claim(RemoteFile("model.safetensors", 100, "etag", None))
open(part.path, "ab").close()
open(part.record, "ab").close()
print(part.path, flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that owns a part of `FILE`, and that part."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_new_part_is_named_by_what_it_holds_and_by_its_owner(tmp_path: Path) -> None:
    with Owner(str(tmp_path)) as owner:
        part = owner.claim(FILE)
        assert part.path == f"{tmp_path}/{key_of(FILE)}.{owner.token}.part"
        assert part.record == f"{tmp_path}/{key_of(FILE)}.{owner.token}.record"
        assert owner.claim(FILE) == part
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "other", [FILE._replace(path="other"), FILE._replace(size=101), FILE._replace(identity="new")], ids=str
)
def test_another_file_is_another_part(other: RemoteFile) -> None:
    assert key_of(other) != key_of(FILE)


def test_the_part_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    with other_process(tmp_path) as (_, theirs), Owner(str(tmp_path)) as owner:
        assert owner.claim(FILE).path != str(theirs)
        assert theirs.exists()
        assert owner.leftovers() == ()


def test_the_part_of_a_killed_process_is_adopted_at_once(tmp_path: Path) -> None:
    with other_process(tmp_path) as (process, theirs):
        inode = theirs.stat().st_ino
        process.kill()
        process.wait()
        with Owner(str(tmp_path)) as owner:
            part = owner.claim(FILE)
            assert Path(part.path).stat().st_ino == inode
            assert Path(part.record).exists()
            assert not theirs.exists()


def test_a_part_that_was_left_in_order_is_adopted(tmp_path: Path) -> None:
    with Owner(str(tmp_path)) as first:
        Path(first.claim(FILE).path).write_bytes(b"first")
    with Owner(str(tmp_path)) as second:
        assert Path(second.claim(FILE).path).read_bytes() == b"first"


def test_two_adopters_one_wins(tmp_path: Path) -> None:
    with other_process(tmp_path) as (process, theirs):
        process.kill()
        process.wait()
        claimers = [
            subprocess.Popen(
                [sys.executable, "-c", HOLD, str(tmp_path)],
                cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for _ in range(4)
        ]  # fmt: skip
        inode = theirs.stat().st_ino
        paths = []
        for claimer in claimers:
            assert claimer.stdout is not None
            paths.append(Path(claimer.stdout.readline().strip()))
        assert len(set(paths)) == 4
        assert [path.stat().st_ino for path in paths].count(inode) == 1
        for claimer in claimers:
            claimer.kill()
            claimer.communicate()


def test_thousands_of_parts_are_claimed_without_listing_them_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [FILE._replace(path=str(number)) for number in range(500)]
    with Owner(str(tmp_path)) as gone:
        for file in files:
            Path(gone.claim(file).path).write_bytes(file.path.encode())
    listed, names = [], os.listdir

    def counting(folder: str) -> list[str]:
        listed.append(folder)
        return names(folder)

    monkeypatch.setattr(os, "listdir", counting)
    with Owner(str(tmp_path)) as owner:
        for file in files:
            assert Path(owner.claim(file).path).read_bytes() == file.path.encode()
    assert len(listed) <= 2


def test_a_part_that_comes_later_is_claimed_too(tmp_path: Path) -> None:
    other = FILE._replace(path="other")
    with Owner(str(tmp_path)) as owner:
        assert not Path(owner.claim(FILE).path).exists()
        time.sleep(0.02)  # a tick of the file system's clock
        with Owner(str(tmp_path)) as gone:
            Path(gone.claim(other).path).write_bytes(b"other")
        assert Path(owner.claim(other).path).read_bytes() == b"other"


def test_a_record_without_its_part_is_not_kept(tmp_path: Path) -> None:
    with Owner(str(tmp_path)) as owner:
        part = owner.claim(FILE)
        Path(part.record).write_bytes(b"stale")
        owner.claim(FILE)
        assert not Path(part.record).exists()


def backdate(folder: Path, seconds: float) -> None:
    for path in folder.iterdir():
        then = time.time() - seconds
        os.utime(path, (then, then))


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system where flock succeeds and means nothing."""
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)


def test_without_locks_silence_decides(tmp_path: Path, without_locks: None) -> None:
    with other_process(tmp_path) as (process, theirs), Owner(str(tmp_path)) as owner:
        process.kill()
        process.wait()
        assert owner.claim(FILE).path != str(theirs)
        assert theirs.exists(), "its owner may still live"
        backdate(tmp_path, 59)
        owner.claim(FILE)
        assert theirs.exists()
        backdate(tmp_path, 61)
        owner.claim(FILE)
        assert not theirs.exists()


def test_without_locks_a_touch_keeps_the_part(tmp_path: Path, without_locks: None) -> None:
    with Owner(str(tmp_path), beat=0.05) as first, Owner(str(tmp_path), silence=0.5) as second:
        Path(first.claim(FILE).path).write_bytes(b"first")
        time.sleep(1.0)
        second.claim(FILE)
        assert Path(first.claim(FILE).path).read_bytes() == b"first"


def test_a_lock_of_another_machine_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems keep locks within one machine: there a free lock says nothing about the others."""
    with other_process(tmp_path) as (process, theirs):
        process.kill()
        process.wait()
        monkeypatch.setattr(parts, "_kernel", lambda: "ffffffff")
        with Owner(str(tmp_path)) as owner:
            owner.claim(FILE)
            assert theirs.exists()
            backdate(tmp_path, 61)
            owner.claim(FILE)
            assert not theirs.exists()


def test_refused_locks_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Owner(str(tmp_path)) as owner:
        assert Path(owner.claim(FILE).path).parent == tmp_path


def test_leftovers_are_what_no_living_process_owns(tmp_path: Path) -> None:
    with other_process(tmp_path) as (process, theirs), Owner(str(tmp_path)) as owner:
        Path(owner.claim(FILE).path).write_bytes(b"mine")
        process.kill()
        process.wait()
        stem = str(theirs).removesuffix(".part")
        token = stem.rpartition(".")[2]
        assert owner.leftovers() == tuple(sorted([f"{stem}.part", f"{stem}.record", f"{tmp_path}/{token}.owner"]))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DeniedError, match="cannot be written"):
        Owner(f"{tmp_path}/file/parts").__enter__()


def test_settle_gives_the_final_name_in_one_step(tmp_path: Path) -> None:
    with Owner(str(tmp_path / "parts")) as owner:
        part = owner.claim(FILE)
        Path(part.path).write_bytes(b"whole")
        Path(part.record).write_bytes(b"")
        part.settle(f"{tmp_path}/final")
    assert (tmp_path / "final").read_bytes() == b"whole"
    assert list((tmp_path / "parts").iterdir()) == []
