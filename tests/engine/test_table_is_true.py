"""The committed table of the pinned version against the engine that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.vllm import installed, tables
from launcher.vllm.tables import Flag

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
# What each type is read from, and what it becomes.
SAMPLES: dict[str, tuple[str, Any]] = {
    "int": ("7", 7),
    "float": ("0.5", 0.5),
    "human-int": ("2k", 2000),
    "json": ('{"a": 1}', {"a": 1}),
    "json-any": ("[1]", [1]),
    "str": ("word", "word"),
}
# Flags whose value is a file's name, or name=path pairs; those with ``units`` are objects with keys of their own.
OWN_FORM = ("--config", "--lora-modules")
# Classes that this CPU build can import.
CLASSES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV3ForCausalLM",
    "GptOssForCausalLM",
    "Glm4MoeForCausalLM",
    "Ernie4_5_MoeForCausalLM",
    "Exaone4ForCausalLM",
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tools/describe_engine.py reads out of the installed engine now."""
    target = tmp_path_factory.mktemp("engine") / "engine.json"
    run("tools/describe_engine.py", str(target))
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the installed engine does with samples of every flag and key."""
    folder = tmp_path_factory.mktemp("probe")
    samples = {
        "command_lines": [[flag.dest, words] for flag, words, _ in command_lines()],
        "keys": [[key, value] for key, value, _ in keys()],
        "architectures": [*CLASSES, "MiMoForCausalLM"],
    }
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    run("tests/engine/probe_table.py", str(folder / "samples.json"), str(folder / "answers.json"))
    document: dict[str, Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return document


def run(script: str, *words: str) -> None:
    environment = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, str(ROOT / script), *words], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]


def command_lines() -> list[tuple[Flag, list[str], Any]]:
    """Words for every flag of the table, and the value they must become."""
    lines: list[tuple[Flag, list[str], Any]] = []
    for flag in tables.pinned().flags:
        if flag.type == "bool":
            lines += [(flag, [spelling], True) for spelling in (flag.name, *flag.aliases)]
            lines += [(flag, [spelling], False) for spelling in flag.negatives]
        elif flag.units or flag.name in OWN_FORM:
            continue
        else:
            word, value = (flag.choices[0],) * 2 if flag.choices else SAMPLES[flag.type]
            value = int(word) if flag.choices and flag.type == "int" else value
            repeated = {"list": [word, word], "append": [word, flag.name, word]}.get(flag.kind, [word])
            wanted = [value, value] if flag.kind in ("list", "append") else value
            lines += [(flag, [spelling, *repeated], wanted) for spelling in (flag.name, *flag.aliases)]
            lines += [(flag, [flag.name, "nonsense"], "refused")] if flag.choices else []
    return lines


def keys() -> list[tuple[str, Any, bool]]:
    """Values for the speculative keys, and whether the table says they are taken."""
    samples: list[tuple[str, Any, bool]] = [("num_speculative_tokrns", 1, False)]
    for field in tables.pinned().fields:
        if field.minimum is not None:
            samples += [(field.name, field.minimum, True), (field.name, field.minimum - 1, False)]
        if field.choices and field.name != "method":
            samples.append((field.name, "nonsense", False))
        if field.type == "bool":
            samples.append((field.name, {}, False))
        if field.name not in ("method", "num_speculative_tokens", "draft_model_config") and not field.internal:
            samples.append((field.name, None, field.nullable))
    return samples


def test_the_pinned_version_is_installed() -> None:
    found = installed.find(os.environ)
    assert found and found.own
    table = tables.load(found.version)
    assert table.exact and table.version == tables.PINNED


@pytest.mark.parametrize("kind", ["flags", "fields", "methods", "mtp_types", "speculators", "v2_methods", "drafts"])
def test_the_table_is_what_the_engine_says(engine: dict[str, Any], kind: str) -> None:
    committed = json.loads((ROOT / f"launcher/vllm/data/{tables.PINNED}.json").read_text(encoding="utf-8"))
    assert committed[kind] == engine[kind]


def test_the_model_registry(engine: dict[str, Any]) -> None:
    assert tables.pinned().architectures == set(engine["architectures"])


def test_the_real_parser_reads_every_flag_as_the_table_says(answers: dict[str, Any]) -> None:
    wrong = [
        (words, value, wanted)
        for (_, words, wanted), value in zip(command_lines(), answers["parsed"], strict=True)
        if value != wanted and value != [wanted]
    ]
    assert wrong == []


def test_the_real_configuration_takes_the_keys_that_the_table_has(answers: dict[str, Any]) -> None:
    wrong = [
        (key, value, said)
        for (key, value, taken), said in zip(keys(), answers["keys"], strict=True)
        if (said is None) != taken
    ]
    assert wrong == []


def test_eagle3_markers(answers: dict[str, Any]) -> None:
    targets = tables.pinned().eagle3_targets
    assert {name: answers["marked"][name] for name in CLASSES} == {name: name in targets for name in CLASSES}
    assert answers["marked"]["MiMoForCausalLM"] and "MiMoForCausalLM" not in targets
