"""Starts under bad conditions: closed descriptors, odd folders, signals at any moment, full disks, others at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.standin import Installation, stop
from tests.models import write

DRAFT_MODEL = '{"method": "draft_model", "model": "dr"}'


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_closed_descriptors(closed: str, launcher: Installation, models: Path) -> None:
    redirections = " ".join(f"{number}>&-" if number != "0" else "<&-" for number in closed)
    record = launcher.folder / "record.json"
    subprocess.run(
        ["sh", "-c", f"exec {launcher.python} -m launcher serve {models / 'plain'} {redirections}"],
        env=launcher.environment({}),
        check=True,
        timeout=30,
        capture_output=True,
    )
    assert json.loads(record.read_text())["argv"][1] == "serve"


def test_a_second_server_gets_its_own_draft_behind_a_neutral_link(
    launcher: Installation, models: Path, tmp_path: Path
) -> None:
    other = write("draft", tmp_path / "other-draft")
    words = ("serve", str(models / "plain"), "--speculative-config", DRAFT_MODEL)
    environ = {"NIM_WORKSPACE": f"{tmp_path}/eagle3-lab/ws", "TMPDIR": f"{tmp_path}"}
    first = launcher.start(*words, **environ, NIM_DRAFT_MODEL_PATH=str(models / "draft"))
    second = launcher.run(*words, **environ, NIM_DRAFT_MODEL_PATH=str(other))
    assert Path(second.speculative["model"]).resolve() == other
    assert stop(first) == 0


def test_servers_with_other_keys_do_not_share_a_workspace(launcher: Installation, models: Path) -> None:
    first = launcher.start("serve", str(models / "plain"), "--api-key", "one-a", "one-b")
    second = launcher.run("serve", str(models / "plain"), "--api-key", "two-a", "two-b")
    files = [
        launcher.folder / "workspace" / ".specdec-api-keys.yaml",
        Path(second.argv[second.argv.index("--config") + 1]),
    ]
    assert [json.loads(path.read_text())["api-key"][0] for path in files] == ["one-a", "two-a"]
    assert stop(first) == 0
    launcher.run("serve", str(models / "plain"))
    assert not files[0].exists()


def test_ten_at_once(launcher: Installation, models: Path) -> None:
    """Equal plans share a workspace, another plan gets its own; every server sees its own model."""
    processes = []
    for number in range(10):
        name = "plain" if number % 2 else "mtp"
        environ = launcher.environment({"STANDIN_RECORD": f"{launcher.folder}/r{number}", "STANDIN_WAIT": "1"})
        processes.append(
            subprocess.Popen(launcher.command(["serve", str(models / name)]), env=environ, stderr=subprocess.DEVNULL)
        )
    deadline = time.monotonic() + 60
    paths = [Path(f"{launcher.folder}/r{number}") for number in range(10)]
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.05)
    served = [json.loads(path.read_text())["argv"][2] for path in paths]
    for number, workspace in enumerate(served):
        assert (Path(workspace) / "config.json").resolve().parent.name == ("plain" if number % 2 else "mtp")
    assert len(set(served)) == 2
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def default_signals() -> None:
    """In the child: a shell starts background jobs with SIGINT ignored, and a test run may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_at_any_moment(
    number: signal.Signals, code: int, delay: float, launcher: Installation, models: Path
) -> None:
    """Before Python is up the signal itself ends the process; afterwards the code is ours; after exec it is vLLM's."""
    process = subprocess.Popen(
        launcher.command(["serve", str(models / "plain")]),
        env=launcher.environment({"STANDIN_WAIT": "1"}),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    time.sleep(delay)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    if "Traceback" in err:  # the interpreter's own start: nothing of ours was running yet
        assert number == signal.SIGINT
        assert "launcher/" not in err.replace("launcher/__main__.py", "")
    else:
        assert process.returncode in (code, 0, -number)


def test_the_last_line_names_the_signal(launcher: Installation, models: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        launcher.command(["serve", str(models / "plain")]),
        env=launcher.environment({"HF_TOKEN_FILE": str(tmp_path / "pipe"), "NIM_LOG_LEVEL": "ERROR"}),
        stderr=subprocess.PIPE,
        text=True,
    )
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)  # waits until the launcher reads
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)
    os.close(writer)
    assert "stopped by SIGTERM" in err.splitlines()[-1]


