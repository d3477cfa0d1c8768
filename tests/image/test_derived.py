"""What others build on the image: the example that ships, and what may happen at start (docs/derived-images.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.image.podman import Podman
from tests.image.test_image import READ_ONLY, RESTRICTED, STRANGER
from tests.models import files

WRAPPER = """\
#!/bin/sh
set -eu
export NIM_MAX_MODEL_LEN="${MY_LENGTH:-4096}"
exec launcher "$@"
"""


def test_the_example_serves_its_model_without_a_word(podman: Podman, derived_image: str) -> None:
    """Locked down as far as a container can be."""
    ran = podman.run(derived_image, options=[f"--user={STRANGER}:0", *RESTRICTED, *READ_ONLY])
    assert ran.code == 0, ran.err
    assert set(files("mtp")) <= set(ran.record["files"])
    assert ran.argv[ran.argv.index("--served-model-name") + 1] == "my-model"
    assert ran.speculative == {"method": "mtp", "num_speculative_tokens": 1}
    assert (ran.record["pid"], ran.record["ids"]) == (1, [STRANGER, 0])


def test_its_profile_is_chosen(podman: Podman, derived_image: str) -> None:
    """By the place of the model, as docs/derived-images.md says; its runtime keys are defaults."""
    profile = json.loads(podman.run(derived_image, "plan", "--json").out)["profile"]
    assert profile["description"] == "vllm-bf16-tp1-pp1-my-model"
    assert profile["reason"].startswith("made for /opt/model")
    for words, expected in (((), "64"), (("--max-num-seqs", "3"), "3")):
        argv = podman.run(derived_image, *words).argv
        assert [argv[at + 1] for at, word in enumerate(argv) if word == "--max-num-seqs"] == [expected]


@pytest.mark.parametrize(
    ("words", "environ", "method"),
    [
        ((), {"NIM_SPECDEC_ENABLE": "0"}, None),
        (("--speculative-config", '{"method":"ngram","num_speculative_tokens":2}'), {}, "ngram"),
        (("--speculative-config", "none"), {}, None),
    ],
)
def test_defaults_give_way(
    words: tuple[str, ...], environ: dict[str, str], method: str | None, podman: Podman, derived_image: str
) -> None:
    ran = podman.run(derived_image, *words, env=environ)
    assert ran.code == 0, ran.err
    assert (ran.speculative or {}).get("method") == method


def test_another_model_by_word(podman: Podman, derived_image: str, models: Path) -> None:
    ran = podman.run(derived_image, "/models/plain", options=[f"--volume={models}:/models:ro"])
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "ngram"


@pytest.fixture(scope="module")
def wrapped_image(podman: Podman, derived_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program in front of the launcher that ends in exec."""
    folder = tmp_path_factory.mktemp("wrapped")
    (folder / "start").write_text(WRAPPER)
    (folder / "start").chmod(0o755)
    (folder / "Dockerfile").write_text(
        f'FROM {derived_image}\nCOPY start /usr/local/bin/start\nENTRYPOINT ["start"]\nCMD []\n'
    )
    return podman.build(folder, folder / "Dockerfile", "localhost/wrapped")


def test_a_program_in_front_that_ends_in_exec(podman: Podman, wrapped_image: str) -> None:
    ran = podman.run(wrapped_image, "--seed", "7", env={"MY_LENGTH": "512"})
    assert ran.code == 0, ran.err
    assert ran.record["pid"] == 1  # nobody is left in between
    assert ran.argv[ran.argv.index("--max-model-len") + 1] == "512"
    assert ran.argv[ran.argv.index("--seed") + 1] == "7"


def test_it_keeps_the_actions(podman: Podman, wrapped_image: str) -> None:
    assert podman.run(wrapped_image, "plan", "--json").out.startswith("{")
    assert podman.run(wrapped_image, "--version").out.startswith("specdec-launcher")


def test_nothing_else_is_executed_at_start(podman: Podman, derived_image: str, tmp_path: Path) -> None:
    """No hook folder, no shell: the launcher, then vLLM, in one process."""
    tmp_path.chmod(0o777)
    options = [f"--volume={tmp_path}:/trace", "--entrypoint=strace"]
    ran = podman.run(derived_image, "-f", "-qq", "-o", "/trace/calls", "-e", "trace=execve,fork,vfork,clone,clone3",
                     "launcher", options=options)  # fmt: skip
    assert ran.code == 0, ran.err
    calls = [line.split(None, 1)[1] for line in (tmp_path / "calls").read_text().splitlines() if " = 0" in line]
    launched = calls[: 1 + next(place for place, call in enumerate(calls) if "/usr/local/bin/vllm" in call)]
    assert [call.split('"')[1] for call in launched] == ["/usr/local/bin/launcher", "/usr/local/bin/vllm"]
