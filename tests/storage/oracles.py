"""The services' own clients, in virtual environments of their own: they judge our loopback services."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache"


def python_of(folder: str, install: str) -> Path:
    """The interpreter of ``.cache/<folder>``; the test is skipped without it, or fails where nothing may be skipped."""
    if not (CACHE / folder / "installed").exists():
        absent(f"run tools/install_storage_tools.py {install}")
    return CACHE / folder / "bin" / "python"


def absent(what: str) -> None:
    if os.environ.get("LAUNCHER_CI"):
        pytest.fail(what)
    pytest.skip(what)


def run(python: Path, code: str, environ: Mapping[str, str], home: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` there, with nothing of this environment but ``environ``."""
    return subprocess.run(
        [str(python), "-c", code],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )


def written(folder: Path) -> dict[str, bytes]:
    """The files that a client left in a folder; those of its own book-keeping begin with a dot."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".")}
