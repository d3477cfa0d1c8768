"""Runs from files, pairs of them, and how they are shown."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from launcher.commands.report import compared
from launcher.errors import ConfigurationError, IntegrityError, NotFoundError
from launcher.report import artifacts, picture, result
from launcher.report.acceptance import Acceptance, Counts, of
from launcher.report.render import Report, table, to_csv, to_json
from launcher.report.run import Pair, Run, Speed, together
from tests.missing import missing
from tests.unit.test_report_scrape import OFF, VLLM


def counter(total: float, page: str, engine: int = 0, **labels: str) -> dict[str, Any]:
    return {
        "endpoint_url": f"http://localhost:8231{page}",
        "labels": {"engine": str(engine), "model_name": "tiny", **labels},
        "stats": {"total": total, "rate": total / 9},
    }


def aiperf(folder: Path, category: str, rate: float, accepted: float | None, dataset: str = "speed_bench_") -> Path:
    """The artifacts of a run whose server has two engines and whose metrics AIPerf read under both addresses.

    Of 60 tokens drafted in 20 steps, ``accepted`` were; None: no speculation.
    """
    folder.mkdir(parents=True)
    pages = ("/metrics", "/v1/metrics")
    totals = {"vllm:generation_tokens": 80.0}
    if accepted is not None:
        totals |= {
            "vllm:spec_decode_num_drafts": 20.0,
            "vllm:spec_decode_num_draft_tokens": 60.0,
            "vllm:spec_decode_num_accepted_tokens": accepted,
        }
    metrics = {
        name: {
            "type": "counter",
            "series": [counter(total / 2, page, engine) for page in pages for engine in (0, 1)],
        }
        for name, total in totals.items()
    }
    if accepted is not None:
        metrics["vllm:spec_decode_num_accepted_tokens_per_pos"] = {
            "type": "counter",
            "series": [
                counter(accepted / 4, page, engine, position=str(place))
                for page in pages
                for engine in (0, 1)
                for place in (0, 1)
            ],
        }
    exported = {
        "summary": {"phase_time_ranges": {"profiling": {"start_ns": 0, "end_ns": 4_000_000_000}}},
        "metrics": metrics,
    }
    profile = {
        "request_count": {"unit": "requests", "avg": 4.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": rate},
        "time_to_first_token": {"unit": "ms", "avg": 172.4, "p50": 144.0},
        "request_latency": {"unit": "ms", "avg": 209.6, "p50": 168.0},
        "error_summary": [{"error_details": {"code": 400}, "count": 2}],
        "input_config": {
            "models": {"items": [{"name": "tiny"}]},
            "datasets": [{"name": "main", "format": f"{dataset}{category}"}],
        },
    }
    (folder / artifacts.AIPERF_PROFILE).write_text(json.dumps(profile))
    (folder / artifacts.AIPERF_METRICS).write_text(json.dumps(exported))
    return folder


def test_aiperf_counts_one_address_of_a_server_and_all_its_engines(tmp_path: Path) -> None:
    (run,) = artifacts.read(str(aiperf(tmp_path / "run", "coding", 500.0, 45.0)))
    assert (run.name, run.model) == ("coding", "tiny")
    assert run.acceptance is not None
    assert run.acceptance.counts == Counts(20, 60, 45, (22.5, 22.5))
    assert (run.acceptance.rate, run.acceptance.length) == (0.75, 3.25)
    assert run.speed == Speed(4.0, 4.0, 2.0, None, 144.0, 168.0, 500.0)
    assert (run.drafted_per_second, run.accepted_per_second) == (15.0, 11.25)


def test_aiperf_folders_below_one(tmp_path: Path) -> None:
    for category in ("writing", "coding"):
        aiperf(tmp_path / f"speed_bench_{category}", category, 1.0, None)
    (tmp_path / "other").mkdir()
    assert [(run.name, run.acceptance) for run in artifacts.read(str(tmp_path))] == [
        ("coding", None),
        ("writing", None),
    ]


def test_aiperf_without_the_servers_metrics(tmp_path: Path) -> None:
    folder = aiperf(tmp_path / "run", "trace", 500.0, 45.0, "mooncake_")
    (folder / artifacts.AIPERF_METRICS).unlink()
    (run,) = artifacts.read(str(folder))
    assert (run.name, run.acceptance, run.speed.tokens_per_second) == ("mooncake_trace", None, 500.0)
    assert "--server-metrics" in run.notes[0]


def test_what_vllm_bench_saves(tmp_path: Path) -> None:
    result = {
        "model_id": "org/m",
        "duration": 2.0,
        "completed": 8,
        "failed": 1,
        "total_output_tokens": 200,
        "output_throughput": 100.0,
        "median_ttft_ms": 30.5,
        "spec_decode_acceptance_rate": 75.0,
        "spec_decode_acceptance_length": 3.25,
        "spec_decode_num_drafts": 40,
        "spec_decode_draft_tokens": 120,
        "spec_decode_accepted_tokens": 90,
        "spec_decode_per_position_acceptance_rates": [1.0, 0.75, 0.5],
    }
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(result))
    (run,) = artifacts.read(str(path))
    assert run.acceptance == Acceptance(0.75, 3.25, (1.0, 0.75, 0.5), Counts(40, 120, 90, (40, 30, 20)))
    assert run.speed == Speed(2.0, 8.0, 1.0, 200.0, 30.5, None, 100.0)
    path.write_text(json.dumps({name: value for name, value in result.items() if "spec" not in name}))
    assert artifacts.read(str(path))[0].acceptance is None


def test_saved_pages(tmp_path: Path) -> None:
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    before.write_text(VLLM)
    after.write_text(VLLM.replace("} 50.0", "} 60.0").replace("} 90.0", "} 110.0"))
    (run,) = artifacts.read_scrapes(str(before), str(after))
    assert run.acceptance is not None and run.acceptance.counts == Counts(0, 20, 10, (0, 0, 0))
    assert run.acceptance.rate == 0.5
    other = tmp_path / "other.txt"
    other.write_text(OFF.replace("org/m", "another"))
    with pytest.raises(ConfigurationError, match="knows no model 'org/m'"):
        artifacts.read_scrapes(str(other), str(after))


@pytest.mark.parametrize(
    ("files", "kind", "said"),
    [
        ({}, NotFoundError, "does not exist"),
        ({"x": '{"output_throughput": '}, IntegrityError, "broken JSON"),
        ({"x": '{"a": 1}'}, ConfigurationError, "not a result that can be read"),
        ({"x": '{"output_throughput": 1, "model_id": "m"}'}, IntegrityError, "cannot be read"),
        ({"x/readme": ""}, ConfigurationError, "holds no result"),
        ({"x/off/a": "", "x/on/a": ""}, ConfigurationError, "holds no result"),
        ({f"x/{artifacts.AIPERF_PROFILE}": "{}"}, IntegrityError, "cannot be read"),
        ({f"x/{result.FILE}": "{}"}, IntegrityError, "cannot be read"),
    ],
)
def test_what_cannot_be_read(files: dict[str, str], kind: type[Exception], said: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(kind, match=said):
        artifacts.read(str(tmp_path / "x"))


def a_run(name: str, rate: float, counts: Counts | None, *answers: str) -> Run:
    return Run(name, "tiny", of(counts) if counts else None, Speed(2.0, 4, 0, stated_rate=rate), "o", answers)


PAIRS = (
    Pair(a_run("coding", 100, None, "a", "b"), a_run("coding", 150, Counts(10, 30, 21, (9, 7, 5)), "a", "c")),
    Pair(a_run("writing", 50, None), a_run("writing", 40, Counts(10, 30, 3, (2, 1, 0)))),
)


def test_the_speed_up() -> None:
    assert [pair.speedup for pair in PAIRS] == [1.5, 0.8]
    overall = Report(pairs=PAIRS).overall
    assert overall is not None and overall.on.acceptance is not None
    assert overall.speedup == (150 + 40) / (100 + 50)
    assert overall.on.acceptance.rate == 24 / 60
    assert [pair.same_answers for pair in PAIRS] == [(1, 2), None]


def test_runs_are_paired_by_their_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    off, on = [pair.off for pair in PAIRS], [pair.on for pair in PAIRS]
    assert compared([*reversed(off), a_run("math", 1, None)], on) == PAIRS
    assert "left out: math" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="should be without speculation"):
        compared(on, off)
    with pytest.raises(ConfigurationError, match="no traffic in common"):
        compared([*off, a_run("x", 1, None)], [a_run("y", 1, None), a_run("z", 1, None)])
    assert compared([a_run("one", 1, None)], [a_run("other", 2, None)])[0].speedup == 2


def test_the_tables() -> None:
    assert table(Report(pairs=PAIRS, remarks=("temperature 0",))).splitlines() == [
        "temperature 0",
        "traffic  requests  tokens/s off  tokens/s on  speed-up  acceptance  length     by position  same answers",
        "coding          4         100.0        150.0     1.50x       0.700    3.10  0.90 0.70 0.50           1/2",
        "writing         4          50.0         40.0     0.80x       0.100    1.30  0.20 0.10 0.00             -",
        "overall         8          75.0         95.0     1.27x       0.400    2.20  0.55 0.40 0.25           1/2",
    ]
    runs = (PAIRS[0].on, PAIRS[0].off, a_run("idle", 0, Counts(0, 0, 0)))
    assert table(Report(runs)).splitlines() == [
        "traffic  model  requests  tokens/s  acceptance  length     by position  drafted/s  accepted/s",
        "coding   tiny          4     150.0       0.700    3.10  0.90 0.70 0.50       15.0        10.5",
        "coding   tiny          4     100.0         off       -               -          -           -",
        "idle     tiny          4       0.0   no drafts       -               -        0.0         0.0",
    ]


def test_json_and_csv_say_the_same() -> None:
    report = Report(pairs=PAIRS)
    document = json.loads(to_json(report))
    assert document["pairs"][0]["same_answers"] == {"equal": 1, "of": 2}
    assert document["overall"]["speedup"] == pytest.approx(190 / 150)
    rows = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert [(row["traffic"], row["speculation"]) for row in rows] == [
        ("coding", "off"),
        ("coding", "on"),
        ("writing", "off"),
        ("writing", "on"),
    ]
    for side, row in zip(("off", "on"), rows, strict=False):
        said = document["pairs"][0][side]
        assert row["output_tokens_per_second"] == str(said["output_tokens_per_second"])
        assert row["acceptance_rate"] == ("" if said["acceptance_rate"] is None else str(said["acceptance_rate"]))
    assert rows[1]["acceptance_by_position"] == "0.9 0.7 0.5"


def test_ratios_alone_are_not_put_together() -> None:
    gauges = Run("a", "m", Acceptance(0.5, 2.0), Speed())
    both = together("all", [gauges, PAIRS[0].on])
    assert both.acceptance == Acceptance(None, None)


def test_the_picture() -> None:
    drawn = picture.svg(Report(pairs=PAIRS), "a <title>")
    root = ElementTree.fromstring(drawn)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a <title>"
    assert {"150.0  1.50x", "0.700", "3.10", "0.90", "coding"} <= set(texts)
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="14"', drawn)]
    assert max(widths) == 210.0  # the fastest fills its panel
    assert 210 * 0.7 in widths


def test_the_picture_as_png() -> None:
    try:
        drawn = picture.png(picture.svg(Report((PAIRS[0].on,)), "t"))
    except ConfigurationError as error:
        missing(str(error))
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", drawn[16:24])
    assert width > 1000 and height > 100
