"""What the launcher emits means to vLLM's own parser what the user's words meant."""

from __future__ import annotations

import logging
import os
import string
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from launcher.arguments.merge import emit, level, merge, merge_json
from launcher.arguments.options import options_of
from launcher.arguments.spellings import SECRETS, SHORTCUTS, parse_words
from launcher.arguments.values import SPECULATIVE
from launcher.nodes import Node, joined
from launcher.settings.values import Given
from launcher.vllm import tables

TABLE = tables.pinned()
Parser = Callable[[Sequence[str]], dict[str, Any]]
# Read by us, or meant differently on purpose.
APART = {"--config", "--model", SPECULATIVE, *SECRETS, *SHORTCUTS}
ORDINARY = [flag for flag in TABLE.flags if flag.name not in APART]
WORDS = st.text(string.ascii_letters + string.digits + "/_ =.é", min_size=1, max_size=12).filter(
    lambda text: text[0] != "="
)


@pytest.fixture(scope="module")
def vllm() -> Parser:
    """vLLM's whole command line, main parser and sub-command included, as a function from words to values."""
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of torch and of its friends are theirs
        from vllm.entrypoints.cli.serve import cmd_init
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = FlexibleArgumentParser(prog="vllm")
        commands = parser.add_subparsers(required=False, dest="subparser")
        for command in cmd_init():
            command.subparser_init(commands)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it warns of every repeated flag

    def parse(words: Sequence[str]) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated flags
            return {**vars(parser.parse_args(["serve", *words]))}

    return parse


def emitted(words: Sequence[str]) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
    """The launcher's words for a model and a command line, and the speculative configuration that it claims."""
    parsed = parse_words(words, TABLE, "command line", lambda path: {})
    merged = merge([level(1, "command line", parsed)])
    claimed = merge_json(merged.layers.get(SPECULATIVE, ())).value
    return (*parsed.positionals, *emit(merged, claimed, parsed.rest)), claimed


def said(values: Mapping[str, Any]) -> Any:
    """The speculative configuration as vLLM puts it together from its flags."""
    config = values["speculative_config"]
    for flag, key in SHORTCUTS.items():
        value = values[flag[2:].replace("-", "_")]
        if value is not None:
            config = {**(config or {}), key: value}
    return config and {key.replace("-", "_"): value for key, value in config.items()}


def spelling(name: str) -> st.SearchStrategy[str]:
    """A full name with dashes or underscores, or its shortest unambiguous beginning."""
    forms = {name}
    if name.startswith("--"):
        known = [text for text in options_of(TABLE).flags if text.startswith("--")]
        beginnings = (name[:end] for end in range(3, len(name)))
        short = next((b for b in beginnings if [text for text in known if text.startswith(b)] == [name]), name)
        forms |= {f"--{form[2:].replace('-', '_')}" for form in (name, short)} | {short}
    return st.sampled_from(sorted(forms))


def value(flag: tables.Flag) -> st.SearchStrategy[str]:
    if flag.choices:
        return st.sampled_from(flag.choices)
    return {
        "int": st.integers(-(10**6), 10**6).map(str),
        "human-int": st.sampled_from(["1", "64", "1k", "2.5k", "1K", "3M"]),
        "float": st.floats(-10, 10).map(str),
        "json-any": st.sampled_from(['["*"]', "[]", '["a", "b c"]']),
    }.get(flag.type, WORDS)


@st.composite
def occurrence(draw: st.DrawFn) -> list[str]:
    """One flag with its value, in any spelling."""
    flag = draw(st.sampled_from([flag for flag in ORDINARY if flag.type != "json"]))
    name = draw(st.sampled_from([flag.name, *flag.aliases, *flag.negatives]).flatmap(spelling))
    if flag.kind in ("switch", "boolean"):
        return [name]
    least, most = {"optional": (0, 1), "list": (1, 3), "append-list": (1, 3)}.get(flag.kind, (1, 1))
    values = draw(st.lists(value(flag), min_size=least, max_size=most))
    if flag.name == "--lora-modules":
        values = [f"name={text.replace(',', '')}" for text in values]
    if len(values) == 1 and draw(st.booleans()):
        return [f"{name}={values[0]}"]
    return [name, *values]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(occurrence(), max_size=8))
def test_ordinary_flags(vllm: Parser, chunks: list[list[str]]) -> None:
    words = ["/m", *(word for chunk in chunks for word in chunk)]
    # A fraction below zero as a word of its own: vLLM takes it for a dotted field and refuses it; the launcher helps.
    assume(not any(word.startswith("-") and "." in word and word[1:2].isdigit() for word in words))
    ours, _ = emitted(words)
    assert vllm(ours) == vllm(words)


@pytest.mark.parametrize(
    "words",
    [
        ("--max-model-len", "-1"),
        ("--max_model_l=64",),
        ("-tp=2", "-pp", "1", "-n2", "-r", "0"),
        ("-t", "2"),
        ("-O3",),
        ("-O=2",),
        ("-O", "1"),
        ("--no-enforce", "--enforce_eager"),
        ("--enforce-eager", "--no-enforce-eager"),
        ("--middleware", "a.B", "--middleware=c.D"),
        ("--served-model-name", "a", "b", "--seed", "1"),
        ("--lora-modules", "a=/x", '{"name": "b", "path": "/y"}'),
        ("--compilation-config", '{"mode": 3}'),
        ("-cc.mode", "3", "-cc.pass_config.fuse_norm_quant=true"),
        ("-cc.cudagraph_capture_sizes+", "1,2"),
        ("--hf-overrides", '{"num_hidden_layers": 2}'),
        ("--hf-overrides.text_config.num_hidden_layers", "2", "--hf-overrides.rope", "1k"),
        ("--kv-transfer-config", '{"kv_connector": "X", "kv_role": "kv_both", "engine_id": "e"}'),
        ("--profiler-config", '{"delay_iterations": 2k}'),
        ("--gpu-memory-util", ".5"),
        ("--device-memory-utilization=0.5",),
        ("--moe-backend", "Flashinfer-CutLass"),
        ("--chat-template", "{{ a_b }}"),
        ("--quantization", "None"),
        ("--hf-token",),
    ],
)
def test_examples(vllm: Parser, words: tuple[str, ...]) -> None:
    ours, _ = emitted(("/m", *words))
    assert vllm(ours) == vllm(("/m", *words))


