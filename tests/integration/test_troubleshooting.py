"""The lines that docs/troubleshooting.md shows are lines that the launcher writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.standin import REPOSITORY, Installation

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
EAGLE3 = '{"method": "eagle3", "model": "%s", "num_speculative_tokens": 3}'


@pytest.mark.parametrize(
    ("target", "speculative", "environ"),
    [
        ("plain", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookupmax": 4}', {}),
        ("plain", EAGLE3 % "/tmp/model/speculator/x", {}),
        ("plain", EAGLE3 % "eagle3_draft", {}),
        ("plain", EAGLE3 % "eagle3_draft", {"NIM_DRAFT_MODEL_PATH": "eagle3-hidden"}),
        ("mtp-stripped", '{"method": "mtp", "num_speculative_tokens": 1}', {}),
        ("plain", None, {"NIM_DRAFT_MODEL_PATH": "eagle3"}),
        ("plain", None, {"NIM_SPECDEC_ARGS": '{"speculative_config": {"method": "ngram"}}'}),
        ("plain", None, {"NIM_ENGINE_CONFIG": '{"speculative-config.methd": "ngram"}'}),
    ],
)
def test_a_line_of_the_page(
    target: str, speculative: str | None, environ: dict[str, str], launcher: Installation, models: Path
) -> None:
    draft = environ.get("NIM_DRAFT_MODEL_PATH")
    if draft:
        environ = {**environ, "NIM_DRAFT_MODEL_PATH": str(models / draft)}
    words = ("--speculative-config", speculative) if speculative else ()
    ran = launcher.run("plan", str(models / target), *words, **environ)
    said = [line.partition("] ")[2] for line in ran.err.splitlines() if line.startswith(("WARNING", "ERROR"))]
    shown = (
        said[-1].replace(str(models / target), "/models/target").replace(str(models / (draft or "-")), "/models/draft")
    )
    pieces = shown.split(". ")[0].split(": dynamo-vllm")[0]
    assert pieces in PAGE
