"""The automatic choice: a head, then a draft, then n-gram, each step with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.checkpoint import Checkpoint
from launcher.errors import (
    DeniedError,
    IntegrityError,
    LauncherError,
    NetworkError,
    NotFoundError,
)
from launcher.speculation.select import candidates
from launcher.speculation.values import DraftReference
from launcher.vllm import tables
from tests.unit.checkpoints import (
    ANY,
    CPU,
    DEEPSEEK,
    DFLASH,
    DSPARK_HEAD,
    GPU,
    LLAMA,
    MTP_HEAD,
    PINNED,
    TARGET,
    checkpoint,
    eagle3,
    mtp_target,
    request,
    target,
)
from tests.unit.deciding import INSIDE, V4, decided, errors, steps

# The automatic choice -------------------------------------------------------------------------------------------------


def test_a_head_comes_first() -> None:
    decision = decided(request(enabled=True), mtp_target(drafts=("speculator/a",)), {INSIDE: eagle3(INSIDE)})
    chosen = decision.speculation
    assert (chosen.method, chosen.tokens, chosen.draft) == ("mtp", 1, None)
    assert chosen.config == {"method": "mtp", "num_speculative_tokens": 1}
    assert steps(decision) == [("mtp", True)]
    assert chosen.reason == f"{TARGET} holds an MTP head: 12 tensors, such as model.layers.5.embed_tokens.weight"
    assert chosen.origins == {"method": "automatic choice", "num_speculative_tokens": "default"}


def test_the_config_alone_is_no_proof_of_a_head_and_its_silence_no_disproof() -> None:
    stripped = decided(request(enabled=True), target(DEEPSEEK))
    assert steps(stripped) == [("mtp", False), ("eagle3", False), ("ngram", True)]
    assert stripped.speculation.considered[0].reason == (
        f"{TARGET} has 0 tensors of an MTP head, although its config.json claims 1 (deepseek_mtp)"
    )
    assert errors(stripped) == []
    silent = {key: value for key, value in DEEPSEEK.items() if key != "num_nextn_predict_layers"}
    assert decided(request(enabled=True), mtp_target(silent)).speculation.method == "mtp"
    zero = decided(request(enabled=True), mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 0}))
    assert steps(zero)[0] == ("mtp", False)
    listed = decided(request(enabled=True), target(DEEPSEEK, form="pickle"))
    assert listed.speculation.considered[0].reason == (
        f"nothing proves that {TARGET} holds a head: its tensors are not listed"
    )


def test_a_head_that_this_vllm_cannot_run_is_a_rejected_step() -> None:
    unknown = mtp_target(LLAMA | {"architectures": ["NewForCausalLM"], "model_type": "new"})
    decision = decided(request(enabled=True), unknown)
    assert decision.speculation.method == "ngram"
    assert "no family with an MTP head that vLLM 0.32.0 runs" in decision.speculation.considered[0].reason
    step5 = mtp_target(LLAMA | {"architectures": ["Step5ForCausalLM"], "model_type": "step5"})
    assert decided(request(enabled=True), step5, machine=GPU).speculation.method == "ngram"
    assert decided(request(enabled=True), step5, table=tables.load("0.33.0"), machine=GPU).speculation.method == "mtp"


def test_a_bundled_dspark_head_is_named_as_such_where_it_can_run() -> None:
    on = checkpoint(V4, heads=(DSPARK_HEAD,))
    decision = decided(request(enabled=True), on, machine=GPU)
    assert decision.speculation.config == {"method": "dspark", "num_speculative_tokens": 5}
    assert decision.speculation.draft is None
    assert steps(decision) == [("mtp", False), ("dspark", True)]
    assert decision.speculation.reason == f"{TARGET} holds a DSpark head: 9 tensors, such as mtp.0.main_proj.weight"
    on_cpu = decided(request(enabled=True), on)
    assert on_cpu.speculation.method == "ngram"
    assert ("dspark", "the method dspark does not run on a CPU") in [
        (step.method, step.reason) for step in on_cpu.speculation.considered
    ]
    anywhere = decided(request(enabled=True), on, machine=ANY)
    assert anywhere.speculation.method == "dspark"
    assert anywhere.unknown == ("whether this machine can run dspark: nothing says what its device is",)


def test_a_bundled_dflash_head_is_named_as_what_vllm_cannot_run() -> None:
    on = target(heads=(DSPARK_HEAD._replace(kind="dflash"),))
    decision = decided(request(enabled=True), on, machine=GPU)
    assert steps(decision) == [("mtp", False), ("dflash", False), ("eagle3", False), ("ngram", True)]
    assert "takes a DFlash draft only from a folder of its own" in decision.speculation.considered[1].reason


def test_one_eagle3_folder_that_fits_is_taken() -> None:
    on = target(drafts=("1_Pooling", "speculator/a"))
    pooling = f"{TARGET}/1_Pooling"
    assert [reference.source for reference in candidates(request(enabled=True), on, PINNED, CPU)] == [pooling, INSIDE]
    drafts: dict[str, Checkpoint | LauncherError] = {pooling: IntegrityError("broken"), INSIDE: eagle3(INSIDE)}
    decision = decided(request(enabled=True), on, drafts)
    chosen = decision.speculation
    assert (chosen.method, chosen.tokens) == ("eagle3", 3)
    assert chosen.draft == DraftReference("a", INSIDE, "target", False)
    assert chosen.reason == f"an EAGLE3 draft that fits is at hand: {INSIDE}"
    assert steps(decision) == [("mtp", False), ("eagle3", True)]


def test_of_several_eagle3_folders_none_is_taken() -> None:
    other = f"{TARGET}/speculator/b"
    on = target(drafts=("speculator/a", "speculator/b"))
    decision = decided(request(enabled=True), on, {INSIDE: eagle3(INSIDE), other: eagle3(other)})
    assert decision.speculation.method == "ngram"
    assert decision.speculation.considered[1].reason == (
        f"several drafts are at hand ({INSIDE}, {other}): name one as NIM_DRAFT_MODEL_PATH"
    )


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (eagle3(INSIDE, hidden_size=64), f"the hidden size of the draft {INSIDE} is 64, that of the target {TARGET}"),
        (eagle3(INSIDE, vocab_size=1024, draft_vocab_size=1024), f"the vocabulary of the draft {INSIDE} is 1024"),
        (checkpoint(DFLASH, INSIDE), f"no EAGLE3 draft is at hand; {INSIDE} is made for dflash: name it as NIM_DRAFT"),
        (checkpoint(LLAMA, INSIDE), f"no EAGLE3 draft is at hand; {INSIDE} is no draft for eagle3"),
        (IntegrityError("it is broken"), f"no EAGLE3 draft is at hand; {INSIDE} cannot be read: it is broken"),
    ],
)
def test_a_folder_that_does_not_fit_is_a_rejected_step(draft: Checkpoint | LauncherError, reason: str) -> None:
    decision = decided(request(enabled=True), target(drafts=("speculator/a",)), {INSIDE: draft})
    assert steps(decision) == [("mtp", False), ("eagle3", False), ("ngram", True)]
    assert decision.speculation.considered[1].reason.startswith(reason)
    assert errors(decision) == []


def test_eagle3_needs_a_target_class_that_supports_it() -> None:
    mimo = LLAMA | {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}
    decision = decided(request(enabled=True), target(mimo, drafts=("speculator/a",)), {INSIDE: eagle3(INSIDE)})
    assert decision.speculation.method == "ngram"
    assert "MiMoForCausalLM" in decision.speculation.considered[1].reason


def test_the_profiles_draft_comes_after_the_folders() -> None:
    asked = request(enabled=True, profile_draft="hf://nvidia/draft")
    reference = DraftReference("draft", "hf://nvidia/draft", "profile", False)
    assert candidates(asked, target(), PINNED, CPU) == (reference,)
    assert decided(asked, drafts={"hf://nvidia/draft": eagle3()}).speculation.draft == reference
    for error in (DeniedError("gated"), NetworkError("down"), NotFoundError("gone")):
        rejected = decided(asked, drafts={"hf://nvidia/draft": error})
        assert (rejected.speculation.method, errors(rejected)) == ("ngram", [])
        assert rejected.speculation.considered[1].reason == f"the published draft cannot be had: {error.what}"


def test_ngram_is_the_last_resort_with_its_own_window() -> None:
    chosen = decided(request(enabled=True)).speculation
    assert chosen.config == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }
    assert "can cost time under load" in chosen.reason
    assert "NIM_SPECDEC_ENABLE=0" in chosen.reason


@pytest.mark.parametrize(
    ("said", "most", "least"),
    [
        ({"prompt_lookup_max": 8}, 8, 1),
        ({"prompt_lookup_min": 2}, 4, 2),
        ({"prompt_lookup_min": 6}, 6, 6),
    ],
)
def test_the_automatic_window_keeps_what_was_given(said: dict[str, Any], most: int, least: int) -> None:
    config = decided(request(said, enabled=True)).speculation.config
    assert (config["prompt_lookup_max"], config["prompt_lookup_min"]) == (most, least)


def test_settings_without_a_method_shape_the_automatic_choice() -> None:
    assert decided(request({"num_speculative_tokens": 2}, enabled=True), mtp_target()).speculation.tokens == 2
    deep = mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 2})
    uneven = decided(request({"num_speculative_tokens": 3}, enabled=True), deep)
    assert steps(uneven)[0] == ("mtp", False)
    assert "3, no multiple of the 2 MTP layers" in uneven.speculation.considered[0].reason


def test_when_nothing_can_run_the_server_starts_without() -> None:
    decision = decided(request(enabled=True, flags={"--async-scheduling": ()}))
    assert decision.speculation.enabled is False
    assert steps(decision) == [("mtp", False), ("eagle3", False), ("ngram", False)]
    assert "--async-scheduling cannot be combined with the method ngram" in decision.speculation.reason
    assert errors(decision) == []


def test_a_head_of_one_tensor_is_no_plural() -> None:
    one = checkpoint(DEEPSEEK, heads=(MTP_HEAD._replace(tensors=1),))
    assert "MTP head: 1 tensor, such as" in decided(request(enabled=True), one).speculation.reason
