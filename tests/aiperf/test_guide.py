"""The benchmark of NVIDIA's guide as it is typed there, on and off, and what ours says of the same artifacts.

Only the placeholders of the guide are filled in: the served name, the server's address, and the prepared data.  The
categories are fewer than its eleven because each takes a quarter of a minute; SPEED_BENCH_CATEGORIES names others.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher.bench.traffic import CATEGORIES
from tests.aiperf.conftest import MODEL, Both, url
from tests.engine.server import Server

CHOSEN = os.environ.get("SPEED_BENCH_CATEGORIES", "coding writing").split()
LOOP = """\
for cat in $CATEGORIES; do
  aiperf profile \\
    --model <served-model-name> \\
    --endpoint-type chat --streaming \\
    --url localhost:8000 \\
    --custom-dataset-type speed_bench_${cat} \\
    --input-file ${SPEED_BENCH_DIR}/qualitative.jsonl \\
    --server-metrics http://localhost:8000/v1/metrics \\
    --osl 4096 --extra-inputs temperature:0 --concurrency 16 \\
    --output-artifact-dir ./artifacts/speed_bench_${cat}
done
"""
REPORTS = {
    "accept_length": "aiperf speed-bench-report ./artifacts/ --format both",
    "accept_rate": "aiperf speed-bench-report ./artifacts/ --metric accept_rate",
    "throughput": "aiperf speed-bench-report ./artifacts/ --metric throughput",
}


class Outcome(NamedTuple):
    folder: Path
    reports: dict[str, subprocess.CompletedProcess[str]]
    matrix: dict[str, dict[str, float]]  # metric -> category -> figure

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"


def write_questions(folder: Path) -> Path:
    """Rows in the shape that the guide's prepare.py writes: three for each category, one of them with two turns."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for category in CATEGORIES:
        for number in range(3):
            turns = [f"Please recite {category}, verse {number}: ", "And on: "][: 1 + number // 2]
            rows.append(
                {
                    "question_id": hashlib.md5(f"{category}{number}".encode()).hexdigest(),
                    "category": category,
                    "messages": [{"role": "user", "content": turn} for turn in turns],
                }
            )
    path = folder / "qualitative.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def shell(script: str, both: Both, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={**both.environment, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def guide(both: Both, server: Server, folder: Path) -> Outcome:
    folder.mkdir()
    write_questions(folder / "datasets" / "speed-bench")
    script = LOOP.replace("<served-model-name>", MODEL).replace("localhost:8000", url(server))
    variables = {"CATEGORIES": " ".join(CHOSEN), "SPEED_BENCH_DIR": "./datasets/speed-bench"}
    done = shell(script, both, folder, **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    reports, matrix = {}, {}
    for metric, command in REPORTS.items():
        reports[metric] = shell(command, both, folder)
        table = folder / "artifacts" / "speed_bench_report.csv"
        table = table if table.exists() else folder / "speed_bench_report.csv"
        if reports[metric].returncode == 0:
            (row,) = csv.DictReader(table.read_text().splitlines())
            matrix[metric] = {name: float(value) for name, value in row.items() if name != "Model"}
            table.unlink()  # the next report writes over it
    return Outcome(folder, reports, matrix)


@pytest.fixture(scope="module")
def on(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return guide(both, both.on, tmp_path_factory.mktemp("guide") / "on")


@pytest.fixture(scope="module")
def off(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return guide(both, both.off, tmp_path_factory.mktemp("guide") / "off")


def ours(both: Both, *words: str) -> Any:
    done = subprocess.run(
        ["launcher", "report", "--format", "json", *words], env=dict(both.environment), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_three_reports_with_speculation(on: Outcome, both: Both) -> None:
    """All three have a column for each category, and ours says the same of the same artifacts."""
    assert all(report.returncode == 0 for report in on.reports.values()), on.reports
    assert {metric: set(row) for metric, row in on.matrix.items()} == {
        metric: {*CHOSEN, "Overall"} for metric in REPORTS
    }
    runs = {run["traffic"]: run for run in ours(both, str(on.artifacts))["runs"]}
    assert set(runs) == set(CHOSEN)
    for category, run in runs.items():
        assert run["requests"] == 10  # not the 80 of a category: the loop names no count
        assert not run["errors"]
        assert run["acceptance_rate"] == pytest.approx(on.matrix["accept_rate"][category], abs=0.006)
        assert run["acceptance_length"] == pytest.approx(on.matrix["accept_length"][category], abs=0.006)
        assert run["output_tokens_per_second"] == pytest.approx(on.matrix["throughput"][category], abs=0.006)
        assert 0.55 < run["acceptance_rate"] < 0.75  # what the draft is known for
        assert run["accepted_tokens"] == pytest.approx(sum(run["acceptance_by_position"]) * run["drafts"])


def test_the_three_reports_without_speculation(off: Outcome, both: Both) -> None:
    """Two of them fail instead of showing zeros; ours says that it is off."""
    codes = {metric: report.returncode for metric, report in off.reports.items()}
    assert codes == {"accept_length": 1, "accept_rate": 1, "throughput": 0}
    for metric in ("accept_length", "accept_rate"):
        said = off.reports[metric].stdout + off.reports[metric].stderr
        assert "no SPEED-Bench results extracted" in said
    runs = ours(both, str(off.artifacts))["runs"]
    assert [(run["traffic"], run["speculation"], run["acceptance_rate"]) for run in runs] == [
        (category, False, None) for category in sorted(CHOSEN)
    ]


def test_the_speed_up(off: Outcome, on: Outcome, both: Both) -> None:
    document = ours(both, "--compare", str(off.artifacts), str(on.artifacts))
    for pair in document["pairs"]:
        before, after = (side.matrix["throughput"][pair["traffic"]] for side in (off, on))
        assert pair["speedup"] == pytest.approx(after / before, rel=0.001)


def test_what_the_counters_say_is_what_the_server_counted(on: Outcome, both: Both) -> None:
    """AIPerf reads each counter under two addresses; ours counts it once."""
    exported = json.loads((on.artifacts / f"speed_bench_{CHOSEN[0]}" / "server_metrics_export.json").read_text())
    series = exported["metrics"]["vllm:spec_decode_num_drafts"]["series"]
    assert len({item["endpoint_url"] for item in series}) == 2
    (run,) = (run for run in ours(both, str(on.artifacts))["runs"] if run["traffic"] == CHOSEN[0])
    assert run["drafts"] == series[0]["stats"]["total"]
