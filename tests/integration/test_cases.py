"""Faults that other launchers shipped, as small inputs with the right outcome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.standin import Installation
from tests.models import write, write_snapshot

OPERATOR = {
    "NIM_SERVER_PORT": "8000",
    "NIM_HTTP_API_PORT": "8000",
    "NIM_JSONL_LOGGING": "1",
    "NIM_LOG_LEVEL": "INFO",
    "NIM_SDK_USE_NATIVE_TLS": "1",
    "OUTLINES_CACHE_DIR": "/tmp/outlines",
}


def test_a_misspelt_variable_is_never_silent(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), NIM_SPECDEC_ENABEL="1", NIM_DRAFT_MODEL="/x", NIM_KVCACHE_PERCENT="0.8")
    assert ran.code == 0
    assert "did you mean NIM_SPECDEC_ENABLE?" in ran.err
    assert "did you mean NIM_DRAFT_MODEL_PATH?" in ran.err
    assert ran.argv[ran.argv.index("--gpu-memory-utilization") + 1] == "0.8"  # an old name, still honoured


def test_strict_mode_refuses_it(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), NIM_SPECDEC_ENABEL="1", NIM_STRICT="1")
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_SPECDEC_ENABLE" in ran.last_line


@pytest.mark.parametrize("strict", ["", "1"])
def test_the_operators_variables_always_pass(strict: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), **OPERATOR, NIM_STRICT=strict)
    assert ran.code == 0, ran.err
    assert ran.argv[ran.argv.index("--port") + 1] == "8000"


@pytest.mark.parametrize("value", ["None", "null", "2", "enabled", "tru"])
def test_a_word_that_is_no_boolean_is_an_error(value: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "mtp"), NIM_SPECDEC_ENABLE=value)
    assert ran.code == 2
    assert "NIM_SPECDEC_ENABLE" in ran.last_line


@pytest.mark.parametrize("value", [" True ", "YES", "on", "1"])
def test_booleans_in_any_dress(value: str, launcher: Installation, models: Path) -> None:
    assert launcher.run(str(models / "mtp"), NIM_SPECDEC_ENABLE=value).speculative["method"] == "mtp"


def test_a_path_with_a_space_and_a_second_model(launcher: Installation, tmp_path: Path) -> None:
    model = write("plain", tmp_path / "my model")
    assert launcher.run(NIM_MODEL_PATH=str(model)).argv[-1] == "my model"
    ran = launcher.run(NIM_MODEL_PATH=str(model), NIM_PASSTHROUGH_ARGS="--model x")
    assert (ran.code, ran.record) == (2, None)
    assert "second model" in ran.last_line


@pytest.mark.parametrize(
    ("place", "name"), [("llama-3.1:8b", "llama-3.1-8b"), ("snap/", "snap")], ids=["colon", "trailing slash"]
)
def test_the_served_name_is_no_path(place: str, name: str, launcher: Installation, tmp_path: Path) -> None:
    write("plain", tmp_path / place.rstrip("/"))
    ran = launcher.run(NIM_MODEL_PATH=f"{tmp_path}/{place}")
    assert ran.argv[ran.argv.index("--served-model-name") + 1] == name


def test_a_bare_snapshot_hash_is_no_name(launcher: Installation, tmp_path: Path) -> None:
    snapshot = write_snapshot("plain", tmp_path, "meta-llama/Llama-3.1-8B")
    ran = launcher.run(NIM_MODEL_PATH=str(snapshot))
    assert ran.argv[ran.argv.index("--served-model-name") + 1] == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    "text",
    [
        '{"speculative_config": "{\\"method\\":\\"mtp\\"}"}',
        '{"speculative_config": {"method": "mtp"}}',
        '{"speculative_config": "{\\\\\\"method\\\\\\":\\\\\\"mtp\\\\\\"}"}',
        '\n{"speculative_config":\n  {"method": "mtp"}}\n',
        '\'{"speculative_config": {"method": "mtp"}}\'',
    ],
    ids=["string", "object", "one escape too many", "multi-line", "env-file quotes"],
)
def test_json_in_every_dress_people_give_it(text: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "mtp"), NIM_SPECDEC_ENABLE="1", NIM_SPECDEC_ARGS=text)
    assert ran.code == 0, ran.err
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{“speculative_config”: null}", "“"),
        ('{"speculative_config": {"method": "mtp",}}', "comma"),
        ('\ufeff{"speculative_config": null}', "byte order mark"),
        ('{"speculative_config":\u00a0null}', "no-break space"),
    ],
    ids=["curly quotes", "trailing comma", "BOM", "NBSP"],
)
def test_json_that_an_editor_spoilt(text: str, said: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "mtp"), NIM_SPECDEC_ENABLE="1", NIM_SPECDEC_ARGS=text)
    assert ran.code == 2
    assert said in ran.err.lower() and "NIM_SPECDEC_ARGS" in ran.err


def test_parts_of_one_configuration_from_three_places(launcher: Installation, tmp_path: Path) -> None:
    model = write("mtp", tmp_path / "m")
    (model / "runtime_config.json").write_text(
        '{"speculative_config": {"method": "mtp"}, "max_num_seqs": 5, "seed": 1}'
    )
    ran = launcher.run(
        str(model),
        "--speculative-config.num_speculative_tokens",
        "2",
        NIM_SPECDEC_ENABLE="1",
        NIM_SPECDEC_ARGS='{"seed": 2}',
    )
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 2}
    assert ran.argv[ran.argv.index("--max-num-seqs") + 1] == "5"
    assert ran.argv[ran.argv.index("--seed") + 1] == "2"


@pytest.mark.parametrize("name", ["eagle3.v1", "gpt2"])
def test_a_bare_draft_name_never_reaches_vllm(name: str, launcher: Installation, models: Path) -> None:
    """vLLM would import the first as a Python class and fetch the second from a hub."""
    words = (str(models / "plain"), "--speculative-config", json.dumps({"model": name}))
    ran = launcher.run(*words)
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_DRAFT_MODEL_PATH" in ran.last_line
    with_draft = launcher.run(*words, NIM_DRAFT_MODEL_PATH=str(models / "eagle3"))
    assert with_draft.speculative["model"] == f"{launcher.folder}/workspace/{name}"
    assert with_draft.speculative["method"] == "eagle3"


def test_a_misspelt_speculative_key(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "mtp"), "--speculative-config", '{"method": "mtp", "num_speculative_tokrns": 1}')
    assert ran.code == 2
    assert "num_speculative_tokens" in ran.last_line


def test_a_missing_path_is_not_taken_for_a_hub_id(launcher: Installation, models: Path) -> None:
    ran = launcher.run(NIM_MODEL_PATH="/mnt/missing")
    assert (ran.code, "nearest existing parent is /mnt" in ran.last_line) == (3, True)
    ran = launcher.run(str(models / "plain"), NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH="models/draft")
    assert (ran.code, "hf://models/draft" in ran.last_line) == (2, True)


def test_files_that_are_not_what_they_claim(launcher: Installation, tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for content, said in ((pointer, "Git-LFS"), (b"<!DOCTYPE html><html></html>", "HTML"), (b"\xff" * 64, "header")):
        model = write("plain", tmp_path / said)
        (model / "model.safetensors").write_bytes(content)
        ran = launcher.run(str(model))
        assert (ran.code, ran.record) == (7, None), ran.err
        assert said in ran.last_line and "model.safetensors" in ran.last_line


def test_an_index_that_names_absent_shards(launcher: Installation, tmp_path: Path) -> None:
    model = write("plain", tmp_path / "m", shards=3)
    (model / "model-00002-of-00003.safetensors").unlink()
    ran = launcher.run(str(model))
    assert ran.code == 7
    assert "model-00002-of-00003.safetensors" in ran.last_line


def test_a_link_to_another_draft_is_replaced(launcher: Installation, models: Path) -> None:
    words = (str(models / "plain"), "--speculative-config", '{"method": "eagle3", "model": "draft"}')
    for draft in ("eagle3", "eagle3-small-vocab"):
        assert launcher.run(*words, NIM_DRAFT_MODEL_PATH=str(models / draft)).code == 0
        assert (launcher.folder / "workspace" / "draft").readlink() == models / draft


def test_a_full_pipe_or_a_closed_one_does_not_stop_a_plan(launcher: Installation, models: Path) -> None:
    import subprocess

    done = subprocess.run(
        ["sh", "-c", f"{launcher.python} -m launcher plan {models / 'mtp'} | true"],
        env=launcher.environment({}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
