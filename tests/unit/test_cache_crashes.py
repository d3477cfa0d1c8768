"""Killed between any two steps: no half snapshot is ever visible, and the next start finishes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cache import locks
from launcher.cache.layout import shelf
from launcher.cache.manifest import Manifest, read
from tests.unit.remotes import MemoryRemote, fill, options, tree

CONTENT = {
    "a/empty.txt": b"",
    "b/model.safetensors": b"same",
    "config.json": b"{}",
    "model.safetensors": b"same",
}
CHANGED = {**CONTENT, "config.json": b"{ }"}
# Every call by which a snapshot comes about.
STEPS = ("open", "replace", "rename", "link", "symlink", "mkdir", "unlink", "rmdir", "fsync")
MOST_STEPS = 400


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Run ``action`` in a child that is killed just before its ``step``-th step; whether it came that far."""
    child = os.fork()
    if child == 0:
        count = 0

        def counting(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*words: Any, **more: Any) -> Any:
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*words, **more)

            return call

        for name in STEPS:
            setattr(os, name, counting(getattr(os, name)))
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def visible_are_whole(cache: Path, scheme: str, name: str, *contents: dict[str, bytes]) -> None:
    place = shelf(str(cache), scheme, name)
    above = Path(place.folder, "snapshots") if place.is_hub else Path(place.folder)
    folders = [folder for folder in above.iterdir() if not folder.name.startswith(".")] if above.is_dir() else []
    for folder in folders:
        assert tree(folder) in contents
    for path in Path(place.manifests).glob("*.json"):
        manifest = read(str(path))
        assert isinstance(manifest, Manifest)
        assert tree(place.snapshot(manifest.revision)) in contents
    references = Path(place.reference(None))
    if references.exists():
        assert (above / references.read_text()).is_dir()


@pytest.mark.parametrize("text", ["s3://bucket/m", "hf://org/m"])
@pytest.mark.parametrize("second", [False, True])
def test_a_kill_at_any_step(tmp_path: Path, text: str, second: bool) -> None:
    """``second``: while a changed revision is fetched over a complete one."""
    scheme, _, name = text.partition("://")
    for step in range(1, MOST_STEPS):
        cache = tmp_path / str(step)
        remote = MemoryRemote(text, CONTENT)
        if second:
            fill(remote, options(cache))
            remote.content = dict(CHANGED)
        wanted = dict(remote.content)
        came_so_far = killed_at(step, lambda remote=remote, cache=cache: fill(remote, options(cache)))  # type: ignore[misc]
        visible_are_whole(cache, scheme, name, CONTENT, CHANGED)
        remote.fetched.clear()
        assert tree(fill(remote, options(cache)).folder) == wanted
        visible_are_whole(cache, scheme, name, CONTENT, CHANGED)
        if second:
            assert remote.fetched in ([], ["config.json"])
        if not came_so_far:
            assert remote.fetched == []
            assert step > 20
            return
    pytest.fail("the steps do not end")


@pytest.mark.parametrize("text", ["s3://bucket/m", "hf://org/m"])
def test_launchers_without_locks_do_not_harm_each_other(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "acquire", lambda *words: locks.Held(None))
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                found = fill(MemoryRemote(text, CONTENT), options(tmp_path))
                # "trees": it came between another one's snapshot and its manifest.
                code = 0 if tree(found.folder) == CONTENT and found.proof in ("manifest", "trees") else 2
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 6
    scheme, _, name = text.partition("://")
    visible_are_whole(tmp_path, scheme, name, CONTENT)
