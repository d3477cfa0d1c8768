"""The launcher's process as others see it: argv and environment of what it executes, output, exit code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.standin import ATTACHED, Installation, install, stop
from tests.models import write, write_snapshot

DOCUMENTED_NGRAM = (
    '{"speculative_config": "{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3, '
    '\\"prompt_lookup_max\\": 4, \\"prompt_lookup_min\\": 1}"}'
)
BRING_YOUR_OWN = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'


def test_vllm_gets_the_workspace_and_a_name(launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", NIM_MODEL_PATH=str(models / "plain"))
    assert ran.code == 0, ran.err
    assert ran.argv == [
        str(launcher.folder / "bin" / "vllm"),
        "serve",
        str(launcher.folder / "workspace"),
        *ATTACHED,
        "--served-model-name",
        "plain",
    ]
    assert (launcher.folder / "workspace" / "config.json").read_bytes() == (models / "plain/config.json").read_bytes()


def test_vllm_is_the_very_process_that_was_started(launcher: Installation, models: Path) -> None:
    process = launcher.start("serve", str(models / "plain"))
    record = json.loads((launcher.folder / "record.json").read_text())
    assert (record["pid"], record["parent"], record["term_default"]) == (process.pid, os.getpid(), True)
    assert stop(process) == 0


def test_its_exit_code_is_ours(launcher: Installation, models: Path) -> None:
    assert launcher.run("serve", str(models / "plain"), STANDIN_EXIT="37").code == 37


@pytest.mark.parametrize("words", [(), ("serve",), ("nim-serve",)], ids=["nothing", "serve", "nim-serve"])
def test_serving_is_the_default_action(words: tuple[str, ...], launcher: Installation, models: Path) -> None:
    ran = launcher.run(*words, NIM_MODEL_PATH=str(models / "plain"))
    assert ran.argv[1] == "serve"


def test_flags_alone_mean_serve(launcher: Installation, models: Path) -> None:
    ran = launcher.run("--max-num-seqs", "7", NIM_MODEL_PATH=str(models / "plain"))
    assert ran.argv[-2:] == ["--max-num-seqs", "7"]


def test_a_positional_model_beats_the_variable(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), "--seed=-1", NIM_MODEL_PATH="/nowhere")
    assert ran.code == 0, ran.err
    assert ran.argv[3:] == [*ATTACHED, "--served-model-name", "plain", "--seed=-1"]


def test_a_program_is_run_as_it_is(launcher: Installation) -> None:
    ran = launcher.run("sh", "-c", "echo $NIM_MODEL_PATH", NIM_MODEL_PATH="$(touch pwned)")
    assert (ran.code, ran.out, ran.err) == (0, "$(touch pwned)\n", "")


def test_an_executable_with_a_path_is_a_program(launcher: Installation) -> None:
    assert launcher.run("/bin/echo", "hello").out == "hello\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plna",), 2, "'plan'"),
        (("mirror",), 2, "create-model-store"),
        (("nim-serve-ray",), 2, "NIM_NUM_COMPUTE_NODES"),
        (("verify", "/no/such/folder"), 3, "nearest existing parent"),
        (("download-model",), 2, "no model is named"),
        (("download-model", "--workspace-path"), 2, "--workspace-path names no folder"),
        ((), 2, "no model is named"),
        (("org/model",), 2, "neither an action, nor a model, nor a program"),
        (("/no/such/folder",), 3, "nearest existing parent"),
        (("plan", "/no/such/folder"), 3, "nearest existing parent"),
        (("--json",), 2, "--dry-run"),
    ],
)
def test_refusals_before_any_model(words: tuple[str, ...], code: int, said: str, launcher: Installation) -> None:
    ran = launcher.run(*words)
    assert (ran.code, ran.record) == (code, None), ran.err
    assert said in ran.last_line
    assert "Traceback" not in ran.err


def test_a_model_is_prepared_without_being_served(launcher: Installation, models: Path) -> None:
    place = launcher.folder / "prepared"
    ran = launcher.run("download-model", "--workspace-path", str(place), str(models / "plain"), "--seed=1")
    assert (ran.code, ran.out, ran.record) == (0, f"{place}\n", None), ran.err
    assert (place / "config.json").read_bytes() == (models / "plain/config.json").read_bytes()
    served = launcher.run("serve", str(models / "plain"), "--seed=1", NIM_WORKSPACE=str(place))
    assert served.argv[2] == str(place)


def test_help_and_version(launcher: Installation) -> None:
    assert "serve" in launcher.run("--help").out
    assert launcher.run("serve", "--help").out.startswith("Usage: launcher serve")
    assert launcher.run("--version").out.startswith("specdec-launcher")


@pytest.mark.parametrize("words", ["ngram", "command line", "passthrough"])
def test_the_documented_ngram_commands(words: str, launcher: Installation, models: Path) -> None:
    """NIM's guide: the override in its nested-string form, and the model-free command."""
    inner = json.loads(json.loads(DOCUMENTED_NGRAM)["speculative_config"])
    environ = {"NIM_MODEL_PATH": str(models / "mtp")}
    arguments: tuple[str, ...] = ()
    if words == "ngram":
        environ |= {"NIM_SPECDEC_ENABLE": "1", "NIM_SPECDEC_ARGS": DOCUMENTED_NGRAM}
    elif words == "command line":
        arguments = ("--speculative-config", json.dumps(inner))
    else:
        environ["NIM_PASSTHROUGH_ARGS"] = f"--speculative-config '{json.dumps(inner)}'"
    ran = launcher.run(*arguments, **environ)
    assert ran.code == 0, ran.err
    assert ran.speculative == inner


