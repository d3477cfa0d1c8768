"""How AIPerf is asked: its words and its environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.bench import aiperf
from launcher.bench.aiperf import AIPerf
from launcher.bench.client import Pace, Target
from launcher.bench.traffic import BUILT_IN, CATEGORIES, Traffic, read_questions, read_trace
from launcher.errors import NotFoundError

CHAT: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TARGET = Target("http://h:1", "org/m", None, {})


def command(traffic: Traffic, tokenizer: str | None = None) -> list[str]:
    tool = AIPerf("/bin/aiperf", "0.13.0", tokenizer)
    return aiperf.command(tool, traffic, TARGET, Pace(8, 100, 0.0), "http://h:1/v1/metrics", "/out")


def flags(words: list[str]) -> dict[str, str]:
    """Flag and value; a flag alone has none."""
    pairs = {}
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        if flag.startswith("--"):
            assert flag not in pairs, "AIPerf refuses a flag that is given twice"
            pairs[flag] = "" if value.startswith("--") else value
    return pairs


def trace(path: Path, rows: list[dict[str, object]]) -> Traffic:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_trace(str(path), None)


def test_questions() -> None:
    (math,) = read_questions(BUILT_IN, ("math",), 3)
    assert flags(command(math, "/tokenizer")) == {
        "--model": "org/m",
        "--endpoint-type": "chat",
        "--streaming": "",
        "--url": "http://h:1",
        "--custom-dataset-type": "speed_bench_math",
        "--input-file": BUILT_IN,
        "--server-metrics": "http://h:1/v1/metrics",
        "--output-artifact-dir": "/out",
        "--ui": "none",
        "--concurrency": "8",
        "--num-conversations": "3",
        "--osl": "100",
        "--extra-inputs": "temperature:0",
        "--tokenizer": "/tokenizer",
    }


def test_a_trace_with_its_times_decides_for_itself(tmp_path: Path) -> None:
    words = flags(command(trace(tmp_path / "t", [{"timestamp": 1.5, "payload": CHAT}])))
    assert words["--custom-dataset-type"] == "mooncake_trace"
    assert not {"--concurrency", "--request-count", "--osl", "--extra-inputs", "--num-conversations"} & set(words)


def test_a_trace_without_times_is_sent_once(tmp_path: Path) -> None:
    """Without a count AIPerf sends ten requests, whatever the file holds."""
    words = flags(command(trace(tmp_path / "t", [CHAT, CHAT, CHAT])))
    assert words["--custom-dataset-type"] == "raw_payload"
    assert (words["--request-count"], words["--concurrency"]) == ("3", "8")


def test_times_that_nobody_wants(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(json.dumps({"timestamp": 5, "payload": CHAT}) + "\n")
    words = flags(command(read_trace(str(path), None, ignore_times=True)))
    assert "--no-fixed-schedule" in words  # AIPerf would follow them by itself
    assert (words["--request-count"], words["--concurrency"]) == ("1", "8")


def test_completions(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"timestamp": 1, "payload": {"model": "m", "prompt": "x"}}]
    assert flags(command(trace(tmp_path / "t", rows)))["--endpoint-type"] == "completions"


@pytest.mark.parametrize(("named", "left"), [("folder", set()), ("org/m", {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})])
def test_what_breaks_a_tokenizers_folder_is_left_out(named: str, left: set[str], tmp_path: Path) -> None:
    tokenizer = str(tmp_path) if named == "folder" else named
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    secrets = {"VLLM_API_KEY": "k", "VLLM_API_KEY_FILE": "/k", "NGC_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "k"}
    environ = {"PATH": "/bin", "HF_TOKEN": "t", **offline, **secrets}
    kept = aiperf.environment(AIPerf("a", "0", tokenizer), environ)
    assert set(kept) == {"PATH", "HF_TOKEN"} | left  # the hub's token is for the tokenizer


def test_an_aiperf_that_does_not_run(tmp_path: Path) -> None:
    assert aiperf.find(None, None, {"PATH": str(tmp_path)}) is None
    with pytest.raises(NotFoundError, match="does not run"):
        aiperf.find(str(tmp_path / "aiperf"), None, {})


def test_the_built_in_questions_are_ones_that_aiperf_takes() -> None:
    traffic = read_questions(BUILT_IN, (), None)
    assert [(item.name, len(item.requests)) for item in traffic] == [
        ("coding", 8),
        ("math", 8),
        ("summarization", 8),
        ("writing", 8),
    ]
    assert {item.name for item in traffic} <= set(CATEGORIES)
