"""What each vLLM refuses together with speculation, row by row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.checkpoint import Checkpoint, Tensor
from launcher.machine import Machine
from launcher.speculation import refusals
from launcher.speculation.check import examine
from launcher.vllm import tables
from tests.unit.checkpoints import (
    ANY,
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK,
    EAGLE3,
    LLAMA,
    case,
    checkpoint,
    fc,
    mtp_target,
    target,
)

V1, V2 = {"runner": 1}, {"runner": 2}
QWEN3_NEXT = LLAMA | {"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}
SPARSE = DEEPSEEK | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_topk": 2048}
QWEN4 = LLAMA | {"architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp"}
PARSE = LLAMA | {"architectures": ["RadioMBartPrefixForCausalLM"], "decoder": {"causal_vision_prefix": True}}
STEP5 = LLAMA | {"architectures": ["Step5ForCausalLM"], "model_type": "step5"}
MIXED = DFLASH | {"layer_types": ["full_attention", "sliding_attention"]}
LATENT = DEEPSEEK | {"kv_lora_rank": 512}
CHAIN = DEEPSEEK | {"num_nextn_predict_layers": 3}
SEEING_ROPE = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
SEEING = LLAMA | SEEING_ROPE
GEMMA4 = LLAMA | {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant"}


PLAIN = checkpoint(LLAMA, DRAFT)


def draft_of(document: dict[str, Any] | None = None, **parts: Any) -> Checkpoint:
    return checkpoint(EAGLE3 if document is None else document, DRAFT, **({"tensors": (fc(384),)} | parts))


def flag(name: str, *values: str) -> dict[str, tuple[str, ...]]:
    return {name: values}


INTERLEAVED = flag("--decode-context-parallel-size", "2") | flag("--cp-kv-cache-interleave-size", "16")
WATERMARK = flag("--watermark-config", '{"key": 1}')
NO_CACHE = {"--no-enable-prefix-caching": ()}
SAMPLED = {"draft_sample_method": "probabilistic"}
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
OLD = {"version": "0.29.0"}
ASYNC = flag("--async-scheduling")
STAGES = flag("--pipeline-parallel-size", "2")


@pytest.mark.parametrize(
    ("method", "parts", "fragment", "code"),
    [
        # The device and the model runner.
        ("dspark", {"machine": CPU, "draft": draft_of(DSPARK)}, "does not run on a CPU", 9),
        ("ngram_gpu", {"machine": CPU}, "does not run on a CPU", 9),
        ("suffix", {"machine": Machine("cpu", False)}, "arctic-inference", 8),
        ("mtp", {"machine": CPU, "on": mtp_target(QWEN3_NEXT), "tokens": 1}, "prefix caching", 9),
        ("mtp", {"machine": CPU, "on": mtp_target(SPARSE), "tokens": 1}, "sparse attention", 9),
        (
            "dflash",
            {"machine": CPU, "draft": draft_of(DFLASH | {"architectures": ["DFlash2DraftModel"]})},
            "runner V2",
            9,
        ),
        ("dflash", {"machine": CPU, "draft": draft_of(MIXED)}, "runner V2", 9),
        ("dspark", {"draft": draft_of(DSPARK), **V1}, "VLLM_USE_V2_MODEL_RUNNER=0", 8),
        ("dflash", {"draft": draft_of(MIXED), **V1}, "VLLM_USE_V2_MODEL_RUNNER=0", 8),
        ("suffix", V2, "VLLM_USE_V2_MODEL_RUNNER=1", 8),
        ("ngram", {"version": "0.31.0", **V2}, "VLLM_USE_V2_MODEL_RUNNER=1", 8),
        ("draft_model", {"version": "0.30.0", "draft": PLAIN, **V2}, "VLLM_USE_V2_MODEL_RUNNER=1", 8),
        (
            "eagle3",
            {"config": {"parallel_drafting": True}, "draft": draft_of(EAGLE3 | {"pard_token": 1}), **V2},
            "VLLM_USE_V2",
            8,
        ),
        (
            "mtp",
            {"version": "0.33.0", "on": mtp_target(STEP5), "tokens": 1, "machine": CPU},
            "needs vLLM's model runner V2",
            8,
        ),
        # The target.
        ("suffix", {"on": target(QWEN4)}, "runs Qwen4 with its own MTP head or n-gram only", 8),
        ("mtp", {"version": "0.33.0", "on": mtp_target(PARSE), "tokens": 2}, "one trained MTP step", 8),
        # Parallelism and scheduling.
        ("ngram", {"flags": ASYNC}, "--async-scheduling cannot be combined", 8),
        ("suffix", {"flags": ASYNC, "version": "0.33.0"}, "--async-scheduling cannot be combined", 8),
        ("ngram", {"flags": ASYNC, "version": "0.33.0", "machine": CPU}, "--async-scheduling cannot be combined", 8),
        ("eagle3", {"flags": ASYNC | STAGES, "draft": draft_of(), "machine": CPU}, "exclude each other", 8),
        ("eagle3", {"flags": STAGES, "draft": draft_of(), "version": "0.29.0"}, "with pipeline parallelism", 8),
        (
            "eagle3",
            {"flags": STAGES, "draft": draft_of(), "on": target(LLAMA | {"architectures": ["GptOssForCausalLM"]})},
            "with pipeline parallelism",
            8,
        ),
        ("dflash", {"flags": STAGES, "draft": draft_of(DFLASH), "version": "0.29.0"}, "with pipeline parallelism", 8),
        (
            "mtp",
            {
                "flags": flag("--prefill-context-parallel-size", "2"),
                "on": mtp_target(),
                "version": "0.29.0",
                "tokens": 1,
            },
            "prefill context",
            8,
        ),
        ("ngram", {"flags": flag("--prefill-context-parallel-size", "2")}, "prefill context", 8),
        (
            "eagle3",
            {"flags": flag("--enable-dbo") | flag("--data-parallel-size", "2"), "draft": draft_of()},
            "--enable-dbo",
            8,
        ),
        ("ngram", {"flags": flag("--enable-dbo"), **V2}, "dual batch overlap", 8),
        ("ngram", {"flags": INTERLEAVED}, "interleave size above 1", 8),
        ("eagle3", {"flags": INTERLEAVED, "draft": draft_of(), "on": target(LATENT), **OLD}, "interleave size", 8),
        (
            "mtp",
            {"flags": INTERLEAVED | flag("--attention-backend", "FLASHMLA"), "on": mtp_target(LATENT), "tokens": 1},
            "interleave size",
            8,
        ),
        (
            "mtp",
            {"flags": flag("--block-size", "2"), "on": mtp_target(CHAIN), "tokens": 3},
            "--block-size 2 is below",
            8,
        ),
        ("draft_model", {"draft": checkpoint(SEEING, DRAFT), "machine": CPU}, "M-RoPE", 8),
        ("dflash", {"draft": draft_of(DFLASH | SEEING_ROPE), "machine": CPU}, "M-RoPE", 8),
        (
            "eagle3",
            {
                "draft": draft_of(EAGLE3 | SEEING_ROPE | {"pard_token": 1}),
                "config": {"parallel_drafting": True},
                "machine": CPU,
            },
            "M-RoPE",
            8,
        ),
        (
            "dflash",
            {"draft": draft_of(DFLASH), "flags": flag("--max-num-batched-tokens", "15"), "tokens": 15},
            "--max-num-batched-tokens 15 leaves no room for the 15",
            8,
        ),
        (
            "eagle3",
            {"draft": draft_of(), "flags": flag("--max-num-batched-tokens", "3"), "version": "0.33.0"},
            "leaves no room",
            8,
        ),
        (
            "ngram",
            {"flags": flag("--enable-lora") | flag("--max-num-batched-tokens", "1k") | flag("--max-num-seqs", "256")},
            "with LoRA, --max-num-batched-tokens (1k) must reach --max-num-seqs (256) times 3 + 1",
            8,
        ),
        # Options that assume one token a step.
        ("ngram", {"flags": flag("--logits-processors", "a.B"), "version": "0.30.0"}, "logits processors", 8),
        (
            "suffix",
            {"flags": flag("--logits-processors", "a.B"), "machine": Machine("cuda", True)},
            "logits processors",
            8,
        ),
        (
            "mtp",
            {"flags": flag("--kv-sharing-fast-prefill"), "on": mtp_target(), "tokens": 1},
            "--kv-sharing-fast-prefill",
            8,
        ),
        (
            "eagle3",
            {"flags": flag("--attention-backend", "HPC_ATTN"), "draft": draft_of(), "tokens": 4},
            "at most 3 drafted tokens, not 4",
            8,
        ),
        ("ngram", {"flags": flag("--use-replayssm"), "version": "0.31.0"}, "--use-replayssm", 8),
        ("ngram", {"flags": flag("--use-replayssm")}, "needs --mamba-backend flashinfer", 8),
        (
            "ngram",
            {"flags": flag("--use-replayssm") | flag("--mamba-backend", "flashinfer") | STAGES},
            "needs --pipeline-parallel-size 1",
            8,
        ),
        ("ngram", {"flags": flag("--return-sampling-mask"), "version": "0.31.0"}, "replay sampling", 8),
        (
            "ngram",
            {"flags": flag("--kv-transfer-config", '{"kv_connector":"ExampleHiddenStatesConnector"}')},
            "ExampleHiddenStates",
            8,
        ),
        ("eagle3", {"flags": WATERMARK, "draft": draft_of()}, "needs draft_sample_method probabilistic", 8),
        (
            "mtp",
            {
                "flags": WATERMARK,
                "on": mtp_target(),
                "tokens": 1,
                "config": SAMPLED | {"rejection_sample_method": "block"},
            },
            "rejection_sample_method standard",
            8,
        ),
        ("ngram", {"flags": WATERMARK}, "does not watermark what ngram", 8),
        (
            "dflash",
            {"flags": WATERMARK, "draft": draft_of(DFLASH), "config": SAMPLED},
            "does not watermark what dflash",
            8,
        ),
        (
            "eagle3",
            {
                "flags": WATERMARK,
                "draft": draft_of(EAGLE3 | {"pard_token": 1}),
                "config": SAMPLED | {"parallel_drafting": True},
            },
            "does not watermark what eagle3",
            8,
        ),
        # How weights are loaded.
        ("eagle3", {"draft": draft_of(), "flags": flag("--load-format", "pt")}, "pickle files", 8),
        ("mtp", {"on": mtp_target(), "flags": flag("--load-format", "sharded_state"), "tokens": 1}, "sharded state", 8),
        ("eagle3", {"draft": draft_of(), "flags": flag("--load-format", "tensorizer")}, "archive", 8),
        ("eagle3", {"draft": draft_of(), "flags": flag("--load-format", "mistral")}, "--load-format mistral", 8),
        ("eagle3", {"draft": draft_of(), "flags": flag("--config-format", "mistral")}, "--config-format mistral", 8),
        # Keys that belong to another method, or to each other.
        ("ngram", {"config": {"use_heterogeneous_vocab": True}}, "with the method draft_model only", 8),
        (
            "draft_model",
            {
                "draft": PLAIN,
                "version": "0.33.0",
                "config": {"use_heterogeneous_vocab": True, "use_local_argmax_reduction": True},
            },
            "exclude each other",
            8,
        ),
        (
            "draft_model",
            {"draft": PLAIN, "config": {"use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"}},
            "drafts greedily only",
            8,
        ),
        ("ngram", {"config": {"index_share_for_mtp_iteration": False}}, "belongs to the method mtp", 8),
        (
            "ngram",
            {"config": {"enable_adaptive_verification": True}, "version": "0.29.0"},
            "with the method dspark only",
            8,
        ),
        (
            "ngram",
            {"config": {"enable_adaptive_verification": True, "use_local_argmax_reduction": True}},
            "exclude each other",
            8,
        ),
        (
            "dspark",
            {
                "draft": draft_of(DSPARK),
                "config": {"enable_adaptive_verification": True},
                "flags": flag("--enforce-eager"),
            },
            "full CUDA graphs",
            8,
        ),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "config": {"use_local_argmax_reduction": True, "draft_sample_method": "probabilistic"},
            },
            "greedily only",
            8,
        ),
        (
            "eagle3",
            {"draft": draft_of(), "config": {"disable_padded_drafter_batch": True}, "flags": ASYNC},
            "--async-scheduling",
            8,
        ),
        (
            "draft_model",
            {"draft": PLAIN, "config": {"disable_padded_drafter_batch": True}, "machine": CPU},
            "does not work with draft_model",
            8,
        ),
        (
            "ngram",
            {"config": {"draft_lm_head_quantization": "fp8"}, "version": "0.33.0"},
            "that share the target's output layer",
            8,
        ),
        (
            "mtp",
            {
                "draft": draft_of(GEMMA4),
                "config": {"draft_lm_head_quantization": "fp8"},
                "version": "0.33.0",
                "tokens": 1,
            },
            "that share the target's",
            8,
        ),
        (
            "eagle3",
            {"draft": draft_of(), "config": {"draft_lm_head_quantization": "fp8"}, "version": "0.33.0", "machine": CPU},
            "model runner V2",
            8,
        ),
        ("eagle3", {"draft": draft_of(), "config": {"dspark_draft_topk": 4}}, "Qwen3 DSpark drafts only", 8),
        (
            "dflash",
            {"draft": draft_of(DFLASH), "config": {"xpress_topc": 4}, "version": "0.33.0"},
            "XPress drafts only",
            8,
        ),
        ("ngram", {"config": SYNTHETIC, "machine": CPU}, "ends the engine at the first request", 9),
        ("eagle3", {"draft": draft_of(), "config": SYNTHETIC, "machine": CPU}, "starts on a CPU", 9),
        ("eagle3", {"draft": draft_of(), "config": {"synthetic_acceptance_length": 2.0}}, "synthetic", 8),
        ("eagle3", {"draft": draft_of(), "config": {"rejection_sample_method": "synthetic"}}, "synthetic", 8),
        (
            "eagle3",
            {"draft": draft_of(), "config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 5}},
            "1 to 3 + 1",
            8,
        ),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.6, 0.1]},
            },
            "3 falling numbers",
            8,
        ),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5]},
            },
            "3 falling numbers",
            8,
        ),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": ["a", 1, 0]},
            },
            "3 falling",
            8,
        ),
        (
            "ngram",
            {"config": {"rejection_sample_method": "fly"}, "tokens": 1, "version": "0.33.0"},
            "at least 2 (it is 1)",
            8,
        ),
        ("extract_hidden_states", {"tokens": 2, "config": {}}, "takes one token, but num_speculative_tokens is 2", 8),
        ("extract_hidden_states", {"tokens": 1}, "is not told which layers", 8),
        (
            "extract_hidden_states",
            {"tokens": 1, "config": {"draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": []}}}},
            "is not told which layers",
            8,
        ),
        (
            "dspark",
            {
                "draft": draft_of(DSPARK | {"architectures": ["DSparkDraftModel"], "model_type": "deepseek_v4"}),
                "config": {"dspark_draft_topk": 4},
            },
            "Qwen3 DSpark drafts only",
            8,
        ),
        ("ngram", {"config": {"num_speculative_tokens_per_batch_size": []}}, "is no list of", 2),
        ("ngram", {"config": {"num_speculative_tokens_per_batch_size": [[8, 1, 2]]}}, "is no list of", 2),
        (
            "suffix",
            {"config": {"suffix_decoding_max_tree_depth": 0}, "machine": Machine("cpu", True)},
            "out of range",
            2,
        ),
        (
            "suffix",
            {"config": {"suffix_decoding_min_token_prob": 1.5}, "machine": Machine("cpu", True)},
            "out of range",
            2,
        ),
    ],
)
def test_what_vllm_refuses(method: str, parts: dict[str, Any], fragment: str, code: int) -> None:
    found = examine(case(method, **parts)).errors
    assert [error.code for error in found if fragment in error.what] == [code], [error.what for error in found]
    assert all(error.todo for error in found)


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("ngram", {}),
        ("ngram", {"machine": CPU}),
        ("ngram", {"flags": ASYNC, "version": "0.33.0"}),
        ("eagle3", {"flags": ASYNC, "draft": draft_of()}),
        ("ngram_gpu", {"flags": ASYNC}),
        ("suffix", {"machine": Machine("cpu", True)}),
        ("suffix", {"machine": CPU}),
        (
            "mtp",
            {"machine": CPU, "on": mtp_target(QWEN3_NEXT), "tokens": 1, "flags": {"--no-enable-prefix-caching": ()}},
        ),
        (
            "mtp",
            {
                "machine": CPU,
                "on": mtp_target(QWEN3_NEXT),
                "tokens": 1,
                "flags": flag("--enable-prefix-caching", "false"),
            },
        ),
        ("mtp", {"on": mtp_target(QWEN3_NEXT), "tokens": 1}),
        ("mtp", {"on": mtp_target(SPARSE), "tokens": 1}),
        ("mtp", {"flags": STAGES, "on": mtp_target(), "tokens": 1}),
        ("ngram", {"flags": STAGES}),
        ("eagle3", {"flags": STAGES, "draft": draft_of()}),
        ("eagle3", {"flags": flag("--pipeline-parallel-size", "1"), "draft": draft_of(), "version": "0.29.0"}),
        ("eagle3", {"flags": flag("--logits-processors", "a.B"), "draft": draft_of()}),
        ("dflash", {"draft": draft_of(MIXED)}),
        ("dspark", {"draft": draft_of(DSPARK), "machine": ANY}),
        ("dspark", {"draft": draft_of(DSPARK), **V2}),
        (
            "draft_model",
            {"draft": PLAIN, "config": {"draft_tensor_parallel_size": 1}, "flags": flag("--tensor-parallel-size", "2")},
        ),
        # One half of what interleaving needs; and a model whose backend, as far as one can know, can do it.
        ("ngram", {"flags": flag("--decode-context-parallel-size", "2")}),
        ("ngram", {"flags": flag("--cp-kv-cache-interleave-size", "16")}),
        ("mtp", {"flags": INTERLEAVED, "on": mtp_target(LATENT), "tokens": 1}),
        (
            "mtp",
            {
                "flags": INTERLEAVED | flag("--attention-backend", "flashmla_sparse"),
                "on": mtp_target(LATENT),
                "tokens": 1,
            },
        ),
        # One module runs again and again; blocks are long enough; nothing is cached.
        ("mtp", {"flags": flag("--block-size", "3"), "on": mtp_target(CHAIN), "tokens": 3}),
        ("mtp", {"flags": flag("--block-size", "2") | NO_CACHE, "on": mtp_target(CHAIN), "tokens": 3}),
        ("mtp", {"flags": flag("--block-size", "2"), "on": mtp_target(), "tokens": 3}),
        ("draft_model", {"draft": checkpoint(SEEING, DRAFT)}),
        ("eagle3", {"draft": draft_of(EAGLE3 | SEEING_ROPE), "machine": CPU}),
        ("eagle3", {"flags": WATERMARK, "draft": draft_of(), "config": SAMPLED}),
        ("dspark", {"flags": WATERMARK, "draft": draft_of(DSPARK), "config": SAMPLED}),
        ("dflash", {"flags": WATERMARK, "draft": draft_of(DFLASH), "config": SAMPLED, "version": "0.33.0"}),
        (
            "eagle",
            {
                "draft": checkpoint(
                    LLAMA, DRAFT, tensors=(Tensor("eagle_linear.weight", "BF16", (128, 256)),), mistral=True
                ),
                "flags": flag("--config-format", "mistral") | flag("--load-format", "mistral"),
            },
        ),
        (
            "extract_hidden_states",
            {"tokens": 1, "config": {"draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2]}}}},
        ),
        # vLLM reads these where a draft is loaded, and nowhere else.
        ("ngram", {"config": {"dspark_draft_topk": 4}}),
        ("ngram", {"config": {"xpress_topc": 4}, "version": "0.33.0"}),
        ("ngram", {"flags": flag("--enable-lora")}),
        (
            "ngram",
            {"flags": flag("--enable-lora") | flag("--max-num-batched-tokens", "8192") | flag("--max-num-seqs", "256")},
        ),
        ("eagle3", {"draft": draft_of(), "flags": flag("--load-format", "runai_streamer")}),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "flags": flag("--load-format", "pt"),
                "config": {"draft_load_config": {"load_format": "auto"}},
            },
        ),
        (
            "eagle3",
            {
                "draft": draft_of(),
                "config": {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.5, 0.5]},
            },
        ),
        ("ngram", {"config": {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 1]]}}),
        (
            "ngram",
            {"flags": flag("--use-replayssm"), "on": target(LLAMA | {"architectures": ["KimiLinearForCausalLM"]})},
        ),
    ],
)
def test_what_vllm_allows(method: str, parts: dict[str, Any]) -> None:
    seen = examine(case(method, **parts))
    assert [error.what for error in seen.errors] == []
    assert "engine" in [check.name for check in seen.checks]


@pytest.mark.parametrize(
    ("method", "parts", "fragment"),
    [
        (
            "eagle3",
            {"draft": draft_of(), "flags": flag("--kv-transfer-config", '{"kv_connector":"NixlConnector"}')},
            "both sides",
        ),
        (
            "ngram",
            {"flags": flag("--structured-outputs-config", '{"backend":"lm-format-enforcer"}')},
            "lm-format-enforcer",
        ),
        (
            "ngram",
            {
                "config": {"num_speculative_tokens_per_batch_size": [[1, 2, 3]]},
                "flags": flag("--data-parallel-size", "2"),
            },
            "data parallelism",
        ),
        ("ngram", {"config": {"rejection_sample_method": "fly"}, "version": "0.33.0"}, "changes the answers"),
    ],
)
def test_advice(method: str, parts: dict[str, Any], fragment: str) -> None:
    seen = examine(case(method, **parts))
    assert seen.errors == ()
    assert len(seen.warnings) == 1
    assert fragment in seen.warnings[0]


def test_without_a_device_nothing_is_refused_for_it() -> None:
    for method, parts in (
        ("ngram_gpu", {}),
        ("dspark", {"draft": draft_of(DSPARK)}),
        ("mtp", {"on": mtp_target(QWEN3_NEXT), "tokens": 1}),
    ):
        seen = examine(case(method, machine=ANY, **cast("dict[str, Any]", parts)))
        assert seen.errors == ()
        assert seen.unknown == (f"whether this machine can run {method}: nothing says what its device is",)


def test_the_table_asks_for_flags_and_methods_that_exist() -> None:
    source = Path(refusals.__file__).read_text()
    flags = {flag.name for version in tables.SUPPORTED for flag in tables.load(version).flags}
    assert set(re.findall(r'"(--[a-z0-9-]+)"', source)) <= flags
    methods = set().union(*(tables.load(version).methods for version in tables.SUPPORTED))
    for rule in (*refusals.RULES, *refusals.ADVICE):
        assert rule.methods <= methods


def test_the_runner_that_vllm_takes() -> None:
    assert case("eagle3", machine=CPU, runner=2).runner == 1
    assert case("eagle3").runner == 2
    assert case("eagle3", machine=ANY).runner is None
    assert case("eagle3", runner=1).runner == 1
    assert case("suffix", machine=ANY).runner == 1
    assert case("ngram", version="0.31.0").runner == 1
    assert case("ngram").runner == 2
