"""Which launches get the middleware, and what it is told."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.middleware.configuration import LONGEST, VARIABLE
from tests.integration.standin import ATTACHED, REPOSITORY, Installation, Ran

EAGLE3 = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'


def told(ran: Ran) -> Any:
    assert ran.record is not None, ran.err
    return json.loads(ran.record["environ"][VARIABLE])


def test_it_is_told_what_was_decided(launcher: Installation, models: Path) -> None:
    words = ("serve", str(models / "plain"), "--speculative-config", EAGLE3)
    ran = launcher.run(*words, NIM_DRAFT_MODEL_PATH=str(models / "eagle3"))
    found = told(ran)
    assert (found["engine"], found["models"][0]["name"]) == ("0.32.0+cpu", "plain")
    assert [model["folder"] for model in found["models"]] == [str(models / "plain"), str(models / "eagle3")]
    spoken = found["speculation"]
    assert (spoken["enabled"], spoken["method"], spoken["num_speculative_tokens"]) == (True, "eagle3", 3)
    assert f"{VARIABLE}={{...}}" in ran.err  # the log names it, and does not drown in it


def test_it_is_told_of_a_fallback(launcher: Installation, models: Path) -> None:
    config = json.dumps({"method": "eagle3", "model": f"{models}/eagle3-vocab"})
    words = ("serve", str(models / "plain"), "--speculative-config", config)
    spoken = told(launcher.run(*words, NIM_SPECDEC_POLICY="fallback"))["speculation"]
    assert (spoken["enabled"], spoken["method"]) == (False, None)
    assert spoken["fallback"].startswith("the vocabulary of the draft")


def test_the_users_own_stand_around_it(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "serve", str(models / "plain"), "--middleware", "b.B", NIM_PASSTHROUGH_ARGS="--middleware=a.A --middleware c.C"
    )
    given = [word for word in ran.argv if "iddleware" in word or word in ("b.B", "c.C")]
    assert given == [*ATTACHED, "--middleware=a.A", "--middleware", "c.C", "--middleware", "b.B"]


@pytest.mark.parametrize("value", ["1", "2", "yes"])
def test_what_would_disable_it_is_refused(value: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), VLLM_USE_RUST_FRONTEND=value)
    assert (ran.code, ran.record) == (2, None)
    assert f"VLLM_USE_RUST_FRONTEND={value} would replace the HTTP server" in ran.last_line
    assert "Unset VLLM_USE_RUST_FRONTEND" in ran.last_line


@pytest.mark.parametrize("value", ["0", "", " "])
def test_what_does_not_disable_it_is_not(value: str, launcher: Installation, models: Path) -> None:
    assert launcher.run("serve", str(models / "plain"), VLLM_USE_RUST_FRONTEND=value).argv[3:5] == ATTACHED


@pytest.mark.parametrize(("flag", "warned"), [("--headless", False), ("--grpc", True)])
def test_no_http_server_no_middleware(flag: str, warned: bool, launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), flag)
    assert ran.record is not None and VARIABLE not in ran.record["environ"]
    assert "--middleware" not in ran.argv
    assert ("no health routes, metrics or captures" in ran.err) is warned


def test_a_vllm_of_another_interpreter(launcher: Installation, models: Path, tmp_path: Path) -> None:
    script = launcher.folder / "bin" / "vllm"
    other = tmp_path / "other" / "bin"
    other.mkdir(parents=True)
    python = other / "python3"
    python.write_text(f'#!/bin/sh\nexec {launcher.python} "$@"\n')
    moved = other / "vllm"
    moved.write_text(script.read_text().replace(str(launcher.python), str(python), 1))
    for path in (python, moved):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "other" / "lib" / "python3.11" / "site-packages" / "vllm-0.32.0+cpu.dist-info").mkdir(parents=True)
    script.unlink()
    ran = launcher.run("serve", str(models / "plain"), PATH=f"{other}:{os.environ['PATH']}", VLLM_USE_RUST_FRONTEND="1")
    assert ran.code == 0, ran.err
    assert "the launcher's middleware is left out" in ran.err
    assert "--middleware" not in ran.argv


def test_a_launcher_that_vllm_would_not_find(launcher: Installation, models: Path) -> None:
    for link in launcher.folder.glob("lib/python3.*/site-packages/launcher.pth"):
        link.unlink()
    done = subprocess.run(
        launcher.command(["plan", str(models / "plain")]),
        env=launcher.environment({}),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "its middleware is left out" in done.stderr
    assert "--middleware" not in done.stdout


def test_neither_a_secret_nor_too_much(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "serve",
        str(models / "plain"),
        "--api-key",
        "clients-own-key",
        NIM_REPOSITORY_OVERRIDE="https://user:passw0rd-1@mirror.example/x",
        NIM_SERVED_MODEL_NAME="plain," + ",".join(f"name-{number}" for number in range(5000)),
    )
    assert ran.record is not None, ran.err
    text = ran.record["environ"][VARIABLE]
    assert len(text) < LONGEST
    assert "passw0rd" not in text and "clients-own-key" not in text
    assert json.loads(text)["repository_override"] == "https://***@mirror.example/x"
