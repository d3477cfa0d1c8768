"""Conditions on a case: the words in which `launcher.speculation.refusals` is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.speculation.case import Case
from launcher.speculation.families import CHAINED, depth_field, mtp_family
from launcher.speculation.keys import EAGLE_LIKE
from launcher.speculation.kinds import draft_architecture, fact, samples_anchor, uses_mrope

Test = Callable[[Case], bool]


def switched_on(flag: str) -> Test:
    return lambda case: case.on(flag)


def given(flag: str) -> Test:
    return lambda case: flag in case.request.flags


def above(flag: str, most: int) -> Test:
    return lambda case: case.above(flag, most)


def mentions(flag: str, *words: str) -> Test:
    """Whether a flag's values hold one of ``words``, alone or inside a JSON object."""
    return lambda case: any(word in value for value in case.request.flags.get(flag, ()) for word in words)


def value_is(flag: str, *values: str) -> Test:
    return lambda case: case.value(flag) in values


def key_set(key: str) -> Test:
    """Whether a speculative key is set to something that counts."""
    return lambda case: case.config.get(key) not in (None, False)


def key_is(key: str, value: str) -> Test:
    return lambda case: case.config.get(key) == value


def unless(test: Test) -> Test:
    return lambda case: not test(case)


def every(*tests: Test) -> Test:
    return lambda case: all(test(case) for test in tests)


def some(*tests: Test) -> Test:
    return lambda case: any(test(case) for test in tests)


def other_than(*methods: str) -> Test:
    return lambda case: case.method not in methods


def method_is(*methods: str) -> Test:
    return lambda case: case.method in methods


def on_v1(case: Case) -> bool:
    return case.runner == 1


def on_cpu(case: Case) -> bool:
    return case.machine.device == "cpu"


def v1_by_variable(case: Case) -> bool:
    return case.machine.device != "cpu" and case.request.model_runner == 1


def target_is(*architectures: str) -> Test:
    return lambda case: case.target.config.architecture in architectures


def exact_table(case: Case) -> bool:
    return case.table.exact


def since_version(version: tuple[int, int]) -> Test:
    return lambda case: case.version >= version


def drafted(case: Case) -> bool:
    return case.draft is not None


def drafted_without_params(case: Case) -> bool:
    """Whether there is a draft that is not in Mistral's own format."""
    return case.draft is not None and not case.draft.mistral


def loads_head(case: Case) -> bool:
    """Whether tensors of a draft or of a head in the target are loaded."""
    return case.draft is not None or case.method in ("mtp", "dspark")


def draft_is(*architectures: str) -> Test:
    return lambda case: case.draft is not None and draft_architecture(case.method, case.draft.config) in architectures


def mixed_attention(case: Case) -> bool:
    """Whether a DFlash draft has both sliding-window and full attention layers."""
    kinds = fact(case.draft.config, "layer_types") if case.draft is not None else None
    if not isinstance(kinds, list) or case.method != "dflash":
        return False
    sliding = kinds.count("sliding_attention")
    return bool(0 < sliding < len(kinds))


def family_is(*names: str) -> Test:
    def test(case: Case) -> bool:
        family = mtp_family((case.draft or case.target).config)
        return family is not None and family.name in names

    return test


def head_runs_again(case: Case) -> bool:
    """Whether there are more tokens than trained MTP layers; some families chain layers of their own for each token."""
    family = mtp_family((case.draft or case.target).config)
    return family is not None and family.name not in CHAINED and case.tokens > (family.tokens or 1)


def sparse_index(case: Case) -> bool:
    """Whether the target selects its attention with DeepSeek's sparse indexer."""
    return fact(case.target.config, "index_topk") is not None


def few_batched_tokens(case: Case) -> bool:
    batched = case.number("--max-num-batched-tokens")
    return batched is not None and batched <= _extra_slots(case)


def _extra_slots(case: Case) -> int:
    """Positions that drafting needs beside each request's own, as the scheduler of each version reserves them."""
    if case.version >= (0, 33):
        if case.method == "dflash" or (case.method == "dspark" and not _samples_anchor(case)):
            return case.tokens + 1
        return case.tokens if case.method in EAGLE_LIKE or case.method == "draft_model" else 0
    if case.method == "dflash":
        return case.tokens
    parallel = case.method == "dspark" or bool(case.config.get("parallel_drafting"))
    if case.method == "draft_model":
        return case.tokens if parallel else 1
    return case.tokens - 1 if parallel else 0