def test_the_documented_draft_commands(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "--speculative-config",
        BRING_YOUR_OWN,
        NIM_MODEL_PATH=str(models / "plain"),
        NIM_DRAFT_MODEL_PATH=str(models / "eagle3"),
    )
    assert ran.code == 0, ran.err
    draft = launcher.folder / "workspace" / "eagle3_draft"
    assert ran.speculative == {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
    assert draft.readlink() == models / "eagle3"


def test_the_documented_mtp_command(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}', NIM_MODEL_PATH=str(models / "mtp")
    )
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 1}


def test_the_automatic_choice_is_explained(launcher: Installation, models: Path) -> None:
    ran = launcher.run(NIM_MODEL_PATH=str(models / "mtp"), NIM_SPECDEC_ENABLE="1")
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 1}
    assert "speculative decoding: mtp, num_speculative_tokens=1" in ran.err


def test_json_is_one_word_and_byte_for_byte(launcher: Installation, models: Path) -> None:
    """No shell anywhere: what looks like one is data."""
    overrides = '{"a":{"b":"$(touch /tmp/pwned) `x` \\"q\\" é"}}'
    ran = launcher.run(str(models / "plain"), "--hf-overrides", overrides)
    assert ran.argv[-2:] == ["--hf-overrides", overrides]


def test_everything_local_means_offline(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"))
    assert ran.record is not None
    environ = ran.record["environ"]
    assert (environ["HF_HUB_OFFLINE"], environ["TRANSFORMERS_OFFLINE"]) == ("1", "1")
    assert (environ["VLLM_NO_USAGE_STATS"], environ["DO_NOT_TRACK"]) == ("1", "1")


def test_secrets_go_by_environment(launcher: Installation, models: Path, tmp_path: Path) -> None:
    key, token = "sk-planted-client-key", "hf_plantedplantedplanted"
    (tmp_path / "token").write_text(f"{token}\n")
    ran = launcher.run(str(models / "plain"), "--api-key", key, HF_TOKEN_FILE=str(tmp_path / "token"))
    assert ran.record is not None, ran.err
    assert (ran.record["environ"]["VLLM_API_KEY"], ran.record["environ"]["HF_TOKEN"]) == (key, token)
    shown = ran.err + ran.out + json.dumps(ran.argv)
    assert key not in shown and token not in shown


def test_a_token_among_the_arguments_goes_by_environment(launcher: Installation, models: Path) -> None:
    token = "hf_plantedplantedplanted"
    ran = launcher.run(str(models / "plain"), NIM_PASSTHROUGH_ARGS=f"--hf-token {token}")
    assert ran.record is not None, ran.err
    assert ran.record["environ"]["HF_TOKEN"] == token
    assert token not in ran.err + ran.out + json.dumps(ran.argv)
    assert "--hf-token" not in ran.argv and "--hf-token" in ran.err


def test_several_keys_go_by_a_private_file(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), "--api-key", "first-planted", "second-planted")
    assert ran.code == 0, ran.err
    path = Path(ran.argv[ran.argv.index("--config") + 1])
    assert json.loads(path.read_text()) == {"api-key": ["first-planted", "second-planted"]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert "planted" not in ran.err + json.dumps(ran.argv)


def test_a_port_from_a_service_link_is_dropped(launcher: Installation, models: Path) -> None:
    ran = launcher.run(str(models / "plain"), VLLM_PORT="tcp://10.0.0.1:80", NIM_SERVER_PORT="tcp://10.0.0.1:8000")
    assert ran.code == 0, ran.err
    assert ran.record is not None and "VLLM_PORT" not in ran.record["environ"]
    assert "--port" not in ran.argv
    assert "enableServiceLinks: false" in ran.err


def test_a_snapshot_of_the_hub_cache(launcher: Installation, tmp_path: Path) -> None:
    snapshot = write_snapshot("mtp", tmp_path / "hub", "org/name")
    ran = launcher.run(NIM_MODEL_PATH=str(snapshot), NIM_SPECDEC_ENABLE="1")
    assert ran.code == 0, ran.err
    assert ran.argv[ran.argv.index("--served-model-name") + 1] == "org/name"
    assert (Path(ran.argv[2]) / "model.safetensors").is_file()
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 1}


