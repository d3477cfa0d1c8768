from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NotFoundError
from launcher.middleware.configuration import Cors
from launcher.settings.json_text import decode, read_json
from launcher.settings.parse import EngineSetting, Given, LogSetup, Secret, Settings, early_log_setup, parse_settings
from launcher.settings.values import NodeSettings
from launcher.settings.variables import INERT, VARIABLES

TOKEN = "hf-token-nobody-may-see"


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def parse(read_text: Callable[[str], str] = no_file, /, **environ: str) -> Settings:
    return parse_settings(environ, read_text)


def refusal(read_text: Callable[[str], str] = no_file, /, **environ: str) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        parse_settings(environ, read_text)
    return caught.value


def specdec(text: str) -> Any:
    given = parse(NIM_SPECDEC_ARGS=text).specdec_args
    assert given is not None
    return given.value


# -- nothing, blanks, and the plain kinds


def test_nothing_set() -> None:
    settings = parse()
    assert settings == Settings(
        model=None,
        draft=None,
        served_names=None,
        specdec_enable=None,
        specdec_args=None,
        engine_config=None,
        engine_name="vllm",
        specdec_policy="required",
        cache_path=None,
        workspace=None,
        passthrough=None,
        engine=(),
        peft_source=None,
        nodes=NodeSettings(),
        health_port=None,
        warmup=False,
        repository_override=None,
        profile=None,
        profiles_path=None,
        min_acceptance=None,
        capture=None,
        cors=Cors(),
        log_level="INFO",
        jsonl=False,
        strict=False,
        disable_download=False,
        refresh="auto",
        offline=False,
        secrets=(),
        child_environment=(),
        drop_environment=(),
    )


@pytest.mark.parametrize("blank", ["", " ", "\n", " \t\r\n", "\xa0"])
def test_blank_is_not_set_for_every_variable(blank: str) -> None:
    settings = parse_settings({row.name: blank for row in VARIABLES}, no_file)
    assert settings._replace(drop_environment=()) == parse()
    foreign = sorted(row.name for row in VARIABLES if not row.name.startswith("NIM_"))
    assert list(settings.drop_environment) == foreign  # another program may not take a blank for "not set"


def test_texts_keep_their_origin() -> None:
    settings = parse(
        NIM_MODEL_PATH=" /mnt/my model\n",
        NIM_DRAFT_MODEL_PATH="hf://org/draft",
        NIM_CACHE_PATH="/c",
        NIM_WORKSPACE="/w",
        NIM_PEFT_SOURCE="/loras",
        NIM_SERVED_MODEL_NAME="a, b,,a",
    )
    assert settings.model == Given("/mnt/my model", "NIM_MODEL_PATH")
    assert settings.draft == Given("hf://org/draft", "NIM_DRAFT_MODEL_PATH")
    assert settings.cache_path == Given("/c", "NIM_CACHE_PATH")
    assert settings.workspace == Given("/w", "NIM_WORKSPACE")
    assert settings.peft_source == Given("/loras", "NIM_PEFT_SOURCE")
    assert settings.served_names == Given(("a", "b"), "NIM_SERVED_MODEL_NAME")
    assert settings.warnings == settings.notes == ()


@pytest.mark.parametrize("word", ["1", "true", "True", "TRUE", "yes", "YES", "on", " On "])
def test_true(word: str) -> None:
    assert parse(NIM_SPECDEC_ENABLE=word).specdec_enable == Given(True, "NIM_SPECDEC_ENABLE")


@pytest.mark.parametrize("word", ["0", "false", "False", "no", "No", "off", "OFF "])
def test_false_is_a_value(word: str) -> None:
    assert parse(NIM_SPECDEC_ENABLE=word).specdec_enable == Given(False, "NIM_SPECDEC_ENABLE")


@pytest.mark.parametrize(
    ("word", "todo"),
    [
        ("None", "Leave it empty to unset it"),
        ("null", "Leave it empty to unset it"),
        ('"1"', "Write the value without quotes: an env file keeps them"),
        ("maybe", ""),
        ("2", ""),
        ("t", ""),
    ],
)
def test_no_boolean(word: str, todo: str) -> None:
    error = refusal(NIM_SPECDEC_ENABLE=word)
    assert error.code == 2
    assert error.what == (f"NIM_SPECDEC_ENABLE is {word!r}, which is not a boolean (1/0, true/false, yes/no, on/off)")
    assert error.todo == todo


