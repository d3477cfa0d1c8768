"""From a model folder to measured acceptance, through the launcher and the real vLLM.

The checkpoints recite a known text (`tests.models.chain`), so every run is compared with the text itself; the first two
tests show that it is what vLLM says without speculation.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine.conftest import BIN, PLACED, Launch, Refusal
from tests.engine.server import FAST, FAST_FLAGS, STOP_WITHIN, Counters, Server, enter_empty_network, start, tail
from tests.missing import missing
from tests.models.chain import CYCLE, HIDDEN, TEXT, VOCAB, continuation
from tests.models.drafts import AUX_LAYERS, LARGE_VOCAB, SMALL_HIDDEN

PROMPT = tuple(b"Please recite: ")
REPETITIVE = CYCLE * 3
COUNT = 120
EAGLE3_DRAFT = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'
# As NIM's documentation prints it: an object whose value is a string that holds JSON.
NGRAM_ARGS = (
    '{"speculative_config": "{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3, '
    '\\"prompt_lookup_max\\": 4, \\"prompt_lookup_min\\": 1}"}'
)


class Recital(NamedTuple):
    """What one request said and how it was speculated."""

    tokens: list[int]
    counters: Counters


def recite(server: Server, prompt: tuple[int, ...] = PROMPT) -> Recital:
    before = server.counters()
    tokens = server.complete(prompt, COUNT)
    after = server.counters()
    assert before is not None and after is not None, "no speculative counters in /metrics"
    return Recital(tokens, after - before)


def check(server: Server, method: str, floor: float, prompt: tuple[int, ...] = PROMPT) -> None:
    """The method that was meant, the text that plain decoding yields, and acceptance of at least ``floor``."""
    assert server.method() == method
    said = recite(server, prompt)
    assert said.tokens == continuation(prompt[-1], COUNT)
    assert said.counters.drafts > 0
    assert said.counters.rate >= floor, said.counters


def log_of(server: Server) -> str:
    return server.log.read_text()


@pytest.mark.parametrize("target", ["plain", "mtp"])
def test_toggle_off_means_no_speculation_at_all(target: str, models: Path, launch: Launch) -> None:
    with launch(models / target, NIM_SPECDEC_ENABLE="0") as server:
        assert server.method() is None
        assert server.complete(PROMPT, COUNT) == continuation(PROMPT[-1], COUNT)
        assert server.complete(REPETITIVE, COUNT) == continuation(REPETITIVE[-1], COUNT)
        assert server.counters() is None


def test_a_head_is_chosen_first(models: Path, launch: Launch) -> None:
    with launch(models / "mtp", NIM_SPECDEC_ENABLE="1") as server:
        check(server, "mtp", 0.95)
        assert server.model() == "mtp"
        answer = server.chat("Hello")
        assert (answer["message"]["content"], answer["finish_reason"]) == (TEXT, "stop")


def test_without_the_heads_tensors_a_draft_at_hand_is_chosen(models: Path, launch: Launch) -> None:
    with launch(models / "with-draft", NIM_SPECDEC_ENABLE="1") as server:
        check(server, "eagle3", 0.6)
        assert "mtp: not chosen" in log_of(server)


def test_without_head_and_draft_it_is_ngram(models: Path, launch: Launch) -> None:
    with launch(models / "mtp-stripped", NIM_SPECDEC_ENABLE="1") as server:
        check(server, "ngram", 0.8, REPETITIVE)
        assert "mtp: not chosen" in log_of(server)


def test_specdec_args_as_documented_override_the_head(models: Path, launch: Launch) -> None:
    variables = {"NIM_SPECDEC_ENABLE": "1", "NIM_SPECDEC_ARGS": NGRAM_ARGS}
    with launch(models / "mtp", program="nim-serve", **variables) as server:
        check(server, "ngram", 0.8, REPETITIVE)


def test_own_draft_without_a_network(models: Path, launch: Launch) -> None:
    """The documented command (an image's entrypoint gets flags alone), in a network namespace with loopback alone."""
    try:
        subprocess.run(["true"], check=True, preexec_fn=enter_empty_network)
    except subprocess.SubprocessError:
        missing("this system allows no network namespaces")
    words = ("--speculative-config", EAGLE3_DRAFT)
    variables = {"NIM_DRAFT_MODEL_PATH": str(models / "eagle3")}
    with launch(models / "plain", *words, program="launcher", isolated=True, **variables) as server:
        interfaces = Path(f"/proc/{server.process.pid}/net/dev").read_text().splitlines()[2:]
        assert [line.partition(":")[0].strip() for line in interfaces] == ["lo"]
        check(server, "eagle3", 0.6)


def test_eagle_on_a_snapshot_of_the_hubs_cache(models: Path, launch: Launch) -> None:
    (snapshot,) = (models / PLACED).iterdir()
    config = json.dumps({"method": "eagle", "model": str(models / "eagle"), "num_speculative_tokens": 3})
    with launch(snapshot, "--speculative-config", config) as server:
        check(server, "eagle", 0.95)
        assert server.model() == "embedded/plain"


def test_dflash(models: Path, launch: Launch) -> None:
    config = json.dumps({"method": "dflash", "model": str(models / "dflash")})
    with launch(models / "plain", "--speculative-config", config) as server:
        check(server, "dflash", 0.95)


def test_speculators_draft_with_its_own_method(models: Path, launch: Launch) -> None:
    """Nobody names the method: the draft's config does."""
    draft = str(models / "eagle3-speculators")
    with launch(models / "plain", NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH=draft) as server:
        check(server, "eagle3", 0.6)


def test_draft_model_keeps_its_method_in_a_folder_named_eagle3(models: Path, launch: Launch) -> None:
    config = json.dumps({"method": "draft_model", "model": str(models / "eagle3-lab" / "draft")})
    with launch(models / "plain", "--speculative-config", config) as server:
        check(server, "draft_model", 0.95)


def test_mtp_keeps_its_method_in_a_folder_named_eagle3(models: Path, launch: Launch) -> None:
    config = '{"method": "mtp", "num_speculative_tokens": 1}'
    with launch(models / "eagle3-lab" / "target", "--speculative-config", config) as server:
        check(server, "mtp", 0.95)


@pytest.mark.skipif(importlib.util.find_spec("arctic_inference") is None, reason="arctic-inference is not installed")
def test_suffix(models: Path, launch: Launch) -> None:
    with launch(models / "plain", "--speculative-config", '{"method": "suffix"}') as server:
        check(server, "suffix", 0.8, REPETITIVE)


@pytest.mark.parametrize(
    ("draft", "numbers"),
    [
        ("eagle3-hidden", (SMALL_HIDDEN, HIDDEN)),
        ("eagle3-aux", (HIDDEN * (len(AUX_LAYERS) - 1), HIDDEN * len(AUX_LAYERS))),
        ("eagle3-vocab", (LARGE_VOCAB, VOCAB)),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(
    draft: str, numbers: tuple[int, int], models: Path, refused: Refusal
) -> None:
    result = refused(models / "plain", "--speculative-config", EAGLE3_DRAFT, NIM_DRAFT_MODEL_PATH=str(models / draft))
    assert result.returncode == 8, result.stderr
    sentence = result.stderr.splitlines()[-1]
    assert {str(number) for number in numbers} <= set(re.findall(r"\d+", sentence)), sentence
    assert result.stdout == ""


@pytest.mark.parametrize("target", ["mtp-stripped", "mtp-stripped-quantized", "mimo-stripped-quantized"])
def test_mtp_is_refused_where_the_tensors_are_gone(target: str, models: Path, refused: Refusal) -> None:
    result = refused(models / target, "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}')
    assert result.returncode == 8, result.stderr
    assert "mtp" in result.stderr.splitlines()[-1].lower()


def test_dspark_is_refused_on_a_cpu(models: Path, refused: Refusal) -> None:
    config = json.dumps({"method": "dspark", "model": str(models / "dspark")})
    result = refused(models / "plain", "--speculative-config", config)
    assert result.returncode == 9, result.stderr
    assert "dspark" in result.stderr.splitlines()[-1]


def vllm(log: Path, target: Path, config: dict[str, object]) -> Server:
    """vLLM without us: why the checks exist."""
    command = [str(BIN / "vllm"), "serve", str(target), *FAST_FLAGS]
    return start([*command, "--speculative-config", json.dumps(config)], FAST, log)


def test_vllm_itself_starts_on_a_draft_that_does_not_fit_and_dies_at_the_first_request(
    models: Path, tmp_path: Path
) -> None:
    config = {"method": "eagle3", "model": str(models / "eagle3-hidden"), "num_speculative_tokens": 3}
    server = vllm(tmp_path / "server.log", models / "plain", config)
    try:
        body = {"model": server.model(), "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
        assert server.ask("/v1/completions", body).status == 500, tail(server.log)
        server.process.wait(STOP_WITHIN)  # nobody stopped it
    finally:
        server.stop()


def test_vllm_itself_drafts_in_vain_where_the_head_is_gone(models: Path, tmp_path: Path) -> None:
    config = {"method": "mtp", "num_speculative_tokens": 1}
    server = vllm(tmp_path / "server.log", models / "mimo-stripped-quantized", config)
    with server.stopped_cleanly():
        counters = recite(server).counters
        assert (counters.drafts, counters.accepted) == (COUNT - 1, 0)
