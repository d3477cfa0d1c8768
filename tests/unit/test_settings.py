"""Variables: blanks, plain kinds, words, offline and refresh, what is logged."""

from __future__ import annotations

import pytest

from launcher.errors import ConfigurationError
from launcher.middleware.configuration import Cors
from launcher.settings.parse import EngineSetting, Given, LogSetup, Settings, early_log_setup, parse_settings
from launcher.settings.values import NodeSettings
from launcher.settings.variables import VARIABLES
from tests.unit.reading import TOKEN, no_file, parse, refusal

# nothing, blanks, and the plain kinds ---------------------------------------------------------------------------------


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


# offline, refresh -----------------------------------------------------------------------------------------------------


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


# words ----------------------------------------------------------------------------------------------------------------


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


# logging before and after ---------------------------------------------------------------------------------------------


def test_log_setup() -> None:
    settings = parse(NIM_LOG_LEVEL="warning", NIM_JSONL_LOGGING="on", HF_TOKEN=TOKEN)
    assert settings.log_setup() == LogSetup("WARNING", True, (TOKEN,))


def test_early_log_setup_never_fails() -> None:
    environ = {"NIM_LOG_LEVEL": "loud", "NIM_JSONL_LOGGING": "1", "NIM_SERVER_PORT": "x", "HF_TOKEN": f"{TOKEN}\n"}
    assert early_log_setup(environ) == LogSetup("INFO", True, (TOKEN,))


def test_a_nul_character_is_refused() -> None:
    assert refusal(NIM_MODEL_PATH="/m\0x").what == "NIM_MODEL_PATH holds a NUL character"
