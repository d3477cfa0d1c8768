"""NIM_ENGINE_CONFIG through the whole launcher: what vLLM gets, where it came from, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import hosted
from tests.integration.standin import Installation


@pytest.fixture
def target(models: Path, tmp_path: Path) -> Path:
    """A target with a draft where the service's convention wants it."""
    folder = tmp_path / "target"
    shutil.copytree(models / "plain", folder)
    shutil.copytree(models / "eagle3", folder / "speculator" / "tuned" / "v1")
    return folder


def ngram(least: int, most: int) -> dict[str, Any]:
    return {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": least, "prompt_lookup_max": most}


@pytest.mark.parametrize(
    ("example", "config"),
    [
        (hosted.MTP, {"method": "mtp", "num_speculative_tokens": 5}),
        (hosted.NGRAM, ngram(5, 5)),
        (hosted.WINDOW, ngram(3, 5)),
    ],
)
def test_an_example_reaches_vllm(
    example: dict[str, str], config: dict[str, Any], launcher: Installation, models: Path
) -> None:
    ran = launcher.run("serve", str(models / "mtp"), NIM_ENGINE_CONFIG=json.dumps(example))
    assert (ran.code, ran.speculative) == (0, config), ran.err


@pytest.mark.parametrize(
    ("model", "name"),
    [(hosted.DRAFT, "v1"), (f"{hosted.DRAFT}/v1", "v1"), ("tuned", "tuned"), ("speculator/tuned", "tuned")],
)
def test_the_draft_is_found_by_its_path_and_by_its_name(
    model: str, name: str, launcher: Installation, target: Path
) -> None:
    example = {**hosted.EAGLE3, "speculative-config.model": model}
    ran = launcher.run("serve", str(target), NIM_ENGINE_CONFIG=json.dumps(example))
    assert ran.code == 0, ran.err
    link = launcher.folder / "workspace" / name
    assert ran.speculative == {
        "method": "eagle3",
        "model": str(link),
        "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1,
    }
    assert link.readlink() == target / "speculator" / "tuned" / "v1"
    assert ("does not exist here" in ran.err) == model.startswith("/tmp/model/")


def test_two_versions_of_a_draft_must_be_told_apart(launcher: Installation, target: Path) -> None:
    shutil.copytree(target / "speculator" / "tuned" / "v1", target / "speculator" / "tuned" / "v2")
    ran = launcher.run("serve", str(target), NIM_ENGINE_CONFIG=json.dumps(hosted.EAGLE3))
    assert ran.code == 2
    assert "speculator/tuned/v1, speculator/tuned/v2" in ran.last_line


def test_a_file_does_as_well(launcher: Installation, models: Path, tmp_path: Path) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({"runtime": {"engine": "vllm", "engineConfig": {**hosted.MTP, "max-num-seqs": "8"}}}))
    ran = launcher.run("serve", str(models / "mtp"), NIM_ENGINE_CONFIG=str(file))
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 5}
    assert ran.argv[ran.argv.index("--max-num-seqs") + 1] == "8"


def test_what_vllm_does_not_allow_is_refused(launcher: Installation, target: Path) -> None:
    ran = launcher.run("serve", str(target), NIM_ENGINE_CONFIG=json.dumps(hosted.WHOLE))
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_ENGINE_CONFIG: invalid runtime config: [speculative-config]: vllm does not allow it" in ran.last_line


@pytest.mark.parametrize(("toggle", "warned"), [({}, False), ({"NIM_SPECDEC_ENABLE": "0"}, True)])
def test_it_needs_no_toggle(toggle: dict[str, str], warned: bool, launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "mtp"), NIM_ENGINE_CONFIG=json.dumps(hosted.MTP), **toggle)
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 5}
    assert ("NIM_ENGINE_CONFIG configures speculation, which holds all the same" in ran.err) == warned


def test_keys_merge_with_the_levels_above_and_below(launcher: Installation, models: Path, tmp_path: Path) -> None:
    """The command line changes one key, a single variable beats the map, and the model's own file stands below."""
    folder = tmp_path / "target"
    shutil.copytree(models / "mtp", folder)
    (folder / "runtime_config.json").write_text('{"max_num_seqs": 4, "seed": 7}')
    hosted_map = {**hosted.MTP, "max-num-seqs": "8", "max-model-len": "1k"}
    ran = launcher.run(
        "plan",
        "--json",
        str(folder),
        "-sc.num_speculative_tokens=2",
        NIM_ENGINE_CONFIG=json.dumps(hosted_map),
        NIM_MAX_MODEL_LEN="512",
    )
    plan = json.loads(ran.out)
    shown = {argument["flag"]: (argument["value"], argument["origin"]) for argument in plan["arguments"]}
    shown.pop("--middleware", None)
    assert shown == {
        "--seed": ("7", f"{folder}/runtime_config.json"),
        "--served-model-name": ("target", "derived"),
        "--max-num-seqs": ("8", "NIM_ENGINE_CONFIG"),
        "--max-model-len": ("512", "NIM_MAX_MODEL_LEN"),
        "--speculative-config": ('{"method":"mtp","num_speculative_tokens":2}', "NIM_ENGINE_CONFIG, command line"),
    }
    assert any(
        "--max-model-len is '512' in NIM_MAX_MODEL_LEN and '1k' in NIM_ENGINE_CONFIG" in w for w in plan["warnings"]
    )


def test_the_keys_can_be_listed(launcher: Installation) -> None:
    ran = launcher.run("profiles", "keys", "--json", "--engine", "dynamo-vllm", "--version", "0.32.0")
    listed = json.loads(ran.out)
    assert [row["key"] for row in listed["speculative"]] == [
        *(f"speculative-config.{key}" for key in ("method", "model", "num_speculative_tokens")),
        "speculative-config.draft_tensor_parallel_size",
        "speculative-config.draft_sample_method",
        "speculative-config",
    ]
    assert {"max-model-len", "kv-cache-dtype", "moe-backend"} < set(listed["flags"])
    assert not any(
        "spec-" in flag or flag.startswith("speculative") for flag in listed["flags"] if "decode" not in flag
    )
    text = launcher.run("profiles", "keys").out
    assert text.startswith("vllm 0.32.0+cpu takes these keys") and "speculative-config.kv_cache_dtype" in text
    assert "kv_cache_dtype" not in launcher.run("profiles", "keys", "--version", "0.25.0").out
    assert launcher.run("profiles", "keys", "--version", "latest").code == 2