@pytest.mark.parametrize(
    ("name", "text", "flag", "value"),
    [
        ("NIM_MAX_MODEL_LEN", "8192", "--max-model-len", "8192"),
        ("NIM_MAX_MODEL_LEN", " 0032 ", "--max-model-len", "32"),
        ("NIM_MAX_MODEL_LEN", "32k", "--max-model-len", "32k"),
        ("NIM_MAX_MODEL_LEN", "32K", "--max-model-len", "32K"),
        ("NIM_MAX_MODEL_LEN", "25.6k", "--max-model-len", "25.6k"),
        ("NIM_MAX_MODEL_LEN", "AUTO", "--max-model-len", "auto"),
        ("NIM_MAX_MODEL_LEN", "-1", "--max-model-len", "auto"),
        ("NIM_TENSOR_PARALLEL_SIZE", "4", "--tensor-parallel-size", "4"),
        ("NIM_PIPELINE_PARALLEL_SIZE", "2", "--pipeline-parallel-size", "2"),
        ("NIM_KV_CACHE_PERCENT", "0.85", "--gpu-memory-utilization", "0.85"),
        ("NIM_KV_CACHE_PERCENT", "1", "--gpu-memory-utilization", "1"),
        ("NIM_SERVER_PORT", "8080", "--port", "8080"),
    ],
)
def test_engine_values(name: str, text: str, flag: str, value: str) -> None:
    assert parse_settings({name: text}, no_file).engine == (EngineSetting(flag, value, False, name),)


@pytest.mark.parametrize(
    ("name", "flag"), [("NIM_TRUST_CUSTOM_CODE", "--trust-remote-code"), ("NIM_DISABLE_CUDA_GRAPH", "--enforce-eager")]
)
def test_engine_switches(name: str, flag: str) -> None:
    assert parse_settings({name: "yes"}, no_file).engine == (EngineSetting(flag, None, False, name),)
    assert parse_settings({name: "0"}, no_file).engine == (EngineSetting(flag, None, True, name),)


@pytest.mark.parametrize(
    ("name", "text", "what", "todo"),
    [
        ("NIM_MAX_MODEL_LEN", "8,192", "a number of tokens (8192, 32k, 1M or auto)", "Write 8192"),
        ("NIM_MAX_MODEL_LEN", "1.5K", "a number of tokens", "A fraction takes a small letter: 1.5k"),
        ("NIM_MAX_MODEL_LEN", "0", "a number of tokens (8192, 32k, 1M or auto)", ""),
        ("NIM_MAX_MODEL_LEN", "²", "a number of tokens (8192, 32k, 1M or auto)", ""),
        ("NIM_TENSOR_PARALLEL_SIZE", "2.0", "a whole number of at least 1", "Write 2"),
        ("NIM_TENSOR_PARALLEL_SIZE", "1_0", "a whole number of at least 1", "Write 10"),
        ("NIM_TENSOR_PARALLEL_SIZE", "-2", "a whole number of at least 1", ""),
        ("NIM_TENSOR_PARALLEL_SIZE", "null", "a whole number of at least 1", "Leave it empty to unset it"),
        ("NIM_TENSOR_PARALLEL_SIZE", "9" * 30, "a whole number of at least 1", ""),
        ("NIM_SERVER_PORT", "70000", "a whole number from 1 to 65535", ""),
        ("NIM_SERVER_PORT", "0", "a whole number from 1 to 65535", ""),
        ("NIM_KV_CACHE_PERCENT", "90", "a fraction above 0 and at most 1", "Write 0.9 for 90 %"),
        ("NIM_KV_CACHE_PERCENT", "90%", "a fraction", "Write 0.9 for 90 %"),
        ("NIM_KV_CACHE_PERCENT", "0", "a fraction above 0 and at most 1", ""),
        ("NIM_KV_CACHE_PERCENT", "nan", "a fraction above 0 and at most 1", ""),
        ("NIM_KV_CACHE_PERCENT", "inf", "a fraction above 0 and at most 1", ""),
        ("NIM_KV_CACHE_PERCENT", "0,9", "a fraction above 0 and at most 1", "Write 0.9 for 90 %"),
        ("NIM_SPECDEC_POLICY", "fallbak", "one of required or fallback", "Did you mean fallback?"),
        ("NIM_LOG_LEVEL", "loud", "one of TRACE, DEBUG, INFO, WARNING, ERROR or CRITICAL", ""),
        ("NIM_SERVED_MODEL_NAME", ", ,", "a list of names separated by commas", ""),
        *(
            (
                "NIM_SERVED_MODEL_NAME",
                text,
                "a list of names: one begins with a dash",
                "Flags belong into NIM_PASSTHROUGH_ARGS",
            )
            for text in ("--port,5", "-x,-y", "a, -1", "-x")
        ),
        ("HF_HUB_OFFLINE", "perhaps", "a boolean (1/0, true/false, yes/no, on/off)", ""),
    ],
)
def test_unreadable_values(name: str, text: str, what: str, todo: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings({name: text}, no_file)
    assert caught.value.what == f"{name} is {text!r}, which is not {what}"
    assert caught.value.todo == todo


def test_choices_and_levels() -> None:
    settings = parse(NIM_SPECDEC_POLICY="FallBack", NIM_LOG_LEVEL="trace", NIM_JSONL_LOGGING="1")
    assert (settings.specdec_policy, settings.log_level, settings.jsonl) == ("fallback", "DEBUG", True)


@pytest.mark.parametrize(("word", "level"), [("WARN", "WARNING"), ("warn", "WARNING"), ("Fatal", "CRITICAL")])
def test_what_others_call_the_levels(word: str, level: str) -> None:
    assert parse(NIM_LOG_LEVEL=word).log_level == level
    assert early_log_setup({"NIM_LOG_LEVEL": word}).level == level


def test_a_long_value_is_shortened() -> None:
    assert refusal(NIM_SERVER_PORT="x" * 500).what == (
        f"NIM_SERVER_PORT is {'x' * 99 + '…'!r}, which is not a whole number from 1 to 65535"
    )


def test_all_problems_are_shown_at_once() -> None:
    error = refusal(NIM_SERVER_PORT="x", NIM_SPECDEC_ENABLE="x", NIM_SPECDEC_ARGS="x", HF_TOKEN_FILE="/missing")
    assert error.code == 2
    assert sorted(problem.code for problem in error.others) == [2, 2, 3]


# -- offline, refresh


@pytest.mark.parametrize(
    ("environ", "offline", "refresh"),
    [
        ({}, False, "auto"),
        ({"HF_HUB_OFFLINE": "1"}, True, "never"),
        ({"TRANSFORMERS_OFFLINE": "1"}, True, "never"),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, False, "auto"),
        ({"NIM_DISABLE_MODEL_DOWNLOAD": "1", "NIM_REFRESH": "required"}, False, "never"),
        ({"NIM_REFRESH": "Required"}, False, "required"),
    ],
)
def test_offline_and_refresh(environ: dict[str, str], offline: bool, refresh: str) -> None:
    settings = parse_settings(environ, no_file)
    assert (settings.offline, settings.refresh) == (offline, refresh)


