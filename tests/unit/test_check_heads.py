"""Heads in the checkpoint, and a draft that stands beside its target."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.checkpoint import Checkpoint, Head, read_config
from launcher.machine import Machine
from launcher.speculation.check import examine
from launcher.speculation.check import target as unloadable
from tests.unit.checking import (
    CONFIGURATIONS,
    NEXTN_2,
    errors,
)
from tests.unit.checkpoints import (
    ANY,
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK_HEAD,
    EAGLE3,
    GPU,
    LLAMA,
    MTP_HEAD,
    TARGET,
    case,
    checkpoint,
    eagle3,
    fc,
    mtp_target,
    target,
)

# Heads ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "tokens", "name", "numbers"),
    [
        # Asked for and stripped, quantised or not.
        (target(DEEPSEEK), 1, "mtp-tensors", ("0 tensors", "claims 1")),
        (target(DEEPSEEK | {"quantization_config": {"quant_method": "fp8"}}), 1, "mtp-tensors", ("0 tensors",)),
        (checkpoint(DEEPSEEK, heads=(DSPARK_HEAD,)), 1, "mtp-tensors", ("a DSpark head instead",)),
        (
            target(DEEPSEEK, unlisted="mtp.safetensors"),
            1,
            "mtp-tensors",
            ("mtp.safetensors holds such tensors", "index"),
        ),
        # Kept in part: vLLM loads every layer that the config counts.
        (
            checkpoint(NEXTN_2, heads=(MTP_HEAD._replace(layers=(0,)),)),
            2,
            "mtp-tensors",
            ("1 of the 2 MTP layers", "(deepseek_mtp), without number 2"),
        ),
        (
            checkpoint(NEXTN_2, heads=(MTP_HEAD._replace(layers=(1, 2)),)),
            2,
            "mtp-tensors",
            ("1 of the 2 MTP layers", "without number 1"),
        ),
        # Silent, where vLLM reads the field without a default.
        (
            mtp_target(LLAMA | {"architectures": ["MiMoForCausalLM"], "model_type": "mimo"}),
            1,
            "mtp-family",
            ("does not state num_nextn_predict_layers", "mimo_mtp"),
        ),
        (
            mtp_target(LLAMA | {"architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5"}),
            1,
            "mtp-family",
            ("does not state num_nextn_predict_layers",),
        ),
        (
            mtp_target(LLAMA | {"architectures": ["I"], "model_type": "inkling_model"}),
            1,
            "mtp-family",
            ("does not state mtp_config.num_nextn_predict_layers",),
        ),
        (mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 0}), 1, "mtp-family", ("0 MTP layers",)),
        (mtp_target(LLAMA), 1, "mtp-family", ("LlamaForCausalLM", "0.32.0")),
        (mtp_target(LLAMA | {"architectures": [], "model_type": ""}), 1, "mtp-family", ("nothing",)),
        (
            mtp_target(LLAMA | {"architectures": ["Step5ForCausalLM"], "model_type": "step5"}),
            1,
            "mtp-family",
            ("step5_mtp", "0.32.0"),
        ),
        (
            mtp_target(DEEPSEEK | {"model_type": "deepseek_v41", "architectures": ["DeepseekV41ForCausalLM"]}),
            1,
            "mtp-family",
            ("ships DSpark stages",),
        ),
        (mtp_target(LLAMA | {"model_type": "gemma4_assistant", "architectures": ["G"]}), 1, "mtp-family", ("itself",)),
        (
            checkpoint(NEXTN_2, heads=(MTP_HEAD._replace(layers=(0, 1)),)),
            3,
            "mtp-tokens",
            ("3", "2 MTP layers"),
        ),
    ],
)
def test_mtp_that_cannot_work(on: Checkpoint, tokens: int, name: str, numbers: tuple[str, ...]) -> None:
    error = errors(examine(case("mtp", tokens=tokens, on=on)).checks)[name]
    assert error.code == 8
    for number in (*numbers, TARGET):
        assert number in error.what


@pytest.mark.parametrize(("depth", "tokens"), [(1, 1), (1, 5), (2, 1), (2, 2), (2, 4), (3, 2), (3, 9)])
def test_mtp_token_counts_that_vllm_takes(depth: int, tokens: int) -> None:
    on = mtp_target(DEEPSEEK | {"num_nextn_predict_layers": depth})
    seen = examine(case("mtp", tokens=tokens, on=on))
    assert seen.errors == ()
    assert ("vLLM runs the same MTP layer again" in "".join(seen.warnings)) is (tokens > depth)


@pytest.mark.parametrize(("machine", "method"), [(GPU, "dspark"), (ANY, "dspark"), (CPU, "ngram")])
def test_the_head_that_is_there_instead_is_offered_where_it_can_run(machine: Machine, method: str) -> None:
    seen = examine(case("mtp", tokens=1, on=checkpoint(DEEPSEEK, heads=(DSPARK_HEAD,)), machine=machine))
    assert errors(seen.checks)["mtp-tensors"].todo.endswith(f"such as {method}")


def test_the_head_and_its_type_are_reported() -> None:
    checks = examine(case("mtp", tokens=1, on=mtp_target())).checks
    tensors = next(check for check in checks if check.name == "mtp-tensors")
    assert tensors.message == "12 tensors of BF16, such as model.layers.5.embed_tokens.weight"


def test_tensors_that_cannot_be_listed_are_unknown() -> None:
    seen = examine(case("mtp", tokens=1, on=target(DEEPSEEK, form="pickle")))
    assert seen.errors == ()
    assert seen.unknown == (f"whether the tensors of the MTP head are in {TARGET}: its weights cannot be listed",)


def test_made_up_weights_need_no_tensors() -> None:
    dummy = {"--load-format": ("dummy",)}
    seen = examine(case("mtp", tokens=1, on=target(DEEPSEEK), flags=dummy))
    assert seen.errors == ()
    assert "no drafted token will be accepted" in seen.warnings[0]
    empty = checkpoint(EAGLE3, DRAFT, form="")
    assert errors(examine(case("eagle3", draft=empty, flags=dummy)).checks) == {}


def test_a_whole_checkpoint_may_be_the_draft_for_its_head() -> None:
    draft = mtp_target(place=DRAFT)
    assert examine(case("mtp", tokens=1, on=target(DEEPSEEK), draft=draft)).errors == ()
    stripped = checkpoint(DEEPSEEK, DRAFT)
    error = errors(examine(case("mtp", tokens=1, on=target(DEEPSEEK), draft=stripped)).checks)["mtp-tensors"]
    assert DRAFT in error.what


@pytest.mark.parametrize(
    ("document", "heads", "fine"),
    [
        (DEEPSEEK | {"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, (DSPARK_HEAD,), True),
        (DEEPSEEK | {"model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"]}, (), False),
        (LLAMA, (DSPARK_HEAD,), False),
    ],
)
def test_a_bundled_dspark_head(document: dict[str, Any], heads: tuple[Head, ...], fine: bool) -> None:
    found = errors(examine(case("dspark", on=checkpoint(document, heads=heads))).checks)
    assert ("bundled-head" not in found) is fine


# A draft beside its target --------------------------------------------------------------------------------------------


def test_a_draft_without_weights() -> None:
    error = errors(examine(case("eagle3", draft=checkpoint(EAGLE3, DRAFT, form=""))).checks)["draft-weights"]
    assert (error.code, error.what) == (8, f"the draft {DRAFT} holds no weights")
    error = errors(examine(case("eagle3", draft=checkpoint(EAGLE3, DRAFT, form="gguf"))).checks)["draft-weights"]
    assert (error.code, error.what) == (8, f"the draft {DRAFT} holds GGUF files only, which vLLM does not load")


@pytest.mark.parametrize(
    ("form", "load_format", "words"),
    [
        ("safetensors", None, ""),
        ("pickle", None, ""),
        ("gguf", None, f"{TARGET} holds GGUF files only, which vLLM does not load"),
        ("", None, f"{TARGET} holds no weights"),
        ("", "auto", f"{TARGET} holds no weights"),
        ("", "dummy", ""),
        ("", "tensorizer", ""),
        ("safetensors", "gguf", "--load-format gguf: vLLM 0.32.0 does not load GGUF files"),
        ("gguf", "gguf", "--load-format gguf: vLLM 0.32.0 does not load GGUF files"),
    ],
)
def test_a_target_that_vllm_cannot_load(form: str, load_format: str | None, words: str) -> None:
    found = unloadable(target(form=form), load_format, "0.32.0")
    assert (found is None) is (not words)
    if found is not None:
        assert found.error is not None
        assert (found.error.code, found.error.what) == (8, words)


@pytest.mark.parametrize(
    ("own", "target_size", "fine"), [(1, None, True), (2, None, False), (1, "4", True), (4, "4", True), (2, "4", False)]
)
def test_the_drafts_tensor_parallel_size(own: int, target_size: str | None, fine: bool) -> None:
    flags = {"--tensor-parallel-size": (target_size,)} if target_size else {}
    for method, draft in (("eagle3", eagle3()), ("mtp", None)):
        asked = case(
            method,
            tokens=1,
            config={"draft_tensor_parallel_size": own},
            draft=draft,
            on=_any_target(method),
            flags=flags,
        )
        found = errors(examine(asked).checks)
        assert ("draft-tensor-parallel" not in found) is fine
        if not fine:
            error = found["draft-tensor-parallel"]
            assert error.code == 8
            assert error.what == (
                f"draft_tensor_parallel_size is {own}, but the target's tensor parallel size is {target_size or 1}"
            )
    assert examine(case("ngram", config={"draft_tensor_parallel_size": 3})).errors == ()


@pytest.mark.parametrize(
    ("parts", "own", "hint"),
    [
        ({}, 1, None),
        ({}, 2, "1 or 4"),
        ({"version": "0.30.0"}, 1, "4"),
        ({"version": "0.30.0"}, 2, "4"),
        ({"machine": CPU}, 1, "4"),
        ({"runner": 1}, 2, "4"),
        ({"runner": 1}, 4, None),
        ({"machine": ANY}, 1, None),
    ],
)
def test_a_draft_model_of_runner_v1_runs_with_the_targets_size(
    parts: dict[str, Any], own: int, hint: str | None
) -> None:
    sizes = {"config": {"draft_tensor_parallel_size": own}, "flags": {"--tensor-parallel-size": ("4",)}, **parts}
    seen = examine(case("draft_model", draft=checkpoint(LLAMA, DRAFT), **sizes))
    assert [error.todo for error in seen.errors] == (
        [f"Set draft_tensor_parallel_size to {hint}, or leave it out"] if hint else []
    )
    for error in seen.errors:
        assert error.what.startswith(f"draft_tensor_parallel_size is {own}, but the target's tensor parallel size is 4")


def _any_target(method: str) -> Checkpoint:
    return mtp_target() if method == "mtp" else target()


def test_heterogeneous_vocabularies() -> None:
    draft = checkpoint(LLAMA | {"vocab_size": 256}, DRAFT)
    own = {"use_heterogeneous_vocab": True}
    assert "vocabulary" in errors(examine(case("draft_model", draft=draft)).checks)
    assert examine(case("draft_model", config=own, draft=draft)).errors == ()
    hot = own | {"draft_sample_method": "probabilistic"}
    assert "greedily" in examine(case("draft_model", config=hot, draft=draft)).errors[0].what


@pytest.mark.parametrize(
    ("own", "flags", "name"),
    [
        (4096, {}, "target-length"),
        (2048, {}, None),
        (2048, {"--max-model-len": ("1k",)}, "target-length"),
        (1000, {"--max-model-len": ("1k",)}, None),
        (1025, {"--max-model-len": ("1K",)}, "target-length"),
        (1500, {"--max-model-len": ("auto",)}, "draft-length"),
    ],
)
def test_the_speculative_length(own: int, flags: dict[str, tuple[str, ...]], name: str | None) -> None:
    draft = checkpoint(LLAMA | {"max_position_embeddings": 1200 if own == 1500 else 4096}, DRAFT)
    found = errors(examine(case("draft_model", config={"max_model_len": own}, draft=draft, flags=flags)).checks)
    assert list(found) == ([name] if name else [])
    if name:
        assert str(own) in found[name].what


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


@pytest.mark.parametrize(
    ("document", "flags", "fine"),
    [
        (LLAMA, {}, False),
        (LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, {}, False),
        (LLAMA | {"rope_scaling": YARN}, {}, True),
        (LLAMA | {"rope_parameters": YARN}, {}, True),
        (LLAMA, {"--hf-overrides": ('{"rope_scaling": {}}',)}, True),
        (LLAMA | {"rope_scaling": YARN}, {"--max-model-len": ("4096",)}, False),
    ],
)
def test_a_target_that_scales_its_positions_goes_further_than_it_states(
    document: dict[str, Any], flags: dict[str, tuple[str, ...]], fine: bool
) -> None:
    seen = examine(case("eagle3", config={"max_model_len": 8000}, on=target(document), draft=eagle3(), flags=flags))
    assert ("target-length" not in errors(seen.checks)) is fine


@pytest.mark.parametrize(
    ("document", "named", "trust", "fine"),
    [
        (DFLASH, True, False, True),  # vLLM has a class of its own
        (DFLASH, True, True, True),
        (DFLASH, False, False, True),
        (DFLASH, False, True, False),  # code of a draft that nobody named would run
        (DFLASH | {"architectures": ["DFlashNewModel"]}, True, False, False),
    ],
)
def test_custom_code_of_a_draft(document: dict[str, Any], named: bool, trust: bool, fine: bool) -> None:
    draft = checkpoint(document, DRAFT, tensors=(fc(384),), custom_code=True)
    found = errors(examine(case("dflash", draft=draft, named=named, trust=trust)).checks)
    assert ("custom-code" not in found) is fine


def test_published_targets_are_read() -> None:
    assert len(CONFIGURATIONS["targets"]) == 58
    assert all(read_config(document).architecture for document in CONFIGURATIONS["targets"].values())
