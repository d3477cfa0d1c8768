"""``plan``: the document and nothing else on stdout, the same twice, and the code that serve would give."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.standin import Installation

KEYS = [
    "schema",
    "launcher",
    "vllm",
    "model",
    "draft",
    "profile",
    "speculation",
    "memory",
    "arguments",
    "argv",
    "environment",
    "checks",
    "warnings",
    "unknown",
]
EAGLE3 = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'


def test_keys_and_values(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "plan",
        "--json",
        str(models / "plain"),
        "--speculative-config",
        EAGLE3,
        NIM_DRAFT_MODEL_PATH=str(models / "eagle3"),
    )
    assert (ran.code, ran.record) == (0, None), ran.err
    plan = json.loads(ran.out)
    assert list(plan) == KEYS
    assert plan["schema"] == 1
    assert plan["vllm"] == {"version": "0.32.0+cpu", "installed": True}
    size = sum(path.stat().st_size for path in (models / "plain").iterdir())
    assert plan["model"] == {
        "source": str(models / "plain"),
        "revision": None,
        "snapshot": str(models / "plain"),
        "served_name": "plain",
        "bytes": size,
        "to_download": 0,
        "proof": "local folder",
    }
    assert plan["draft"]["source"] == str(models / "eagle3")
    assert plan["speculation"]["method"] == "eagle3"
    assert plan["speculation"]["num_speculative_tokens"] == 3
    assert plan["speculation"]["model"] == f"{launcher.folder}/workspace/eagle3_draft"
    assert all(check["ok"] for check in plan["checks"])
    flags = {argument["flag"]: argument["origin"] for argument in plan["arguments"]}
    assert flags == {
        "--middleware": "derived",
        "--served-model-name": "derived",
        "--speculative-config": "command line",
    }


def test_it_is_what_serve_executes(launcher: Installation, models: Path) -> None:
    words = (str(models / "mtp"), "--max_num_seqs=3")
    plan = json.loads(launcher.run("plan", "--json", *words, NIM_SPECDEC_ENABLE="1").out)
    assert launcher.run("serve", *words, NIM_SPECDEC_ENABLE="1").argv == plan["argv"]


def test_two_runs_are_byte_equal_and_create_nothing_but_facts(launcher: Installation, models: Path) -> None:
    words = ("plan", "--json", str(models / "mtp"))
    first = launcher.run(*words, NIM_SPECDEC_ENABLE="1")
    created = sorted(
        path.relative_to(launcher.folder).parts[:2] for path in (launcher.folder / "cache").rglob("*.json")
    )
    assert set(created) == {("cache", "facts")}
    assert not (launcher.folder / "workspace").exists()
    assert launcher.run(*words, NIM_SPECDEC_ENABLE="1").out == first.out


def test_dry_run_is_plan(launcher: Installation, models: Path) -> None:
    planned = launcher.run("plan", str(models / "mtp"))
    for words in (("serve", str(models / "mtp"), "--dry-run"), (str(models / "mtp"), "--dry-run")):
        assert launcher.run(*words).out == planned.out


def test_the_text_shows_what_matters(launcher: Installation, models: Path) -> None:
    out = launcher.run("plan", str(models / "mtp"), "--max-num-seqs", "3", NIM_SPECDEC_ENABLE="1").out
    for piece in (
        "served as mtp",
        "+ mtp:",
        "--max-num-seqs 3  [command line]",
        "HF_HUB_OFFLINE=1",
        "--speculative-config",
    ):
        assert piece in out, out


def test_an_unfit_draft_still_gives_a_plan(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "plan",
        "--json",
        str(models / "plain"),
        "--speculative-config",
        EAGLE3,
        NIM_DRAFT_MODEL_PATH=str(models / "eagle3-hidden"),
    )
    plan = json.loads(ran.out)
    assert ran.code == 8
    assert list(plan) == [*KEYS, "error"]
    assert plan["error"]["code"] == 8
    assert [check["code"] for check in plan["checks"] if not check["ok"]].count(8) >= 1


def test_a_configuration_error_gives_the_short_document(launcher: Installation, models: Path) -> None:
    ran = launcher.run("plan", "--json", str(models / "plain"), "--speculative-config", '{"method": "ngrm"}')
    plan = json.loads(ran.out)
    assert (ran.code, list(plan)) == (2, ["schema", "launcher", "error", "warnings"])
    assert "ngram" in plan["error"]["message"] + plan["error"]["hint"]


def test_secrets_are_masked(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "plan", "--json", str(models / "plain"), "--api-key", "planted-key-1", HF_TOKEN="hf_plantedplantedplanted"
    )
    assert "planted" not in ran.out + ran.err
    assert json.loads(ran.out)["environment"]["VLLM_API_KEY"] == "***"


def test_all_problems_are_shown_and_the_first_code_decides(launcher: Installation) -> None:
    ran = launcher.run("plan", "/no/such/folder", "--max-num-seqz", "3", NIM_PASSTHROUGH_ARGS="--prot 1")
    assert ran.code == 2
    assert "--max-num-seqs" in ran.err and "--port" in ran.err