# -- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--max-num-seqs 64 --enforce-eager", ("--max-num-seqs", "64", "--enforce-eager")),
        ("""--speculative-config '{"method": "mtp"}'""", ("--speculative-config", '{"method": "mtp"}')),
        ("--chat-template '/a b/c'", ("--chat-template", "/a b/c")),
        ("--a 1 \\\n  --b 2\n", ("--a", "1", "--b", "2")),
        ("--x $(touch /tmp/pwned)", ("--x", "$(touch", "/tmp/pwned)")),
        ("--x ''", ("--x", "")),
        ('"--max-num-seqs 64"', ("--max-num-seqs", "64")),
        ("-- a # b", ("--", "a", "#", "b")),
    ],
)
def test_passthrough(text: str, words: tuple[str, ...]) -> None:
    assert parse(NIM_PASSTHROUGH_ARGS=text).passthrough == Given(words, "NIM_PASSTHROUGH_ARGS")


@pytest.mark.parametrize(
    "text", ["--x 'open", "--x \\", "--api-key 'sk-mysecret", '--api-key="sk-mysecret', '--hf-token "sk-mysecret']
)
def test_passthrough_that_is_no_command_line_is_not_shown(text: str) -> None:
    """It may hold a secret that nobody has recognised yet."""
    error = refusal(NIM_PASSTHROUGH_ARGS=text)
    assert str(error) == ("NIM_PASSTHROUGH_ARGS is not a command line: a quote is not closed, or a backslash ends it.")


# -- JSON

NGRAM = {"method": "ngram", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    "text",
    [
        '{"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}',
        '{"speculative_config": "{\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3}"}',
        r'{"speculative_config": "{\\\"method\\\": \\\"ngram\\\", \\\"num_speculative_tokens\\\": 3}"}',
        '{\n  "speculative_config": {\n    "method": "ngram",\n    "num_speculative_tokens": 3\n  }\n}\n',
        """'{"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}'""",
        '''"{"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}"''',
        '"{\\"speculative_config\\": {\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3}}"',
        '{\\"speculative_config\\": {\\"method\\": \\"ngram\\", \\"num_speculative_tokens\\": 3}}',
    ],
    ids=["object", "string", "escaped once too often", "lines", "env file", "env file 2", "all a string", "escaped"],
)
def test_one_canonical_result(text: str) -> None:
    assert specdec(text) == {"speculative_config": NGRAM}
    assert parse(NIM_SPECDEC_ARGS=text).warnings == ()


@pytest.mark.parametrize("off", ["null", '""', '"none"', '"None"', '" null "', '"\\"\\""'])
def test_switched_off(off: str) -> None:
    assert specdec(f'{{"speculative_config": {off}, "max_num_seqs": 64}}') == {
        "speculative_config": None,
        "max_num_seqs": 64,
    }


def test_other_keys_stay_as_they_are() -> None:
    assert specdec('{"compilation_config": "{\\"level\\": 3}", "speculative-config": "{}"}') == {
        "compilation_config": '{"level": 3}',
        "speculative-config": {},
    }


