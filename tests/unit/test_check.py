"""Every check before exec: the fit tables, heads, and what each vLLM refuses together with speculation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.checkpoint import Checkpoint, Head, Tensor, read_config
from launcher.errors import LauncherError
from launcher.machine import Machine
from launcher.speculation.check import examine, fit
from launcher.speculation.check import target as unloadable
from launcher.speculation.values import Check
from launcher.vllm import tables
from tests.unit.checkpoints import (
    ANY,
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK,
    DSPARK_HEAD,
    EAGLE,
    EAGLE3,
    GPU,
    LLAMA,
    MTP_HEAD,
    PINNED,
    TARGET,
    case,
    checkpoint,
    eagle3,
    fc,
    mtp_target,
    target,
)

CONFIGURATIONS = json.loads((Path(__file__).parent / "data" / "configurations.json").read_text())
LAYERS = LLAMA | {"num_hidden_layers": 4}
NEXTN_2 = DEEPSEEK | {"num_nextn_predict_layers": 2}
MISTRAL = {"dim": 128, "n_layers": 8, "n_heads": 4, "vocab_size": 512, "max_seq_len": 2048}
LARGE_3 = MISTRAL | {"moe": {"num_experts": 4, "num_shared_experts": 1}}
EAGLE_LINEAR = Tensor("eagle_linear.weight", "BF16", (128, 256))
NESTED = "eagle_aux_hidden_state_layer_ids"
D2T = Tensor("d2t", "I64", (256,))


def errors(checks: tuple[Check, ...]) -> dict[str, LauncherError]:
    return {check.name: check.error for check in checks if check.error is not None}


def passed(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks if check.error is None]


# Draft against target ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "on", "draft"),
    [
        ("eagle3", target(), eagle3()),
        ("eagle3", target(), eagle3(eagle_aux_hidden_state_layer_ids=[0, 4, 8])),
        ("eagle3", target(), eagle3(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]})),
        ("eagle3", target(), eagle3(draft_vocab_size=None)),
        ("eagle3", target(), checkpoint(EAGLE3 | {"draft_vocab_size": 256}, DRAFT, tensors=(D2T, fc(384)))),
        # A draft of another width that was made for this one.
        (
            "eagle3",
            target(),
            checkpoint(EAGLE3 | {"hidden_size": 64, "target_hidden_size": 128}, DRAFT, tensors=(fc(384, 64),)),
        ),
        ("eagle3", target(LLAMA | {"num_hidden_layers": 7}), eagle3()),
        ("eagle3", mtp_target(DEEPSEEK), eagle3(eagle_aux_hidden_state_layer_ids=[1, 2, 3])),
        # Packed or pickled weights hide the width: the config's count stands for it.
        ("eagle3", target(), checkpoint(EAGLE3, DRAFT, form="pickle")),
        ("eagle", target(), checkpoint(EAGLE, DRAFT, tensors=(fc(256),))),
        # Mistral's own format.
        ("eagle", target(MISTRAL), checkpoint(MISTRAL | {"n_layers": 2}, DRAFT, tensors=(EAGLE_LINEAR,), mistral=True)),
        ("eagle", target(LARGE_3), checkpoint(LARGE_3 | {"n_layers": 2}, DRAFT, tensors=(EAGLE_LINEAR,), mistral=True)),
        ("dflash", target(), checkpoint(DFLASH, DRAFT, tensors=(fc(384),))),
        ("dspark", target(), checkpoint(DSPARK, DRAFT, tensors=(fc(384),))),
        ("draft_model", target(), checkpoint(LLAMA | {"hidden_size": 64}, DRAFT)),
    ],
)
def test_a_draft_that_fits(method: str, on: Checkpoint, draft: Checkpoint) -> None:
    checks = fit(method, on, draft, PINNED)
    assert errors(checks) == {}
    assert {"draft-kind", "vocabulary"} <= set(passed(checks))


@pytest.mark.parametrize(
    ("method", "on", "draft", "name", "numbers"),
    [
        # The three that pass vLLM's own health check and kill the engine at the first request.
        ("eagle3", target(), eagle3(hidden_size=64), "hidden-size", ("64", "128")),
        ("eagle3", target(LAYERS), eagle3(), "auxiliary-layers", ("384", "256")),
        ("eagle3", target(), eagle3(vocab_size=1024, draft_vocab_size=1024), "vocabulary", ("1024", "512")),
        # The same, other ways.
        (
            "eagle",
            target(),
            checkpoint(EAGLE | {"hidden_size": 64}, DRAFT, tensors=(fc(128, 64),)),
            "hidden-size",
            ("64", "128"),
        ),
        ("eagle3", target(), eagle3(target_hidden_size=256), "hidden-size", ("256", "128")),
        ("eagle3", target(), eagle3(vocab_size=256, draft_vocab_size=256), "vocabulary", ("256", "512")),
        (
            "eagle",
            target(),
            checkpoint(EAGLE | {"vocab_size": 256}, DRAFT, tensors=(fc(256),)),
            "vocabulary",
            ("256", "512"),
        ),
        ("dflash", target(), checkpoint(DFLASH | {"vocab_size": 256}, DRAFT), "vocabulary", ("256", "512")),
        ("draft_model", target(), checkpoint(LLAMA | {"vocab_size": 256}, DRAFT), "vocabulary", ("256", "512")),
        (
            "eagle3",
            target(),
            eagle3(eagle_aux_hidden_state_layer_ids=[1, 2, 9]),
            "auxiliary-layers",
            ("1, 2, 9", "8 layers"),
        ),
        ("eagle3", target(), eagle3(eagle_aux_hidden_state_layer_ids=[1, 2, 2]), "auxiliary-layers", ("384", "256")),
        ("eagle3", target(), eagle3(eagle_aux_hidden_state_layer_ids=[1, 2]), "auxiliary-layers", ("384", "256")),
        ("eagle3", target(LLAMA | {"num_hidden_layers": 2}), eagle3(), "auxiliary-layers", ("-1, 1, 2", "2 layers")),
        (
            "eagle3",
            mtp_target(),
            eagle3(eagle_aux_hidden_state_layer_ids=[0, 2, 3]),
            "auxiliary-layers",
            ("0, 2, 3", "5 layers"),
        ),
        # Four layers in a list that this class of draft does not look at.
        (
            "eagle3",
            target(),
            checkpoint(EAGLE3 | {"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]}, DRAFT, tensors=(fc(512),)),
            "auxiliary-layers",
            ("512", "384"),
        ),
        # A separate MTP head of another size.
        (
            "mtp",
            target(LLAMA | {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}),
            checkpoint(
                LLAMA | {"architectures": ["G"], "model_type": "gemma4_assistant", "backbone_hidden_size": 64}, DRAFT
            ),
            "hidden-size",
            ("64", "128"),
        ),
        (
            "mtp",
            target(DEEPSEEK),
            mtp_target(DEEPSEEK | {"hidden_size": 64}, place=DRAFT),
            "hidden-size",
            ("64", "128"),
        ),
        # A pruned vocabulary.
        ("eagle3", target(), eagle3(draft_vocab_size=1024), "draft-vocabulary", ("1024", "512")),
        ("eagle3", target(), eagle3(draft_vocab_size=256), "draft-vocabulary", ("256 of 512", "no tensor d2t")),
        (
            "eagle3",
            target(),
            checkpoint(EAGLE3 | {"draft_vocab_size": 200}, DRAFT, tensors=(D2T, fc(384))),
            "draft-vocabulary",
            ("200", "256"),
        ),
        # Block drafts.
        ("dflash", target(LAYERS), checkpoint(DFLASH, DRAFT), "context-layers", ("1, 4, 6", "4 layers")),
        ("dflash", target(), checkpoint(DFLASH, DRAFT, tensors=(fc(256),)), "context-layers", ("256", "384")),
        ("dspark", target(LAYERS), checkpoint(DSPARK, DRAFT), "context-layers", ("1, 4, 6", "4 layers")),
        (
            "dflash",
            target(),
            checkpoint(DFLASH | {"dflash_config": {"mask_token_id": 512, "target_layer_ids": [1]}}, DRAFT),
            "mask-token",
            ("512", "of 512"),
        ),
        (
            "dflash",
            target(),
            checkpoint(DFLASH | {"dflash_config": {"target_layer_ids": [1]}}, DRAFT),
            "mask-token",
            ("mask_token_id",),
        ),
        ("dspark", target(LLAMA | {"vocab_size": 500}), checkpoint(DSPARK, DRAFT), "vocabulary", ("512", "500")),
        # Method against kind, and class against engine.
        ("eagle", target(), eagle3(), "draft-kind", ("the method is eagle", "made for eagle3")),
        ("eagle3", target(), checkpoint(LLAMA, DRAFT), "draft-kind", ("the method is eagle3", "an ordinary model")),
        ("eagle3", target(), checkpoint(EAGLE, DRAFT, tensors=(fc(256),)), "draft-kind", ("made for eagle",)),
        ("draft_model", target(), eagle3(), "draft-kind", ("the method is draft_model", "made for eagle3")),
        ("mtp", target(), eagle3(), "draft-kind", ("the method is mtp", "made for eagle3")),
        (
            "draft_model",
            target(),
            checkpoint(LLAMA | {"model_type": "qwen3_5_text"}, DRAFT),
            "draft-kind",
            ("mtp", "draft_model"),
        ),
        ("eagle", target(), checkpoint(LLAMA | {"model_type": "eagle"}, DRAFT), "draft-format", ("original format",)),
        ("draft_model", target(), checkpoint(LLAMA, DRAFT, lora=True), "draft-format", ("is a LoRA adapter",)),
        (
            "eagle3",
            target(),
            checkpoint(EAGLE3 | {"architectures": ["Eagle3NewForCausalLM"]}, DRAFT, tensors=(fc(384),)),
            "draft-class",
            ("Eagle3NewForCausalLM", "0.32.0"),
        ),
        (
            "mlp_speculator",
            target(),
            checkpoint({"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"}, DRAFT),
            "draft-class",
            ("MLPSpeculatorPreTrainedModel",),
        ),
        (
            "eagle3",
            target(LLAMA | {"architectures": ["MiMoForCausalLM"]}),
            eagle3(),
            "target-states",
            ("MiMoForCausalLM",),
        ),
        (
            "dflash",
            target(LLAMA | {"architectures": ["MiMoForCausalLM"]}),
            checkpoint(DFLASH, DRAFT),
            "target-states",
            ("MiMoForCausalLM",),
        ),
    ],
)
def test_a_draft_that_does_not_fit_is_refused_with_both_numbers(
    method: str, on: Checkpoint, draft: Checkpoint, name: str, numbers: tuple[str, ...]
) -> None:
    error = errors(fit(method, on, draft, PINNED))[name]
    assert error.code == 8
    assert error.todo
    for number in (*numbers, DRAFT if name != "target-states" else TARGET):
        assert number in error.what


def test_a_dspark_draft_may_bring_tokens_of_its_own() -> None:
    embeddings = Tensor("embed_tokens.weight", "BF16", (512, 128))
    draft = checkpoint(DSPARK, DRAFT, tensors=(embeddings, fc(384)))
    assert errors(fit("dspark", target(LLAMA | {"vocab_size": 500}), draft, PINNED)) == {}


def test_the_speculators_format() -> None:
    document = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "draft_vocab_size": 512,
        "transformer_layer_config": LLAMA | {"num_hidden_layers": 1},
    }
    assert errors(fit("eagle3", target(), checkpoint(document, DRAFT, tensors=(fc(384),)), PINNED)) == {}
    for unread in ("eagle9", "mtp", "eagle"):
        new = checkpoint(document | {"speculators_model_type": unread}, DRAFT)
        error = errors(fit("eagle3", target(), new, PINNED))["draft-class"]
        assert error.what == f"vLLM 0.32.0 does not read speculators drafts of the type {unread} ({DRAFT})"
    layers = document["transformer_layer_config"]
    assert isinstance(layers, dict)
    mistral = checkpoint(document | {"transformer_layer_config": layers | {"model_type": "mistral"}}, DRAFT)
    assert "model type mistral" in errors(fit("eagle3", target(), mistral, PINNED))["draft-format"].what
    assert errors(fit("dflash", target(), checkpoint(document, DRAFT), PINNED))["draft-kind"].code == 8


FOUR = {NESTED: [1, 3, 5, 7]}


@pytest.mark.parametrize(
    ("draft", "first", "second"),
    [
        # Nested: model runner V1 reads it, V2 gives the three that it gives to every draft.
        (checkpoint(EAGLE3 | {"eagle_config": FOUR}, DRAFT, tensors=(fc(512),)), "", "takes 512 features"),
        (eagle3(eagle_config={NESTED: [1, 3, 5]}), "", ""),
        (eagle3(eagle_config={NESTED: [1, 5, 9]}), "the layers 1, 5, 9", "trained on the layers 1, 5, 9"),
        # At the top level: both read it, and the draft's class must be told the number.
        (checkpoint(EAGLE3 | FOUR, DRAFT, tensors=(fc(512),)), "vLLM expects 384", "vLLM expects 384"),
        (checkpoint(EAGLE3 | FOUR | {"num_aux_hidden_states": 4}, DRAFT, tensors=(fc(512),)), "", ""),
    ],
)
def test_the_model_runner_decides_which_layers_a_draft_gets(draft: Checkpoint, first: str, second: str) -> None:
    for runner, words in ((1, first), (2, second)):
        found = errors(fit("eagle3", target(), draft, PINNED, runner))
        assert (words in found["auxiliary-layers"].what) if words else found == {}
    found = errors(fit("eagle3", target(), draft, PINNED))
    assert ("auxiliary-layers" in found) is bool(first and second)


def test_a_nested_list_that_runner_v2_overlooks() -> None:
    four = checkpoint(EAGLE3 | {"eagle_config": FOUR}, DRAFT, tensors=(fc(512),))
    error = errors(examine(case("eagle3", draft=four)).checks)["auxiliary-layers"]
    assert error.todo == (
        "Move eagle_aux_hidden_state_layer_ids from the eagle_config to the top level of the draft's config.json, and "
        "state num_aux_hidden_states 4 there"
    )
    assert examine(case("eagle3", draft=four, runner=1)).errors == ()
    unknown = examine(case("eagle3", draft=four, machine=ANY))
    assert unknown.errors == ()
    assert unknown.unknown[0].startswith(f"whether the target gives the draft {DRAFT} the states that it takes")
    three = eagle3(eagle_config={NESTED: [1, 3, 5]})
    assert examine(case("eagle3", draft=three)).warnings == (
        f"the draft {DRAFT} was trained on the layers 1, 3, 5 of its target, but vLLM's model runner V2 does not look "
        "into the eagle_config and takes the layers 2, 4, 5: eagle_aux_hidden_state_layer_ids belongs at the top level "
        "of the draft's config.json",
    )
    assert examine(case("eagle3", draft=three, runner=1)).warnings == ()
    assert examine(case("eagle3", draft=eagle3(eagle_config={NESTED: [2, 4, 5]}))).warnings == ()


@pytest.mark.parametrize(
    ("draft", "todo"),
    [
        (
            checkpoint(EAGLE3 | FOUR, DRAFT, tensors=(fc(512),)),
            "State num_aux_hidden_states 4 in the draft's config.json",
        ),
        (eagle3(eagle_aux_hidden_state_layer_ids=[1, 2]), "Use a draft that was made for this target"),
    ],
)
def test_no_hint_leads_into_a_list_that_is_not_read(draft: Checkpoint, todo: str) -> None:
    assert errors(examine(case("eagle3", draft=draft)).checks)["auxiliary-layers"].todo == todo


def test_a_block_draft_for_a_target_of_another_depth_is_said() -> None:
    for depth, said in ((8, 0), (48, 1)):
        draft = checkpoint(DFLASH | {"num_target_layers": depth}, DRAFT, tensors=(fc(384),))
        seen = examine(case("dflash", tokens=15, draft=draft))
        assert (seen.errors, len(seen.warnings)) == ((), said)
    assert seen.warnings[0].startswith(f"the draft {DRAFT} was made for a target of 48 layers, and {TARGET} has 8")


def test_a_dflash_draft_that_samples_from_its_anchor() -> None:
    anchored = DFLASH | {"dflash_config": {**DFLASH["dflash_config"], "sample_from_anchor": True}}
    draft = checkpoint(anchored, DRAFT, tensors=(fc(384),))
    assert "sample_from_anchor" in errors(examine(case("dflash", draft=draft)).checks)["sample-from-anchor"].what
    assert examine(case("dflash", draft=draft, machine=CPU)).errors == ()
    unknown = examine(case("dflash", draft=draft, machine=ANY))
    assert unknown.errors == ()
    assert "may sample from its anchor" in unknown.unknown[0]


def test_sizes_that_a_config_does_not_state_are_unknown_not_wrong() -> None:
    silent = {
        key: value for key, value in EAGLE3.items() if key not in ("hidden_size", "vocab_size", "draft_vocab_size")
    }
    seen = examine(case("eagle3", draft=checkpoint(silent, DRAFT, tensors=(fc(384),))))
    assert seen.errors == ()
    assert (
        f"whether the hidden size of draft and target is the same: the config.json of {DRAFT} does not say"
        in seen.unknown
    )
    assert (
        f"whether the vocabulary of draft and target is the same: the config.json of {DRAFT} does not say"
        in seen.unknown
    )


def test_a_newer_vllm_may_know_more_classes() -> None:
    draft = checkpoint(EAGLE3 | {"architectures": ["Eagle3NewForCausalLM"]}, DRAFT, tensors=(fc(384),))
    on = target(LLAMA | {"architectures": ["NewForCausalLM"]})
    assert errors(fit("eagle3", on, draft, tables.load("0.99.0"))) == {}


@pytest.mark.parametrize(
    ("target_name", "draft_name", "method"),
    [
        ("Qwen--Qwen3-8B", "qwen3-8b-eagle3", "eagle3"),
        ("Qwen--Qwen3-8B", "qwen3-8b-dflash", "dflash"),
        ("Qwen--Qwen3-8B", "qwen3-8b-dspark", "dspark"),
        ("Qwen--Qwen3-32B-FP8", "qwen3-32b-eagle3", "eagle3"),
        ("Qwen--Qwen3-235B-A22B", "qwen3-235B-A22B-eagle3", "eagle3"),
        ("nvidia--Qwen3-235B-A22B-NVFP4", "qwen3-235B-A22B-eagle3", "eagle3"),
        ("Qwen--Qwen3-30B-A3B-FP8", "qwen3-30B-A3B-eagle3.1", "eagle3"),
        ("Qwen--Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480B-A35B-instruct-eagle3", "eagle3"),
        ("deepseek-ai--DeepSeek-R1", "deepseek-v3-671b-eagle3", "eagle3"),
        ("meta-llama--Meta-Llama-3.1-70B", "llama3-70B-ealge3", "eagle3"),
        ("meta-llama--Llama-4-Scout-17B-16E-Instruct", "llama4-scout-17B-16E-eagle3", "eagle3"),
        ("zai-org--GLM-5.2", "glm-5.2-dspark", "dspark"),
        ("nvidia--Qwen3.6-27B-NVFP4", "qwen3.6-27b-dspark", "dspark"),
        ("nvidia--Qwen3.6-35B-A3B-NVFP4", "qwen3.5-35b-a3b-dflash", "dflash"),
        ("moonshotai--Kimi-K3", "kimi-k3-dspark", "dspark"),
    ],
)
def test_published_drafts_fit_their_targets(target_name: str, draft_name: str, method: str) -> None:
    assert errors(_pair(target_name, draft_name, method)) == {}


@pytest.mark.parametrize(
    ("target_name", "draft_name", "method", "name", "numbers"),
    [
        ("Qwen--Qwen3-32B-FP8", "qwen3-8b-eagle3", "eagle3", "hidden-size", ("4096", "5120")),
        ("Qwen--Qwen3-8B", "qwen3-4b-eagle3", "eagle3", "hidden-size", ("2560", "4096")),
        ("meta-llama--Meta-Llama-3.1-8B", "qwen3-8b-eagle3", "eagle3", "vocabulary", ("151936", "128256")),
        ("openai--gpt-oss-20b", "gpt-oss-120B-eagle3", "eagle3", "auxiliary-layers", ("24 layers",)),
        ("Qwen--Qwen3-8B", "qwen3-4b-dflash", "dflash", "hidden-size", ("2560", "4096")),
        ("nvidia--Qwen3.6-27B-NVFP4", "qwen3.6-27b-domino-full-attention", "dflash", "draft-kind", ("domino",)),
        ("XiaomiMiMo--MiMo-7B-Base", "qwen2.5-7b-eagle3", "eagle3", "target-states", ("MiMoForCausalLM",)),
    ],
)
def test_published_drafts_of_other_targets_do_not(
    target_name: str, draft_name: str, method: str, name: str, numbers: tuple[str, ...]
) -> None:
    error = errors(_pair(target_name, draft_name, method))[name]
    assert error.code == 8
    for number in numbers:
        assert number in error.what


def _pair(target_name: str, draft_name: str, method: str) -> tuple[Check, ...]:
    on = checkpoint(CONFIGURATIONS["targets"][target_name], form="pickle")
    draft = checkpoint(CONFIGURATIONS["drafts"][draft_name], DRAFT, form="pickle")
    return fit(method, on, draft, PINNED)


# Heads ---------------------------------------------------------------------------------------------------------------


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


# A draft beside its target -------------------------------------------------------------------------------------------


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
