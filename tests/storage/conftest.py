from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from launcher.fetch import rest
from tests.storage import servers
from tests.storage.hub import Hub
from tests.storage.registry import Registry
from tests.storage.scope import Scope


@pytest.fixture(scope="session")
def storage_tools() -> None:
    """The servers are installed by ``make``; without them there is nothing to talk to."""
    if not (servers.TOOLS / "installed").exists():
        missing = "run tools/install_storage_tools.py servers"
        if os.environ.get("LAUNCHER_CI"):
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.fixture(scope="session")
def weed(storage_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(storage_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs(storage_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.fake_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def hub() -> Iterator[Hub]:
    with closing(Hub()) as hub:
        yield hub


@pytest.fixture
def scope() -> Iterator[Scope]:
    with closing(Scope()) as scope:
        yield scope


@pytest.fixture
def registry() -> Iterator[Registry]:
    with closing(Registry()) as registry:
        yield registry


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated requests follow each other at once, and not for long."""
    monkeypatch.setattr(rest, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(rest, "PATIENCE", 0.5)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