@pytest.mark.parametrize(
    ("text", "column", "reason", "todo"),
    [
        ('{"a": “x”}', 7, "a curly quote, “ U+201C (left double quotation mark)", 'Use straight double quotes (")'),
        ('{"a”: 1}', 4, "a curly quote, ” U+201D (right double quotation mark)", 'Use straight double quotes (")'),
        ("\ufeff{}", 1, "an invisible character, U+FEFF (byte order mark)", "Remove it, or use an ordinary space"),
        ('{"a":\xa01}', 6, "an invisible character, U+00A0 (no-break space)", "Remove it, or use an ordinary space"),
        ('{"a": 1}\xa0', 9, "an invisible character, U+00A0 (no-break space)", "Remove it, or use an ordinary space"),
        ('{"a": 1,}', 8, "a trailing comma", "Remove it"),
        ('{"a": [1 , ]}', 10, "a trailing comma", "Remove it"),
        ("{'a': 1}", 2, "a single quote where JSON wants a double one", 'Use double quotes (")'),
        ('{{"a": 1}}', 2, "a doubled brace", "Write single braces, or fill in the template"),
        ('{"a": $X}', 7, "what looks like an unexpanded variable", "Write its value"),
        ('{"a": True}', 7, "True is Python", "Write true, false or null"),
        ('{"a": 1', 8, "the text ends too early: a bracket or a quote is not closed", ""),
        ('{"a": "x}', 7, "a quote that is never closed", ""),
        ('{"a" 1}', 6, "expected ':' delimiter, found '1'", ""),
        ('{"a": 1} b', 10, "expected nothing more, found 'b'", ""),
        ('{"a": 1} // b', 10, "a comment, which JSON does not have", "Remove it"),
        ('{"a": NaN}', 7, "NaN is no JSON value", "Write a number"),
        ('{"a": -Infinity}', 7, "-Infinity is no JSON value", "Write a number"),
        ('{"a": "\\ud800"}', 8, "an escape that stands for no character", ""),
        ('{"a": "\\u0000"}', 8, "an escape that stands for no character", ""),
        ('{"a": "\udcff"}', 8, "a byte that is not UTF-8", ""),
        ("none", 1, "expected value, found 'n'", ""),
    ],
)
def test_json_errors_name_the_character(text: str, column: int, reason: str, todo: str) -> None:
    error = refusal(NIM_SPECDEC_ARGS=text)
    first, shown, caret, last = error.what.split("\n")
    assert (error.code, first) == (2, "NIM_SPECDEC_ARGS is not valid JSON:")
    assert caret == " " * (4 + column - 1) + "^"
    assert len(shown) == 4 + len(text)
    assert last == f"NIM_SPECDEC_ARGS, line 1, column {column}: {reason}"
    assert error.todo == todo


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1e999}', "a number is too large"),
        (f'{{"a": {"9" * 5000}}}', "a number has too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 100 + "]" * 100, "nested more than 64 levels deep"),
    ],
)
def test_json_that_nothing_can_use(text: str, reason: str) -> None:
    assert refusal(NIM_SPECDEC_ARGS=text).what.endswith(f": {reason}")


def test_a_json_error_in_a_long_text_shows_its_surroundings() -> None:
    text = '{\n  "first": 1,\n  "' + "k" * 60 + '": oops' + " " * 50 + "}"
    assert refusal(NIM_SPECDEC_ARGS=text).what.split("\n")[1:] == [
        "    …" + "k" * 37 + '": oops' + " " * 36 + "…",
        "    " + " " * 41 + "^",
        "NIM_SPECDEC_ARGS, line 3, column 67: expected value, found 'o'",
    ]


def test_an_error_inside_the_nested_string_shows_the_nested_string() -> None:
    error = refusal(NIM_SPECDEC_ARGS='{"speculative_config": "{\\"method\\": ngram}"}')
    assert error.what == (
        "NIM_SPECDEC_ARGS, speculative_config is not valid JSON:\n"
        '    {"method": ngram}\n'
        "               ^\n"
        "NIM_SPECDEC_ARGS, speculative_config, line 1, column 12: expected value, found 'n'"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1]", "NIM_SPECDEC_ARGS is a list, not a JSON object"),
        ("3", "NIM_SPECDEC_ARGS is a number, not a JSON object"),
        ("null", "NIM_SPECDEC_ARGS is null, not a JSON object"),
        ('{"speculative_config": false}', "NIM_SPECDEC_ARGS, speculative_config is false, not a JSON object"),
        ('{"speculative_config": ["mtp"]}', "NIM_SPECDEC_ARGS, speculative_config is a list, not a JSON object"),
    ],
)
def test_no_object(text: str, what: str) -> None:
    assert refusal(NIM_SPECDEC_ARGS=text).what == what


