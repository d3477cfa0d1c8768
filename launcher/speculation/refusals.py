"""What vLLM refuses, or lets die, together with speculation: one table, read from the sources of each version.

A row applies when the version, the method and the condition do.  Most rows are about flags and keys; whether the
files of draft and target fit is in `launcher.speculation.fit`.
"""

from __future__ import annotations

from launcher.errors import ConfigurationError, HardwareError, IncompatibleError, LauncherError
from launcher.speculation.case import Case
from launcher.speculation.conditions import (
    Test,
    above,
    draft_is,
    drafted,
    drafted_without_params,
    drafts_in_several_dimensions,
    every,
    exact_table,
    family_is,
    few_batched_tokens,
    few_tokens_for_lora,
    given,
    has_no_layers_to_extract,
    head_runs_again,
    inconsistent_synthetic,
    interleaved_context,
    key_is,
    key_set,
    loads_head,
    malformed_schedule,
    mentions,
    method_is,
    mixed_attention,
    modules_outgrow_blocks,
    on_cpu,
    on_v1,
    other_than,
    since_version,
    some,
    sparse_index,
    suffix_out_of_range,
    switched_on,
    target_is,
    unless,
    unusable_fly,
    v1_by_variable,
    value_is,
)
from launcher.speculation.keys import AUXILIARY, EAGLE_LIKE, LOOKUP
from launcher.speculation.methods import METHODS
from launcher.typing import NamedTuple

Version = tuple[int, int]

ALWAYS: Version = (0, 0)
NEVER: Version = (10**6, 0)


class Rule(NamedTuple):
    """``what`` and ``todo`` are sentences; words in braces, such as ``{method}``, are filled in (`_error`).

    ``methods`` empty means every method; ``until`` is the first version in which the row no longer holds.
    """

    test: Test
    what: str
    todo: str
    methods: frozenset[str] = frozenset()
    since: Version = ALWAYS
    until: Version = NEVER
    error: type[LauncherError] = IncompatibleError


def broken(case: Case) -> tuple[LauncherError, ...]:
    """Every row of the table that applies."""
    return tuple(_error(rule, case) for rule in RULES if _applies(rule, case))


def advice(case: Case) -> tuple[str, ...]:
    """What is allowed but rarely meant."""
    found = [_error(rule, case) for rule in ADVICE if _applies(rule, case)]
    return tuple(f"{advised.what}: {advised.todo}" if advised.todo else advised.what for advised in found)


def _applies(rule: Rule, case: Case) -> bool:
    return (
        rule.since <= case.version < rule.until
        and (not rule.methods or case.method in rule.methods)
        and rule.test(case)
    )


def _error(rule: Rule, case: Case) -> LauncherError:
    words = {
        "method": case.method,
        "version": case.table.version,
        "tokens": case.tokens,
        "batched": case.value("--max-num-batched-tokens"),
        "sequences": case.value("--max-num-seqs"),
        "block": case.value("--block-size"),
    }
    return rule.error(rule.what.format_map(words), rule.todo.format_map(words))


_NO_ASYNC = frozenset({"ngram", "suffix", "medusa", "mlp_speculator", "custom_class"})
_CANDIDATE_HEADS = ("DFlash2DraftModel", "DFlash2BeamDraftModel", "LiLiCorrDraftModel")
_WATERMARKED = frozenset({"dspark", "eagle", "eagle3", "mtp"})
_STAGES = "--pipeline-parallel-size"
_RECURRENT = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")
_OWN_LOADER = "draft_load_config"
# Methods of which vLLM loads a draft or a head; some keys it reads nowhere else.
_LOADING = frozenset(name for name, method in METHODS.items() if method.needs)

