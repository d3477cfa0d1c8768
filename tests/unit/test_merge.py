"""Seven levels of arguments: who wins, what adds up, what is said about it, and the words that come out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from launcher.arguments.merge import Level, MergedJson, effective, emit, level, merge, merge_json
from launcher.arguments.runtime import from_runtime_config
from launcher.arguments.spellings import parse_words
from launcher.arguments.values import JsonLayer, Merged, compact, given
from launcher.vllm import tables

TABLE = tables.pinned()
SPEC = "--speculative-config"
CC = "--compilation-config"


def no_config(path: str) -> Mapping[str, Any]:
    raise AssertionError(path)


def words(rank: int, origin: str, *given_words: str) -> Level:
    return level(rank, origin, parse_words(given_words, TABLE, origin, no_config))


def variable(flag: str, value: str, origin: str) -> Level:
    known = TABLE.flag(flag)
    assert known is not None
    return Level(3, origin, (given(known, (value,), origin),))


def layers(*values: Mapping[str, Any] | None) -> tuple[JsonLayer, ...]:
    return tuple(JsonLayer(CC, value, f"level {number}") for number, value in enumerate(values, start=1))


SEVEN = (
    words(1, "command line", "--port", "1"),
    words(2, "NIM_PASSTHROUGH_ARGS", "--port", "2", "--seed", "2"),
    variable("--max-num-seqs", "3", "NIM_MAX_NUM_SEQS"),
    words(4, "runtime_config.json", "--port", "4", "--seed", "4", "--max-num-seqs", "4", "--enforce-eager"),
    words(5, "profile", "--no-enforce-eager", "--dtype", "auto"),
    words(6, "derived", "--dtype", "half", "--served-model-name", "a", "b"),
    words(7, "defaults", "--host", "0.0.0.0"),
)


def test_the_highest_level_wins_and_the_lowest_comes_first() -> None:
    merged = merge(SEVEN)
    assert [(argument.words, argument.origin) for argument in merged.arguments] == [
        (("--host", "0.0.0.0"), "defaults"),
        (("--served-model-name", "a", "b"), "derived"),
        (("--dtype", "auto"), "profile"),
        (("--enforce-eager",), "runtime_config.json"),
        (("--max-num-seqs", "3"), "NIM_MAX_NUM_SEQS"),
        (("--seed", "2"), "NIM_PASSTHROUGH_ARGS"),
        (("--port", "1"), "command line"),
    ]
    assert merged.warnings == ()


def test_spellings_of_one_flag_are_one() -> None:
    merged = merge([words(1, "a", "-tp=2"), words(2, "b", "--tensor_parallel_size", "4")])
    assert emit(merged, None) == ("-tp=2",)


def test_a_twin_beats_its_flag() -> None:
    merged = merge([words(1, "a", "--no-enable-prefix-caching"), words(2, "b", "--enable-prefix-caching")])
    assert emit(merged, None) == ("--no-enable-prefix-caching",)
    assert effective(merged) == {"--no-enable-prefix-caching": ()}


def test_repeatable_flags_add_up_lowest_first() -> None:
    merged = merge([words(1, "a", "--middleware", "a.A"), words(2, "b", "--middleware", "b.B", "--middleware", "c.C")])
    assert emit(merged, None) == ("--middleware", "b.B", "--middleware", "c.C", "--middleware", "a.A")
    assert effective(merged) == {"--middleware": ("b.B", "c.C", "a.A")}


def test_json_flags_become_one_argument_and_the_speculative_one_stays_in_layers() -> None:
    merged = merge(
        [
            words(1, "command line", "-cc.pass_config.a", "true", "-sc.method", "ngram"),
            words(2, "NIM_PASSTHROUGH_ARGS", CC, '{"mode": 3, "pass_config": {"a": false, "b": 1}}'),
            words(4, "runtime_config.json", SPEC, '{"method": "mtp"}', "--seed", "1"),
        ]
    )
    assert [(argument.words, argument.origin) for argument in merged.arguments] == [
        (("--seed", "1"), "runtime_config.json"),
        ((CC, '{"mode":3,"pass_config":{"a":true,"b":1}}'), "NIM_PASSTHROUGH_ARGS, command line"),
    ]
    assert [(layer.origin, layer.value) for layer in merged.layers[SPEC]] == [
        ("command line", {"method": "ngram"}),
        ("runtime_config.json", {"method": "mtp"}),
    ]


@pytest.mark.parametrize(
    ("given_layers", "value", "origins"),
    [
        ((), None, {}),
        (({"a": 1},), {"a": 1}, {"a": "level 1"}),
        (({"a": 1}, {"a": 2, "b": 3}), {"a": 1, "b": 3}, {"a": "level 1", "b": "level 2"}),
        (({"a": {"x": 1}}, {"a": {"y": 2}}), {"a": {"y": 2, "x": 1}}, {"a.x": "level 1", "a.y": "level 2"}),
        (({"a": {"x": 1}}, {"a": 7}), {"a": {"x": 1}}, {"a.x": "level 1"}),
        (({"a": 7}, {"a": {"x": 1}}), {"a": 7}, {"a": "level 1"}),
        (({"a": [1]}, {"a": [2]}), {"a": [1]}, {"a": "level 1"}),
        (({"a": None}, {"a": 1}), {"a": None}, {"a": "level 1"}),
        (({"a": 1}, None, {"b": 2}), {"a": 1}, {"a": "level 1"}),
        ((None, {"b": 2}), None, {}),
        (({}, {}), {}, {}),
    ],
)
def test_merging_json(
    given_layers: tuple[Mapping[str, Any] | None, ...], value: Mapping[str, Any] | None, origins: Mapping[str, str]
) -> None:
    assert merge_json(layers(*given_layers)) == MergedJson(value, origins)


def test_a_json_flag_that_is_switched_off_is_not_passed() -> None:
    merged = merge([words(1, "a", CC, "null"), words(2, "b", CC, '{"mode": 3}')])
    assert merged.arguments == ()


def test_merging_changes_no_layer() -> None:
    low: dict[str, Any] = {"a": {"x": 1}}
    merge_json(layers({"a": {"x": 2}}, low))
    assert low == {"a": {"x": 1}}


@pytest.mark.parametrize(
    ("parts", "warnings"),
    [
        (
            [
                words(3, "NIM_SPECDEC_ARGS", "--max-num-seqs", "64"),
                variable("--max-num-seqs", "32", "NIM_ENGINE_CONFIG"),
            ],
            ("--max-num-seqs is '64' in NIM_SPECDEC_ARGS and '32' in NIM_ENGINE_CONFIG; NIM_SPECDEC_ARGS counts",),
        ),
        ([variable("--max-num-seqs", "64", "A"), variable("--max-num-seqs", "64", "B")], ()),
        (
            [words(3, "A", "--enforce-eager"), words(3, "B", "--no-enforce-eager")],
            ("--enforce-eager is on in A and off in B; A counts",),
        ),
        (
            [words(3, "A", SPEC, '{"method": "mtp", "x": {"y": 1}}'), words(3, "B", SPEC, '{"x": {"y": 2}}')],
            ("--speculative-config.x.y is 1 in A and 2 in B; A counts",),
        ),
        (
            [words(3, "A", SPEC, "null"), words(3, "B", SPEC, "null")],
            (),
        ),
        ([words(3, "A", "--middleware", "a.A"), words(3, "B", "--middleware", "b.B")], ()),
        ([words(1, "A", "--seed", "1"), words(2, "B", "--seed", "2")], ()),
    ],
)
def test_parts_of_level_3_that_contradict_each_other_warn(parts: list[Level], warnings: tuple[str, ...]) -> None:
    assert merge(parts).warnings == warnings


def test_the_words_end_with_the_one_speculative_configuration_and_the_rest() -> None:
    merged = merge([words(1, "command line", "--seed", "1", "--spec-method", "ngram", "--spec-tokens=3")])
    speculative = {"method": "ngram", "num_speculative_tokens": 3}
    assert emit(merged, speculative, ("--", "x")) == (
        *("--seed", "1", SPEC, '{"method":"ngram","num_speculative_tokens":3}', "--", "x"),
    )
    assert emit(merged, None) == ("--seed", "1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"model": "/m/模型", "a": [1, 2.5, None, True]}, '{"model":"/m/模型","a":[1,2.5,null,true]}'),
        ({"model": "/m/\udcff"}, '{"model":"/m/\\udcff"}'),
        ({"model": "/m/\ud800"}, '{"model":"/m/\\ud800"}'),
    ],
)
def test_compact_json_is_always_a_program_argument(value: Mapping[str, Any], text: str) -> None:
    assert compact(value) == text
    assert os.fsencode(text)
    assert json.loads(text) == value


def test_effective_flags() -> None:
    merged = merge([words(1, "a", "-tp", "2", "--enable-lora", "--no-enforce-eager", CC, '{"mode": 3}')])
    assert effective(merged) == {
        "--tensor-parallel-size": ("2",),
        "--enable-lora": (),
        "--no-enforce-eager": (),
        CC: ('{"mode":3}',),
    }


def test_a_config_file_is_one_layer_below_its_source() -> None:
    def read(path: str) -> Mapping[str, Any]:
        return {"speculative-config": {"method": "mtp"}, "port": 2, "compilation-config": {"mode": 1, "x": 2}}

    parsed = parse_words(
        ["--config", "c.yaml", "-sc.method", "ngram", "--port", "1", "-cc.mode", "3"], TABLE, "command line", read
    )
    merged = merge([level(1, "command line", parsed)])
    assert effective(merged) == {"--port": ("1",), CC: ('{"mode":3,"x":2}',)}
    assert [layer.value for layer in merged.layers[SPEC]] == [{"method": "ngram"}, {"method": "mtp"}]
    assert merged.warnings == ()


def test_an_empty_launch_has_no_words() -> None:
    merged = merge([])
    assert merged == Merged((), {}, ())
    assert emit(merged, None) == ()


def test_a_runtime_document_takes_part_like_words() -> None:
    document = from_runtime_config({"max_num_seqs": 64, "speculative_config": None}, TABLE, "NIM_SPECDEC_ARGS")
    merged = merge([words(1, "command line", "--max-num-seqs", "8"), level(3, "NIM_SPECDEC_ARGS", document)])
    assert effective(merged) == {"--max-num-seqs": ("8",)}
    assert merged.layers[SPEC] == (JsonLayer(SPEC, None, "NIM_SPECDEC_ARGS"),)