def test_three_layers_of_strings_are_the_limit() -> None:
    assert decode('"\\"{}\\""') == ({}, ())
    assert decode('"\\"{}\\""', again=0).value == '"{}"'
    four = '"\\"\\\\\\"{}\\\\\\"\\""'
    assert isinstance(decode(four).value, str)


def test_a_key_given_twice() -> None:
    settings = parse(NIM_SPECDEC_ARGS='{"a": 1, "b": 2, "a": 3, "b": 2}')
    assert settings.specdec_args == Given({"a": 3, "b": 2}, "NIM_SPECDEC_ARGS")
    assert settings.warnings == ("NIM_SPECDEC_ARGS gives the key 'a' twice; the last one counts",)


def test_the_config_itself_in_the_place_of_the_keys() -> None:
    text = '{"method": "ngram", "num_speculative_tokens": 3}'
    error = refusal(NIM_SPECDEC_ARGS=text, NIM_SPECDEC_ENABLE="1")
    assert error.what == "NIM_SPECDEC_ARGS holds the key 'method', which belongs one level deeper"
    assert error.todo == 'Write {"speculative_config": {"method": ...}}'
    assert specdec(text) == NGRAM  # without the toggle only the syntax counts


def test_read_json_for_other_rooms() -> None:
    assert read_json('{"a": 1}', "--speculative-config").value == {"a": 1}
    with pytest.raises(ConfigurationError, match=r"--speculative-config, line 1, column 2: "):
        read_json("{a: 1}", "--speculative-config")


# -- unexpanded variables


@pytest.mark.parametrize(
    ("name", "text", "piece"),
    [
        ("NIM_MODEL_PATH", "$MODEL_DIR/llama", "$MODEL_DIR"),
        ("NIM_MODEL_PATH", "hf://{{ .Values.model }}", "{{ .Values.model }}"),
        ("NIM_PASSTHROUGH_ARGS", "--served-model-name ${NAME}", "${NAME}"),
        ("NIM_PASSTHROUGH_ARGS", "--api-key ${KEY:-s3cr3t}", "${KEY…}"),
        ("NIM_SPECDEC_ARGS", '{"speculative_config": {"model": "$(DRAFT)"}}', "$(DRAFT)"),
    ],
)
def test_unexpanded_variables_warn(name: str, text: str, piece: str) -> None:
    assert parse_settings({name: text}, no_file).warnings == (
        f"{name} holds what looks like an unexpanded variable ({piece!r})",
    )


def test_an_unexpanded_credential_warns_without_its_value() -> None:
    assert parse(HF_TOKEN="$HF_TOKEN").warnings == ("HF_TOKEN holds what looks like an unexpanded variable",)
    assert parse(HF_TOKEN="abc$HF_TOKEN").warnings == ()


# -- aliases


@pytest.mark.parametrize(
    ("alias", "text", "name", "engine"),
    [
        ("NIM_HTTP_API_PORT", "9000", "NIM_SERVER_PORT", EngineSetting("--port", "9000", False, "NIM_HTTP_API_PORT")),
        (
            "NIM_KVCACHE_PERCENT",
            "0.8",
            "NIM_KV_CACHE_PERCENT",
            EngineSetting("--gpu-memory-utilization", "0.8", False, "NIM_KVCACHE_PERCENT"),
        ),
        (
            "NIM_FORCE_TRUST_REMOTE_CODE",
            "1",
            "NIM_TRUST_CUSTOM_CODE",
            EngineSetting("--trust-remote-code", None, False, "NIM_FORCE_TRUST_REMOTE_CODE"),
        ),
    ],
)
def test_an_alias_is_accepted_with_one_warning(alias: str, text: str, name: str, engine: EngineSetting) -> None:
    settings = parse_settings({alias: text}, no_file)
    assert settings.engine == (engine,)
    assert settings.warnings == (f"{alias} is read as {name}: please rename it",)


def test_an_alias_beside_its_variable() -> None:
    equal = parse(NIM_SERVER_PORT="8000", NIM_HTTP_API_PORT=" 8000")
    assert equal.engine == (EngineSetting("--port", "8000", False, "NIM_SERVER_PORT"),)
    assert equal.warnings == ()
    different = parse(NIM_MODEL_PATH="/m", NIM_MODEL_NAME="meta/llama")
    assert different.model == Given("/m", "NIM_MODEL_PATH")
    assert different.warnings == ("NIM_MODEL_NAME is 'meta/llama' and ignored: NIM_MODEL_PATH is '/m'",)


@pytest.mark.parametrize(
    ("name", "text", "alias", "other"),
    [
        ("NIM_SERVER_PORT", "8000", "NIM_HTTP_API_PORT", "08000"),
        ("NIM_KV_CACHE_PERCENT", "0.9", "NIM_KVCACHE_PERCENT", "0.90"),
        ("NIM_TRUST_CUSTOM_CODE", "1", "NIM_FORCE_TRUST_REMOTE_CODE", "True"),
    ],
)
def test_two_spellings_of_one_value_agree(name: str, text: str, alias: str, other: str) -> None:
    assert parse_settings({name: text, alias: other}, no_file).warnings == ()
    assert parse_settings({name: text, alias: "maybe"}, no_file).warnings == (
        f"{alias} is 'maybe' and ignored: {name} is {text!r}",
    )


