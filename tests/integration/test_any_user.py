"""Starts as an arbitrary user: unknown id, group 0, no HOME, read-only folders.

The launch runs in a forked child that gives up root, up to the hand-over, which it reports instead of executing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launcher import process
from launcher.commands import serve
from launcher.errors import LauncherError
from launcher.vllm import installed
from tests.models import write
from tests.unit.certificates import Authority

UID = 1_000_660_000

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write("mtp", folder / "model")
        yield folder


def as_user(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``action`` returns in a child that runs as an unknown user of group 0."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(UID, UID, UID)
            found = action()
        except LauncherError as error:
            found = {"code": error.code, "error": str(error)}
        except BaseException as error:
            found = {"bug": repr(error)}
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        found = json.loads(pipe.read())
    assert "bug" not in found, found
    return dict(found)


def launch(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """argv and environment of the hand-over, or the refusal."""
    vllm = installed.Engine("/usr/bin/vllm", "0.32.0+cpu", True, "cpu")
    monkeypatch.setattr(installed, "find", lambda environ: vllm)
    seen: dict[str, Any] = {}

    def hand_over(argv: tuple[str, ...], environment: dict[str, str]) -> None:
        seen.update(argv=list(argv), environment=dict(environment))
        raise StopIteration

    monkeypatch.setattr(process, "hand_over", hand_over)

    def action() -> dict[str, Any]:
        try:
            serve.run([str(folder / "model")], environ, dry_run=False)
        except StopIteration:
            return seen
        return {}

    # Once as root, elsewhere: modules are imported late, and their files may be closed to the other user.
    private = {**environ, "NIM_WORKSPACE": f"{folder}/root-ws", "NIM_CACHE_PATH": f"{folder}/root-cache"}
    with suppress(StopIteration):
        serve.run([str(folder / "model")], private, dry_run=False)
    seen.clear()
    return as_user(action)


def test_no_home_no_name_read_only_image(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (open_folder / "tmp").mkdir(mode=0o777)
    (open_folder / "tmp").chmod(0o777)
    (open_folder / "cache").mkdir(mode=0o755)
    environ = {"TMPDIR": f"{open_folder}/tmp", "NIM_CACHE_PATH": f"{open_folder}/cache", "HOME": "/"}
    seen = launch({**environ, "NIM_WORKSPACE": f"{open_folder}/tmp/ws"}, monkeypatch, open_folder)
    state = f"{open_folder}/tmp/specdec-launcher-{UID}"
    found = seen["environment"]
    assert found["HOME"] == f"{state}/home"
    assert found["VLLM_CACHE_ROOT"] == f"{state}/vllm"
    assert found["USER"] == "launcher"
    assert Path(found["HOME"]).is_dir()
    assert Path(state).stat().st_mode & 0o777 == 0o700
    assert list((open_folder / "cache").iterdir()) == []


def test_a_group_writable_cache_is_used(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cache", "ws"):
        (open_folder / name).mkdir()
        (open_folder / name).chmod(0o775)
    environ = {"NIM_CACHE_PATH": f"{open_folder}/cache", "NIM_WORKSPACE": f"{open_folder}/ws", "TMPDIR": "/nonexistent"}
    seen = launch(environ, monkeypatch, open_folder)
    assert seen["argv"][2] == f"{open_folder}/ws"
    assert seen["environment"]["HF_HOME"] == f"{open_folder}/cache/huggingface"


def test_an_unwritable_workspace_names_owner_and_mode(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (open_folder / "ws").mkdir(mode=0o755)
    (open_folder / "tmp").mkdir()
    (open_folder / "tmp").chmod(0o777)
    seen = launch({"NIM_WORKSPACE": f"{open_folder}/ws", "TMPDIR": f"{open_folder}/tmp"}, monkeypatch, open_folder)
    assert seen["code"] == 4
    assert f"{open_folder}/ws belongs to 0:0 with mode 0755; this process runs as {UID}:0" in seen["error"]


def test_a_model_that_cannot_be_read(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (open_folder / "model" / "config.json").chmod(0o600)
    environ = {"NIM_CACHE_PATH": "/dev/null/x", "NIM_WORKSPACE": f"{open_folder}/ws", "TMPDIR": f"{open_folder}"}
    seen = launch(environ, monkeypatch, open_folder)
    assert seen["code"] == 4
    assert "config.json" in seen["error"] and str(UID) in seen["error"]


def test_a_key_that_must_not_be_read(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Authority(open_folder, "authority").sign("server")
    pair.key.chmod(0o600)
    (open_folder / "tmp").mkdir()
    (open_folder / "tmp").chmod(0o777)
    environ = {
        "NIM_WORKSPACE": f"{open_folder}/tmp/ws",
        "TMPDIR": f"{open_folder}/tmp",
        "NIM_SSL_MODE": "TLS",
        "NIM_SSL_KEY_PATH": str(pair.key),
        "NIM_SSL_CERTS_PATH": str(pair.certificate),
    }
    seen = launch(environ, monkeypatch, open_folder)
    assert seen["code"] == 4
    assert f"NIM_SSL_KEY_PATH: {pair.key} cannot be read by user id {UID}" in seen["error"]
