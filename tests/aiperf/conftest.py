"""The real AIPerf, in an environment of its own, against real vLLM with speculation off and on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine.conftest import BIN
from tests.engine.server import FAST, ROOT, Server, start
from tests.missing import missing
from tests.models import write, write_snapshot

AIPERF = ROOT / ".cache" / "aiperf" / "bin"
MODEL = "local/tiny"  # a name that AIPerf finds in the hub's cache, as it would a published model's
LENGTH = 8192  # the guide asks for answers of up to 4096 tokens, which a server must have room for


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("engine")


class Both(NamedTuple):
    """The same model served without speculation and with it, and what AIPerf is given to find its tokenizer."""

    off: Server
    on: Server
    environment: Mapping[str, str]
    tokenizer: Path
    captures: Mapping[str, Path]  # what each of them records of its requests


@pytest.fixture(scope="session")
def aiperf() -> Path:
    if not (AIPERF / "aiperf").exists():
        missing("run tools/install_measuring_tools.py aiperf")
    return AIPERF / "aiperf"


@pytest.fixture(scope="session")
def both(aiperf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    target = write("plain", folder / "plain")
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "max_position_embeddings": LENGTH}))
    draft = write("eagle3-forgetful", folder / "draft")
    home = folder / "home"
    write_snapshot("plain", home / "hub", MODEL)
    variables = {
        **FAST,
        "NIM_MODEL_PATH": str(target),
        "NIM_SERVED_MODEL_NAME": MODEL,
        "NIM_CACHE_PATH": str(folder / "cache"),
        "NIM_WORKSPACE": str(folder / "workspace"),
        "NIM_MAX_MODEL_LEN": str(LENGTH),
        "NIM_DISABLE_CUDA_GRAPH": "1",
        "NIM_DRAFT_MODEL_PATH": str(draft),
    }
    command = [str(BIN / "launcher"), "serve"]
    captures = {side: folder / f"{side}.jsonl" for side in ("off", "on")}
    sides = {
        side: {"NIM_SPECDEC_ENABLE": toggle, **_capturing(captures[side])}
        for side, toggle in (("off", "0"), ("on", "1"))
    }
    off = start(command, {**variables, **sides["off"]}, folder / "off.log")
    with off.stopped_cleanly():
        on = start(command, {**variables, **sides["on"]}, folder / "on.log")
        with on.stopped_cleanly():
            environment = {
                "PATH": f"{AIPERF}:{BIN}:{os.environ['PATH']}",
                "HOME": str(folder),
                "HF_HOME": str(home),
                "HF_HUB_OFFLINE": "1",
                "COLUMNS": "200",
            }
            yield Both(off, on, environment, target, captures)


def _capturing(file: Path) -> dict[str, str]:
    return {"NIM_CAPTURE_ENABLE": "1", "NIM_CAPTURE_ARGS": json.dumps({"path": str(file)})}


def url(server: Server) -> str:
    assert isinstance(server.address, int)
    return f"localhost:{server.address}"