def test_two_tokens_that_differ_are_not_shown() -> None:
    settings = parse(HF_TOKEN=TOKEN, HUGGING_FACE_HUB_TOKEN="another-token")
    assert settings.warnings == ("HUGGING_FACE_HUB_TOKEN is ignored: HF_TOKEN is set, to something else",)


def test_an_error_names_the_alias_that_the_user_wrote() -> None:
    assert refusal(NIM_HTTP_API_PORT="x").what.startswith("NIM_HTTP_API_PORT is 'x'")


# -- names


def test_unknown_names_warn_with_the_nearest() -> None:
    settings = parse(
        NIM_SPECDEC_ENABEL="1",
        NIM_DRAFT_MODEL="/d",
        NIM_QZX="1",
        nim_model_path="/m",
        NIM_MAX_NUM_SEQ="1",
        NIM_EMPTY="",
    )
    assert settings.warnings == (
        "NIM_DRAFT_MODEL is not a known variable and is ignored; did you mean NIM_DRAFT_MODEL_PATH?",
        "NIM_MAX_NUM_SEQ is not a known variable and is ignored; did you mean NIM_MAX_NUM_SEQS?",
        "NIM_QZX is not a known variable and is ignored",
        "NIM_SPECDEC_ENABEL is not a known variable and is ignored; did you mean NIM_SPECDEC_ENABLE?",
        "nim_model_path is not a known variable and is ignored; did you mean NIM_MODEL_PATH?",
    )


def test_strict_makes_unknown_names_an_error() -> None:
    error = refusal(NIM_STRICT="1", NIM_SPECDEC_ENABEL="1", NIM_QZX="1")
    assert (error.code, error.what, error.todo) == (
        2,
        "NIM_QZX is not a known variable",
        "Unset it, or unset NIM_STRICT",
    )
    assert [str(other) for other in error.others] == [
        "NIM_SPECDEC_ENABEL is not a known variable. Did you mean NIM_SPECDEC_ENABLE?"
    ]


@pytest.mark.parametrize("strict", ["0", "1"])
def test_the_operators_variables_never_stop_the_start(strict: str) -> None:
    settings = parse(
        NIM_STRICT=strict,
        NIM_SERVER_PORT="8000",
        NIM_HTTP_API_PORT="8000",
        NIM_JSONL_LOGGING="1",
        NIM_LOG_LEVEL="INFO",
        NIM_CACHE_PATH="/model-store",
        NIM_SDK_USE_NATIVE_TLS="1",
        OUTLINES_CACHE_DIR="/tmp/outlines",
        NIM_GRPC_API_PORT="50051",
        NIM_TRITON_GRPC_PORT="8001",
        NIM_TRITON_METRICS_PORT="8002",
        NIM_MULTI_NODE="1",
        NIM_MPI_ALLOW_RUN_AS_ROOT="0",
    )
    assert settings.warnings == ()
    assert [note.split()[0] for note in settings.notes] == [
        "NIM_SDK_USE_NATIVE_TLS",
        "NIM_GRPC_API_PORT",
        "NIM_TRITON_GRPC_PORT",
        "NIM_TRITON_METRICS_PORT",
        "NIM_MULTI_NODE",
        "NIM_MPI_ALLOW_RUN_AS_ROOT",
    ]


@pytest.mark.parametrize("row", [row for row in VARIABLES if row.status == INERT], ids=lambda row: row.name)
def test_what_has_no_effect_gives_one_line(row: Any) -> None:
    settings = parse_settings({row.name: "anything", "NIM_STRICT": "1"}, no_file)
    (line,) = (*settings.warnings, *settings.notes)
    assert line.startswith(f"{row.name} has no effect here: ")
    assert bool(settings.warnings) == (row.flag is not None)


LINKS = {
    "NIM_SERVER_PORT": "tcp://10.96.0.7:8000",
    "NIM_SERVER_SERVICE_HOST": "10.96.0.7",
    "NIM_SERVER_SERVICE_PORT": "8000",
    "NIM_SERVER_SERVICE_PORT_HTTP": "8000",
    "NIM_SERVER_PORT_8000_TCP": "tcp://10.96.0.7:8000",
    "NIM_SERVER_PORT_8000_TCP_PROTO": "tcp",
    "NIM_SERVER_PORT_8000_TCP_PORT": "8000",
    "NIM_SERVER_PORT_8000_TCP_ADDR": "10.96.0.7",
    "VLLM_PORT": "tcp://10.96.0.8:8000",
    "VLLM_PORT_8000_TCP": "tcp://10.96.0.8:8000",
    "VLLM_SERVICE_HOST": "10.96.0.8",
}


