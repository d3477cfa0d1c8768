from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher import places
from launcher.errors import ConfigurationError, DeniedError


@pytest.fixture(autouse=True)
def no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside the image: its folders cannot be made."""
    monkeypatch.setattr(places, "IMAGE_CACHE", "/dev/null/nim/.cache")
    monkeypatch.setattr(places, "IMAGE_WORKSPACE", "/dev/null/nim/workspace")


def test_a_wish_is_taken_as_it_is(tmp_path: Path) -> None:
    found = places.find_places({}, f"{tmp_path}/c", f"{tmp_path}/w")
    assert (found.cache, found.workspace, found.notes) == (f"{tmp_path}/c", f"{tmp_path}/w", ())


def test_the_image_folders_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "IMAGE_CACHE", f"{tmp_path}/nim/.cache")
    monkeypatch.setattr(places, "IMAGE_WORKSPACE", f"{tmp_path}/nim/workspace")
    found = places.find_places({"HOME": str(tmp_path)}, None, None)
    assert (found.cache, found.workspace) == (f"{tmp_path}/nim/.cache", f"{tmp_path}/nim/workspace")
    assert list(tmp_path.iterdir()) == []  # probing creates nothing


def test_outside_the_image_the_user_cache_is_used_and_said(tmp_path: Path) -> None:
    found = places.find_places({"HOME": str(tmp_path), "TMPDIR": f"{tmp_path}/t"}, None, None)
    assert found.cache == f"{tmp_path}/.cache/specdec-launcher"
    assert found.workspace == f"{tmp_path}/t/specdec-launcher-{os.getuid()}/workspace"
    assert len(found.notes) == 2


def test_xdg_beats_home(tmp_path: Path) -> None:
    found = places.find_places({"HOME": "/", "XDG_CACHE_HOME": f"{tmp_path}/x"}, None, None)
    assert found.cache == f"{tmp_path}/x/specdec-launcher"


def test_without_any_home_the_scratch_folder_remains(tmp_path: Path) -> None:
    found = places.find_places({"TMPDIR": str(tmp_path)}, None, None)
    assert found.cache == found.scratch == f"{tmp_path}/specdec-launcher-{os.getuid()}"


def test_a_read_only_cache_moves_the_state_to_scratch(tmp_path: Path) -> None:
    found = places.find_places({"TMPDIR": str(tmp_path)}, "/dev/null/cache", None)
    assert found.cache == "/dev/null/cache"
    assert found.state == found.scratch


def test_a_private_folder_is_private(tmp_path: Path) -> None:
    places.make_private(f"{tmp_path}/p")
    places.make_private(f"{tmp_path}/p")
    assert (tmp_path / "p").stat().st_mode & 0o777 == 0o700


def test_somebody_elses_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "p").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeniedError, match="belongs to"):
        places.make_private(f"{tmp_path}/p")


def test_the_owner_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    owner = f"{os.getuid()}:{os.getgid()}"
    assert places.why_not_writable(f"{tmp_path}/a/b") == (
        f"{tmp_path} belongs to {owner} with mode 0750; this process runs as {owner}"
    )


@pytest.mark.parametrize("wish", ["rel", " ", "", "./x"])
def test_a_tmpdir_that_is_no_absolute_path_counts_as_unset(wish: str) -> None:
    assert places.scratch_folder({"TMPDIR": wish}) == f"/tmp/specdec-launcher-{os.getuid()}"
    places.find_places({"TMPDIR": wish, "HOME": "rel"}, None, None)


def test_an_unwritable_cache_is_said(tmp_path: Path) -> None:
    found = places.find_places({"TMPDIR": str(tmp_path)}, "/dev/null/cache", str(tmp_path / "w"))
    assert found.notes == (
        f"/dev/null/cache cannot be written: nothing is remembered there, and what vLLM caches goes to {found.scratch}",
    )


def test_a_workspace_that_can_never_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not a folder"):
        places.check_workspace(f"{tmp_path}/file/ws")
    places.check_workspace(f"{tmp_path}/a/b")
    assert not (tmp_path / "a").exists()


def test_a_cache_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(DeniedError, match="HOME="):
        places.make_writable(f"{tmp_path}/home", "HOME")
