"""Locks that say who is waited for, end, and are done without where a file system has none."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cache import locks
from launcher.cache.locks import Clock, Held, acquire, acquire_now, holder, share
from launcher.errors import BusyError, DeniedError

HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A lock that another process holds."""
    path = tmp_path / "locks/x.lock"
    path.parent.mkdir()
    path.write_text("123\nnode-7\n2026-01-31 12:00:00 UTC\n")
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield path
        process.kill()


class FakeTime:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_free_lock_is_taken_and_signed(tmp_path: Path) -> None:
    path = str(tmp_path / "locks/x.lock")
    lock = acquire(path, "it", 5)
    assert lock.descriptor is not None
    assert holder(path).startswith(f"process {os.getpid()} on {os.uname().nodename} since 20")
    with pytest.raises(BusyError, match=rf"^it is held by process {os.getpid()} on "):
        acquire_now(path, "it")
    lock.release()
    acquire_now(path, "it").release()


def test_waiting_is_said_again_and_again_and_has_an_end(held: Path, capsys: pytest.CaptureFixture[str]) -> None:
    time = FakeTime()
    lock = acquire(str(held), "the download of hf://o/m", 100, time.clock())
    assert lock == Held(None)
    assert time.now == pytest.approx(200)
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == 5
    for line in lines[:4]:
        assert line.startswith("waiting for the download of hf://o/m since 20")
        assert line.endswith("held by process 123 on node-7 since 2026-01-31 12:00:00 UTC")
    assert lines[4] == (
        "the download of hf://o/m has been held by process 123 on node-7 since 2026-01-31 12:00:00 UTC for over 100 s; "
        "going on without the lock"
    )


def test_no_patience_at_all(held: Path) -> None:
    time = FakeTime()
    assert acquire(str(held), "it", 0, time.clock()) == Held(None)
    assert time.now == 100.0


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    lock = acquire(str(path), "it", 5)
    assert lock.descriptor is not None
    lock.release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    lock = acquire(path, "it", 5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        lock.release()
        acquire_now(path, "it").release()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_lock_support_one_warning_and_on(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(locks, "_warned", set())
    path = str(tmp_path / "locks/x.lock")
    assert acquire(path, "it", 5) == Held(None)
    assert acquire_now(path, "it") == Held(None)
    assert share(path) == Held(None)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        f"{tmp_path}/locks cannot be locked ({os.strerror(number)}): "
        "two launchers at once may fetch the same files twice"
    ]


def test_users_share_and_keep_others_from_pruning(tmp_path: Path) -> None:
    path = str(tmp_path / "x.used")
    first, second = share(path), share(path)
    assert first.descriptor is not None and second.descriptor is not None
    assert os.get_inheritable(first.descriptor)
    first.release()
    with pytest.raises(BusyError):
        acquire_now(path, "it")
    second.release()
    acquire_now(path, "it").release()


def test_a_lock_that_cannot_be_made_is_denied(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file where the folder belongs")
    with pytest.raises(DeniedError, match=rf"cannot write to the cache at {tmp_path}/locks: "):
        acquire(str(tmp_path / "locks/x.lock"), "it", 5)