@pytest.mark.parametrize("strict", ["0", "1"])
def test_service_links_are_explained_and_ignored(strict: str) -> None:
    settings = parse_settings({**LINKS, "NIM_STRICT": strict}, no_file)
    assert settings.engine == ()
    assert settings.drop_environment == ("VLLM_PORT", "VLLM_PORT_8000_TCP", "VLLM_SERVICE_HOST")
    assert settings.warnings == (
        "NIM_SERVER_PORT and 7 more: set by Kubernetes for a Service named nim-server, not by you, and ignored; "
        "rename the Service or set enableServiceLinks: false",
        "VLLM_PORT and 2 more: set by Kubernetes for a Service named vllm, not by you, and ignored; "
        "rename the Service or set enableServiceLinks: false",
    )


def test_real_ports_are_no_links() -> None:
    settings = parse(NIM_SERVER_PORT="8000", VLLM_PORT="5000")
    assert settings.engine == (EngineSetting("--port", "8000", False, "NIM_SERVER_PORT"),)
    assert settings.drop_environment == ()


def test_an_alias_behind_a_service_link() -> None:
    settings = parse(NIM_SERVER_PORT="tcp://10.96.0.7:8000", NIM_HTTP_API_PORT="9000")
    assert settings.engine == (EngineSetting("--port", "9000", False, "NIM_HTTP_API_PORT"),)


# -- credentials


def test_credentials_are_stripped_and_reach_the_child_clean() -> None:
    settings = parse(HF_TOKEN=f" {TOKEN}\r\n", NGC_API_KEY="clean-as-it-is")
    assert settings.secrets == (("NGC_API_KEY", Secret("clean-as-it-is")), ("HF_TOKEN", Secret(TOKEN)))
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert settings.secret("NGC_CLI_API_KEY", "NGC_API_KEY") == Secret("clean-as-it-is")
    assert settings.secret("VLLM_API_KEY") is None


def test_a_secret_file() -> None:
    settings = parse(lambda path: f"{TOKEN}\n" if path == "/run/secrets/hf" else "", HF_TOKEN_FILE=" /run/secrets/hf ")
    assert settings.secrets == settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)


def test_vllm_does_not_see_the_name_of_the_file() -> None:
    settings = parse(lambda path: "the-clients-key", VLLM_API_KEY_FILE="/run/secrets/key")
    assert settings.child_environment == (("VLLM_API_KEY", Secret("the-clients-key")),)
    assert settings.drop_environment == ("VLLM_API_KEY_FILE",)


def test_a_blank_credential_leaves_room_for_the_file() -> None:
    settings = parse(lambda path: TOKEN, HF_TOKEN=" ", HF_TOKEN_FILE="/f")
    assert settings.secrets == (("HF_TOKEN", Secret(TOKEN)),)


def raising(error: Exception) -> Callable[[str], str]:
    def read_text(path: str) -> str:
        raise error

    return read_text


