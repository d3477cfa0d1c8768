"""Families, kinds, default token counts, and how vLLM would exchange one method for another.

A table of cases, one below the other: its length needs no other reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.checkpoint import Checkpoint, Config, Head, Tensor, Weights, read_config
from launcher.speculation import kinds
from launcher.speculation.families import Family, depth_field, look_alike, mtp_types
from launcher.speculation.methods import (
    METHODS,
    canonical_method,
    config_overrides_method,
    default_tokens,
    draft_kind,
    mtp_family,
    needs_conversion,
    path_overrides_method,
    takes_draft,
    uses_head,
)
from launcher.vllm import tables

NEXTN = "num_nextn_predict_layers"


def config(architecture: str = "", model_type: str = "", **fields: Any) -> Config:
    named = {"architectures": [architecture]} if architecture else {}
    typed = {"model_type": model_type} if model_type else {}
    return read_config({**named, **typed, **fields})


def checkpoint(of: Config, *tensors: Tensor, form: str = "safetensors", heads: tuple[Head, ...] = ()) -> Checkpoint:
    return Checkpoint("/d", of, Weights(form, 0, 0, heads, tensors), (), False)


# Row 80 of the known faults: one small config for each family, with the field where that family keeps it.
@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (config("DeepseekV3ForCausalLM", "deepseek_v3", **{NEXTN: 1}), Family("deepseek_mtp", 1, True)),
        (config("DeepseekV32ForCausalLM", "deepseek_v32", **{NEXTN: 1}), Family("deepseek_mtp", 1, True)),
        (config("GlmMoeDsaForCausalLM", "glm_moe_dsa", **{NEXTN: 2}), Family("deepseek_mtp", 2, True)),
        (config("DeepseekV4ForCausalLM", "deepseek_v4", **{NEXTN: 1}), Family("deepseek_mtp", 1, True)),
        (config("DeepseekV3ForCausalLM", "deepseek_v3"), Family("deepseek_mtp", None, False)),
        (config("DeepseekV3ForCausalLM", "deepseek_v3", **{NEXTN: 0}), Family("deepseek_mtp", 0, True)),
        (config("DeepseekV3ForCausalLM", "deepseek_v3", **{NEXTN: -1}), Family("deepseek_mtp", 0, True)),
        (config("DeepseekV41ForCausalLM", "deepseek_v41", **{NEXTN: 3}), None),
        (config("", "dots3_note"), Family("dots3_note_mtp", 1, False)),
        (config("", "pangu_ultra_moe", **{NEXTN: 1}), Family("pangu_ultra_moe_mtp", 1, True)),
        (config("", "kimi_k3", text_config={NEXTN: 1}), Family("kimi_k3_mtp", 1, True)),
        (config("", "kimi_k3", text_config={"a": 1}), Family("kimi_k3_mtp", 0, False)),
        (config("MiMoForCausalLM", "qwen2", **{NEXTN: 1}), Family("mimo_mtp", 1, True)),
        (config("MiMoV2ForCausalLM"), Family("mimo_v2_mtp", 1, False)),
        (config("MiMoV2OmniForCausalLM"), Family("mimo_v2_mtp", 1, False)),
        (config("MiMoV2FlashForCausalLM", "mimo_v2_flash", **{NEXTN: 3}), Family("mimo_v2_mtp", 1, False)),
        (config("Glm4MoeForCausalLM", "glm4_moe", **{NEXTN: 1}), Family("glm4_moe_mtp", 1, True)),
        (config("Glm4MoeLiteForCausalLM", "glm4_moe_lite", **{NEXTN: 1}), Family("glm4_moe_lite_mtp", 1, True)),
        (config("GlmOcrForConditionalGeneration", text_config={NEXTN: 1}), Family("glm_ocr_mtp", 1, True)),
        (config("", "glm5_next", text_config={NEXTN: 1}), Family("glm5_next_mtp", 1, True)),
        (config("", "glm5_next"), Family("glm5_next_mtp", 0, False)),
        (config("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", **{NEXTN: 1}), Family("ernie_mtp", 1, True)),
        (config("NemotronHForCausalLM", "nemotron_h", **{NEXTN: 1}), Family("nemotron_h_mtp", 1, True)),
        (config("NemotronHForCausalLM", "nemotron_h", **{NEXTN: 0}), None),
        (config("NemotronHForCausalLM", "nemotron_h"), None),
        (config("", "nemotron_h_puzzle", **{NEXTN: 1}), Family("nemotron_h_mtp", 1, True)),
        (
            config("NemotronH_Omni_Reasoning_V3", "omni", text_config={"model_type": "nemotron_h", NEXTN: 1}),
            Family("nemotron_h_mtp", 1, True),
        ),
        (config("NemotronH_Omni_Reasoning_V3", "omni", text_config={"model_type": "llama", NEXTN: 1}), None),
        (config("Qwen3NextForCausalLM", "qwen3_next"), Family("qwen3_next_mtp", None, False)),
        (config("", "qwen3_5", text_config={"mtp_num_hidden_layers": 1}), Family("qwen3_5_mtp", 1, True)),
        (config("", "qwen3_5_moe", mtp_num_hidden_layers=2), Family("qwen3_5_mtp", 2, True)),
        (config("", "qwen3_5_text", mtp_num_hidden_layers=1), Family("qwen3_5_mtp", 1, True)),
        (config("", "qwen3_5_moe_text", mtp_num_hidden_layers=1), Family("qwen3_5_mtp", 1, True)),
        (config("", "intern_s2_preview", text_config={"mtp_num_hidden_layers": 1}), Family("qwen3_5_mtp", 1, True)),
        (config("", "interns2_mobius", text_config={"mtp_num_hidden_layers": 1}), Family("qwen3_5_mtp", 1, True)),
        (config("", "qwen4_exp", text_config={"mtp_num_hidden_layers": 1}), Family("qwen4_exp_mtp", 1, True)),
        (config("", "qwen4_exp_text", **{NEXTN: 2}), Family("qwen4_exp_mtp", 2, True)),
        (config("", "bailing_hybrid", **{NEXTN: 1}), Family("bailing_hybrid_mtp", 1, True)),
        (config("BailingMoeV2_5ForCausalLM", "other", **{NEXTN: 1}), Family("bailing_hybrid_mtp", 1, True)),
        # Silent, where vLLM reads the field without a default: it cannot build the head.
        (config("BailingMoeV3ForCausalLM", "bailing_hybrid"), Family("bailing_hybrid_v3_mtp", 0, False)),
        (config("BailingMoeV2_5ForCausalLM", "bailing_hybrid"), Family("bailing_hybrid_mtp", 0, False)),
        (config("MiMoForCausalLM", "mimo"), Family("mimo_mtp", 0, False)),
        (config("Ernie4_5_MoeForCausalLM", "ernie4_5_moe"), Family("ernie_mtp", 0, False)),
        (config("HYV3ForCausalLM", "hy_v3"), Family("hy_v3_mtp", 0, False)),
        (config("GlmOcrForConditionalGeneration", "glm_ocr", text_config={"a": 1}), Family("glm_ocr_mtp", 0, False)),
        (config("Glm4MoeLiteForCausalLM", "glm4_moe_lite"), Family("glm4_moe_lite_mtp", 0, False)),
        (config("PanguUltraMoEForCausalLM", "pangu_ultra_moe"), Family("pangu_ultra_moe_mtp", 0, False)),
        (config("GlmMoeDsaForCausalLM", "glm_moe_dsa"), Family("deepseek_mtp", 0, False)),
        # Transformers 5 has another name for the field of two families.
        (config("DeepseekV3ForCausalLM", "deepseek_v3", num_mtp_layers=2), Family("deepseek_mtp", 2, True)),
        (
            config("DeepseekV3ForCausalLM", "deepseek_v3", **{NEXTN: 1}, num_mtp_layers=2),
            Family("deepseek_mtp", 1, True),
        ),
        (config("Glm4MoeForCausalLM", "glm4_moe", num_mtp_layers=3), Family("glm4_moe_mtp", 3, True)),
        (config("HYV3ForCausalLM", "hy_v3", num_mtp_layers=3), Family("hy_v3_mtp", 0, False)),
        (config("BailingMoeV3VLForConditionalGeneration", "x"), Family("bailing_hybrid_v3_mtp", 0, False)),
        (config("ExaoneMoEForCausalLM", "exaone_moe", **{NEXTN: 1}), Family("exaone_moe_mtp", 1, True)),
        (config("", "exaone4_5_vl", text_config={NEXTN: 1}), Family("exaone4_5_mtp", 1, True)),
        (config("LongcatFlashForCausalLM"), Family("longcat_flash_mtp", 1, False)),
        (config("", "longcat_flash", **{NEXTN: 1}), Family("longcat_flash_mtp", 1, True)),
        (config("Step3p5ForCausalLM", "step3p5", **{NEXTN: 3}), Family("step3p5_mtp", 3, True)),
        (config("Step3p5ForCausalLM", "step3p5"), Family("step3p5_mtp", 0, False)),
        (config("", "step3p7", text_config={NEXTN: 3}), Family("step3p5_mtp", 3, True)),
        (config("Step5ForCausalLM", "step5"), Family("step5_mtp", 1, False)),
        (config("Step5ForConditionalGeneration", "x", text_config={NEXTN: 2}), Family("step5_mtp", 2, True)),
        (config("", "hy_v3", **{NEXTN: 1}), Family("hy_v3_mtp", 1, True)),
        (config("", "hy_v4"), Family("hy_v4_mtp", 1, False)),
        (config("", "inkling_mm_model", mtp_config={NEXTN: 2}, text_config={"a": 1}), Family("inkling_mtp", 2, True)),
        (config("", "inkling_model"), Family("inkling_mtp", 0, False)),
        (config("", "minimax_m3_vl", text_config={"num_mtp_modules": 3}), Family("minimax_m3_mtp", 3, True)),
        (config("MiniMaxM3SparseForConditionalGeneration", "x"), Family("minimax_m3_mtp", 1, False)),
        (config("MiniMaxM3MTP", "x"), Family("minimax_m3_mtp", 1, False, standalone=True)),
        (config("Gemma4AssistantModel", "gemma4_assistant"), Family("gemma4_mtp", 1, False, standalone=True)),
        (config("", "gemma4_unified_assistant"), Family("gemma4_mtp", 1, False, standalone=True)),
        (config("", "ernie_mtp", **{NEXTN: 1}), Family("ernie_mtp", 1, True, standalone=True)),
        (
            config("RadioMBartPrefixForCausalLM", "radio", decoder={"causal_vision_prefix": True}),
            Family("mtp", 1, False),
        ),
        (config("RadioMBartPrefixForCausalLM", "radio", decoder={}), None),
        (config("DeepseekV3ForCausalLM", "kimi_k2", **{NEXTN: 0}), None),
        (config("MiniMaxM2ForCausalLM", "minimax_m2", use_mtp=True, num_mtp_modules=3), None),
        (config("Gemma4ForConditionalGeneration", "gemma4"), None),
        (config("LlamaForCausalLM", "llama"), None),
        (config(), None),
        (config("Glm4MoeForCausalLM", "glm4_moe", **{NEXTN: True}), Family("glm4_moe_mtp", None, False)),
    ],
)
def test_family_and_depth(of: Config, expected: Family | None) -> None:
    assert mtp_family(of) == expected


@pytest.mark.parametrize(
    ("of", "version", "expected"),
    [
        (config("Step5ForCausalLM", "step5"), "0.32.0", None),
        (config("Step5ForCausalLM", "step5"), "0.33.0", "step5_mtp"),
        (config("", "glm5_next", text_config={NEXTN: 1}), "0.29.0", None),
        (config("", "glm5_next", text_config={NEXTN: 1}), "0.30.0", "glm5_next_mtp"),
        (config("RadioMBartPrefixForCausalLM", decoder={"causal_vision_prefix": True}), "0.32.0", None),
        (config("RadioMBartPrefixForCausalLM", decoder={"causal_vision_prefix": True}), "0.33.0", "mtp"),
        (config("SomeNewForCausalLM", "some_new", num_mtp_layers=1), "0.32.0", None),
        (config("SomeNewForCausalLM", "some_new", num_mtp_layers=1), "0.33.0", "mtp"),
        (config("LlamaForCausalLM", "llama", num_mtp_layers=1), "0.33.0", None),
        (config("SomeNewVL", "some_new", text_config={"num_mtp_layers": 1}), "0.33.0", None),
    ],
)
def test_families_of_a_version(of: Config, version: str, expected: str | None) -> None:
    family = mtp_family(of, tables.load(version))
    assert (family and family.name) == expected


@pytest.mark.parametrize("version", ["0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_every_mtp_type_of_every_version_is_known(version: str) -> None:
    assert tables.load(version).mtp_types <= mtp_types()


@pytest.mark.parametrize(
    ("model_type", "why", "todo"),
    [
        ("deepseek_v41", "DeepSeek V4.1 ships DSpark stages", "Choose the method dspark"),
        ("minimax_m2", "MiniMax-M2 configs count MTP modules", "Choose another method, such as ngram"),
        ("gemma4", "Gemma 4's head is a repository of its own", "Give that one's folder as NIM_DRAFT_MODEL_PATH"),
        (
            "gemma4_unified",
            "Gemma 4's head is a repository of its own",
            "Give that one's folder as NIM_DRAFT_MODEL_PATH",
        ),
    ],
)
def test_look_alikes_are_explained(model_type: str, why: str, todo: str) -> None:
    alike = look_alike(config("", model_type))
    assert alike is not None
    assert alike.why.startswith(why)
    assert alike.todo == todo
    assert look_alike(config("", "llama")) is None


@pytest.mark.parametrize(
    ("family", "layers"),
    [
        (Family("deepseek_mtp", 2, True), 2),
        (Family("deepseek_mtp", None, False), None),
        (Family("mimo_v2_mtp", 1, False), None),
        (Family("longcat_flash_mtp", 2, True), 1),
        (Family("hy_v4_mtp", 2, True), 1),
        (Family("hy_v4_mtp", 1, True), 1),
    ],
)
def test_the_layers_that_vllm_loads(family: Family, layers: int | None) -> None:
    assert family.layers == layers


def test_where_a_family_states_its_depth() -> None:
    assert depth_field(config("MiMoForCausalLM", "mimo")) == NEXTN
    assert depth_field(config("", "qwen3_5")) == "mtp_num_hidden_layers"
    assert depth_field(config("", "inkling_model")) == f"mtp_config.{NEXTN}"
    assert depth_field(config("SomeNewForCausalLM", "some_new")) == "num_mtp_layers"


LLAMA = {"hidden_size": 8, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        (checkpoint(config("LlamaForCausalLMEagle3", "llama")), "eagle3"),
        (checkpoint(config("Eagle3DeepseekV2ForCausalLM", "deepseek_v2")), "eagle3"),
        (checkpoint(config("PEagleDraftModel", "llama")), "eagle3"),
        (checkpoint(config("EagleLlamaForCausalLM", "llama")), "eagle"),
        (checkpoint(config("EagleDeepSeekMTPModel", "deepseek_v3")), "eagle"),
        (checkpoint(config("Eagle2_5_VLForConditionalGeneration", "eagle_2_5_vl")), "draft_model"),
        (checkpoint(config("DFlashDraftModel", "qwen3")), "dflash"),
        (checkpoint(config("DFlash2DraftModel", "qwen3")), "dflash"),
        (checkpoint(config("LiLiCorrDraftModel", "qwen3")), "dflash"),
        (checkpoint(config("MuseGlimmerAssistantModel", "muse_glimmer_assistant")), "dflash"),
        (checkpoint(config("Qwen3XPressModel", "qwen3")), "dflash"),
        (checkpoint(config("DSparkDraftModel", "qwen3")), "dspark"),
        (checkpoint(config("Gemma4DSparkModel", "gemma4_text")), "dspark"),
        (checkpoint(config("DominoDraftModel", "qwen3")), "domino"),
        (checkpoint(config("MedusaModel", "medusa")), "medusa"),
        (checkpoint(config(medusa_num_heads=4, base_model_name_or_path="x")), "medusa"),
        (checkpoint(config("MLPSpeculatorPreTrainedModel", "mlp_speculator")), "mlp_speculator"),
        (checkpoint(config("Gemma4AssistantModel", "gemma4_assistant")), "mtp"),
        (checkpoint(config("LlamaForCausalLM", "eagle", model=LLAMA)), "eagle"),
        (checkpoint(config("", "eagle")), "eagle"),
        (checkpoint(config("LlamaForCausalLM", "llama", draft_vocab_size=32000)), "eagle3"),
        (checkpoint(config("LlamaForCausalLM", "llama", eagle_config={"use_aux_hidden_state": True})), "eagle3"),
        (checkpoint(config("Qwen3Model", "qwen3", dflash_config={"mask_token_id": 1})), "dflash"),
        (checkpoint(config("Qwen3Model", "qwen3", dflash_config={"markov_rank": 1})), "dspark"),
        (checkpoint(config("LlamaForCausalLM", "llama", **LLAMA)), "draft_model"),
        (checkpoint(config("LlamaForCausalLM", "llama", **LLAMA), Tensor("fc.weight", "BF16", (8, 16))), "eagle"),
        (checkpoint(config("LlamaForCausalLM", "llama", **LLAMA), Tensor("fc.weight", "BF16", (8, 24))), "eagle3"),
        (
            checkpoint(
                read_config({"dim": 8, "n_layers": 2, "moe": {"num_shared_experts": 1}}),
                Tensor("eagle_linear.weight", "BF16", (8, 16)),
            ),
            "eagle",
        ),
        (
            checkpoint(
                config("LlamaForCausalLM", "llama", **LLAMA),
                Tensor("d2t", "I64", (4,)),
                Tensor("fc.weight", "BF16", (8, 16)),
            ),
            "eagle3",
        ),
        (
            checkpoint(
                config("LlamaForCausalLM", "llama", **LLAMA),
                Tensor("fc.weight", "BF16", (8, 16)),
                Tensor("midlayer.hidden_norm.weight", "BF16", (8,)),
            ),
            "eagle3",
        ),
        (
            checkpoint(
                config("Qwen3ForCausalLM", "qwen3"),
                Tensor("mtp.fc.weight", "BF16", (8, 16)),
                heads=(Head("mtp", 1, "mtp.fc.weight", "BF16"),),
            ),
            "draft_model",
        ),
        (checkpoint(config("LlamaForCausalLM", "llama", **LLAMA), form="pickle"), None),
        (checkpoint(config("LlamaForCausalLM", "llama", num_hidden_layers=16), form="pickle"), "draft_model"),
        (checkpoint(config()), None),
    ],
)
def test_the_kind_of_a_draft(draft: Checkpoint, expected: str | None) -> None:
    assert draft_kind(draft) == expected


def speculators(algorithm: str, base: str = "llama", **fields: Any) -> Config:
    return config(
        "Eagle3Speculator",
        speculators_model_type=algorithm,
        speculators_config={"verifier": {"name_or_path": "org/target"}},
        transformer_layer_config={"model_type": base, "hidden_size": 8, "vocab_size": 512},
        **fields,
    )


@pytest.mark.parametrize(
    ("algorithm", "base", "kind", "architecture"),
    [
        ("eagle3", "llama", "eagle3", "Eagle3LlamaForCausalLM"),
        ("eagle3", "qwen3", "eagle3", "Eagle3Qwen3ForCausalLM"),
        ("peagle", "llama", "eagle3", "PeagleLlamaForCausalLM"),
        ("dflash", "qwen3", "dflash", "DFlashDraftModel"),
        ("dflash2", "qwen3", "dflash", "DFlash2DraftModel"),
        ("dspark", "qwen3", "dspark", "Qwen3DSparkModel"),
        ("hass", "llama", None, ""),
    ],
)
def test_the_speculators_format(algorithm: str, base: str, kind: str | None, architecture: str) -> None:
    draft = checkpoint(speculators(algorithm, base))
    assert kinds.is_speculators(draft.config)
    assert draft_kind(draft) == kind
    assert kinds.draft_architecture(kind or "eagle3", draft.config) == architecture
    assert kinds.speculators_verifier(draft.config) == "org/target"
    assert kinds.parallel_drafting(draft) is (algorithm == "peagle")


def test_a_model_type_makes_it_no_speculators_format() -> None:
    assert not kinds.is_speculators(config("X", "llama", speculators_config={}))


# Row 92 of the known faults.
def test_the_original_eagle_format_needs_conversion() -> None:
    draft = checkpoint(config("", "eagle"))
    assert draft_kind(draft) == "eagle"
    assert needs_conversion(draft).startswith("it is in the EAGLE authors' original format")
    assert needs_conversion(checkpoint(config("", "eagle", model=LLAMA))) == ""
    assert needs_conversion(checkpoint(config("LlamaForCausalLM", "llama"))) == ""


def test_parallel_drafting_is_known_by_its_token() -> None:
    assert kinds.parallel_drafting(checkpoint(config("LlamaForCausalLM", "llama", pard_token=7)))
    assert kinds.parallel_drafting(checkpoint(config("PEagleDraftModel", "llama")))
    assert not kinds.parallel_drafting(checkpoint(config("LlamaForCausalLM", "llama")))


@pytest.mark.parametrize(
    ("method", "of", "expected"),
    [
        ("eagle3", config("LlamaForCausalLMEagle3", "phi3"), "LlamaForCausalLMEagle3"),
        ("eagle3", config("LlamaForCausalLM", "llama"), "Eagle3LlamaForCausalLM"),
        ("eagle", config("LlamaForCausalLM", "llama"), "EagleLlamaForCausalLM"),
        ("eagle", config("LlamaForCausalLMEagle3", "llama"), "EagleLlamaForCausalLMEagle3"),
        ("eagle", read_config({"dim": 8, "n_layers": 2}), "EagleMistralForCausalLM"),
        (
            "eagle",
            read_config({"dim": 8, "n_layers": 2, "moe": {"num_shared_experts": 1}}),
            "EagleMistralLarge3ForCausalLM",
        ),
        (
            "eagle",
            config("EAGLEModel", "eagle", model={"architectures": ["LlamaForCausalLM"]}),
            "EagleLlamaForCausalLM",
        ),
        ("dflash", config("DFlashDraftModel", "qwen3"), "DFlashDraftModel"),
        ("dflash", config("DominoDraftModel", "qwen3"), "DFlashDominoDraftModel"),
        ("dflash", config("LiLiCorrDraftModel", "qwen3"), "LiLiCorrDraftModel"),
        ("dspark", config("DSparkDraftModel", "qwen3"), "Qwen3DSparkModel"),
        ("dspark", config("K3DSparkModel", "k3_dspark"), "K3DSparkModel"),
        ("dspark", config("DeepseekV4ForCausalLM", "deepseek_v4"), "DSparkDraftModel"),
        ("dspark", config("DeepseekV41ForCausalLM", "deepseek_v41"), "DSparkV41DraftModel"),
        ("medusa", config(medusa_num_heads=4), "MedusaModel"),
        ("draft_model", config("LlamaForCausalLM", "llama"), "LlamaForCausalLM"),
    ],
)
def test_the_class_that_vllm_looks_for(method: str, of: Config, expected: str) -> None:
    assert kinds.draft_architecture(method, of) == expected


AUX = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("of", "layers", "first", "second"),
    [
        (config(), 32, (2, 16, 29), (2, 16, 29)),
        (config(), 6, (2, 3), (2, 3)),
        (config(), 4, (1, 2), (1, 2)),
        (config("", "", **{AUX: [9, 1, 5]}), 32, (1, 5, 9), (1, 5, 9)),
        (config("", "", **{AUX: [3, 3]}), 32, (3,), (3,)),
        # A list in the eagle_config is read by model runner V1 alone, and V2 has another name for it.
        (config(eagle_config={AUX: [1, 17, 33]}), 36, (1, 17, 33), (2, 18, 33)),
        (config(eagle_config={"layer_ids": [1, 17, 30]}), 36, (2, 18, 33), (1, 17, 30)),
        (config("", "", **{AUX: [9, 1, 5]}, eagle_config={AUX: [1], "layer_ids": [2]}), 32, (1, 5, 9), (1, 5, 9)),
        (config("", "", **{AUX: "x"}, eagle_config={AUX: []}), 32, (2, 16, 29), (2, 16, 29)),
    ],
)
def test_auxiliary_layers_are_a_set(of: Config, layers: int, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    assert kinds.aux_layers(of, layers, 1) == first
    assert kinds.aux_layers(of, layers, 2) == second


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (config("LlamaForCausalLMEagle3"), 3),
        (config("LlamaForCausalLMEagle3", eagle_config={AUX: [1, 2]}), 2),
        (config("LlamaForCausalLMEagle3", "", **{AUX: [1, 2]}), 3),
        (config("Eagle3Qwen3ForCausalLM", "", **{AUX: [1, 2]}), 2),
        (config("Eagle3Qwen3ForCausalLM", num_aux_layers=4), 4),
        (config("LlamaForCausalLMEagle3", num_aux_hidden_states=5), 5),
    ],
)
def test_states_that_the_drafts_class_expects(of: Config, expected: int) -> None:
    assert kinds.aux_expected(of) == expected


def test_an_eagle3_draft_may_do_without_inner_states() -> None:
    assert kinds.uses_aux_states(config())
    assert not kinds.uses_aux_states(config(eagle_config={"use_aux_hidden_state": False}))


def test_the_width_of_fc() -> None:
    assert kinds.fc_inputs(checkpoint(config(), Tensor("model.fc.weight", "BF16", (8, 24)))) == 24
    assert kinds.fc_inputs(checkpoint(config(), Tensor("eagle_linear.weight", "BF16", (8, 16)))) == 16
    assert kinds.fc_inputs(checkpoint(config(), Tensor("fc.weight", "U8", (8, 12)))) is None
    assert kinds.fc_inputs(checkpoint(config())) is None


def test_sizes_that_a_draft_states_for_its_target() -> None:
    plain = config(hidden_size=8, vocab_size=512)
    assert (kinds.target_hidden(plain), kinds.draft_vocabulary(plain)) == (8, 512)
    stated = config(hidden_size=8, vocab_size=512, target_hidden_size=16, draft_vocab_size=256)
    assert (kinds.target_hidden(stated), kinds.draft_vocabulary(stated)) == (16, 256)
    assert kinds.draft_vocabulary(speculators("eagle3", draft_vocab_size=None)) == 512
    for model_type in ("gemma4_assistant", "gemma4_unified_assistant"):
        assistant = config("", model_type, backbone_hidden_size=2560, text_config={"hidden_size": 256})
        assert kinds.target_hidden(assistant) == 2560
    assert kinds.target_hidden(config("", "llama", hidden_size=8, backbone_hidden_size=2560)) == 8


@pytest.mark.parametrize(
    ("of", "scaled"),
    [
        (config(), False),
        (config(rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6}), False),
        (config(rope_scaling={"type": "mrope", "mrope_section": [1]}), False),
        (config(rope_scaling={"rope_type": "yarn", "factor": 4.0}), True),
        (config(rope_scaling={"type": "linear"}), True),
        (config(text_config={"rope_parameters": {"rope_type": "llama3"}}), True),
        (config(rope_parameters={"full_attention": {"rope_type": "yarn"}}), True),
        (read_config({"dim": 8, "n_layers": 2, "yarn": {"factor": 16}}), True),
    ],
)
def test_positions_that_are_scaled(of: Config, scaled: bool) -> None:
    assert kinds.scales_positions(of) is scaled


def test_positions_of_several_dimensions() -> None:
    assert kinds.uses_mrope(config(text_config={"rope_scaling": {"mrope_section": [16, 24, 24]}}))
    assert kinds.uses_mrope(config(rope_parameters={"xdrope_section": [1, 2]}))
    assert not kinds.uses_mrope(config(rope_parameters={"rope_type": "default"}))


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (speculators("eagle3"), ""),
        (speculators("eagle3", "mistral"), "its layers are of the model type mistral"),
        (speculators("peagle", "gemma", mask_token_id=1), "its layers are of the model type gemma"),
        (speculators("peagle"), "no mask_token_id"),
        (speculators("dflash", "qwen3", mask_token_id=1), "no aux_hidden_state_layer_ids"),
        (speculators("dflash2", "qwen3"), "no mask_token_id and no aux_hidden_state_layer_ids"),
        (speculators("dspark", "qwen3"), "no aux_hidden_state_layer_ids"),
        (speculators("dspark", "gemma", aux_hidden_state_layer_ids=[1]), ""),
        (speculators("dflash", "qwen3", mask_token_id=0, aux_hidden_state_layer_ids=[1]), ""),
    ],
)
def test_what_vllm_needs_of_the_speculators_format(of: Config, why: str) -> None:
    found = needs_conversion(checkpoint(of))
    assert (why in found) if why else found == ""


def test_which_block_drafts_sample_from_their_anchor() -> None:
    assert kinds.samples_anchor(config("Qwen3DSparkModel"))
    assert not kinds.samples_anchor(config("Qwen3DSparkModel", sample_from_anchor=False))
    assert not kinds.samples_anchor(speculators("dspark", "qwen3"))
    assert kinds.samples_anchor(speculators("dspark", "qwen3", sample_from_anchor=True))
    assert kinds.dflash_samples_anchor(config(dflash_config={"sample_from_anchor": True}))
    assert kinds.dflash_samples_anchor(speculators("dflash", "qwen3", sample_from_anchor=True))
    assert not kinds.dflash_samples_anchor(config(sample_from_anchor=True))


@pytest.mark.parametrize(
    ("of", "layers", "block", "mask"),
    [
        (config(dflash_config={"target_layer_ids": [1, 9], "mask_token_id": 5}, block_size=16), (1, 9), 16, 5),
        (config(dflash_config={"block_size": 8}, mask_token_id=0), (), 8, 0),
        (config(dspark_target_layer_ids=[3], dspark_block_size=5, dspark_noise_token_id=2), (3,), 5, 2),
        (config(target_layer_ids=[7], pard_token=4), (7,), None, 4),
        (speculators("dflash", aux_hidden_state_layer_ids=[2, 10], block_size=8, mask_token_id=9), (1, 9), 8, 9),
        (config(ptd_token_id=6), (), None, 6),
        (config(), (), None, None),
    ],
)
def test_block_drafts(of: Config, layers: tuple[int, ...], block: int | None, mask: int | None) -> None:
    assert (kinds.context_layers(of), kinds.block_size(of), kinds.mask_token(of)) == (layers, block, mask)


def test_the_depth_of_the_target_that_a_block_draft_was_trained_for() -> None:
    assert kinds.trained_depth(config("DFlashDraftModel", num_target_layers=36)) == 36
    assert kinds.trained_depth(config("K3DSparkModel", num_target_layers=5)) is None
    assert kinds.trained_depth(config("DFlashDraftModel")) is None


BLOCK = checkpoint(config("DFlashDraftModel", block_size=16))


@pytest.mark.parametrize(
    ("method", "family", "draft", "keys", "expected"),
    [
        ("mtp", Family("step3p5_mtp", 3, True), None, {}, 3),
        ("mtp", Family("qwen3_next_mtp", None, False), None, {}, 1),
        ("mtp", None, None, {}, 1),
        ("eagle", None, None, {}, 3),
        ("eagle3", None, None, {}, 3),
        ("draft_model", None, None, {}, 3),
        ("ngram", None, None, {}, 3),
        ("dflash", None, BLOCK, {}, 15),
        ("dspark", None, BLOCK, {}, 16),
        # The anchor of these drafts is the token already known.
        ("dspark", None, checkpoint(speculators("dspark", "qwen3", block_size=8)), {}, 7),
        ("dspark", None, checkpoint(speculators("dspark", "qwen3", block_size=8, sample_from_anchor=True)), {}, 8),
        ("dspark", None, checkpoint(config("Qwen3DSparkModel", block_size=8, sample_from_anchor=False)), {}, 7),
        ("dspark", None, checkpoint(config()), {}, None),
        ("dspark", None, checkpoint(config("DeepseekV4ForCausalLM", dspark_block_size=7)), {}, 7),
        ("dflash", None, checkpoint(config(block_size=1)), {}, None),
        ("dflash", None, checkpoint(config()), {}, None),
        ("dflash", None, None, {}, None),
        ("suffix", None, None, {}, 24),
        ("suffix", None, None, {"suffix_decoding_max_tree_depth": 12}, 12),
        ("medusa", None, None, {}, None),
        ("ngram_gpu", None, None, {}, None),
        ("custom_class", None, None, {}, None),
    ],
)
def test_default_token_counts(
    method: str, family: Family | None, draft: Checkpoint | None, keys: Mapping[str, Any], expected: int | None
) -> None:
    assert default_tokens(method, family, draft, keys) == expected


def test_family_names_are_spellings_of_mtp() -> None:
    table = tables.load("0.32.0")
    assert canonical_method("deepseek_mtp", table) == "mtp"
    assert canonical_method("mtp", table) == "mtp"
    assert canonical_method("step5_mtp", table) == "step5_mtp"
    assert canonical_method("step5_mtp") == "mtp"
    assert canonical_method("eagle3", table) == "eagle3"


def test_what_a_method_needs() -> None:
    assert {name for name in METHODS if takes_draft(name)} == {
        "eagle3",
        "eagle",
        "dflash",
        "draft_model",
        "medusa",
        "mlp_speculator",
    }
    assert {name for name in METHODS if uses_head(name)} == {"mtp", "dspark"}
    assert not takes_draft("nonsense")
    assert not uses_head("nonsense")


@pytest.mark.parametrize("version", ["0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_every_method_of_every_version_is_described(version: str) -> None:
    table = tables.load(version)
    assert table.methods - table.mtp_types <= set(METHODS)


@pytest.mark.parametrize(
    ("path", "method", "expected"),
    [
        ("/models/eagle3-lab/target", "mtp", "eagle3"),
        ("/models/EAGLE-LLaMA3/draft", "draft_model", "eagle"),
        ("/models/EAGLE3-LLaMA3.1/draft", "draft_model", "eagle3"),
        ("/models/eagle-eagle3/draft", "mtp", "eagle"),
        ("/models/Qwen3-DFlash/draft", "medusa", "dflash"),
        ("/models/dspark_qwen3", "draft_model", "dspark"),
        ("/models/eagle/draft", "mtp", None),
        ("/models/eagle3/draft", "eagle", None),
        ("/models/eagle3/draft", "eagle3", None),
        ("/models/dspark/draft", "dflash", None),
        ("/models/eagle3/draft", "dspark", None),
        ("/models/eagle3/target", "ngram", None),
        ("/models/eagle3/target", "suffix", None),
        ("/models/neutral", "mtp", None),
    ],
)
def test_a_path_may_exchange_the_method(path: str, method: str, expected: str | None) -> None:
    assert path_overrides_method(path, method) == expected


@pytest.mark.parametrize(
    ("of", "method", "expected"),
    [
        (config("Qwen3_5ForCausalLM", "qwen3_5_text"), "draft_model", "mtp"),
        (config("DeepseekV3ForCausalLM", "deepseek_v3"), "mtp", None),
        (config("DSparkDraftModel", "qwen3"), "draft_model", "dspark"),
        (config("DSparkDraftModel", "other"), "draft_model", None),
        (config("K3DSparkModel", "k3_dspark"), "draft_model", None),
        (config("MuseGlimmerAssistantModel", "x"), "mtp", "dflash"),
        (config("MedusaModel", "medusa"), "draft_model", "medusa"),
        (config("MedusaModel", "medusa"), "medusa", None),
        (config("Qwen3_5ForCausalLM", "qwen3_5_text"), "eagle3", None),
        (config("LlamaForCausalLM", "llama"), "draft_model", None),
    ],
)
def test_a_config_may_exchange_the_method(of: Config, method: str, expected: str | None) -> None:
    assert config_overrides_method(of, method) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=True) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("model_type", NEXTN, AUX)), inner),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    (
        *("architectures", "model_type", "text_config", "hidden_size", "num_hidden_layers", "vocab_size", NEXTN, AUX),
        *("mtp_config", "eagle_config", "dflash_config", "speculators_config", "speculators_model_type", "decoder"),
        *("transformer_layer_config", "model", "block_size", "target_layer_ids", "draft_vocab_size", "auto_map"),
    )
)
NAMES = st.sampled_from(("qwen3_5", "eagle", "kimi_k3", "inkling_model", "nemotron_h", "glm5_next"))


@given(st.dictionaries(FIELDS, VALUES, max_size=5), NAMES | st.none())
def test_no_configuration_makes_the_facts_fail(document: dict[str, Any], model_type: str | None) -> None:
    of = read_config(document if model_type is None else {**document, "model_type": model_type})
    draft = checkpoint(of, Tensor("fc.weight", "BF16", (8,)))
    family = mtp_family(of)
    assert family is None or family.tokens is None or family.tokens >= 0
    assert draft_kind(draft) is None or draft_kind(draft) in {*METHODS, "domino"}
    for runner in (1, 2):
        assert kinds.aux_layers(of, 8, runner) == tuple(sorted(set(kinds.aux_layers(of, 8, runner))))
    for method in METHODS:
        tokens = default_tokens(method, family, draft)
        assert tokens is None or tokens >= 1
        assert isinstance(kinds.draft_architecture(method, of), str)
        assert config_overrides_method(of, method) != method
    assert isinstance((kinds.scales_positions(of), kinds.uses_mrope(of), needs_conversion(draft)), tuple)
    assert isinstance((kinds.aux_expected(of), kinds.context_layers(of), kinds.mask_token(of)), tuple)