RULES: tuple[Rule, ...] = (
    # The device and the model runner.
    Rule(
        on_cpu,
        "the method {method} does not run on a CPU",
        "Choose another method, or a GPU",
        frozenset({"dspark", "ngram_gpu"}),
        error=HardwareError,
    ),
    Rule(
        lambda case: case.machine.arctic is False,
        "suffix decoding needs the package arctic-inference, which is not installed beside vLLM",
        "Install it with pip install arctic-inference==0.1.1, or choose another method",
        frozenset({"suffix"}),
    ),
    Rule(
        every(on_cpu, family_is("qwen3_next_mtp", "qwen3_5_mtp"), lambda case: not case.off("--enable-prefix-caching")),
        "the MTP head of this family dies at the first request on a CPU while prefix caching is on",
        "Add --no-enable-prefix-caching",
        frozenset({"mtp"}),
        error=HardwareError,
    ),
    Rule(
        every(on_cpu, sparse_index),
        "vLLM's sparse attention has no speculative path on a CPU",
        "Choose another method, or a GPU",
        frozenset({"mtp"}),
        error=HardwareError,
    ),
    Rule(
        every(on_cpu, some(draft_is(*_CANDIDATE_HEADS), mixed_attention)),
        "this kind of DFlash draft needs vLLM's model runner V2, which does not run on a CPU",
        "Choose another draft, or a GPU",
        frozenset({"dflash"}),
        error=HardwareError,
    ),
    Rule(
        every(v1_by_variable, some(method_is("dspark"), draft_is(*_CANDIDATE_HEADS), mixed_attention)),
        "VLLM_USE_V2_MODEL_RUNNER=0 takes away the model runner that {method} with this draft needs",
        "Unset VLLM_USE_V2_MODEL_RUNNER",
        frozenset({"dspark", "dflash"}),
    ),
    Rule(
        lambda case: case.machine.device != "cpu" and case.request.model_runner == 2 and not case.runs_on_v2,
        "VLLM_USE_V2_MODEL_RUNNER=1 asks for a model runner that has no {method} with these keys in vLLM {version}",
        "Unset VLLM_USE_V2_MODEL_RUNNER",
    ),
    Rule(
        every(on_v1, target_is("Step5ForCausalLM", "Step5ForConditionalGeneration", "RadioMBartPrefixForCausalLM")),
        "the MTP head of this model needs vLLM's model runner V2",
        "Unset VLLM_USE_V2_MODEL_RUNNER, and use a GPU",
        frozenset({"mtp"}),
        since=(0, 33),
    ),
    # The target.
    Rule(
        target_is("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"),
        "vLLM {version} runs Qwen4 with its own MTP head or n-gram only, not with {method}",
        "Choose mtp or ngram",
        frozenset({"eagle", "eagle3", "dflash", "dspark", "draft_model", "suffix", "medusa", "custom_class"}),
    ),
    Rule(
        every(target_is("RadioMBartPrefixForCausalLM"), lambda case: case.tokens != 1),
        "this model has one trained MTP step, but num_speculative_tokens is {tokens}",
        "Set num_speculative_tokens to 1",
        frozenset({"mtp"}),
    ),
    # Parallelism and scheduling.
    Rule(
        switched_on("--async-scheduling"),
        "--async-scheduling cannot be combined with the method {method}",
        "Leave --async-scheduling out: vLLM then decides by itself",
        _NO_ASYNC,
        until=(0, 33),
    ),
    Rule(
        every(on_v1, switched_on("--async-scheduling")),
        "--async-scheduling cannot be combined with the method {method}",
        "Leave --async-scheduling out: vLLM then decides by itself",
        _NO_ASYNC,
        since=(0, 33),
    ),
    Rule(
        every(on_v1, switched_on("--async-scheduling"), above(_STAGES, 1)),
        "--async-scheduling and --pipeline-parallel-size above 1 exclude each other on vLLM's model runner V1, which "
        "{method} takes here",
        "Leave --async-scheduling out",
        since=(0, 31),
    ),
    Rule(
        every(
            above(_STAGES, 1),
            lambda case: case.target.config.architecture not in case.table.eagle3_over_stages,
            exact_table,
        ),
        "vLLM {version} does not run {method} with pipeline parallelism on this model",
        "Set --pipeline-parallel-size 1, or choose another method",
        AUXILIARY,
    ),
    Rule(
        above("--prefill-context-parallel-size", 1),
        "vLLM {version} does not speculate with prefill context parallelism",
        "Set --prefill-context-parallel-size 1",
        until=(0, 30),
    ),
    Rule(
        every(above("--prefill-context-parallel-size", 1), other_than("dspark", "mtp")),
        "vLLM {version} does not run {method} with prefill context parallelism",
        "Set --prefill-context-parallel-size 1, or choose mtp or dspark",
        since=(0, 30),
    ),
    Rule(
        interleaved_context,
        "context parallelism with an interleave size above 1 is not run together with speculation by the attention "
        "backend of this model",
        "Leave --cp-kv-cache-interleave-size out",
    ),
    Rule(
        modules_outgrow_blocks,
        "--block-size {block} is below the {tokens} tokens that this head drafts in one chain, which prefix caching "
        "does not allow",
        "Raise --block-size, or lower num_speculative_tokens",
        frozenset({"mtp"}),
    ),
    Rule(
        every(switched_on("--enable-dbo"), above("--data-parallel-size", 1)),
        "--enable-dbo with data parallelism dies at the first request of {method}",
        "Leave --enable-dbo out",
        EAGLE_LIKE,
    ),
    Rule(
        every(switched_on("--enable-dbo"), lambda case: case.request.model_runner == 2),
        "vLLM's model runner V2 has no dual batch overlap with speculation",
        "Leave --enable-dbo out",
        since=(0, 30),
    ),
    Rule(
        few_batched_tokens,
        "--max-num-batched-tokens {batched} leaves no room for the {tokens} drafted tokens of {method}",
        "Raise --max-num-batched-tokens or lower num_speculative_tokens",
    ),
    Rule(
        few_tokens_for_lora,
        "with LoRA, --max-num-batched-tokens ({batched}) must reach --max-num-seqs ({sequences}) times {tokens} + 1",
        "Raise --max-num-batched-tokens, or lower --max-num-seqs or num_speculative_tokens",
    ),
    Rule(
        every(on_v1, drafts_in_several_dimensions),
        "the draft's positions have several dimensions (M-RoPE), which vLLM's model runner V1 does not draft with",
        "Use a draft for text alone",
        frozenset({"draft_model", "dflash", "eagle", "eagle3"}),
    ),
    # Options that assume one token a step.
    Rule(
        given("--logits-processors"),
        "vLLM {version} has no custom logits processors while it speculates",
        "Leave --logits-processors out, or switch speculation off",
        until=(0, 31),
    ),
    Rule(
        every(on_v1, given("--logits-processors")),
        "vLLM {version} has no custom logits processors while it speculates with {method}",
        "Leave --logits-processors out, or switch speculation off",
        since=(0, 31),
    ),
    Rule(
        switched_on("--kv-sharing-fast-prefill"),
        "--kv-sharing-fast-prefill gives wrong states for the prompt, which {method} reads",
        "Leave --kv-sharing-fast-prefill out",
        EAGLE_LIKE,
    ),
    Rule(
        every(value_is("--attention-backend", "HPC_ATTN"), lambda case: case.tokens > 3),
        "the attention backend HPC_ATTN takes at most 3 drafted tokens, not {tokens}",
        "Set num_speculative_tokens to 3, or choose another --attention-backend",
    ),
    Rule(
        every(switched_on("--use-replayssm"), unless(target_is(*_RECURRENT))),
        "--use-replayssm and speculation exclude each other on this model in vLLM {version}",
        "Leave --use-replayssm out",
        until=(0, 32),
    ),
    Rule(
        every(
            switched_on("--use-replayssm"),
            unless(target_is(*_RECURRENT)),
            unless(value_is("--mamba-backend", "flashinfer")),
        ),
        "--use-replayssm with speculation needs --mamba-backend flashinfer",
        "Add --mamba-backend flashinfer, or leave --use-replayssm out",
        since=(0, 32),
    ),
    Rule(
        every(switched_on("--use-replayssm"), above(_STAGES, 1)),
        "--use-replayssm with speculation needs --pipeline-parallel-size 1",
        "Leave --use-replayssm out",
    ),
    Rule(
        some(switched_on("--return-sampling-mask"), switched_on("--enable-trace-replay")),
        "vLLM {version} does not replay sampling while it speculates",
        "Leave --return-sampling-mask and --enable-trace-replay out",
        since=(0, 30),
        until=(0, 32),
    ),
    Rule(
        every(
            given("--watermark-config"),
            some(
                lambda case: case.config.get("draft_sample_method") != "probabilistic",
                lambda case: case.config.get("rejection_sample_method", "standard") != "standard",
            ),
        ),
        "--watermark-config needs draft_sample_method probabilistic and rejection_sample_method standard",
        "Add draft_sample_method probabilistic to the speculative config, or leave --watermark-config out",
        _WATERMARKED | {"dflash"},
        since=(0, 30),
    ),
    Rule(
        every(
            given("--watermark-config"),
            some(
                every(other_than(*_WATERMARKED), some(other_than("dflash"), unless(since_version((0, 33))))),
                every(key_set("parallel_drafting"), other_than("dflash", "dspark")),
                every(method_is("dflash"), draft_is(*_CANDIDATE_HEADS)),
            ),
        ),
        "vLLM {version} does not watermark what {method} with this draft and these keys accepts",
        "Leave --watermark-config out, or choose another method",
        since=(0, 30),
    ),
    Rule(
        mentions("--kv-transfer-config", "ExampleHiddenStatesConnector"),
        "the connector ExampleHiddenStatesConnector works with extract_hidden_states only, not with {method}",
        "Choose another connector",
        frozenset({"mtp", "dspark", "suffix", "draft_model", "custom_class"}) | EAGLE_LIKE | LOOKUP,
    ),
    # How weights are loaded: the draft goes through the target's loader.
    Rule(
        every(
            value_is("--load-format", "pt", "npcache"),
            lambda case: case.draft is not None and case.draft.weights.form == "safetensors",
            unless(key_set(_OWN_LOADER)),
        ),
        "--load-format wants pickle files of the draft too, which holds safetensors",
        "Leave --load-format out",
    ),
    Rule(
        every(
            value_is("--load-format", "sharded_state", "runai_streamer_sharded"),
            loads_head,
            unless(key_set(_OWN_LOADER)),
        ),
        "--load-format reads the draft or head of {method} from sharded state too, which it is not saved in",
        "Leave --load-format out, or choose ngram",
    ),
    Rule(
        every(value_is("--load-format", "tensorizer"), drafted, unless(key_set(_OWN_LOADER))),
        "--load-format tensorizer would read the draft from the target's archive",
        "Leave --load-format out, or choose ngram",
    ),
    Rule(
        every(value_is("--config-format", "mistral"), drafted_without_params),
        "--config-format mistral is asked of the draft too, which has no params.json",
        "Leave --config-format out, or use a draft in Mistral's format",
    ),
    Rule(
        every(value_is("--load-format", "mistral"), drafted_without_params, unless(key_set(_OWN_LOADER))),
        "--load-format mistral is asked of the draft too, which is not in Mistral's format",
        "Leave --load-format out, or use a draft in Mistral's format",
    ),
    # Keys that belong to another method, or to each other.
    Rule(
        every(key_set("use_heterogeneous_vocab"), other_than("draft_model")),
        "use_heterogeneous_vocab works with the method draft_model only, not with {method}",
        "Leave use_heterogeneous_vocab out",
    ),
    Rule(
        every(
            key_set("use_heterogeneous_vocab"),
            lambda case: case.config.get("draft_sample_method", "greedy") != "greedy",
        ),
        "use_heterogeneous_vocab drafts greedily only",
        "Leave draft_sample_method out",
    ),
    Rule(
        every(key_set("use_heterogeneous_vocab"), key_set("use_local_argmax_reduction")),
        "use_heterogeneous_vocab and use_local_argmax_reduction exclude each other",
        "Leave use_local_argmax_reduction out",
        since=(0, 33),
    ),
    Rule(
        every(lambda case: case.config.get("index_share_for_mtp_iteration") is not None, other_than("mtp")),
        "index_share_for_mtp_iteration belongs to the method mtp, not to {method}",
        "Leave index_share_for_mtp_iteration out",
    ),
    Rule(
        every(key_set("enable_adaptive_verification"), other_than("dspark")),
        "enable_adaptive_verification works with the method dspark only, not with {method}",
        "Leave enable_adaptive_verification out",
        until=(0, 30),
    ),
    Rule(
        every(key_set("enable_adaptive_verification"), key_set("use_local_argmax_reduction"), other_than("dspark")),
        "enable_adaptive_verification and use_local_argmax_reduction exclude each other",
        "Leave one of the two out",
        since=(0, 30),
    ),
    Rule(
        every(
            key_set("enable_adaptive_verification"),
            some(
                switched_on("--enable-lora"),
                switched_on("--enforce-eager"),
                switched_on("--enable-batch-sharded-sampling"),
                above(_STAGES, 1),
                on_v1,
                every(since_version((0, 31)), switched_on("--enable-return-routed-experts")),
            ),
        ),
        "enable_adaptive_verification needs full CUDA graphs on model runner V2, without LoRA, pipeline parallelism, "
        "batch-sharded sampling or routed experts in the answer",
        "Leave enable_adaptive_verification or the option out",
    ),
    Rule(
        every(
            key_set("use_local_argmax_reduction"),
            lambda case: case.config.get("draft_sample_method") == "probabilistic",
        ),
        "use_local_argmax_reduction drafts greedily only, but draft_sample_method is probabilistic",
        "Leave one of the two out",
    ),
    Rule(
        every(key_set("disable_padded_drafter_batch"), switched_on("--async-scheduling")),
        "disable_padded_drafter_batch cannot be combined with --async-scheduling",
        "Leave one of the two out",
        until=(0, 33),
    ),
    Rule(
        every(
            on_v1,
            key_set("disable_padded_drafter_batch"),
            some(method_is("draft_model", "dflash", "extract_hidden_states"), key_set("parallel_drafting")),
        ),
        "disable_padded_drafter_batch does not work with {method} or parallel drafting",
        "Leave disable_padded_drafter_batch out",
    ),
    Rule(
        every(
            key_set("draft_lm_head_quantization"), some(other_than("eagle", "eagle3", "mtp"), family_is("gemma4_mtp"))
        ),
        "draft_lm_head_quantization works with eagle, eagle3 and mtp heads that share the target's output layer only",
        "Leave draft_lm_head_quantization out",
    ),
    Rule(
        every(key_set("draft_lm_head_quantization"), on_v1),
        "draft_lm_head_quantization needs vLLM's model runner V2",
        "Leave draft_lm_head_quantization out",
    ),
    Rule(
        every(
            key_set("dspark_draft_topk"),
            some(other_than("dspark"), unless(draft_is("Qwen3DSparkModel", "Qwen3OmniDSparkModel"))),
        ),
        "dspark_draft_topk works with Qwen3 DSpark drafts only",
        "Leave dspark_draft_topk out",
        _LOADING,
    ),
    Rule(
        every(
            lambda case: case.config.get("xpress_topc") is not None,
            unless(draft_is("DFlashQwen3XPressModel")),
        ),
        "xpress_topc works with XPress drafts only",
        "Leave xpress_topc out",
        _LOADING,
    ),
    Rule(
        inconsistent_synthetic,
        "rejection_sample_method synthetic takes one of synthetic_acceptance_rates ({tokens} falling numbers from 0 to "
        "1) and synthetic_acceptance_length (from 1 to {tokens} + 1), and nothing else takes them",
        "Correct these keys or leave them out",
    ),
    Rule(
        every(on_cpu, key_is("rejection_sample_method", "synthetic")),
        "rejection_sample_method synthetic starts on a CPU, and ends the engine at the first request",
        "Leave it and the synthetic_acceptance keys out, or choose a GPU",
        error=HardwareError,
    ),
    Rule(
        every(key_is("rejection_sample_method", "fly"), unusable_fly),
        "rejection_sample_method fly needs num_speculative_tokens of at least 2 (it is {tokens}) and a smaller "
        "fly_window_size",
        "Raise num_speculative_tokens or lower fly_window_size",
    ),
    Rule(
        every(lambda case: case.tokens != 1),
        "extract_hidden_states takes one token, but num_speculative_tokens is {tokens}",
        "Set num_speculative_tokens to 1",
        frozenset({"extract_hidden_states"}),
    ),
    Rule(
        has_no_layers_to_extract,
        "extract_hidden_states is not told which layers to write out",
        'Name them, as in "draft_model_config": {{"hf_config": {{"eagle_aux_hidden_state_layer_ids": [2, 18, 33]}}}}',
        frozenset({"extract_hidden_states"}),
    ),
    Rule(
        malformed_schedule,
        "num_speculative_tokens_per_batch_size is no list of [first batch size, last batch size, tokens]",
        "Write it as [[1, 8, 4], [9, 64, 2]]",
        error=ConfigurationError,
    ),
    Rule(
        suffix_out_of_range,
        "a suffix_decoding_ key is out of range",
        "Give a tree depth of at least 1, cached requests and a factor of at least 0, and a probability from 0 to 1",
        frozenset({"suffix"}),
        error=ConfigurationError,
    ),
)

ADVICE: tuple[Rule, ...] = (
    Rule(
        head_runs_again,
        "vLLM runs the same MTP layer again for each of the {tokens} tokens, and acceptance falls from one to the next",
        "",
        frozenset({"mtp"}),
    ),
    Rule(
        value_is("--load-format", "dummy"),
        "--load-format dummy makes the weights up, so no drafted token will be accepted",
        "",
    ),
    Rule(
        mentions("--structured-outputs-config", "lm-format-enforcer"),
        "lm-format-enforcer answers structured requests with an error while vLLM speculates",
        "choose the backend xgrammar or guidance",
    ),
    Rule(
        every(key_set("num_speculative_tokens_per_batch_size"), above("--data-parallel-size", 1)),
        "with data parallelism vLLM drops num_speculative_tokens_per_batch_size and always drafts {tokens}",
        "",
    ),
    Rule(
        mentions("--kv-transfer-config", "NixlConnector"),
        "with NixlConnector both sides need the same --speculative-config",
        "",
        EAGLE_LIKE | {"draft_model"},
    ),
    Rule(
        key_is("rejection_sample_method", "fly"),
        "rejection_sample_method fly changes the answers: it accepts tokens that the target would not have chosen",
        "",
    ),
)
