from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import workspace
from launcher.errors import ConfigurationError, DeniedError
from launcher.layout import API_KEYS, Layout, Placement, arrange


def never(path: str) -> bool:
    return False


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    (folder / "sub").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "sub/x.json"):
        (folder / name).write_text(name)
    return folder


def layout_of(target: Path, where: Path, draft: Placement | None = None) -> Layout:
    return arrange(str(where), str(target), [path.name for path in target.iterdir()], draft, never, str(where) + "-s")


def links(folder: Path) -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in folder.iterdir() if path.is_symlink()}


def release(claim: workspace.Claim) -> None:
    assert claim.used is not None
    os.close(claim.used)


def test_links_lead_to_the_target(tmp_path: Path, target: Path) -> None:
    claim = workspace.build(layout_of(target, tmp_path / "ws"))
    assert links(tmp_path / "ws") == {name: f"{target}/{name}" for name in ("config.json", "model.safetensors", "sub")}
    assert (tmp_path / "ws" / "sub" / "x.json").read_text() == "sub/x.json"
    release(claim)


def test_a_second_start_changes_nothing(tmp_path: Path, target: Path) -> None:
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    before = {path.name: path.lstat().st_ino for path in (tmp_path / "ws").iterdir()}
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    assert {path.name: path.lstat().st_ino for path in (tmp_path / "ws").iterdir()} == before


@pytest.mark.parametrize("harm", ["redirected", "removed", "added"])
def test_a_harmed_workspace_is_mended(harm: str, tmp_path: Path, target: Path) -> None:
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    link = tmp_path / "ws" / "config.json"
    if harm == "added":
        (tmp_path / "ws" / "extra").symlink_to("/nowhere")
    else:
        link.unlink()
    if harm == "redirected":
        link.symlink_to("/nowhere")
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    assert links(tmp_path / "ws") == {name: f"{target}/{name}" for name in ("config.json", "model.safetensors", "sub")}


def test_stale_links_are_replaced_and_removed(tmp_path: Path, target: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("other")
    release(workspace.build(layout_of(target, tmp_path / "ws", Placement("draft", "/old", False))))
    release(workspace.build(layout_of(other, tmp_path / "ws", Placement("draft", "/new", False))))
    assert links(tmp_path / "ws") == {"config.json": f"{other}/config.json", "draft": "/new"}


def test_a_workspace_in_use_with_another_plan_is_left_alone(tmp_path: Path, target: Path) -> None:
    first = workspace.build(layout_of(target, tmp_path / "ws"))
    before = links(tmp_path / "ws")
    second = workspace.build(layout_of(target, tmp_path / "ws", Placement("draft", "/d", False)))
    assert links(tmp_path / "ws") == before
    assert second.layout.workspace == f"{tmp_path}/ws.2"
    assert second.layout.draft == f"{tmp_path}/ws.2/draft"
    release(first)
    release(second)


def test_a_workspace_in_use_with_the_same_plan_is_shared(tmp_path: Path, target: Path) -> None:
    first = workspace.build(layout_of(target, tmp_path / "ws"))
    second = workspace.build(layout_of(target, tmp_path / "ws"))
    assert second.layout.workspace == f"{tmp_path}/ws"
    release(first)
    release(second)


def test_the_use_lock_survives_exec_and_ends_with_the_process(tmp_path: Path, target: Path) -> None:
    claim = workspace.build(layout_of(target, tmp_path / "ws"))
    assert claim.used is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[claim.used])
    os.close(claim.used)
    probe = os.open(tmp_path / "ws" / workspace.USED, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    child.communicate(b"\n", timeout=30)
    fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(probe)


def test_a_folder_that_is_not_ours_is_not_touched(tmp_path: Path, target: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "precious").write_text("x")
    claim = workspace.build(layout_of(target, tmp_path / "ws"))
    assert claim.layout.workspace == f"{tmp_path}/ws.2"
    assert [path.name for path in (tmp_path / "ws").iterdir()] == ["precious"]
    release(claim)


def test_a_real_file_in_our_workspace_is_never_replaced(tmp_path: Path, target: Path) -> None:
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    (tmp_path / "ws" / "draft").mkdir()
    with pytest.raises(ConfigurationError, match="draft"):
        workspace.build(layout_of(target, tmp_path / "ws", Placement("draft", "/d", False)))
    assert (tmp_path / "ws" / "draft").is_dir()


def test_the_source_is_never_written_to(tmp_path: Path, target: Path) -> None:
    before = sorted(str(path) for path in target.rglob("*"))
    release(workspace.build(layout_of(target, tmp_path / "ws", Placement("draft", "/d", False))))
    assert sorted(str(path) for path in target.rglob("*")) == before


def test_no_lock_support_warns_and_goes_on(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    claim = workspace.build(layout_of(target, tmp_path / "ws"))
    assert claim.used is None
    assert len(links(tmp_path / "ws")) == 3
    assert "cannot be locked" in capsys.readouterr().err


def test_an_unwritable_workspace_says_who_owns_it(tmp_path: Path, target: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeniedError, match="cannot create the workspace"):
        workspace.build(layout_of(target, tmp_path / "file" / "ws"))


def test_private_files_are_private_and_go_when_unwanted(tmp_path: Path, target: Path) -> None:
    layout = layout_of(target, tmp_path / "ws")
    for text in ("a", "b"):
        release(workspace.build(layout, {API_KEYS: text}))
        assert (tmp_path / "ws" / API_KEYS).read_text() == text
        assert (tmp_path / "ws" / API_KEYS).stat().st_mode & 0o777 == 0o600
    release(workspace.build(layout))
    assert not (tmp_path / "ws" / API_KEYS).exists()


def test_other_private_files_are_another_plan(tmp_path: Path, target: Path) -> None:
    layout = layout_of(target, tmp_path / "ws")
    first = workspace.build(layout, {API_KEYS: "a"})
    second = workspace.build(layout, {API_KEYS: "b"})
    assert second.layout.workspace == f"{tmp_path}/ws.2"
    assert (tmp_path / "ws" / API_KEYS).read_text() == "a"
    assert workspace.build(layout, {API_KEYS: "a"}).layout.workspace == f"{tmp_path}/ws"
    release(first)
    release(second)


def test_any_user_of_the_group_may_go_on(tmp_path: Path, target: Path) -> None:
    release(workspace.build(layout_of(target, tmp_path / "ws")))
    assert (tmp_path / "ws").stat().st_mode & 0o777 == 0o775
    assert (tmp_path / "ws" / workspace.USED).stat().st_mode & 0o777 == 0o664


def test_neutral_link(tmp_path: Path, target: Path) -> None:
    where = tmp_path / "eagle3" / "ws"
    layout = arrange(
        str(where), str(target), ["config.json"], None, lambda path: "eagle3" in path, str(tmp_path / "private")
    )
    claim = workspace.build(layout)
    assert (Path(claim.layout.model) / "config.json").read_text() == "config.json"
    release(claim)
    release(workspace.build(layout))
