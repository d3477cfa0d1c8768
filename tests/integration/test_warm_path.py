"""A warm start pays for nothing that it does not need."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.standin import Installation

BANNED = (
    "vllm",
    "torch",
    "transformers",
    "boto3",
    "google",
    "huggingface_hub",
    "httpx",
    "requests",
    "pydantic",
    "rich",
    "asyncio",
    "yaml",
    "msgspec",
    "attrs",
    "attr",
    "click",
    "inspect",
    "dataclasses",
    "importlib.metadata",
    "logging",
    "argparse",
    "difflib",
    "subprocess",
    "typing",
    "contextlib",
    "pathlib",
    "shlex",
    "zlib",
    "hashlib",
    "pynvml",
)


def imported(launcher: Installation, words: Sequence[str], environ: dict[str, str]) -> set[str]:
    """Every module that the process imported up to the exec, by the interpreter's own account."""
    # As the console script does it: "-m" would bring runpy's own imports.
    start = "import sys; from launcher.__main__ import main; sys.exit(main())"
    command = [str(launcher.python), "-X", "importtime", "-c", start, *words]
    done = subprocess.run(command, env=launcher.environment(environ), capture_output=True, text=True, check=True)
    # What follows the announcement of the exec was imported by the program that took over.
    before = done.stderr.partition("] exec: ")[0]
    return {line.rpartition("|")[2].strip() for line in before.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("case", ["automatic", "draft", "passthrough"])
def test_what_serve_imports(case: str, launcher: Installation, models: Path) -> None:
    words = ["serve", str(models / "mtp")]
    environ = {"NIM_SPECDEC_ENABLE": "1"}
    if case == "draft":
        words += ["--speculative-config", json.dumps({"method": "eagle3", "model": "d"})]
        environ = {"NIM_DRAFT_MODEL_PATH": str(models / "eagle3-mla")}
    elif case == "passthrough":
        environ["NIM_SPECDEC_ARGS"] = '{"speculative_config": {"method": "ngram"}}'
    found = imported(launcher, words, environ)
    assert "launcher.commands.serve" in found
    heavy = {name for name in found for banned in BANNED if name == banned or name.startswith(f"{banned}.")}
    assert heavy == set()