@pytest.mark.parametrize(
    ("read_text", "kind", "what"),
    [
        (no_file, NotFoundError, "HF_TOKEN_FILE: the file '/run/hf' does not exist"),
        (raising(PermissionError(13, "Denied")), DeniedError, "HF_TOKEN_FILE: the file '/run/hf' may not be read"),
        (
            raising(IsADirectoryError(21, "Is a directory")),
            ConfigurationError,
            "HF_TOKEN_FILE: the file '/run/hf' cannot be read (Is a directory)",
        ),
        (
            raising(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")),
            ConfigurationError,
            "HF_TOKEN_FILE: the file '/run/hf' cannot be read (it is not text)",
        ),
        (lambda path: " \n", ConfigurationError, "HF_TOKEN_FILE: the file '/run/hf' is empty"),
    ],
)
def test_a_secret_file_that_fails(read_text: Callable[[str], str], kind: type[LauncherError], what: str) -> None:
    error = refusal(read_text, HF_TOKEN_FILE="/run/hf")
    assert (type(error), error.what) == (kind, what)


def test_a_credential_and_its_file_at_once() -> None:
    error = refusal(lambda path: "x", HF_TOKEN=TOKEN, HF_TOKEN_FILE="/run/hf")
    assert str(error) == "HF_TOKEN and HF_TOKEN_FILE are both set. Keep one of them."


@pytest.mark.parametrize("inner", [f"{TOKEN} and more", f"{TOKEN}\nsecond-line"])
def test_white_space_inside_a_credential(inner: str) -> None:
    for error in (refusal(HF_TOKEN=inner), refusal(lambda path: inner, HF_TOKEN_FILE="/f")):
        assert error.code == 2
        assert error.what.endswith(" holds white space inside the credential")
        assert TOKEN not in str(error)


def test_a_token_in_the_place_of_its_file_is_not_shown() -> None:
    assert TOKEN not in str(refusal(HF_TOKEN_FILE=TOKEN))


def test_quotes_around_a_credential_warn() -> None:
    assert parse(HF_TOKEN=f'"{TOKEN}"').warnings == (
        "HF_TOKEN holds quotes around the credential, which will be sent with it",
    )


@pytest.mark.parametrize("character", ["\ufeff", "\u200b", "\0", "\x1b", "\udcff"])
def test_an_invisible_character_in_a_credential(character: str) -> None:
    inner = f"{TOKEN[:4]}{character}{TOKEN[4:]}"
    error = refusal(lambda path: inner, HF_TOKEN_FILE="/f")
    assert (error.code, error.what) == (2, "HF_TOKEN_FILE holds an invisible character in the credential")
    assert TOKEN[4:] not in str(error)
    assert TOKEN[4:] not in str(refusal(HF_TOKEN=inner))


def test_a_byte_order_mark_belongs_to_the_file_and_not_to_the_credential() -> None:
    settings = parse(lambda path: f"\ufeff{TOKEN}\n", HF_TOKEN_FILE="/f")
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert refusal(HF_TOKEN=f"\ufeff{TOKEN}").what == "HF_TOKEN holds an invisible character in the credential"


def test_the_file_of_an_older_name() -> None:
    settings = parse(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/hf")
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert settings.warnings == ("HUGGING_FACE_HUB_TOKEN_FILE is read as HF_TOKEN_FILE: please rename it",)
    both = parse(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/old", HF_TOKEN_FILE="/run/new")
    assert both.warnings == ("HUGGING_FACE_HUB_TOKEN_FILE is ignored: HF_TOKEN_FILE is set, to something else",)
    error = refusal(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/old", HF_TOKEN=TOKEN)
    assert error.what == "HF_TOKEN and HUGGING_FACE_HUB_TOKEN_FILE are both set"
    assert TOKEN not in str(refusal(HUGGING_FACE_HUB_TOKEN_FILE=TOKEN))


def test_an_older_name_of_the_token() -> None:
    settings = parse(HUGGING_FACE_HUB_TOKEN=TOKEN)
    assert settings.secrets == settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)


def test_strangers_are_masked_too() -> None:
    settings = parse(WANDB_API_KEY="a-strangers-key", GIT_TOKEN="short", AWS_WEB_IDENTITY_TOKEN_FILE="/var/token")
    assert settings.secrets == (("WANDB_API_KEY", Secret("a-strangers-key")),)


@pytest.mark.parametrize(
    "environ",
    [
        {"NIM_SERVER_PORT": f"port {TOKEN}"},
        {"NIM_SPECDEC_ARGS": f'{{"hf_token": "{TOKEN}" oops}}'},
        {"NIM_SPECDEC_ARGS": f'{{"a": {TOKEN}}}'},
        {"NIM_SPECDEC_ARGS": f'{{"speculative_config": "{{{TOKEN}}}"}}'},
        {f"NIM_{TOKEN}": "1", "NIM_STRICT": "1"},
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings({**environ, "HF_TOKEN": TOKEN}, no_file)
    assert TOKEN not in str(caught.value)
    assert "*" in str(caught.value)


def test_settings_never_show_a_secret() -> None:
    settings = parse(HF_TOKEN=TOKEN, NIM_PASSTHROUGH_ARGS=f"--hf-token {TOKEN}", NIM_MODEL_PATH=f"/m/{TOKEN}")
    assert settings.passthrough == Given(("--hf-token", TOKEN), "NIM_PASSTHROUGH_ARGS")
    assert TOKEN not in repr(settings) and TOKEN not in str(settings)


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret(TOKEN)
    assert (str(secret), repr(secret), f"{secret}", f"{secret:>5}") == ("***", "***", "***", "  ***")
    assert repr(Given(secret, "HF_TOKEN")) == "Given(value=***, origin='HF_TOKEN')"
    assert secret.reveal() == TOKEN
    assert secret == Secret(TOKEN) and hash(secret) == hash(Secret(TOKEN)) and secret != Secret("other")


# -- logging before and after


def test_log_setup() -> None:
    settings = parse(NIM_LOG_LEVEL="warning", NIM_JSONL_LOGGING="on", HF_TOKEN=TOKEN)
    assert settings.log_setup() == LogSetup("WARNING", True, (TOKEN,))


def test_early_log_setup_never_fails() -> None:
    environ = {"NIM_LOG_LEVEL": "loud", "NIM_JSONL_LOGGING": "1", "NIM_SERVER_PORT": "x", "HF_TOKEN": f"{TOKEN}\n"}
    assert early_log_setup(environ) == LogSetup("INFO", True, (TOKEN,))


def test_a_nul_character_is_refused() -> None:
    assert refusal(NIM_MODEL_PATH="/m\0x").what == "NIM_MODEL_PATH holds a NUL character"