@pytest.mark.parametrize("through", ["link to the model", "model given by a link", "cache"])
def test_a_model_folder_is_never_written_to(through: str, launcher: Installation, tmp_path: Path) -> None:
    model = write("plain", tmp_path / "model")
    (tmp_path / "link").symlink_to(model)
    before = sorted(path.name for path in model.iterdir())
    environ = {
        "link to the model": {"NIM_MODEL_PATH": str(model), "NIM_WORKSPACE": f"{tmp_path}/link/ws"},
        "model given by a link": {"NIM_MODEL_PATH": f"{tmp_path}/link", "NIM_WORKSPACE": f"{model}/ws"},
        "cache": {"NIM_MODEL_PATH": str(model), "NIM_CACHE_PATH": str(model)},
    }[through]
    ran = launcher.run(**environ)
    assert (ran.code, "never written to" in ran.last_line) == (2, True), ran.err
    assert sorted(path.name for path in model.iterdir()) == before


def test_plan_and_serve_agree_on_an_impossible_workspace(launcher: Installation, models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    codes = [
        launcher.run(action, str(models / "plain"), NIM_WORKSPACE=f"{tmp_path}/file").code
        for action in ("plan", "serve")
    ]
    assert codes == [2, 2]


def test_all_problems_at_once_and_the_lowest_code(launcher: Installation) -> None:
    ran = launcher.run("serve", "/nope", "--bogus", HF_TOKEN_FILE="/none", NIM_WORKSPACE="relative")
    assert ran.code == 2
    assert "--bogus" in ran.err and "HF_TOKEN_FILE" in ran.err
    ran = launcher.run("serve", "/nope", NIM_DRAFT_MODEL_PATH="/no-draft", NIM_SPECDEC_ENABLE="1")
    assert ran.code == 3
    assert "command line: /nope does not exist" in ran.err
    assert "NIM_DRAFT_MODEL_PATH: /no-draft does not exist" in ran.err


def test_a_missing_folder_names_its_setting(launcher: Installation) -> None:
    assert "NIM_MODEL_PATH: /none does not exist" in launcher.run(NIM_MODEL_PATH="/none").last_line


def test_output_that_cannot_be_encoded_or_written(launcher: Installation, models: Path) -> None:
    odd = launcher.run("plan", "--json", "/tmp/\udcff", PYTHONIOENCODING="ascii")
    assert (odd.code, json.loads(odd.out)["error"]["code"]) == (3, 3)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            launcher.command(["plan", str(models / "plain")]), env=launcher.environment({}), stdout=full, check=False
        )
    assert done.returncode == 6


@pytest.mark.parametrize("words", [("mirror",), ("foo",), ("report",), ("download-to-cache",)])
def test_json_lines_everywhere(words: tuple[str, ...], launcher: Installation) -> None:
    ran = launcher.run(*words, NIM_JSONL_LOGGING="1")
    assert ran.code == 2
    levels = [json.loads(line)["level"] for line in ran.err.splitlines()]
    assert levels[-1] == "ERROR" and set(levels) <= {"WARNING", "ERROR"}


def test_words_behind_two_dashes_are_vllms(launcher: Installation, models: Path) -> None:
    assert launcher.run(str(models / "plain"), "--", "--dry-run").argv[-2:] == ["--", "--dry-run"]
    ran = launcher.run("serve", "--", str(models / "plain"))
    assert (ran.code, "stands behind '--'" in ran.last_line) == (2, True)


def test_json_behind_the_model_is_explained(launcher: Installation, models: Path) -> None:
    ran = launcher.run("plan", str(models / "plain"), "--json")
    assert (ran.code, "right behind 'plan'" in ran.last_line) == (2, True)


def test_without_vllm_that_is_said_first(tmp_path: Path) -> None:
    from tests.integration.standin import install

    ran = install(tmp_path / "bare", None).run("serve", "/nope", PATH="/usr/bin:/bin")
    assert (ran.code, "no vllm" in ran.last_line, "/nope" in ran.err) == (2, True, True)
