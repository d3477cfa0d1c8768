"""Which keys are files, and which are refused before anything is written."""

from __future__ import annotations

import pytest

from launcher.errors import IntegrityError
from launcher.fetch.names import checked
from launcher.fetch.remote import RemoteFile


def file(path: str, size: int = 1) -> RemoteFile:
    return RemoteFile(path, size, "e", None)


def paths(*files: RemoteFile) -> list[str]:
    return [kept.path for kept in checked(files, "s3://b/m")]


def test_files_are_sorted_and_keep_their_folders() -> None:
    assert paths(file("b"), file("a/c"), file("a/b/c")) == ["a/b/c", "a/c", "b"]


def test_keys_that_end_in_a_slash_are_folders() -> None:
    assert paths(file("", 0), file("sub/", 0), file("sub/x.json")) == ["sub/x.json"]


def test_an_empty_object_with_children_is_a_folder() -> None:
    assert paths(file("sub", 0), file("sub/a")) == ["sub/a"]


def test_an_empty_object_without_children_is_a_file() -> None:
    assert paths(file("__init__.py", 0), file("a")) == ["__init__.py", "a"]


@pytest.mark.parametrize(
    "name", ["my model#1/x", "a?b", "a%20b", "a b+c", "[x]*", "é.json", "a\\b", "..hidden", "a\nb"]
)
def test_odd_names_are_names(name: str) -> None:
    assert paths(file(name)) == [name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../../tmp/pwned", "leaves its folder"),
        ("a/../../b", "leaves its folder"),
        ("..", "leaves its folder"),
        ("/etc/x", "is absolute"),
        ("a//b", "has an empty part"),
        ("./a", "has an empty part"),
        ("a\0b", "holds a NUL character"),
        ("..\\..\\x", "leaves its folder"),
        ("a\\..\\..\\x", "leaves its folder"),
        ("\\etc\\x", "is absolute where a backslash separates"),
        ("C:\\x", "is absolute where a backslash separates"),
        ("x" * 256, "is too long for a file name"),
        ("d/" * 2000 + "x", "is too long for a file name"),
        ("\udce9", "is not valid Unicode"),
    ],
)
def test_dangerous_names_are_refused(name: str, reason: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        paths(file("config.json"), file(name))
    assert caught.value.what.startswith("s3://b/m: the file name '")
    assert caught.value.what.endswith(reason)
    assert caught.value.code == 7


def test_a_key_that_is_file_and_folder_is_refused() -> None:
    with pytest.raises(IntegrityError, match="'kd' is both a file and a folder"):
        paths(file("kd", 3), file("kd/x"))
