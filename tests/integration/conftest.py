from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.standin import Installation, install
from tests.models import NAMES, write


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every embedded checkpoint in a folder of its name."""
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        write(name, folder / name)
    return folder


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    """A launcher beside a stand-in for a CPU build of the pinned vLLM."""
    return install(tmp_path / "venv")


@pytest.fixture
def gpu_launcher(tmp_path: Path) -> Installation:
    """The same with the ordinary build, whose version names no device."""
    return install(tmp_path / "gpu-venv", "0.32.0")
