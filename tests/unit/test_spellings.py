"""Every spelling that vLLM's parser accepts, and what is made of it.

A table of cases, one below the other: its length needs no other reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher import logs
from launcher.arguments.config_file import read_config
from launcher.arguments.runtime import from_runtime_config
from launcher.arguments.spellings import parse_words
from launcher.arguments.values import Argument, JsonLayer, Parsed
from launcher.errors import ConfigurationError
from launcher.vllm import tables

TABLE = tables.pinned()
NEWER = TABLE._replace(exact=False)
SPEC = "--speculative-config"
NGRAM = '{"method":"ngram","num_speculative_tokens":3}'


def parse(*words: str, config: Mapping[str, Any] | None = None, table: tables.EngineTable = TABLE) -> Parsed:
    return parse_words(words, table, "command line", lambda path: config or {})


def refusal(*words: str, config: Mapping[str, Any] | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        parse(*words, config=config)
    return caught.value


def only(parsed: Parsed) -> Argument:
    (argument,) = parsed.arguments
    return argument


def spec(parsed: Parsed) -> Mapping[str, Any] | None:
    (layer,) = parsed.layers
    assert layer.flag == SPEC
    return layer.value


@pytest.mark.parametrize(
    ("words", "flag", "values", "emitted"),
    [
        (("--max-model-len", "4096"), "--max-model-len", ("4096",), ("--max-model-len", "4096")),
        (("--max_model_len", "4k"), "--max-model-len", ("4k",), ("--max_model_len", "4k")),
        (("--max_model_len=4k",), "--max-model-len", ("4k",), ("--max_model_len=4k",)),
        (("--max-model-len", "-1"), "--max-model-len", ("-1",), ("--max-model-len", "-1")),
        (("--max-model-l", "auto"), "--max-model-len", ("auto",), ("--max-model-len", "auto")),
        (("--max_model_l=64",), "--max-model-len", ("64",), ("--max-model-len=64",)),
        (("-tp", "2"), "--tensor-parallel-size", ("2",), ("-tp", "2")),
        (("-tp=2",), "--tensor-parallel-size", ("2",), ("-tp=2",)),
        (("-t", "2"), "--tensor-parallel-size", ("2",), ("-tp", "2")),
        (("-n4",), "--nnodes", ("4",), ("-n4",)),
        (("-q=fp8",), "--quantization", ("fp8",), ("-q=fp8",)),
        (("-O3",), "--optimization-level", ("3",), ("-O3",)),
        (("-O=3",), "--optimization-level", ("3",), ("-O=3",)),
        (("-O", "3"), "--optimization-level", ("3",), ("-O", "3")),
        (("--seed=-5",), "--seed", ("-5",), ("--seed=-5",)),
        (("--watermark", "-0.5"), "--watermark", ("-0.5",), ("--watermark=-0.5",)),
        (("--chat-template", "-- a_b c"), "--chat-template", ("-- a_b c",), ("--chat-template=-- a_b c",)),
        (("--chat-template", ""), "--chat-template", ("",), ("--chat-template", "")),
        (("--served-model-name", "a", "b"), "--served-model-name", ("a", "b"), ("--served-model-name", "a", "b")),
        (("--served_model_name=a",), "--served-model-name", ("a",), ("--served_model_name=a",)),
        (("--disable-log-stats",), "--disable-log-stats", (), ("--disable-log-stats",)),
        (("--disable_log_st",), "--disable-log-stats", (), ("--disable-log-stats",)),
        (("--hf-token",), "--hf-token", (), ("--hf-token",)),
        (("--device-memory-utilization", ".5"), "--gpu-memory-utilization", (".5",), None),
        (("--moe-backend", "Flashinfer-CutLass"), "--moe-backend", ("Flashinfer-CutLass",), None),
        (("--help=all",), "--help", (), ("--help=all",)),
        (("-h",), "--help", (), ("-h",)),
        (("--cudagraph-capture-sizes", "1", "2"), "--cudagraph-capture-sizes", ("1", "2"), None),
        (("--allowed-origins", '["*"]'), "--allowed-origins", ('["*"]',), None),
    ],
)
def test_spellings(words: tuple[str, ...], flag: str, values: tuple[str, ...], emitted: tuple[str, ...] | None) -> None:
    argument = only(parse(*words))
    assert (argument.flag, argument.values, argument.negated) == (flag, values, False)
    assert argument.words == (words if emitted is None else emitted)
    assert argument.origin == "command line"


@pytest.mark.parametrize(
    ("words", "negated", "emitted"),
    [
        (("--enforce-eager",), False, ("--enforce-eager",)),
        (("--no-enforce-eager",), True, ("--no-enforce-eager",)),
        (("--no_enforce_eager",), True, ("--no_enforce_eager",)),
        (("--no-enforce",), True, ("--no-enforce-eager",)),
        (("--enforce-eager", "--no-enforce-eager"), True, ("--no-enforce-eager",)),
        (("--no-enforce-eager", "--enforce_eager"), False, ("--enforce_eager",)),
    ],
)
def test_a_boolean_and_its_twin_are_one_flag(words: tuple[str, ...], negated: bool, emitted: tuple[str, ...]) -> None:
    argument = only(parse(*words))
    assert (argument.flag, argument.negated, argument.words) == ("--enforce-eager", negated, emitted)


def test_033_takes_disable_for_enable() -> None:
    newest = tables.load("0.33")
    parsed = parse("--disable-prefix-caching", "--enable-custom-all-reduce", table=newest)
    assert [(argument.flag, argument.negated) for argument in parsed.arguments] == [
        ("--enable-prefix-caching", True),
        ("--disable-custom-all-reduce", True),
    ]


def test_the_last_of_one_flag_counts_and_middleware_adds_up() -> None:
    parsed = parse("--port", "1", "--middleware", "a.B", "--seed", "1", "--port=2", "--middleware=c.D")
    assert [argument.words for argument in parsed.arguments] == [
        ("--seed", "1"),
        ("--port=2",),
        ("--middleware", "a.B"),
        ("--middleware=c.D",),
    ]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ((SPEC, NGRAM), {"method": "ngram", "num_speculative_tokens": 3}),
        ((f"{SPEC}={NGRAM}",), {"method": "ngram", "num_speculative_tokens": 3}),
        (("-sc", NGRAM), {"method": "ngram", "num_speculative_tokens": 3}),
        ((f"-sc={NGRAM}",), {"method": "ngram", "num_speculative_tokens": 3}),
        ((f"--speculative_config={NGRAM}",), {"method": "ngram", "num_speculative_tokens": 3}),
        (("--specul", NGRAM), {"method": "ngram", "num_speculative_tokens": 3}),
        (("--speculative-c.method", "ngram"), {"method": "ngram"}),
        (("-s.method", "ngram"), {"method": "ngram"}),
        (("-sc.method", "ngram", "-sc.num-speculative-tokens=3"), {"method": "ngram", "num_speculative_tokens": 3}),
        ((f"{SPEC}.max_model_len", "1k"), {"max_model_len": 1000}),
        ((f"{SPEC}.max_model_len", "1K"), {"max_model_len": 1024}),
        ((f"{SPEC}.max_model_len", "007"), {"max_model_len": 7}),
        ((f"{SPEC}.model", "7b.x"), {"model": "7b.x"}),
        ((f"{SPEC}.enforce_eager", "true"), {"enforce_eager": True}),
        ((f"{SPEC}.model", "null"), {"model": None}),
        ((f"{SPEC}.revision=a=b",), {"revision": "a=b"}),
        ((f"{SPEC}.x+", "a,b"), {"x": ["a", "b"]}),
        ((f"{SPEC}.x+=a", f"{SPEC}.x+", "b"), {"x": ["a", "b"]}),
        ((f"{SPEC}.a.b.c", "1", f"{SPEC}.a.b.d", "2"), {"a": {"b": {"c": 1, "d": 2}}}),
        ((f"{SPEC}.a", '{"b": 1}', f"{SPEC}.a", '{"c": 2}'), {"a": {"b": 1, "c": 2}}),
        (("-sc.method", "ngram", "--speculative_config.model=/d"), {"method": "ngram", "model": "/d"}),
        (("--spec-method", "ngram", "--spec-tokens=4"), {"method": "ngram", "num_speculative_tokens": 4}),
        (("--spec_model", "/d", "--spec-method", "None"), {"model": "/d"}),
        ((SPEC, NGRAM, "-sc.num_speculative_tokens", "5"), {"method": "ngram", "num_speculative_tokens": 5}),
        (("-sc.num_speculative_tokens", "5", SPEC, NGRAM), {"method": "ngram", "num_speculative_tokens": 5}),
        (("--spec-tokens", "5", "-sc", NGRAM), {"method": "ngram", "num_speculative_tokens": 5}),
        ((SPEC, '{"method": "mtp"}', SPEC, NGRAM), {"method": "ngram", "num_speculative_tokens": 3}),
        ((SPEC, '{"num-speculative-tokens": 3}'), {"num_speculative_tokens": 3}),
        ((SPEC, '"{\\"method\\": \\"mtp\\"}"'), {"method": "mtp"}),
        ((SPEC, '{"x": [1]}', f"{SPEC}.x+", "b"), {"x": [1, "b"]}),
        ((SPEC, '{"x": [1]}', f"{SPEC}.x", "[2]"), {"x": [2]}),
        ((SPEC, "{}"), {}),
        ((SPEC, "null"), None),
        ((SPEC, "None"), None),
        ((SPEC, "none"), None),
        ((SPEC, ""), None),
        ((SPEC, '"none"'), None),
        ((SPEC, "none", "-sc.method", "ngram"), {"method": "ngram"}),
    ],
)
def test_speculative_spellings(words: tuple[str, ...], value: Mapping[str, Any] | None) -> None:
    parsed = parse(*words)
    assert spec(parsed) == value
    assert parsed.arguments == ()


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (
            (SPEC, NGRAM, SPEC, NGRAM),
            "command line: --speculative-config is given more than one whole object; the last",
        ),
        (
            (SPEC, NGRAM, "--spec-tokens", "4"),
            "gives num_speculative_tokens twice, with different values; the last counts",
        ),
        (("-sc.method", "mtp", "-sc.method", "ngram"), "gives method twice"),
        (("-sc.a", "1", "-sc.a.b", "2"), "gives a twice"),
        ((SPEC, '{"a": 1, "a": 2}'), "'a' twice"),
        ((SPEC, '{"a-b": 1, "a_b": 2}'), "gives a_b twice"),
        ((SPEC, '{"model": "$DRAFT"}'), "$DRAFT looks like an unexpanded variable"),
        ((SPEC, "null", "-sc.method", "mtp"), "is switched off, and single fields of it are given"),
    ],
)
def test_what_is_said_twice_warns(words: tuple[str, ...], warning: str) -> None:
    (given,) = parse(*words).warnings
    assert warning in given


def test_the_same_twice_is_no_contradiction() -> None:
    assert parse("-sc.method", "mtp", "--spec-method", "mtp").warnings == ()


def test_other_json_flags_keep_their_keys_and_take_numbers_with_units() -> None:
    parsed = parse("--compilation-config", '{"cudagraph-x": 1}', "-cc.pass_config.fuse_allreduce_rms", "true")
    assert parsed.layers == (
        JsonLayer(
            "--compilation-config", {"cudagraph-x": 1, "pass_config": {"fuse_allreduce_rms": True}}, "command line"
        ),
    )
    (layer,) = parse("--profiler-config", '{"name": "80m", "delay": 80m, "k": 2K}').layers
    assert layer.value == {"name": "80m", "delay": 80_000_000, "k": 2048}


@pytest.mark.parametrize(
    ("words", "what", "todo"),
    [
        (("--max-modle-len", "4"), "vLLM 0.32.0 has no option --max-modle-len", "--max-model-len"),
        (("--speculative-cfg={}",), "no option --speculative-cfg", "--speculative-config"),
        (("--max-num", "4"), "--max-num is short for several options: --max-num-", "Write the whole name"),
        (("-d", "1"), "-d is short for several options: -d", "Write the whole name"),
        (("-tp2",), "no option -tp2", ""),
        (("-O",), "no option -O", ""),
        (("--max-model-len",), "--max-model-len needs a value", "--max-model-len VALUE"),
        (("--max-model-len", "--seed", "1"), "--max-model-len needs a value", "--max-model-len=VALUE"),
        (("-sc.method",), "-sc.method needs a value", ""),
        (("-sc.method", "--port", "1"), "-sc.method needs a value", ""),
        (("--enforce-eager=true",), "--enforce-eager takes no value", "--no-enforce-eager"),
        (("--enforce-eager", "true"), "--enforce-eager takes no value", "--no-enforce-eager"),
        (("--disable-log-stats=1",), "--disable-log-stats takes no value", "Write --disable-log-stats alone"),
        (("--max-num-seqs", "many"), "--max-num-seqs takes an integer, not 'many'", ""),
        (("--max-model-len", "2.5K"), "--max-model-len takes an integer (also 1k, 2M), not '2.5K'", ""),
        (("--watermark", "x"), "--watermark takes a number, not 'x'", ""),
        (("--dtype", "bfloat61"), "--dtype cannot be 'bfloat61'", "bfloat16"),
        (("--max-lora-rank", "12"), "--max-lora-rank cannot be '12'", "1, 8, 16, 32, 64, 128, 256, 320 or 512"),
        (("--spec-method", "eagle33"), "--spec-method cannot be 'eagle33'", "eagle3"),
        (("--allowed-origins", "*"), "--allowed-origins takes JSON, not '*'", ""),
        ((SPEC, "[1]"), "--speculative-config takes a JSON object, not a list", ""),
        ((SPEC, "3"), "--speculative-config takes a JSON object, not a number", ""),
        ((SPEC, "{'method': 'mtp'}"), "--speculative-config, line 1, column 2: a single quote", "double quotes"),
        ((SPEC, '{"method":'), "--speculative-config, line 1, column 11: the text ends too early", ""),
        ((SPEC, '"' + "[" * 200 + "]" * 200 + '"'), "nested", ""),
        (("-tp.x", "1"), "-tp.x: there are no fields of --tensor-parallel-size", "give the value to the flag itself"),
        (("--served-model-name", ""), "--served-model-name is given an empty name", "Leave the flag out"),
        (("--served-model-name=a", "--served-model-name= "), "--served-model-name is given an empty name", ""),
        (("/m", "–-max-model-len", "4"), "'–-max-model-len' begins with a typographic dash, U+2013", "--max-model-len"),
        (("—max_model_len=4",), "'—max_model_len' begins with a typographic dash, U+2014", "Write --max_model_len"),
        (("−tp", "2"), "'−tp' begins with a typographic dash, U+2212", "Write -tp with plain ones"),
        (("-sc." + ".".join("a" * 70), "1"), "the field a is nested too deeply", ""),
        (("/a", "/b"), "two models, '/a' and '/b'", "Name the model once"),
        (("/a", "--model", "/b"), "two models, '/a' and '/b'", "Name the model once"),
        (("--config", "a.yaml", "--config=b.yaml"), "two configuration files, 'a.yaml' and 'b.yaml'", "Merge them"),
        (("--served-model-name", "a\0b"), "--served-model-name holds a NUL", ""),
    ],
)
def test_refusals(words: tuple[str, ...], what: str, todo: str) -> None:
    error = refusal(*words)
    assert what in error.what
    assert error.what.startswith("command line")
    assert todo in error.todo
    assert error.code == 2


def test_the_version_named_is_the_one_installed() -> None:
    with pytest.raises(ConfigurationError, match=r"vLLM 0\.31\.2rc1 has no option --max-modle-len"):
        parse("--max-modle-len", "4", table=tables.load("0.31.2rc1+cpu"))


def test_all_problems_of_one_line_are_told() -> None:
    error = refusal("--max-num-seqs", "x", "--prot", "1", "--seed")
    assert [problem.what for problem in (error, *error.others)] == [
        "command line: --max-num-seqs takes an integer, not 'x'",
        "command line: vLLM 0.32.0 has no option --prot",
        "command line: --seed needs a value",
    ]


@pytest.mark.parametrize(
    "words", [("--model", "/m"), ("--model=/m",), ("/m",), ("--seed", "1", "/m"), ("--model=/m", "-O3")]
)
def test_the_model_is_a_positional(words: tuple[str, ...]) -> None:
    parsed = parse(*words)
    assert parsed.positionals == ("/m",)
    assert "--model" not in {argument.flag for argument in parsed.arguments}


def test_two_dashes_end_the_options() -> None:
    parsed = parse("/m", "--seed", "1", "--", "--port", "x", "--")
    assert parsed.rest == ("--", "--port", "x", "--")
    assert only(parsed).flag == "--seed"


@pytest.mark.parametrize(
    ("words", "secrets"),
    [
        (("--api-key", "k1", "k2"), (("VLLM_API_KEY", "k1"), ("VLLM_API_KEY", "k2"))),
        (("--api_key=k1",), (("VLLM_API_KEY", "k1"),)),
        (("--api-k", "k1"), (("VLLM_API_KEY", "k1"),)),
        (("--api-key", "old", "--api-key", "k1"), (("VLLM_API_KEY", "k1"),)),
        (("--api-key", "", "k1"), (("VLLM_API_KEY", "k1"),)),
        (("--hf-token", "k1"), (("HF_TOKEN", "k1"),)),
        (("--hf_token=k1",), (("HF_TOKEN", "k1"),)),
    ],
)
def test_secrets_leave_the_command_line(words: tuple[str, ...], secrets: tuple[tuple[str, str], ...]) -> None:
    parsed = parse(*words)
    assert parsed.secrets == secrets
    assert parsed.arguments == ()
    flag, variable = ("--hf-token", "HF_TOKEN") if "hf" in words[0] else ("--api-key", "VLLM_API_KEY")
    instead = (
        f"vLLM gets it as {variable} instead; set {variable} or {variable}_FILE"
        if len(secrets) == 1
        else "vLLM gets them in a private file instead"
    )
    said = f"command line, {flag}: a list of processes would show what is secret; {instead}"
    assert set(parsed.warnings) == {said}
    assert logs.mask(said) == said


@pytest.mark.parametrize("words", [("--api-key", ""), ("--api-key=None",), ("--hf-token=",)])
def test_no_value_is_no_secret(words: tuple[str, ...]) -> None:
    parsed = parse(*words)
    assert (parsed.secrets, parsed.arguments, parsed.warnings) == ((), (), ())


@pytest.mark.parametrize(
    "words",
    [
        ("--api-key",),
        ("--api-key", "--port", "1"),
        ("--api-key.x=hush",),
        ("--api-keys", "hush"),
        ("--api", "hush"),
        ("–-api-key", "hush"),
        ("—api-key=hush",),
        ("–-api-key hush",),
        ("--hf-token=a\0hush",),
    ],
)
def test_a_sentence_about_a_secret_flag_is_shown_whole(words: tuple[str, ...]) -> None:
    error = refusal(*words)
    for problem in (error, *error.others):
        assert logs.mask(str(problem)) == str(problem)
        assert "hush" not in str(problem)


SHOWING = {"port": "hush-hush", "enforce-eager": "hush-hush", "prot": 1}


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (("--api-key", "hush-hush", "--port", "hush-hush"), None),
        (("--port", "hush-hush", "--hf-token=hush-hush"), None),
        (("--api-key", "hush-hush", "--api-key", "other", "--port", "hush-hush"), None),
        (("--api-key=hush-hush", "/m", "hush-hush"), None),
        (("--api-key", "hush-hush", "--config", "c.yaml"), {"port": "hush-hush"}),
        (("--api-key", "hush-hush", "--config", "c.yaml"), {"config": "hush-hush"}),
        (("--api-key", "hush-hush", "--config", "c.yaml", "/m"), {"model": "hush-hush"}),
        (("--config", "c.yaml"), {"api-key": "hush-hush", **SHOWING}),
        (("--config", "c.yaml"), {**SHOWING, "api_key": ["other", "hush-hush"]}),
        (("--config", "c.yaml"), {"config": "hush-hush", "hf-token": "hush-hush"}),
        (("/m", "--config", "c.yaml"), {"model": "hush-hush", "hf-token": "hush-hush"}),
    ],
)
def test_what_is_wrong_beside_a_secret_does_not_show_it(
    words: tuple[str, ...], config: Mapping[str, Any] | None
) -> None:
    error = refusal(*words, config=config)
    texts = [str(problem) for problem in (error, *error.others)]
    assert "hush" not in "".join(texts) and "***" in "".join(texts)
    assert "hush-hush" in error.secrets


@pytest.mark.parametrize(
    "document",
    [
        {"api-key": "hush-hush", **SHOWING},
        {"api-key": "hush-hush", "NIM_PASSTHROUGH_ARGS": "--port hush-hush"},
        {"port": "hush-hush", "NIM_PASSTHROUGH_ARGS": "--api-key hush-hush"},
        {"NIM_PASSTHROUGH_ARGS": "--api-key hush-hush --model hush-hush"},
        {"NIM_PASSTHROUGH_ARGS": "--api-key hush-hush --config hush-hush"},
    ],
)
def test_nor_does_a_runtime_configuration(document: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_runtime_config(document, TABLE, "runtime_config.json", passthrough=True)
    texts = [str(problem) for problem in (caught.value, *caught.value.others)]
    assert "hush" not in "".join(texts) and "***" in "".join(texts)
    assert "hush-hush" in caught.value.secrets


def test_json_without_its_quotes_shows_no_secret() -> None:
    error = refusal("--speculative-config", "{hf_token:hush-hush,method:mtp}")
    assert "hush" not in str(error)
    assert error.what.splitlines()[1:3] == ["    {hf_token:*********,method:mtp}", "     ^"]


def test_a_secret_that_begins_with_a_dash_is_not_shown() -> None:
    error = refusal("--api-key", "-hush.hush", "--port", "x")
    assert error.what == "command line: no value follows --api-key"
    assert error.todo == "Set VLLM_API_KEY, which may begin with a dash"
    assert "hush" not in "".join(str(problem) for problem in (error, *error.others))


@pytest.mark.parametrize(
    "words",
    [
        ("-sc.method", "--api-key=hush"),
        ("-new.field", "--api_key=hush"),
        ("--new-thing", "--api-k", "hush"),
        ("--api-key", "--api-key", "other", "hush"),
    ],
)
def test_a_forgotten_value_shows_no_secret(words: tuple[str, ...]) -> None:
    for table in (TABLE, NEWER):
        try:
            parsed = parse(*words, table=table)
        except ConfigurationError as error:
            assert "hush" not in "".join(str(problem) for problem in (error, *error.others))
        else:
            assert ("VLLM_API_KEY", "hush") in parsed.secrets
            assert "hush" not in repr(parsed._replace(secrets=()))


def test_a_newer_vllm_gets_unknown_flags_as_they_came() -> None:
    parsed = parse("--new-thing", "a", "b", "--newer=1", "-new.field", "-x", "--seed", "1", table=NEWER)
    assert [argument.words for argument in parsed.arguments] == [
        ("--seed", "1"),
        ("--new-thing", "a", "b"),
        ("--newer=1",),
        ("-new.field", "-x"),
    ]
    assert "--new-thing is no option of vLLM 0.32.0, the newest known here" in parsed.warnings[0]
    assert len(parsed.warnings) == 3


CONFIG: Mapping[str, Any] = {
    "port": 9000,
    "tensor_parallel_size": 2,
    "enforce-eager": True,
    "enable-prefix-caching": False,
    "headless": False,
    "quantization": None,
    "middleware": ["a.B", "c.D"],
    "served-model-name": ["x", "y"],
    "watermark": -0.5,
    "allowed-origins": ["*"],
    "lora-modules": [{"name": "l", "path": "/l"}],
    "speculative-config": {"method": "mtp", "num_speculative_tokens": 2},
    "compilation-config.pass_config.fuse": True,
}


@pytest.mark.parametrize("form", [("--config", "c.yaml"), ("--config=c.yaml",)])
def test_a_config_file_is_read_and_not_passed_on(form: tuple[str, ...]) -> None:
    parsed = parse(*form, config=CONFIG)
    words = [word for argument in parsed.arguments for word in argument.words]
    assert words == [
        *("--port", "9000", "--tensor-parallel-size", "2", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--served-model-name", "x", "y", "--watermark=-0.5", "--allowed-origins", '["*"]'),
        *("--lora-modules", '{"name": "l", "path": "/l"}', "--middleware", "a.B", "--middleware", "c.D"),
    ]
    assert parsed.config_file == "c.yaml"
    assert {layer.flag: layer.value for layer in parsed.layers} == {
        SPEC: {"method": "mtp", "num_speculative_tokens": 2},
        "--compilation-config": {"pass_config": {"fuse": True}},
    }
    assert {argument.origin for argument in parsed.arguments} == {"command line (--config c.yaml)"}


def test_a_config_file_lies_below_the_flags() -> None:
    parsed = parse("--port", "1", "-sc.method", "ngram", "--config", "c.yaml", "--middleware", "e.F", config=CONFIG)
    flags = {argument.flag: argument for argument in parsed.arguments}
    assert flags["--port"].words == ("--port", "1")
    assert flags["--port"].origin == "command line"
    assert flags["--tensor-parallel-size"].origin == "command line (--config c.yaml)"
    assert [a.values for a in parsed.arguments if a.flag == "--middleware"] == [("a.B",), ("c.D",), ("e.F",)]
    assert [layer.value for layer in parsed.layers if layer.flag == SPEC] == [
        {"method": "ngram"},
        {"method": "mtp", "num_speculative_tokens": 2},
    ]


def test_a_config_file_may_name_the_model_if_nobody_else_does() -> None:
    assert parse("--config", "c.yaml", config={"model": "/m"}).positionals == ("/m",)
    error = refusal("/n", "--config", "c.yaml", config={"model": "/m"})
    assert "two models, '/n' and '/m'" in error.what


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"prot": 1}, "command line (--config c.yaml): unknown key 'prot'"),
        ({"config": "d.yaml"}, "command line (--config c.yaml) names another configuration file, 'd.yaml'"),
        ({3: 1}, "'3' is no key"),
        ({"port": [1, 2]}, "port takes one value, not a list"),
        ({"port": "x"}, "--port takes an integer, not 'x'"),
        ({"enforce-eager": "maybe"}, "enforce-eager is 'maybe', not a boolean"),
        ({"speculative-config": [1]}, "--speculative-config takes a JSON object, not a list"),
        ({"speculative-config": {"a": {1, 2}}}, "the value of speculative-config cannot be written as JSON"),
        ({"served-model-name": ["a", "--port"]}, "an item of served-model-name begins with a dash"),
        ({"served-model-name": ["a", ""]}, "--served-model-name is given an empty name"),
        ({"lora-modules": ["a=/a", "-x"]}, "an item of lora-modules begins with a dash"),
    ],
)
def test_refused_config_files(document: Mapping[str, Any], what: str) -> None:
    assert what in refusal("--config", "c.yaml", config=document).what


def test_a_single_item_may_begin_with_a_dash() -> None:
    parsed = parse("--config", "c.yaml", config={"served-model-name": ["-x"], "cudagraph-capture-sizes": [1, -2]})
    assert [argument.words for argument in parsed.arguments] == [
        ("--served-model-name=-x",),
        ("--cudagraph-capture-sizes", "1", "-2"),
    ]


def test_a_list_in_an_unknown_field_is_one_value() -> None:
    parsed = from_runtime_config({"new.field": [None, 1]}, NEWER, "runtime_config.json")
    assert [argument.words for argument in parsed.arguments] == [("--new.field=[null, 1]",)]
    assert parsed.positionals == ()


def test_unknown_keys_of_a_newer_vllm_bring_no_flags_either() -> None:
    with pytest.raises(ConfigurationError, match="an item of new-names begins with a dash"):
        parse("--config", "c.yaml", config={"new-names": ["a", "--port"]}, table=NEWER)


def test_all_that_is_wrong_with_a_config_file_is_told() -> None:
    error = refusal("--config", "c.yaml", config={"prot": 1, "port": "x"})
    assert [problem.what for problem in (error, *error.others)] == [
        "command line (--config c.yaml): unknown key 'prot'",
        "command line (--config c.yaml): --port takes an integer, not 'x'",
    ]


LONG = "x" * 120_000


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (("--port", LONG), None),
        ((f"--{LONG}", "1"), None),
        ((f"-tp.{LONG}", "1"), None),
        ((f"–-{LONG}",), None),
        ((f"-sc.{LONG}." + ".".join("a" * 70), "1"), None),
        (("/a", LONG), None),
        (("--config", LONG, "--config", "b"), None),
        (("--config", LONG), {"prot": 1}),
        (("--config", "c.yaml"), {LONG: 1}),
        (("--config", "c.yaml"), {"config": LONG}),
        (("--dtype", LONG), None),
        ((SPEC, f'{{"{LONG}": 1, "{LONG}": 2, }}'), None),
    ],
)
def test_a_value_too_long_to_read_is_cut(words: tuple[str, ...], config: Mapping[str, Any] | None) -> None:
    error = refusal(*words, config=config)
    assert all(len(str(problem)) < 1500 for problem in (error, *error.others))


def test_so_is_one_in_a_warning() -> None:
    parsed = parse(f"--{LONG}", SPEC, f'{{"{LONG}": 1, "{LONG}": 2}}', table=NEWER)
    assert [len(warning) < 700 for warning in parsed.warnings] == [True, True]


def test_secrets_of_a_config_file_leave_it() -> None:
    parsed = parse("--config", "c.yaml", config={"api-key": ["k1", "k2"], "hf_token": "t"})
    assert parsed.secrets == (("VLLM_API_KEY", "k1"), ("VLLM_API_KEY", "k2"), ("HF_TOKEN", "t"))
    assert parse("--api-key", "k", "--config", "c.yaml", config={"api-key": "low"}).secrets == (("VLLM_API_KEY", "k"),)


def test_reading_a_config_file(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("port: 9000\nspeculative-config:\n  method: ngram\n", encoding="utf-8")
    assert read_config(str(path)) == {"port": 9000, "speculative-config": {"method": "ngram"}}


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("vllm.json", b"{}", "vLLM takes a .yaml or .yml file only"),
        ("missing.yaml", None, "cannot be read: No such file or directory"),
        ("bytes.yml", b"\xff\xfe\xfa", "cannot be read: it is not UTF-8 text"),
        ("list.yaml", b"- a\n", "holds no mapping"),
        ("empty.yaml", b"", "holds no mapping"),
        ("broken.yaml", b"a: [1,\n", "is not YAML, line 2, column 1"),
        ("tag.yaml", b"port: !!python/object:hush\n", "column 7: could not determine a constructor for the tag"),
        ("alias.yaml", b"hush: 1\napi-key: *hush\n", "line 2, column 10: found undefined alias"),
        ("handle.yaml", b"a: !hush!x 1\n", "column 4: found undefined tag handle"),
        ("token.yaml", b"a: 'hush'\n- b\n", "expected <block end>, but found '-'"),
        ("tab.yaml", b"a:\n\tb: 1\n", "found character '\\t' that cannot start any token"),
        ("number.yaml", b"a: !!int hush\n", "is not YAML: it cannot be read"),
        ("truth.yaml", b"a: !!bool hush\n", "is not YAML: it cannot be read"),
        ("time.yaml", b"a: !!timestamp hush\n", "is not YAML: it cannot be read"),
    ],
)
def test_unreadable_config_files(tmp_path: Path, name: str, content: bytes | None, what: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_config(str(path))
    assert what in caught.value.what
    assert str(path) in caught.value.what
    assert "hush" not in str(caught.value)


def test_a_runtime_configuration() -> None:
    parsed = from_runtime_config(
        {
            "speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}',
            "max_num_seqs": 64,
            "enable-prefix-caching": False,
            "enforce_eager": "true",
            "disable_log_stats": False,
            "gpu_memory_utilization": 0.5,
            "quantization": None,
        },
        TABLE,
        "NIM_SPECDEC_ARGS",
    )
    assert [argument.words for argument in parsed.arguments] == [
        ("--max-num-seqs", "64"),
        ("--no-enable-prefix-caching",),
        ("--enforce-eager",),
        ("--gpu-memory-utilization", "0.5"),
    ]
    assert spec(parsed) == {"method": "ngram", "num_speculative_tokens": 3}
    assert {argument.origin for argument in parsed.arguments} == {"NIM_SPECDEC_ARGS"}


@pytest.mark.parametrize("off", [None, "", "none", "null", '"null"'])
def test_a_runtime_configuration_switches_speculation_off(off: str | None) -> None:
    parsed = from_runtime_config({"speculative_config": off}, TABLE, "runtime_config.json")
    assert parsed.layers == (JsonLayer(SPEC, None, "runtime_config.json"),)


@pytest.mark.parametrize(
    "escaped", [{"method": "mtp"}, '{"method":"mtp"}', '"{\\"method\\":\\"mtp\\"}"', '{\\"method\\":\\"mtp\\"}']
)
def test_nested_json_in_a_runtime_configuration(escaped: str | Mapping[str, Any]) -> None:
    assert spec(from_runtime_config({"speculative_config": escaped}, TABLE, "NIM_SPECDEC_ARGS")) == {"method": "mtp"}


def test_the_reserved_key_lies_below_the_explicit_ones() -> None:
    document = {
        "max_num_seqs": 64,
        "speculative_config": {"method": "mtp"},
        "NIM_PASSTHROUGH_ARGS": '--max-num-seqs 32 --seed 7 --speculative-config \'{"method": "ngram"}\'',
    }
    parsed = from_runtime_config(document, TABLE, "runtime_config.json", passthrough=True)
    assert [(argument.words, argument.origin) for argument in parsed.arguments] == [
        (("--seed", "7"), "runtime_config.json (NIM_PASSTHROUGH_ARGS)"),
        (("--max-num-seqs", "64"), "runtime_config.json"),
    ]
    assert [layer.value for layer in parsed.layers] == [{"method": "mtp"}, {"method": "ngram"}]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"max_num_seq": 1}, "unknown key 'max_num_seq'"),
        ({"model": "/m"}, "the key model cannot be set here"),
        ({"config": "c.yaml"}, "the key config cannot be set here"),
        ({"NIM_PASSTHROUGH_ARGS": "/other"}, "runtime_config.json (NIM_PASSTHROUGH_ARGS) names a model, '/other'"),
        (
            {"NIM_PASSTHROUGH_ARGS": "--config c.yaml"},
            "runtime_config.json (NIM_PASSTHROUGH_ARGS) names a configuration file, 'c.yaml'",
        ),
        (
            {"NIM_PASSTHROUGH_ARGS": "--seed '"},
            "runtime_config.json (NIM_PASSTHROUGH_ARGS) is not a command line: a quote is not closed",
        ),
        (
            {"NIM_PASSTHROUGH_ARGS": ["--seed", "1"]},
            "runtime_config.json (NIM_PASSTHROUGH_ARGS) takes one string of words",
        ),
    ],
)
def test_refused_runtime_configurations(document: Mapping[str, Any], what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_runtime_config(document, TABLE, "runtime_config.json", passthrough=True)
    assert what in caught.value.what


def test_the_reserved_key_is_unknown_elsewhere() -> None:
    with pytest.raises(ConfigurationError, match="unknown key 'NIM_PASSTHROUGH_ARGS'"):
        from_runtime_config({"NIM_PASSTHROUGH_ARGS": "--seed 1"}, TABLE, "NIM_SPECDEC_ARGS")
