"""Engine tests: the launcher's real executable, real vLLM on CPU, the embedded checkpoints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.engine.server import FAST, Server, inherited, start
from tests.models import NAMES, write, write_snapshot

BIN = Path(sys.executable).parent
PLACED = "hub/models--embedded--plain/snapshots"

Launch = Callable[..., AbstractContextManager[Server]]
Refusal = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("engine")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every member in a folder of its name, and a few arrangements of them.

    ``with-draft`` is a target without a head that brings an EAGLE3 draft; ``eagle3-lab`` holds models whose path would
    make vLLM change the method; ``snapshot`` is a link to a snapshot in the hub's cache layout.
    """
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        write(name, folder / name)
    write("mtp-stripped", folder / "with-draft", shards=2)
    write("eagle3-mla", folder / "with-draft" / "speculator" / "tuned")
    write("mimo", folder / "eagle3-lab" / "target")
    write("draft", folder / "eagle3-lab" / "draft")
    write_snapshot("plain", folder / "hub", "embedded/plain")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """What every launch here is given: folders of its own, and what starts fastest."""
    return {
        **FAST,
        "NIM_CACHE_PATH": str(tmp_path / "cache"),
        "NIM_WORKSPACE": str(tmp_path / "workspace"),
        "NIM_MAX_MODEL_LEN": "512",
        "NIM_DISABLE_CUDA_GRAPH": "1",
    }


@pytest.fixture
def launch(environment: Mapping[str, str], tmp_path: Path) -> Launch:
    """``with launch(target, *arguments, **variables) as server``: at its end the server must stop cleanly.

    ``program`` is the executable with its action; the target goes in as NIM_MODEL_PATH.
    """

    @contextmanager
    def launched(
        target: Path | str,
        *arguments: str,
        program: str = "launcher serve",
        isolated: bool = False,
        healthy: Callable[[], bool] | None = None,
        **variables: str,
    ) -> Iterator[Server]:
        executable, *action = program.split()
        server = start(
            [str(BIN / executable), *action, *arguments],
            {**environment, "NIM_MODEL_PATH": str(target), **variables},
            tmp_path / "server.log",
            isolated=str(tmp_path / "socket") if isolated else None,
            healthy=healthy,
        )
        with server.stopped_cleanly():
            yield server

    return launched


@pytest.fixture
def refused(environment: Mapping[str, str]) -> Refusal:
    """Run the launcher where it must refuse; its exit code and what it printed."""

    def run(target: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "launcher", "serve", *arguments],
            env={**inherited(), **environment, "NIM_MODEL_PATH": str(target), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
