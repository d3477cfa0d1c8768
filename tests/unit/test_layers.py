"""The layers of speculative settings: which survive, and what is said of keys that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import ConfigurationError
from launcher.speculation.layers import Effective, merge, validated
from launcher.speculation.values import Layer
from launcher.vllm import tables

HIGH, LOW = "command line", "NIM_SPECDEC_ARGS"
EAGLE3 = {
    "method": "eagle3",
    "model": "/drafts/a",
    "num_speculative_tokens": 5,
    "revision": "abc",
    "code_revision": "def",
    "quantization": "fp8",
    "draft_tensor_parallel_size": 1,
    "max_model_len": 1024,
    "enforce_eager": True,
}


def merged(high: object, low: object) -> Effective:
    return merge((Layer(HIGH, high), Layer(LOW, low)))  # type: ignore[arg-type]


def only(config: object) -> Effective:
    return merge((Layer(HIGH, config),))  # type: ignore[arg-type]


def checked(config: dict[str, Any], version: str = "0.32.0") -> dict[str, Any]:
    return validated(only(config), tables.load(version))[0]


def refusal(config: dict[str, Any], version: str = "0.32.0") -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        checked(config, version)
    assert caught.value.code == 2
    return caught.value


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [
        ({"num_speculative_tokens": 2}, {"method": "mtp"}, {"method": "mtp", "num_speculative_tokens": 2}),
        ({"method": "ngram"}, {"num_speculative_tokens": 2}, {"method": "ngram", "num_speculative_tokens": 2}),
        # Another method: method, draft, tokens and all that belongs to them below are gone, the rest stays.
        ({"method": "ngram"}, EAGLE3, {"method": "ngram", "enforce_eager": True}),
        (
            {"method": "mtp"},
            {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 1, "num_speculative_tokens": 3},
            {"method": "mtp"},
        ),
        ({"method": "ngram"}, {"method": "suffix", "suffix_decoding_max_tree_depth": 8}, {"method": "ngram"}),
        ({"method": "eagle3"}, {"method": "dspark", "dspark_draft_topk": 8}, {"method": "eagle3"}),
        # Another draft: the same.
        ({"model": "/drafts/b"}, EAGLE3, {"model": "/drafts/b", "enforce_eager": True}),
        # The same method or draft, said again, is not another.
        ({"method": "eagle3", "num_speculative_tokens": 2}, EAGLE3, EAGLE3 | {"num_speculative_tokens": 2}),
        ({"model": "/drafts/a", "max_model_len": 9}, EAGLE3, EAGLE3 | {"max_model_len": 9}),
        # A first draft completes a method that was waiting for one; beside a method without one it is another thing.
        ({"model": "/drafts/a"}, {"method": "eagle3"}, {"model": "/drafts/a", "method": "eagle3"}),
        ({"model": "/drafts/a"}, {"method": "mtp", "num_speculative_tokens": 2}, {"model": "/drafts/a"}),
        ({"method": "ngram"}, {"model": "/drafts/a", "num_speculative_tokens": 2}, {"method": "ngram"}),
        ({"method": "eagle3"}, {"model": "/drafts/a"}, {"method": "eagle3", "model": "/drafts/a"}),
        # Family names count as mtp.
        (
            {"method": "deepseek_mtp"},
            {"method": "mtp", "num_speculative_tokens": 2},
            {"method": "mtp", "num_speculative_tokens": 2},
        ),
        (
            {"method": "mtp"},
            {"method": "qwen3_next_mtp", "num_speculative_tokens": 2},
            {"method": "mtp", "num_speculative_tokens": 2},
        ),
        # null takes a value of the layer below away.
        ({"num_speculative_tokens": None}, {"method": "mtp", "num_speculative_tokens": 2}, {"method": "mtp"}),
        # Dashes are underscores.
        (
            {"num-speculative-tokens": 2},
            {"method": "mtp", "num_speculative_tokens": 9},
            {"method": "mtp", "num_speculative_tokens": 2},
        ),
        # The old way to ask for prompt lookup.
        (
            {"model": "[ngram]", "num_speculative_tokens": 2},
            EAGLE3,
            {"method": "ngram", "num_speculative_tokens": 2, "enforce_eager": True},
        ),
    ],
)
def test_keys_merge_and_another_method_or_draft_discards(
    high: dict[str, Any], low: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merged(high, low).config == expected


@pytest.mark.parametrize("off", [None, "", " none ", "None", {"method": None}, {"method": ""}, {"method": "none"}])
def test_null_empty_and_none_switch_off_and_end_the_merge(off: object) -> None:
    assert merged(off, {"method": "mtp"}) == Effective(None, {}, (), HIGH)
    stopped = merge((Layer("above", {"num_speculative_tokens": 2}), Layer(HIGH, off), Layer(LOW, {"method": "mtp"})))  # type: ignore[arg-type]
    assert stopped.config == {"num_speculative_tokens": 2}
    assert stopped.off == HIGH


def test_a_null_method_beside_a_draft_leaves_the_method_to_the_draft() -> None:
    assert only({"method": None, "model": "/drafts/a"}).config == {"model": "/drafts/a"}


def test_nothing_said_is_no_configuration() -> None:
    assert merge(()) == Effective(None, {}, ())


@pytest.mark.parametrize("config", [{}, [], 3, True, "eagle3", [{"method": "mtp"}]])
def test_an_empty_object_and_other_json_are_errors(config: object) -> None:
    with pytest.raises(ConfigurationError, match="command line: the speculative configuration is"):
        only(config)


def test_every_key_keeps_its_origin() -> None:
    effective = merged({"num_speculative_tokens": 2}, {"method": "mtp", "enforce_eager": True})
    assert effective.origins == {"method": LOW, "enforce_eager": LOW, "num_speculative_tokens": HIGH}


def test_the_old_method_name_warns() -> None:
    assert only({"method": "deepseek_mtp"}).warnings == (
        "command line: the speculative method deepseek_mtp is an older name of mtp",
    )


def test_one_key_in_two_spellings_counts_last_and_warns() -> None:
    effective = only({"method": "mtp", "num-speculative-tokens": 2, "num_speculative_tokens": 4})
    assert effective.config == {"method": "mtp", "num_speculative_tokens": 4}
    assert effective.warnings == ("command line: the speculative key num_speculative_tokens is given twice; 4 counts",)


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("num_speculative_tokens", "3", 3),
        ("num_speculative_tokens", " 3 ", 3),
        ("num_speculative_tokens", 3.0, 3),
        ("draft_tensor_parallel_size", "1", 1),
        ("parallel_drafting", "true", True),
        ("parallel_drafting", 0, False),
        ("suffix_decoding_max_spec_factor", "1.5", 1.5),
        ("suffix_decoding_max_spec_factor", 2, 2),
        ("draft_sample_method", "Greedy", "greedy"),
        ("synthetic_acceptance_rates", [0.5, 0.2], [0.5, 0.2]),
        ("draft_load_config", {"load_format": "dummy"}, {"load_format": "dummy"}),
        ("quantization", "fp8", "fp8"),
    ],
)
def test_values_are_read_in_the_type_of_their_key(key: str, given: object, value: object) -> None:
    read = checked({"method": "mtp", key: given})[key]
    assert read == value
    assert type(read) is type(value) or isinstance(value, int)


@pytest.mark.parametrize(
    ("config", "what", "todo"),
    [
        ({"num_speculative_tokens": 0}, "num_speculative_tokens is 0", "a whole number of at least 1"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens is -1", "a whole number of at least 1"),
        ({"num_speculative_tokens": "x"}, "num_speculative_tokens is 'x'", "a whole number of at least 1"),
        ({"num_speculative_tokens": True}, "num_speculative_tokens is True", "a whole number of at least 1"),
        ({"num_speculative_tokens": 2.5}, "num_speculative_tokens is 2.5", "a whole number of at least 1"),
        ({"num_speculative_tokens": "9" * 5000}, "num_speculative_tokens is '9999", "a whole number"),
        ({"parallel_drafting": "maybe"}, "parallel_drafting is 'maybe'", "true or false"),
        ({"draft_sample_method": "hot"}, "draft_sample_method is 'hot'", "one of greedy or probabilistic"),
        ({"suffix_decoding_max_spec_factor": "nan"}, "suffix_decoding_max_spec_factor is 'nan'", "a number"),
        ({"quantization": 8}, "quantization is 8", "a text"),
        ({"draft_load_config": "auto"}, "draft_load_config is 'auto'", "a JSON object"),
        ({"synthetic_acceptance_rates": 0.5}, "synthetic_acceptance_rates is 0.5", "a JSON list or object"),
        ({"target_model_config": {}}, "target_model_config is vLLM's own", "Leave it out"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size is no speculative key", "draft_tensor_parallel_size"),
        ({"method": "magic"}, "no speculative method 'magic'", "Choose"),
        ({"method": "eagel3"}, "no speculative method 'eagel3'", "The nearest method is eagle3"),
        ({"method": 3}, "method is 3", "the name of a speculative method"),
        ({"method": ["mtp"]}, "method is ['mtp']", "the name of a speculative method"),
        ({"num_speculative_tokrns": 3}, "key 'num_speculative_tokrns'", "The nearest key is num_speculative_tokens"),
        ({"prompt_lookup": 3}, "no speculative key 'prompt_lookup'", "The nearest key is prompt_lookup_m"),
        ({"zzz": 1}, "no speculative key 'zzz'", "The keys are"),
        ({"speculative_token_tree": "x"}, "vLLM 0.32.0 has no speculative key 'speculative_token_tree'", ""),
    ],
)
def test_keys_and_values_that_vllm_would_refuse(config: dict[str, Any], what: str, todo: str) -> None:
    error = refusal(config if "method" in config else {"method": "mtp"} | config)
    assert error.what.startswith("command line: ")
    assert what in error.what
    assert todo in error.todo


@pytest.mark.parametrize(
    ("config", "version", "what"),
    [
        ({"method": "medusa"}, "0.33.0", "no speculative method 'medusa' (known to 0.29.0, 0.30.0, 0.31.0, 0.32.0)"),
        ({"xpress_topc": 4}, "0.32.0", "no speculative key 'xpress_topc' (known to 0.33.0)"),
        ({"disable_eagle_block_drop": True}, "0.29.0", "(known to 0.30.0, 0.31.0, 0.32.0, 0.33.0)"),
    ],
)
def test_what_another_version_has_is_named_with_it(config: dict[str, Any], version: str, what: str) -> None:
    assert what in refusal({"method": "mtp"} | config, version).what


def test_all_that_is_wrong_is_said_at_once() -> None:
    error = refusal({"method": "mtp", "num_speculative_tokens": 0, "zzz": 1, "tensor_parallel_size": 2})
    assert len(error.others) == 2


def test_a_replaced_setting_refuses_nothing() -> None:
    effective = merged({"method": "ngram"}, {"method": "eagle3", "num_speculative_tokens": "many"})
    assert validated(effective, tables.load("0.32.0"))[0] == {"method": "ngram"}


def test_lookup_min_above_max_names_both_numbers_and_origins() -> None:
    effective = merged({"prompt_lookup_min": 4}, {"method": "ngram", "prompt_lookup_max": 2})
    with pytest.raises(ConfigurationError) as caught:
        validated(effective, tables.load("0.32.0"))
    assert caught.value.what == (
        "command line and NIM_SPECDEC_ARGS: prompt_lookup_min is 4, more than prompt_lookup_max, which is 2"
    )


def test_a_newer_vllm_only_warns_of_what_its_table_lacks() -> None:
    table = tables.load("0.99.0")
    config, warnings = validated(only({"method": "telepathy", "mood": "good", "num_speculative_tokens": "2"}), table)
    assert config == {"method": "telepathy", "mood": "good", "num_speculative_tokens": 2}
    assert len(warnings) == 2
    assert "no speculative method 'telepathy'" in warnings[0]
    with pytest.raises(ConfigurationError):
        validated(only({"method": "mtp", "tensor_parallel_size": 2}), table)
