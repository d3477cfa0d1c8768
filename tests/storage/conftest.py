from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.storage import servers


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
