"""A draft against its target: sizes, vocabularies, layers, what is read of both."""

from __future__ import annotations

import pytest

from launcher.checkpoint import Checkpoint, Tensor
from launcher.speculation.check import examine, fit
from launcher.speculation.values import Check
from launcher.vllm import tables
from tests.unit.checking import (
    CONFIGURATIONS,
    D2T,
    EAGLE_LINEAR,
    LARGE_3,
    LAYERS,
    MISTRAL,
    NESTED,
    errors,
    passed,
)
from tests.unit.checkpoints import (
    ANY,
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK,
    EAGLE,
    EAGLE3,
    LLAMA,
    PINNED,
    TARGET,
    case,
    checkpoint,
    eagle3,
    fc,
    mtp_target,
    target,
)

# Draft against target -------------------------------------------------------------------------------------------------


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
