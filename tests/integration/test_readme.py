"""What README.md shows of a plan is what `launcher plan` prints."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.integration.standin import REPOSITORY, Installation
from tests.models import write

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def shown(command: str) -> list[str]:
    """The lines below a command in a code block, up to a line that leaves the rest out."""
    block = textwrap.dedent("    $ " + README.partition(f"    $ {command}\n")[2].partition("\n\n")[0]).splitlines()
    return [line.removeprefix("$ ").strip() for line in block[: block.index("…")]]


def test_the_plan_of_a_model_with_a_head(launcher: Installation, tmp_path: Path) -> None:
    folder = write("mtp", tmp_path / "target")
    ran = launcher.run("plan", NIM_MODEL_PATH=str(folder), NIM_SPECDEC_ENABLE="1")
    assert ran.code == 0, ran.err
    printed = [line.strip() for line in ran.out.replace(str(folder), "/models/target").splitlines()]
    lines = shown("NIM_MODEL_PATH=/models/target NIM_SPECDEC_ENABLE=1 launcher plan")
    assert len(lines) == 10
    for line, found in zip(lines, printed, strict=False):
        assert found.startswith(line.removesuffix("…")), (line, found)


def test_the_refusal_of_a_draft_that_does_not_fit(launcher: Installation, tmp_path: Path) -> None:
    target, draft = write("plain", tmp_path / "plain"), write("eagle3-hidden", tmp_path / "other")
    speculative = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'
    ran = launcher.run(
        "serve", "--speculative-config", speculative, NIM_MODEL_PATH=str(target), NIM_DRAFT_MODEL_PATH=str(draft)
    )
    assert (ran.code, ran.record) == (8, None)
    said = ran.last_line.partition("] ")[2]
    said = said.replace(str(target), "/models/plain").replace(str(draft), "/models/other-draft")
    assert f"ERROR … {said}" in README.replace("\n    ", " ")
