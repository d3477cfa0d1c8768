"""The dashboard and the rules use metrics, labels and variables that exist; how they look; what the rules compute."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.missing import missing
from tools import make_dashboard
from tools.install_measuring_tools import PROMETHEUS

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "docker" / "observability"
DASHBOARD: dict[str, Any] = json.loads(make_dashboard.DASHBOARD.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
# Metric and its labels, as a speculating vLLM exports them: tests/engine/test_acceptance.py holds it to the real one.
SERIES = {
    line.split()[0]: set(line.split()[1:])
    for line in (ROOT / "tests" / "engine" / "data" / "series.txt").read_text().splitlines()
}
ADDED = {"job", "instance"}  # by Prometheus


def rules() -> list[tuple[str, str]]:
    (group,) = yaml.safe_load((OBSERVABILITY / "rules.yml").read_text())["groups"]
    return [(rule.get("record") or rule["alert"], rule["expr"]) for rule in group["rules"]]


def test_the_committed_dashboard_is_the_one_that_is_made() -> None:
    assert make_dashboard.main(["--check"]) == 0


@pytest.mark.parametrize(("title", "expression"), [*EXPRESSIONS, *rules()])
def test_metrics_and_labels_exist(title: str, expression: str) -> None:
    used = re.findall(r"(vllm:\w+)(?:\{([^}]*)\})?", expression)
    assert used or "specdec:" in expression
    for metric, selector in used:
        assert metric in SERIES, metric
        assert set(re.findall(r"(\w+)=~", selector)) <= SERIES[metric] | ADDED
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            labels = {label.strip() for label in grouping.split(",")}
            assert labels <= set().union(*(SERIES[name] for name, _ in used)) | ADDED


def test_every_variable_is_defined() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = {name for _, expression in EXPRESSIONS for name in re.findall(r"\$\{?(\w+)", expression)}
    assert used - {"__rate_interval"} == {"job", "model_name", "instance"} <= defined
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in PANELS for target in panel["targets"])


def test_no_panel_lies_on_another() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= make_dashboard.WIDTH
        cells.update(
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        )
    assert max(cells.values()) == 1
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_what_people_look_for_is_there() -> None:
    titles = {panel["title"] for panel in PANELS}
    assert {
        "Acceptance rate",
        "Mean acceptance length",
        "Acceptance by position",
        "Tokens a second",
        "Time to first token",
        "Inter-token latency",
        "Key-value cache in use",
    } <= titles


def test_the_files_of_the_compose_file_are_there() -> None:
    services = yaml.safe_load((OBSERVABILITY / "compose.yaml").read_text())["services"]
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    assert mounted and all((OBSERVABILITY / path).is_file() for path in mounted)
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"])


@pytest.mark.parametrize("words", [("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_accepts(words: tuple[str, ...]) -> None:
    """The rules give the right figures for two engines, a useless draft, an idle server and a plain one."""
    promtool = PROMETHEUS / "promtool"
    if not promtool.exists():
        missing("run tools/install_measuring_tools.py prometheus")
    done = subprocess.run([promtool, *words], cwd=OBSERVABILITY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