@pytest.mark.parametrize("words", [("--watermark", "-0.5"), ("--chat-template", "-- a_b.c d")])
def test_values_that_vllm_takes_only_behind_an_equals_sign(vllm: Parser, words: tuple[str, str]) -> None:
    ours, _ = emitted(("/m", *words))
    name = words[0][2:].replace("-", "_")
    assert str(vllm(ours)[name]) == words[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_words_of_a_node(vllm: Parser, rank: int) -> None:
    node = Node(Given(2, "count"), Given(rank, "rank"), Given("llm-0.llm", "leader"))
    said = parse_words(["/m", "--port", "8001", "--api-server-count", "2"], TABLE, "command line", lambda path: {})
    words = ("/m", *emit(joined(node, [level(1, "command line", said)], 8, TABLE), None))
    plain, ours = vllm(("/m",)), vllm(words)
    changed = {name: value for name, value in ours.items() if value != plain[name]}
    assert changed == {
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "nnodes": 2,
        "master_addr": "llm-0.llm",
        **({"node_rank": 1, "headless": True} if rank else {"port": 8001, "api_server_count": 2}),
    }


NGRAM = '{"method": "ngram", "num_speculative_tokens": 3}'


@pytest.mark.parametrize(
    "words",
    [
        (SPECULATIVE, NGRAM),
        (f"{SPECULATIVE}={NGRAM}",),
        ("-sc", NGRAM),
        (f"-sc={NGRAM}",),
        (f"--speculative_config={NGRAM}",),
        ("--specul", NGRAM),
        ("--speculative-c.method", "ngram", "--speculative-c.num-speculative-tokens=3"),
        ("-s.method", "ngram"),
        ("-sc.method", "ngram", "-sc.max_model_len", "1k"),
        ("-sc.x+", "a,b", "-sc.x+=c"),
        ("-sc.a.b", "1", "-sc.a.c", '{"d": [1]}', "-sc.a.c.e", "x y"),
        ("-sc.x", "[1]", "-sc.x", "[2]"),
        ("-sc.x", "-1"),
        ("-sc.x", "-.5"),
        ("-sc.x", "NaN-like"),
        ("--spec-method", "ngram", "--spec-tokens", "3"),
        ("--spec-mo", "/d", "-sc.method", "eagle3"),
        ("--spec_tokens=3", SPECULATIVE, '{"method": "mtp"}'),
        (SPECULATIVE, NGRAM, SPECULATIVE, '{"method": "mtp"}'),
        (SPECULATIVE, "null"),
        (SPECULATIVE, "None"),
        (SPECULATIVE, ""),
        (SPECULATIVE, '{"model": "/m/é \\u00e9"}'),
    ],
)
def test_speculative_spellings(vllm: Parser, words: tuple[str, ...]) -> None:
    """Where vLLM has a meaning for a mixture of spellings, it is the one that the launcher passes on."""
    ours, claimed = emitted(("/m", *words))
    assert claimed == said(vllm(("/m", *words)))
    assert vllm(ours)["speculative_config"] == claimed


KEYS = st.sampled_from(["method", "model", "x", "prompt_lookup_max", "max-model-len", "é"])
VALUES = st.sampled_from(
    ["ngram", "1", "1k", "2.5k", "2.5K", "007", "true", "null", '{"y": 1}', "[1]", '"3"', "a b", "", "{", "-1"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=3), VALUES, st.booleans(), st.booleans()), max_size=6))
def test_dotted_fields(vllm: Parser, fields: list[tuple[list[str], str, bool, bool]]) -> None:
    words = ["/m"]
    for path, text, inline, extends in fields:
        name = f"-sc.{'.'.join(path)}{'+' if extends else ''}"
        words += [f"{name}={text}"] if inline else [name, text]
    ours, claimed = emitted(words)
    assert claimed == said(vllm(words))
    assert vllm(ours)["speculative_config"] == claimed


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_one_json_object_whatever_came_in(vllm: Parser, data: st.DataObject) -> None:
    """A mixture that vLLM itself would drop a part of, or refuse, reaches it as the one object that the plan shows."""
    whole = ["--speculative-config", "-sc", "--speculative_config", "--specula"]
    field = ["-sc.method", "--speculative-config.method", "--speculative_config.num-speculative-tokens", "--spec-model"]
    words = ["/m"]
    for _ in range(data.draw(st.integers(1, 5))):
        if data.draw(st.booleans()):
            words += [
                data.draw(st.sampled_from(whole)),
                data.draw(st.sampled_from([NGRAM, "{}", "null", '{"model": "/d"}'])),
            ]
        else:
            words += [data.draw(st.sampled_from(field)), data.draw(st.sampled_from(["mtp", "eagle3", "4"]))]
    ours, claimed = emitted(words)
    assert ours.count(SPECULATIVE) == (claimed is not None)
    assert said(vllm(ours)) == claimed
