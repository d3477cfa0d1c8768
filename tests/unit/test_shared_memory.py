"""The size of /dev/shm against the workers that need it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from launcher import shared_memory
from launcher.shared_memory import too_small

TWO = {"--tensor-parallel-size": ("2",)}


def sized(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_frsize=4096, f_blocks=size // 4096))


def test_dockers_default_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch, 64 * 1024 * 1024)
    (said,) = too_small(TWO)
    assert said.startswith("/dev/shm holds 67 MB, which is too little for 2 workers")
    assert "--shm-size=16g" in said and "emptyDir" in said


def test_enough_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch, shared_memory.ENOUGH)
    assert too_small(TWO) == ()


@pytest.mark.parametrize("flags", [{}, {"--tensor-parallel-size": ("1",)}, {"--tensor-parallel-size": ("4", "1")}])
def test_one_worker_does_not_look(flags: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: str) -> None:
        raise AssertionError(place)

    monkeypatch.setattr(os, "statvfs", fail)
    assert too_small(flags) == ()


def test_a_place_that_is_not_there() -> None:
    (said,) = too_small(TWO, "/no/such/place")
    assert said.startswith("/no/such/place cannot be looked at (No such file or directory)")
