"""JSON in variables: every form that people write, and what stays unexpanded."""

from __future__ import annotations

import pytest

from launcher.errors import ConfigurationError
from launcher.settings.json_text import decode, read_json
from launcher.settings.parse import Given, parse_settings
from tests.unit.reading import no_file, parse, refusal, specdec

# JSON -----------------------------------------------------------------------------------------------------------------

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


# unexpanded variables -------------------------------------------------------------------------------------------------


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
