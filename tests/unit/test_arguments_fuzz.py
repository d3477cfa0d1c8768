"""Whatever the words: they are read or refused with one sentence, and no secret is ever repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.arguments.merge import effective, emit, level, merge, merge_json
from launcher.arguments.runtime import from_runtime_config
from launcher.arguments.spellings import parse_words
from launcher.arguments.values import SPECULATIVE, Parsed
from launcher.errors import ConfigurationError
from launcher.vllm import tables

TABLE = tables.pinned()
TABLES = {"pinned": TABLE, "newer": TABLE._replace(exact=False), "newest": tables.load("0.33")}
SECRET = "s3cr3t-W0rd"
NAMES = [flag.name for flag in TABLE.flags]
# Words that a parser may stumble over, alone and glued together.
PIECES = st.sampled_from(
    [
        "-",
        "--",
        "=",
        ".",
        "+",
        "_",
        " ",
        "0",
        "-1",
        "1k",
        "{",
        "}",
        '"',
        "'",
        "null",
        "é",
        "\0",
        "\udcff",
        "no-",
        "sc",
        "O",
        "/m",
    ]
)
MIXED = st.lists(PIECES | st.text(max_size=3), max_size=6).map("".join)
ODD = [
    "-sc",
    "-sc.method",
    "-cc.x+",
    "-new.x",
    "-tp",
    "-n",
    "-O",
    "--spec",
    "--config",
    "--help",
    "--api-key",
    "--hf-token",
]
FLAGS = st.sampled_from(ODD) | st.sampled_from(NAMES)
WORDS = MIXED | FLAGS | st.tuples(FLAGS, MIXED).map("".join) | st.tuples(FLAGS, MIXED).map("=".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def no_config(path: str) -> Mapping[str, Any]:
    return {}


def read(words: list[str], table: tables.EngineTable) -> Parsed | ConfigurationError:
    try:
        return parse_words(words, table, "command line", no_config)
    except ConfigurationError as error:
        return error


def text(outcome: Parsed | ConfigurationError) -> str:
    """All that may be logged, printed or put on a command line."""
    if isinstance(outcome, ConfigurationError):
        return "\n".join(f"{problem.what} {problem.todo}" for problem in (outcome, *outcome.others))
    return repr(outcome._replace(secrets=()))


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=8), st.sampled_from(sorted(TABLES)))
def test_words_are_read_or_refused(words: list[str], table: str) -> None:
    outcome = read(words, TABLES[table])
    if isinstance(outcome, ConfigurationError):
        assert outcome.code == 2
        assert outcome.what.startswith("command line")
        return
    merged = merge([level(1, "command line", outcome)])
    speculative = merge_json(merged.layers.get(SPECULATIVE, ())).value
    emitted = emit(merged, speculative, outcome.rest)
    end = emitted.index("--") if outcome.rest else len(emitted)
    assert emitted[:end].count(SPECULATIVE) == (speculative is not None)
    assert not {"--model", "--config"} & set(effective(merged))
    assert len(outcome.positionals) <= 1


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_what_is_emitted_means_the_same_when_read_again(words: list[str]) -> None:
    outcome = read(words, TABLE)
    if isinstance(outcome, ConfigurationError):
        return
    first = merge([level(1, "command line", outcome)])
    speculative = merge_json(first.layers.get(SPECULATIVE, ())).value
    again = read(list(emit(first, None, outcome.rest)), TABLE)
    assert isinstance(again, Parsed)
    assert effective(merge([level(1, "command line", again)])) == effective(first)
    if speculative is not None:
        # As text, where not-a-number equals itself.
        passed = json.loads(emit(first, speculative)[-1])
        assert json.dumps(passed) == json.dumps(speculative)
    assert (again.rest, again.secrets, again.positionals) == (outcome.rest, (), ())


SPELLED = st.sampled_from(
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--api_key", SECRET],
        [f"--api_key={SECRET}"],
        ["--api-k", SECRET],
        [f"--api-ke={SECRET}"],
        ["--api-key", "other", SECRET],
        ["--api-key", f"-{SECRET}"],
        [f"--api-key=-{SECRET}"],
        [f"--api-key.x={SECRET}"],
        ["--hf-token", SECRET],
        [f"--hf_token={SECRET}"],
        ["--hf-t", SECRET],
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS.filter(lambda word: word != "--"), max_size=4), SPELLED, st.lists(FLAGS | WORDS, max_size=4))
def test_a_secret_is_never_repeated(before: list[str], spelled: list[str], after: list[str]) -> None:
    for table in TABLES.values():
        assert SECRET not in text(read([*before, *spelled, *after], table))


PLAIN = st.sampled_from([["--api-key", SECRET], [f"--api_key={SECRET}"], ["--api-k", SECRET], ["--hf-token", SECRET]])


@settings(max_examples=300, deadline=None)
@given(PLAIN, st.lists(FLAGS, min_size=1, max_size=4), st.booleans())
def test_no_refusal_shows_a_secret_that_was_given_as_one(spelled: list[str], flags: list[str], before: bool) -> None:
    others = [word for flag in flags for word in (flag, SECRET)]
    outcome = read([*others, *spelled] if before else [*spelled, *others], TABLE)
    if isinstance(outcome, ConfigurationError):
        assert SECRET not in text(outcome)
        assert SECRET in outcome.secrets


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from([name[2:] for name in NAMES]) | st.text(max_size=8), JSON | MIXED, max_size=5),
    st.sampled_from(sorted(TABLES)),
)
def test_documents_are_read_or_refused(document: dict[str, Any], table: str) -> None:
    try:
        parsed = from_runtime_config(document, TABLES[table], "runtime_config.json", passthrough=True)
    except ConfigurationError as error:
        assert "runtime" in error.what
    else:
        assert parsed.positionals == ()
        assert parsed.config_file is None


@settings(max_examples=300, deadline=None)
@given(st.recursive(JSON, lambda inner: inner.map(json.dumps), max_leaves=4) | MIXED)
def test_speculative_json_is_an_object_or_off_or_refused(value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    outcome = read([f"--speculative-config={text}"], TABLE)
    if isinstance(outcome, Parsed):
        (layer,) = outcome.layers
        assert layer.value is None or isinstance(layer.value, dict)
