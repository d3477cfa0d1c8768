"""Plans for ai-dynamo's worker against the package itself: its table, and its own reading of our command lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from launcher.vllm import dynamo
from tests.engine.server import ROOT
from tests.missing import missing
from tools import make_dynamo_table
from tools.make_tables import sha256

PLANS = ROOT / "tests" / "golden" / "plans"


@pytest.fixture(scope="module")
def wheel() -> Path:
    folder = ROOT / ".cache" / "dynamo"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return make_dynamo_table.fetch(folder)
    except subprocess.CalledProcessError:
        missing(f"{make_dynamo_table.WHEEL} cannot be fetched")


def test_the_table_is_the_packages(wheel: Path) -> None:
    document = json.loads(make_dynamo_table.TARGET.read_text())
    assert (document["wheel"], document["sha256"]) == (wheel.name, sha256(wheel))
    assert document["vllm"] == make_dynamo_table.pinned_vllm(wheel) == dynamo.load().vllm
    for kind, names in make_dynamo_table.SOURCES.items():
        assert document[kind] == sorted(make_dynamo_table.options_of(wheel, names))


def test_the_worker_reads_what_the_plans_say(wheel: Path, tmp_path: Path) -> None:
    """The worker refuses an option that it does not know, so each of these is one of its own or of its engine's."""
    plans: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(PLANS.glob("dynamo-*.json"))}
    plans = {name: plan for name, plan in plans.items() if "argv" in plan}
    assert len(plans) >= 5
    lines = {name: plan["argv"][3:] for name, plan in plans.items()}
    assert all(plan["argv"][1:4] == ["-m", dynamo.MODULE, "--model"] for plan in plans.values())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "package")
    (tmp_path / "lines").write_text(json.dumps(lines))
    ran = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).parent / "dynamo_parser.py")),
            *(str(tmp_path / name) for name in ("package", "lines", "answer")),
        ],
        env={**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    read = json.loads((tmp_path / "answer").read_text())
    for name, plan in plans.items():
        flags = {argument["flag"]: argument["value"] for argument in plan["arguments"]}
        assert read[name]["model"] == "/venv/workspace"
        assert read[name]["served_model_name"] == [flags["--served-model-name"]]
        assert read[name]["speculative_config"] == json.loads(flags["--speculative-config"])
    assert read["dynamo-server-flags"]["max_num_seqs"] == 8
    assert read["dynamo-server-flags"]["tensor_parallel_size"] == 2
    assert read["dynamo-server-flags"]["hf_overrides"] == {"a": {"b": 1}}
