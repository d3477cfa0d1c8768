"""``launcher bench`` that starts its own servers, one after the other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.engine.conftest import BIN
from tests.engine.server import inherited


def test_the_same_words_without_and_with_speculation(
    models: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    command = [
        str(BIN / "launcher"), "bench", "--client", "built-in", "--category", "writing", "--requests", "3",
        "--output", str(tmp_path / "out"), "--picture", str(tmp_path / "bench.svg"), "--format", "json",
        "--", str(models / "mtp"),
    ]  # fmt: skip
    variables = {**inherited(), **environment, "NIM_SPECDEC_ENABLE": "1", "NIM_MAX_MODEL_LEN": "1024"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["remarks"] == [
        "measured with the built-in client: temperature 0, at most 512 tokens an answer, 16 at once",
        "on: mtp, num_speculative_tokens=1",
    ]
    (pair,) = document["pairs"]
    assert pair["off"]["speculation"] is False
    assert pair["on"]["acceptance_rate"] > 0.95
    assert pair["same_answers"] == {"equal": 3, "of": 3}
    assert pair["off"]["output_tokens"] == pair["on"]["output_tokens"] > 0
    assert pair["speedup"] == pair["on"]["output_tokens_per_second"] / pair["off"]["output_tokens_per_second"]
    assert (tmp_path / "bench.svg").read_text().startswith("<svg")
    again = subprocess.run(
        [str(BIN / "launcher"), "report", "--compare", str(tmp_path / "out" / "off"), str(tmp_path / "out" / "on")],
        env=inherited(), capture_output=True, text=True,
    )  # fmt: skip
    assert f"{pair['speedup']:.2f}x" in again.stdout, again.stderr
    left = subprocess.run(["pgrep", "-f", str(tmp_path / "workspace")], capture_output=True, text=True)
    assert left.stdout == ""
