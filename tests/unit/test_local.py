"""A folder of this machine as a source: links followed, loops bounded, faults told in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NotFoundError
from launcher.fetch.local import LocalFolder


def names(path: Path) -> list[str]:
    return [entry.path for entry in LocalFolder(str(path)).listing()]


def refusal(path: Path | str) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        LocalFolder(str(path)).listing()
    return caught.value


def test_every_file_is_listed_with_size_time_and_inode(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"12345")
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft/a.json").write_bytes(b"")
    listing = LocalFolder(str(tmp_path)).listing()
    status = (tmp_path / "b.json").stat()
    assert [entry.path for entry in listing] == ["b.json", "draft/a.json"]
    assert listing[0] == ("b.json", 5, status.st_mtime_ns, status.st_ino)


def test_a_snapshot_of_links_is_read_through_them(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/0123").write_bytes(b"weights")
    snapshot = tmp_path / "snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    source = LocalFolder(str(snapshot))
    assert [(entry.path, entry.size) for entry in source.listing()] == [("model.safetensors", 7)]
    assert source.read("model.safetensors", 2, 3) == b"igh"


def test_reading_ends_where_the_file_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    source = LocalFolder(str(tmp_path))
    assert source.read("f", 8, 100) == b"89"
    assert source.read("f", 100, 5) == b""


def test_folders_of_tools_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", ".cache", "__pycache__", "lost+found", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(b"")
    assert names(tmp_path) == ["kept/x"]


def test_loops_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_bytes(b"")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to("a")
    assert names(tmp_path) == ["a/f", "again/f"]


def test_a_link_to_itself_is_no_folder_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    assert isinstance(refusal(tmp_path), IntegrityError)


def test_what_is_no_regular_file_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path) == []


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../../blobs/0123")
    error = refusal(tmp_path)
    assert isinstance(error, IntegrityError)
    assert error.what == f"{tmp_path}/model.safetensors is a link that leads nowhere (../../blobs/0123 is not there)"
    assert error.todo == (
        "Mount the folder that holds the link's target as well (blobs/ for a hub cache), or copy with links followed"
    )


def test_many_dangling_links_are_counted(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).symlink_to("nowhere")
    assert refusal(tmp_path).what.endswith("; 4 links of the folder do (a, b, c, …)")


def test_the_folder_itself_may_be_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to("gone")
    error = refusal(tmp_path / "model")
    assert isinstance(error, IntegrityError)
    assert error.what == f"{tmp_path}/model is a link that leads nowhere (gone is not there)"


def test_a_missing_folder_names_the_nearest_parent(tmp_path: Path) -> None:
    error = refusal(tmp_path / "volume/models/m")
    assert isinstance(error, NotFoundError)
    assert error.what == f"{tmp_path}/volume/models/m does not exist; the nearest existing parent is {tmp_path}"
    assert error.todo.startswith("Is the volume mounted?")


@pytest.mark.parametrize(("length", "shown"), [(300, 300), (120_000, 500)])
def test_what_is_too_long_is_no_path(length: int, shown: int) -> None:
    path = "/" + "x" * (length - 1)
    error = refusal(path)
    assert isinstance(error, ConfigurationError)
    start = path if shown == length else f"{path[: shown - 1]}…"
    assert error.what == f"{start} is no path: {length} characters are too many, or one name in it is too long"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    error = refusal(tmp_path / "config.json")
    assert isinstance(error, ConfigurationError)
    assert error.what == f"{tmp_path}/config.json is a file, not a model folder"
    assert error.todo == f"Give the folder that holds it: {tmp_path}"


def test_a_path_below_a_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    error = refusal(tmp_path / "f/model")
    assert isinstance(error, NotFoundError)
    assert error.what == f"{tmp_path}/f/model does not exist: {tmp_path}/f is a file"


def test_what_vanishes_while_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="disappeared while it was read"):
        LocalFolder(str(tmp_path)).read("gone", 0, 1)


def test_what_may_not_be_read_names_user_and_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"")
    (tmp_path / "f").chmod(0o640)

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DeniedError) as caught:
        LocalFolder(str(tmp_path)).read("f", 0, 1)
    status = (tmp_path / "f").stat()
    assert caught.value.what == (
        f"{tmp_path}/f cannot be read by uid {os.getuid()}, gid {os.getgid()} "
        f"({tmp_path}/f has owner {status.st_uid}:{status.st_gid} and mode 0640)"
    )
