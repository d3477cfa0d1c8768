from __future__ import annotations

from pathlib import Path

import pytest

from launcher.dispatch import guarded
from launcher.errors import NetworkError, NotFoundError
from launcher.fetch.duplicates import Wishes
from launcher.fetch.wording import of_source
from tests.unit.remotes import MemoryRemote, look, options


@pytest.mark.parametrize(
    ("text", "todo"),
    [
        ("s3://bkt/mod/", "Give s3://bkt/mod/eagle"),
        ("hf://org/m", "Fetch it with download-to-cache, and then: give FOLDER/eagle"),
    ],
)
def test_an_error_names_the_source(tmp_path: Path, text: str, todo: str) -> None:
    remote = MemoryRemote(text.rstrip("/"), {"eagle/config.json": b"{}"})
    found = look(remote, options(tmp_path), text)
    error = of_source(NotFoundError(f"{found.folder} has no config.json", f"Give {found.folder}/eagle"), found)
    assert type(error) is NotFoundError
    assert error.what == f"{text.rstrip('/')} has no config.json"
    assert error.todo == todo.replace("FOLDER", found.folder)


def test_an_error_names_the_patterns(tmp_path: Path) -> None:
    remote = MemoryRemote("hf://org/m", {"config.json": b"{}", "model.safetensors": b"x"})
    found = look(remote, options(tmp_path, wishes=Wishes(exclude=("config.json",))))
    error = of_source(NotFoundError(f"{found.folder} has no config.json", "Give another"), found)
    assert str(error) == "hf://org/m has no config.json. NIM_FETCH_EXCLUDE leaves out config.json; give another."


def test_the_last_line_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise NetworkError(
            "an answer of several lines:\r\n  one\u2028two", "Try\n\nagain", others=[NetworkError("a\nb")]
        )

    assert guarded(fail) == 5
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "a b.",
        "an answer of several lines: one two. Try again. (exit code 5: network)",
    ]
