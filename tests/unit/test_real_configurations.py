"""Published configurations: family, depth, kind, sizes, and which draft fits which target.

The facts are condensed from config.json files of published models and of draft training recipes by
tools/make_configurations.py.  What is expected of them is written down here by hand.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launcher.checkpoint import Checkpoint, Weights, read_config
from launcher.speculation import check, kinds
from launcher.speculation.families import Family, mtp_family
from launcher.speculation.methods import default_tokens
from launcher.vllm import tables
from launcher.vllm.tables import EngineTable

VERSIONS = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")

# Every other target belongs to no family with a head in its own checkpoint.
FAMILIES = {
    "Qwen--Qwen3.5-122B-A10B": ("qwen3_5_mtp", 1),
    "Qwen--Qwen3.5-27B": ("qwen3_5_mtp", 1),
    "Qwen--Qwen3.5-397B-A17B": ("qwen3_5_mtp", 1),
    "XiaomiMiMo--MiMo-7B-Base": ("mimo_mtp", 1),
    "deepseek-ai--DeepSeek-R1": ("deepseek_mtp", 1),
    "deepseek-ai--DeepSeek-V3.2": ("deepseek_mtp", 1),
    "deepseek-ai--DeepSeek-V4-Flash": ("deepseek_mtp", 1),
    "deepseek-ai--DeepSeek-V4-Pro": ("deepseek_mtp", 1),
    "moonshotai--Kimi-K3": ("kimi_k3_mtp", 0),
    "nvidia--DeepSeek-V3.1-NVFP4": ("deepseek_mtp", 1),
    "nvidia--DeepSeek-V4-Flash-NVFP4": ("deepseek_mtp", 1),
    "nvidia--DeepSeek-V4-Pro-NVFP4": ("deepseek_mtp", 1),
    "nvidia--GLM-5.1-NVFP4": ("deepseek_mtp", 1),
    "nvidia--GLM-5.2-NVFP4": ("deepseek_mtp", 1),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": ("nemotron_h_mtp", 1),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": ("nemotron_h_mtp", 1),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": ("nemotron_h_mtp", 1),
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": ("nemotron_h_mtp", 1),
    "nvidia--Qwen3.5-122B-A10B-NVFP4": ("qwen3_5_mtp", 1),
    "nvidia--Qwen3.6-27B-NVFP4": ("qwen3_5_mtp", 1),
    "nvidia--Qwen3.6-35B-A3B-NVFP4": ("qwen3_5_mtp", 1),
    "stepfun-ai--Step-3.7-Flash-FP8": ("step3p5_mtp", 3),
    "stepfun-ai--Step-3.7-Flash": ("step3p5_mtp", 3),
    "zai-org--GLM-5.1-FP8": ("deepseek_mtp", 1),
    "zai-org--GLM-5.1": ("deepseek_mtp", 1),
    "zai-org--GLM-5.2": ("deepseek_mtp", 1),
    "zai-org--GLM-5": ("deepseek_mtp", 1),
}

# Hidden size, vocabulary and layers of the language model; among them all that keep them in an unusual place.
SIZES = {
    "Qwen--Qwen3-8B": (4096, 151936, 36),
    "Qwen--Qwen3-VL-2B-Instruct": (2048, 151936, 28),
    "Qwen--Qwen3.5-27B": (5120, 248320, 64),
    "deepseek-ai--DeepSeek-R1": (7168, 129280, 61),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (5120, 202048, 48),
    "moonshotai--Kimi-K3": (7168, 163840, 93),
    "nvidia--Gemma-4-31B-IT-NVFP4": (5376, 262144, 60),
    "nvidia--Kimi-K2.5-NVFP4": (7168, 163840, 61),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (8192, 131072, 108),
    "nvidia--Qwen3.6-35B-A3B-NVFP4": (2048, 248320, 40),
    "sgl-project--DeepSeek-V4-Flash-FP8": (4096, 129280, 43),
    "stepfun-ai--Step-3.7-Flash": (4096, 128896, 45),
}

_R1_SHAPE = {
    "deepseek-ai--DeepSeek-R1",
    "deepseek-ai--DeepSeek-V3.2",
    "deepseek-ai--DeepSeek-V4-Pro",
    "nvidia--DeepSeek-V3.1-NVFP4",
    "nvidia--DeepSeek-V4-Pro-NVFP4",
}
_GLM5_SHAPE = {
    "nvidia--GLM-5.1-NVFP4",
    "nvidia--GLM-5.2-NVFP4",
    "zai-org--GLM-5",
    "zai-org--GLM-5.1",
    "zai-org--GLM-5.1-FP8",
    "zai-org--GLM-5.2",
}
_QWEN3_30B_SHAPE = {
    "Qwen--Qwen3-1.7B",
    "Qwen--Qwen3-30B-A3B-FP8",
    "Qwen--Qwen3-VL-2B-Instruct",
    "Qwen--Qwen3-VL-30B-A3B-Instruct",
}
_QWEN3_235B = {"Qwen--Qwen3-235B-A22B", "nvidia--Qwen3-235B-A22B-NVFP4"}
_QWEN3_8B_SHAPE = {"Qwen--Qwen3-8B", *_QWEN3_235B}

# Kind, default token count, and every target that the draft fits by shape.  Shape alone cannot tell siblings apart (a
# draft for GLM-5.2 fits GLM-5), so the sets are wider than what a draft was trained for; what was trained is in each.
DRAFTS: dict[str, tuple[str, int | None, set[str]]] = {
    "deepseek-v2-lite-eagle3": ("eagle3", 3, set()),
    "deepseek-v3-671b-eagle3": ("eagle3", 3, _R1_SHAPE),
    "glm-5.2-dspark": ("dspark", 7, _GLM5_SHAPE),
    "gpt-oss-120B-eagle3": ("eagle3", 3, set()),  # reads layer 33: gpt-oss-20b, of the same width, has 24
    "inkling-dspark": ("dspark", 7, set()),
    "kimi-k3-dspark": ("dspark", 7, {"moonshotai--Kimi-K3"}),
    "ling-flash-2.0-eagle3": ("eagle3", 3, set()),
    "llama3-70B-ealge3": ("eagle3", 3, {"meta-llama--Meta-Llama-3.1-70B", "nvidia--Llama-3.1-70B-Instruct-FP8"}),
    "llama4-scout-17B-16E-eagle3": (
        "eagle3",
        3,
        {"meta-llama--Llama-4-Scout-17B-16E-Instruct", "meta-llama--Llama-4-Maverick-17B-128E-Instruct"},
    ),
    "longcat-flash-dflash": ("dflash", 15, set()),
    "phi4-eagle3": ("eagle3", 3, set()),
    "qwen2-5-vl-7b-eagle3": ("eagle3", 3, set()),
    "qwen2.5-0.5b-eagle3": ("eagle3", 3, set()),
    "qwen2.5-7b-eagle3": ("eagle3", 3, set()),
    "qwen3-235B-A22B-eagle3": ("eagle3", 3, _QWEN3_235B),  # not Qwen3-8B: it reads layers 46 and 90
    "qwen3-30B-A3B-eagle3.1": ("eagle3", 3, _QWEN3_30B_SHAPE),
    "qwen3-32b-eagle3": (
        "eagle3",
        3,
        {"Qwen--Qwen3-32B-FP8", "Qwen--Qwen3-32B-FP8-Static-PerTensor", "Qwen--Qwen3-VL-32B-Thinking"},
    ),
    "qwen3-4b-dflash": ("dflash", 15, {"Qwen--Qwen3-VL-4B-Instruct"}),
    "qwen3-4b-eagle3": ("eagle3", 3, {"Qwen--Qwen3-VL-4B-Instruct"}),
    "qwen3-8b-dflash": ("dflash", 15, _QWEN3_8B_SHAPE),
    "qwen3-8b-dspark": ("dspark", 7, _QWEN3_8B_SHAPE),
    "qwen3-8b-eagle3": ("eagle3", 3, _QWEN3_8B_SHAPE),
    "qwen3-coder-30B-A3B-instruct-eagle3": ("eagle3", 3, _QWEN3_30B_SHAPE),
    "qwen3-coder-480B-A35B-instruct-eagle3": ("eagle3", 3, {"Qwen--Qwen3-Coder-480B-A35B-Instruct"}),
    "qwen3-next-80b-a3b-eagle3": ("eagle3", 3, _QWEN3_30B_SHAPE),
    "qwen3.5-35b-a3b-dflash": ("dflash", 15, {"nvidia--Qwen3.6-35B-A3B-NVFP4"}),
    "qwen3.5-4b-dflash": ("dflash", 15, set()),
    "qwen3.5-4b-domino": ("domino", None, set()),  # no vLLM runs this kind
    "qwen3.6-27b-domino-full-attention": ("domino", None, set()),
    "qwen3.6-27b-dspark": ("dspark", 16, {"nvidia--Qwen3.6-27B-NVFP4", "Qwen--Qwen3.5-27B"}),
}

# Tempting pairs and the check that tells them apart.
WRONG = [
    ("gpt-oss-120B-eagle3", "openai--gpt-oss-20b", "auxiliary-layers", "layers 1, 17, 33"),
    ("qwen3-235B-A22B-eagle3", "Qwen--Qwen3-8B", "auxiliary-layers", "layers 1, 46, 90"),
    ("qwen3-8b-eagle3", "Qwen--Qwen3-32B-FP8", "hidden-size", "4096"),
    ("llama3-70B-ealge3", "meta-llama--Meta-Llama-3.1-8B", "hidden-size", "8192"),
    ("deepseek-v3-671b-eagle3", "moonshotai--Kimi-K2-Instruct", "vocabulary", "163840"),
    ("kimi-k3-dspark", "moonshotai--Kimi-K2-Instruct", "context-layers", "7, 23, 51, 67, 83"),
    ("qwen3.5-4b-dflash", "Qwen--Qwen3-VL-4B-Instruct", "vocabulary", "248320"),
    ("qwen3.6-27b-domino-full-attention", "nvidia--Qwen3.6-27B-NVFP4", "draft-class", "DominoDraftModel"),
]


@cache
def table() -> dict[str, dict[str, dict[str, Any]]]:
    text = (Path(__file__).parent / "data/configurations.json").read_text("utf-8")
    groups: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return groups


@cache
def engine(version: str) -> EngineTable:
    return tables.load(version)


def load(group: str, name: str) -> Checkpoint:
    return Checkpoint(name, read_config(table()[group][name]), Weights("", 0, 0, (), ()), (), False)


def failures(draft: Checkpoint, target: Checkpoint, version: str) -> dict[str, str]:
    kind = kinds.draft_kind(draft)
    assert kind is not None
    made = check.fit(kind, target, draft, engine(version))
    return {row.name: row.error.what for row in made if row.error is not None}


def test_the_table_is_whole() -> None:
    assert (len(table()["targets"]), len(table()["drafts"])) == (58, 30)
    assert set(table()["drafts"]) == set(DRAFTS)
    assert set(FAMILIES) | set(SIZES) <= set(table()["targets"])


@pytest.mark.parametrize("name", sorted(table()["targets"]))
def test_family_and_depth_of_a_target(name: str) -> None:
    family = mtp_family(load("targets", name).config)
    expected = FAMILIES.get(name)
    assert family == (None if expected is None else Family(*expected, stated=True))
    for version in VERSIONS:
        assert mtp_family(load("targets", name).config, engine(version)) == family


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_a_target(name: str) -> None:
    config = load("targets", name).config
    assert (config.hidden_size, config.vocab_size, config.num_hidden_layers) == SIZES[name]


@pytest.mark.parametrize("name", DRAFTS)
def test_kind_and_tokens_of_a_draft(name: str) -> None:
    draft = load("drafts", name)
    kind, tokens, _ = DRAFTS[name]
    assert kinds.draft_kind(draft) == kind
    assert default_tokens(kind, None, draft) == tokens
    assert mtp_family(draft.config) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", DRAFTS)
def test_the_targets_that_a_draft_fits(name: str, version: str) -> None:
    draft = load("drafts", name)
    targets = (load("targets", target) for target in table()["targets"])
    assert {target.place for target in targets if not failures(draft, target, version)} == DRAFTS[name][2]


@pytest.mark.parametrize(("draft", "target", "name", "words"), WRONG)
def test_tempting_pairs_are_told_apart(draft: str, target: str, name: str, words: str) -> None:
    found = failures(load("drafts", draft), load("targets", target), "0.32.0")
    assert words in found[name]


@pytest.mark.parametrize(
    ("draft", "target", "same"),
    [
        ("qwen3-8b-dflash", "Qwen--Qwen3-8B", True),
        ("qwen3-8b-dflash", "Qwen--Qwen3-235B-A22B", False),
        ("glm-5.2-dspark", "zai-org--GLM-5.2", True),
        ("kimi-k3-dspark", "moonshotai--Kimi-K3", True),
    ],
)
def test_block_drafts_know_how_deep_their_target_was(draft: str, target: str, same: bool) -> None:
    trained = kinds.trained_depth(load("drafts", draft).config)
    assert (trained == load("targets", target).config.num_hidden_layers) is same