@pytest.mark.parametrize("place", ["eagle3-lab", "Eagle-lab", "dspark"])
def test_a_target_path_does_not_change_the_method(place: str, launcher: Installation, tmp_path: Path) -> None:
    target = write("mtp", tmp_path / place / "target")
    ran = launcher.run(
        str(target), NIM_SPECDEC_ENABLE="1", NIM_WORKSPACE=str(tmp_path / place / "ws"), TMPDIR=str(tmp_path / place)
    )
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "mtp"
    handed = ran.argv[2].lower()
    assert not any(word in handed for word in ("eagle-", "eagle3", "dflash", "dspark"))
    assert (Path(ran.argv[2]) / "config.json").is_file()


def test_a_draft_path_does_not_change_the_method(launcher: Installation, models: Path, tmp_path: Path) -> None:
    draft = write("draft", tmp_path / "eagle3-lab" / "draft")
    ran = launcher.run(
        str(models / "plain"), "--speculative-config", json.dumps({"method": "draft_model", "model": str(draft)})
    )
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "draft_model"
    assert "eagle3" not in ran.speculative["model"]
    assert (Path(ran.speculative["model"]) / "config.json").is_file()


def test_an_absolute_draft_is_used_as_it_is(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        str(models / "plain"), "--speculative-config", json.dumps({"method": "eagle3", "model": str(models / "eagle3")})
    )
    assert ran.speculative["model"] == str(models / "eagle3")


def test_two_servers_on_one_workspace(launcher: Installation, models: Path) -> None:
    first = launcher.start("serve", str(models / "plain"))
    second = launcher.run("serve", str(models / "mtp"))
    assert second.argv[2] == f"{launcher.folder}/workspace.2"
    assert "in use" in second.err
    assert stop(first) == 0
    assert launcher.run("serve", str(models / "mtp")).argv[2] == f"{launcher.folder}/workspace"


def test_an_interrupted_start_has_its_own_codes(launcher: Installation, models: Path, tmp_path: Path) -> None:
    """A start that waits (here for a named pipe in place of a secret's file) ends within a moment."""
    import signal
    import time

    os.mkfifo(tmp_path / "pipe")
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = subprocess.Popen(
            launcher.command(["serve", str(models / "plain")]),
            env=launcher.environment({"HF_TOKEN_FILE": str(tmp_path / "pipe")}),
            stderr=subprocess.PIPE,
            text=True,
        )
        writer = os.open(tmp_path / "pipe", os.O_WRONLY)  # waits until the launcher reads
        process.send_signal(number)
        begin = time.monotonic()
        _, err = process.communicate(timeout=10)
        os.close(writer)
        assert (process.returncode, time.monotonic() - begin < 2) == (code, True)
        assert "Traceback" not in err


def test_no_vllm_at_all(tmp_path: Path, models: Path) -> None:
    bare = install(tmp_path / "bare", None)
    planned = bare.run("plan", "--json", str(models / "mtp"), NIM_SPECDEC_ENABLE="1", PATH="/usr/bin:/bin")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["vllm"] == {"version": "0.32.0", "installed": False}
    served = bare.run("serve", str(models / "mtp"), PATH="/usr/bin:/bin")
    assert served.code == 2
    assert "no vllm" in served.last_line


@pytest.mark.parametrize(
    ("version", "code", "said"),
    [
        ("0.28.1", 2, "older"),
        ("0.29.1.dev3+cpu", 0, ""),
        ("0.33.2", 0, ""),
        ("0.34.0", 0, "newer than what this launcher"),
    ],
)
def test_which_versions_are_served(version: str, code: int, said: str, tmp_path: Path, models: Path) -> None:
    ran = install(tmp_path / "venv", version).run("serve", str(models / "plain"))
    assert ran.code == code, ran.err
    assert said in ran.err


def test_the_newest_table_lets_unknown_flags_pass(tmp_path: Path, models: Path) -> None:
    ran = install(tmp_path / "venv", "0.40.0").run("serve", str(models / "plain"), "--brand-new", "x")
    assert ran.argv[-2:] == ["--brand-new", "x"]
    assert "--brand-new" in ran.err


def test_lora_adapters(launcher: Installation, models: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapters" / "sql"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text('{"r": 12}')
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    ran = launcher.run(str(models / "plain"), NIM_PEFT_SOURCE=str(tmp_path / "adapters"))
    assert ran.code == 0, ran.err
    assert ["--enable-lora", "--lora-modules", f"sql={adapter}", "--max-lora-rank", "16"] == [
        word for word in ran.argv[5:] if word not in ("--served-model-name", "plain")
    ]


def test_the_reason_also_stands_in_json_lines(launcher: Installation) -> None:
    ran = launcher.run("serve", "/no/such/folder", NIM_JSONL_LOGGING="1")
    record = json.loads(ran.last_line)
    assert record["level"] == "ERROR"
    assert "nearest existing parent" in record["message"]
