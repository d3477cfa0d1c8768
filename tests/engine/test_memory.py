"""The estimate of memory against what the real vLLM holds: weights to the byte, the KV cache to the block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine.conftest import BIN
from tests.engine.server import FAST, inherited
from tests.models import targets, write
from tests.models.chain import HIDDEN
from tests.models.documents import to_json
from tests.models.tensors import to_safetensors, zeros

SPACE = 1 << 30  # bytes: VLLM_CPU_KVCACHE_SPACE=1
LENGTH = 512


class Case(NamedTuple):
    folder: str
    speculation: dict[str, Any] | None


CASES = {
    "gqa": Case("gqa", None),
    "mla": Case("mtp", None),
    "mtp": Case("mtp", {"method": "mtp", "num_speculative_tokens": 1}),
    "eagle3": Case("plain", {"method": "eagle3", "model": "eagle3", "num_speculative_tokens": 3}),
}


def write_grouped(folder: Path) -> None:
    """The plain target with one key and value for both of its heads."""
    write("plain", folder)
    tensors = targets.llama()
    for name in [name for name in tensors if name.endswith(("k_proj.weight", "v_proj.weight"))]:
        tensors[name] = zeros(targets.HEAD_DIM, HIDDEN)
    (folder / "config.json").write_bytes(to_json({**targets.LLAMA, "num_key_value_heads": 1}))
    (folder / "model.safetensors").write_bytes(to_safetensors(tensors))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    for name in ("mtp", "plain", "eagle3"):
        write(name, folder / name)
    write_grouped(folder / "gqa")
    return folder


def absolute(case: Case, folder: Path) -> dict[str, Any] | None:
    said = dict(case.speculation) if case.speculation else None
    if said and "model" in said:
        said["model"] = str(folder / said["model"])
    return said


@pytest.fixture(scope="module")
def held(folder: Path) -> dict[str, dict[str, Any]]:
    """What vLLM says of each case."""
    cases = {
        name: {
            "model": str(folder / case.folder),
            "speculative_config": absolute(case, folder),
            "max_model_len": LENGTH,
        }
        for name, case in CASES.items()
    }
    (folder / "cases").write_text(json.dumps(cases))
    script = str(Path(__file__).parent / "memory_probe.py")
    ran = subprocess.run(
        [sys.executable, script, str(folder / "cases"), str(folder / "answer")],
        env={**inherited(), **FAST, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    found: dict[str, dict[str, Any]] = json.loads((folder / "answer").read_text())
    return found


@pytest.mark.parametrize("name", CASES)
def test_weights_and_cache_are_what_vllm_holds(
    name: str, folder: Path, held: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    case = CASES[name]
    words = ["--speculative-config", json.dumps(absolute(case, folder))] if case.speculation else []
    ran = subprocess.run(
        [BIN / "launcher", "plan", "--json", str(folder / case.folder), "--max-model-len", str(LENGTH), *words],
        env={**os.environ, "NIM_CACHE_PATH": str(tmp_path / "cache"), "NIM_WORKSPACE": str(tmp_path / "workspace")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    memory = json.loads(ran.stdout)["memory"]
    target, *drafts = held[name]["parameters"]
    assert memory["weights"] == target
    assert len(drafts) == (case.speculation is not None)
    assert memory["tokens"] == LENGTH
    blocks, size = held[name]["blocks"], held[name]["block_size"]
    assert blocks == SPACE // (size * memory["kv_bytes_per_token"])
    assert held[name]["tokens"] == blocks * size
    assert memory["kv_cache"] == LENGTH * memory["kv_bytes_per_token"]