def _samples_anchor(case: Case) -> bool:
    return samples_anchor((case.draft or case.target).config)


def few_tokens_for_lora(case: Case) -> bool:
    batched, sequences = case.number("--max-num-batched-tokens"), case.number("--max-num-seqs")
    return case.on("--enable-lora") and None not in (batched, sequences) and _under(batched, sequences, case.tokens)


def _under(batched: int | None, sequences: int | None, tokens: int) -> bool:
    return (batched or 0) < (sequences or 0) * (tokens + 1)


def interleaved_context(case: Case) -> bool:
    """Whether context parallelism interleaves in a way that only two backends can speculate with; which one a model
    with latent attention gets is not known unless it is named."""
    parallel = case.above("--decode-context-parallel-size", 1) or case.above("--prefill-context-parallel-size", 1)
    interleaved = case.above("--cp-kv-cache-interleave-size", 1) or case.above("--dcp-kv-cache-interleave-size", 1)
    if not parallel or not interleaved:
        return False
    latent = case.version >= (0, 30) and fact(case.target.config, "kv_lora_rank") is not None
    backend = case.value("--attention-backend")
    return not latent or (backend is not None and backend.upper() not in ("FLASHMLA_SPARSE", "TOKENSPEED_MLA"))


def modules_outgrow_blocks(case: Case) -> bool:
    """Whether several MTP modules read further ahead than a block, which prefix caching cannot follow."""
    family = mtp_family((case.draft or case.target).config)
    if family is None or case.off("--enable-prefix-caching"):
        return False
    modules = min(family.tokens or 1, case.tokens) if "nextn" in depth_field((case.draft or case.target).config) else 1
    block = case.number("--block-size")
    shared = case.above("--decode-context-parallel-size", 1) or case.above("--prefill-context-parallel-size", 1)
    return modules > 1 and block is not None and block < case.tokens and not shared


def drafts_in_several_dimensions(case: Case) -> bool:
    """Whether a draft with M-RoPE needs slots of its own, as draft models and parallel drafting do."""
    own = case.method in ("draft_model", "dflash") or (bool(case.config.get("parallel_drafting")) and case.tokens > 1)
    return own and case.draft is not None and uses_mrope(case.draft.config)


def has_no_layers_to_extract(case: Case) -> bool:
    own = case.config.get("draft_model_config")
    inner = own.get("hf_config") if isinstance(own, Mapping) else None
    return not (isinstance(inner, Mapping) and inner.get("eagle_aux_hidden_state_layer_ids"))


def inconsistent_synthetic(case: Case) -> bool:
    rates = case.config.get("synthetic_acceptance_rates")
    length = case.config.get("synthetic_acceptance_length")
    if case.config.get("rejection_sample_method") != "synthetic":
        return rates is not None or length is not None
    if (rates is None) == (length is None):
        return True
    if rates is None:
        return not isinstance(length, (int, float)) or not 1 <= length <= case.tokens + 1
    if not isinstance(rates, (list, tuple)) or not all(isinstance(rate, (int, float)) for rate in rates):
        return True
    falling = sorted(rates, reverse=True) == list(rates)
    return len(rates) != case.tokens or not all(0 <= rate <= 1 for rate in rates) or not falling


def malformed_schedule(case: Case) -> bool:
    """Whether the schedule of token counts by batch size is no list of [first, last, tokens]."""
    schedule = case.config.get("num_speculative_tokens_per_batch_size")
    if schedule is None:
        return False
    if not isinstance(schedule, (list, tuple)) or not schedule:
        return True
    return not all(
        isinstance(entry, (list, tuple))
        and len(entry) == 3
        and all(isinstance(number, int) for number in entry)
        and entry[0] <= entry[1]
        and entry[2] >= 0
        for entry in schedule
    )


def suffix_out_of_range(case: Case) -> bool:
    least = {
        "suffix_decoding_max_tree_depth": 1,
        "suffix_decoding_max_cached_requests": 0,
        "suffix_decoding_max_spec_factor": 0,
        "suffix_decoding_min_token_prob": 0,
    }
    low = any(case.config.get(key, value) < value for key, value in least.items())
    return low or bool(case.config.get("suffix_decoding_min_token_prob", 0) > 1)


def unusable_fly(case: Case) -> bool:
    window = case.config.get("fly_window_size")
    return case.tokens < 2 or (window is not None and window >= case.tokens)
