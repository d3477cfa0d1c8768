"""docker/install.py: the parts that decide, without an image."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "docker" / "install.py"


@pytest.fixture(scope="module")
def install() -> ModuleType:
    specification = importlib.util.spec_from_file_location("image_install", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_what_moved_is_named(install: ModuleType) -> None:
    before = {"torch": "2.13.0+cu129", "numpy": "2.2.0", "six": "1.17.0"}
    assert install.moved(before, {**before, "boto3": "1.44.8"}) == []
    assert install.moved(before, {"torch": "2.13.0", "numpy": "2.2.0"}) == [
        "six was 1.17.0 and is now gone",
        "torch was 2.13.0+cu129 and is now 2.13.0",
    ]


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("#!{python}", True),
        ("#! {python}", True),
        ("#!/usr/bin/env {name}", True),
        ("#!/bin/sh", False),
        ("import sys", False),
        ("#!/no/such/python3", False),
    ],
)
def test_the_interpreter_of_vllm(
    first: str, found: bool, install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    for path, text in ((python, "#!/bin/sh\n"), (tmp_path / "vllm", first.format(python=python, name="python3"))):
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if found:
        assert install.engine_python() == str(python)
    else:
        with pytest.raises(SystemExit):
            install.engine_python()


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("root:x:0:0::/root:/bin/sh\n", "nim:x:1000:0::/opt/nim:/usr/sbin/nologin"),
        ("nim:x:7:7::/:/bin/sh\n", "nim1000:x:1000:0::/opt/nim:/usr/sbin/nologin"),
        ("ubuntu:x:1000:1000::/home/ubuntu:/bin/sh\n", None),  # the id has a name already
    ],
)
def test_the_users_entry(before: str, added: str | None, install: ModuleType, tmp_path: Path) -> None:
    accounts = tmp_path / "passwd"
    accounts.write_text(before)
    install.add_user(accounts)
    assert accounts.read_text() == before + (f"{added}\n" if added else "")
