"""Write docker/observability/grafana/dashboard.json, the Grafana dashboard of speculative decoding.

    python tools/make_dashboard.py            # write it
    python tools/make_dashboard.py --check    # fail when the committed one is another

Every ratio is a ratio of sums over all engines, ``sum(rate(part)) / (sum(rate(whole)) > 0)``: without traffic, and
without speculation, a panel has no data instead of a division by zero.  The variables come from a metric that exists
with and without speculation.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).resolve().parents[1] / "docker" / "observability" / "grafana" / "dashboard.json"
SELECTOR = '{job=~"$job", model_name=~"$model_name", instance=~"$instance"}'
WINDOW = "[$__rate_interval]"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ALWAYS_THERE = "vllm:num_requests_running"
WIDTH = 24  # columns of a Grafana page

DRAFTS = "vllm:spec_decode_num_drafts_total"
PROPOSED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TOKENS = "vllm:generation_tokens_total"


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    title: str
    help: str
    unit: str  # Grafana's name
    queries: tuple[Query, ...]
    width: int = 8
    kind: str = "timeseries"  # or "stat"
    decimals: int | None = None
    maximum: float | None = None


class Row(NamedTuple):
    title: str
    height: int
    panels: tuple[Panel, ...]


def rate(metric: str, by: str = "") -> str:
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{SELECTOR}{WINDOW}))"


def ratio(part: str, whole: str, by: str = "") -> str:
    return f"{rate(part, by)} / ({rate(whole, by)} > 0)"


def quantile(share: float, histogram: str) -> str:
    return f"histogram_quantile({share:g}, sum by (le) (rate({histogram}_bucket{SELECTOR}{WINDOW})))"


def quantiles(histogram: str) -> tuple[Query, ...]:
    return tuple(Query(quantile(share, histogram), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99))


def stat(title: str, help: str, unit: str, expression: str, decimals: int) -> Panel:
    return Panel(title, help, unit, (Query(expression, title),), 4, "stat", decimals)


FIRST_TOKEN = "vllm:time_to_first_token_seconds"
BETWEEN = "vllm:inter_token_latency_seconds"
PER_MODEL = "{{model_name}}"
ROWS = (
    Row("Now", 4, (
        stat("Acceptance rate", "accepted / proposed draft tokens", "percentunit", ratio(ACCEPTED, PROPOSED), 1),
        stat("Mean acceptance length", "tokens for each step of the target: 1 + accepted / drafts", "short",
             f"1 + {ratio(ACCEPTED, DRAFTS)}", 2),
        stat("Tokens from drafts", "the share of the output that drafts got right", "percentunit",
             ratio(ACCEPTED, TOKENS), 1),
        stat("Output tokens a second", "", "short", rate(TOKENS), 1),
        stat("Time to first token, p95", "", "s", quantile(0.95, FIRST_TOKEN), 3),
        stat("Inter-token latency, p95", "with speculation a gap can bring several tokens", "s",
             quantile(0.95, BETWEEN), 3),
    )),
    Row("Acceptance", 8, (
        Panel("Acceptance rate by model", "below a third, speculation often costs time under load", "percentunit",
              (Query(ratio(ACCEPTED, PROPOSED, "model_name"), PER_MODEL),), maximum=1),
        Panel("Mean acceptance length by model", "at most the number of drafted tokens + 1", "short",
              (Query(f"1 + {ratio(ACCEPTED, DRAFTS, 'model_name')}", PER_MODEL),)),
        Panel("Acceptance by position", "the share of drafts whose token at this position was accepted; position 0 is "
              "the first; a last one near 0 is wasted", "percentunit",
              (Query(f"{rate(BY_POSITION, 'position')} / on () group_left () ({rate(DRAFTS)} > 0)",
                     "position {{position}}"),), maximum=1),
    )),
    Row("Throughput", 8, (
        Panel("Tokens a second", "", "short",
              (Query(rate(TOKENS), "output"), Query(rate("vllm:prompt_tokens_total"), "prompt")), 12),
        Panel("Draft throughput", "rejected tokens were drafted and verified for nothing", "short",
              (Query(rate(PROPOSED), "proposed"), Query(rate(ACCEPTED), "accepted"),
               Query(f"{rate(PROPOSED)} - {rate(ACCEPTED)}", "rejected"), Query(rate(DRAFTS), "drafts")), 12),
    )),
    Row("Latency", 8, (
        Panel("Time to first token", "", "s", quantiles(FIRST_TOKEN)),
        Panel("Inter-token latency", "not comparable with speculation off: a gap can bring several tokens", "s",
              quantiles(BETWEEN)),
        Panel("Request latency", "", "s", quantiles("vllm:e2e_request_latency_seconds")),
    )),
    Row("Load", 8, (
        Panel("Requests", "speculation pays most where few run", "short",
              (Query(f"sum ({ALWAYS_THERE}{SELECTOR})", "running"),
               Query(f"sum (vllm:num_requests_waiting{SELECTOR})", "waiting")), 12),
        Panel("Key-value cache in use", "", "percentunit",
              (Query(f"max by (instance) (vllm:kv_cache_usage_perc{SELECTOR})", "{{instance}}"),), 12, maximum=1),
    )),
)  # fmt: skip


def dashboard() -> str:
    """The dashboard's file."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append(_header(row.title, len(panels) + 1, y))
        y += 1
        x = 0
        for panel in row.panels:
            place = {"x": x, "y": y, "w": panel.width, "h": row.height}
            panels.append(_panel(panel, len(panels) + 1, place))
            x += panel.width
        y += row.height
    document = {
        "title": "vLLM speculative decoding",
        "uid": "vllm-specdec",
        "tags": ["vllm", "speculative decoding"],
        "schemaVersion": 39,
        "version": 1,
        "id": None,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": _variables()},
        "panels": panels,
    }
    return json.dumps(document, indent=2) + "\n"


def _header(title: str, number: int, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "noValue": "no data"}
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _STAT_OPTIONS if panel.kind == "stat" else _LINE_OPTIONS,
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": query.expression, "legendFormat": query.legend}
            for i, query in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    return [
        source,
        _variable("job", "Job", f"label_values({ALWAYS_THERE}, job)"),
        _variable("model_name", "Model", f'label_values({ALWAYS_THERE}{{job=~"$job"}}, model_name)'),
        _variable(
            "instance",
            "Instance",
            f'label_values({ALWAYS_THERE}{{job=~"$job", model_name=~"$model_name"}}, instance)',
        ),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


_LINE_OPTIONS: dict[str, Any] = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_STAT_OPTIONS: dict[str, Any] = {
    "colorMode": "none",
    "graphMode": "area",
    "textMode": "value",
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only say whether the committed file is this one")
    if parser.parse_args(words).check:
        current = DASHBOARD.is_file() and DASHBOARD.read_text(encoding="utf-8") == dashboard()
        if not current:
            print("docker/observability/grafana/dashboard.json is stale: run tools/make_dashboard.py", file=sys.stderr)
        return 0 if current else 1
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
