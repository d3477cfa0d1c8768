"""Any environment gives Settings or a documented error, and never shows a secret."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from launcher import logs
from launcher.errors import LauncherError
from launcher.settings.parse import early_log_setup, parse_settings
from launcher.settings.variables import CANONICAL, VARIABLES

SECRETS = [row.name for row in VARIABLES if row.secret]
FILES = [file for row in VARIABLES for file in row.files]
NAMES = [
    *CANONICAL,
    *FILES,
    "NIM_SERVER_SERVICE_HOST",
    "NIM_SERVER_PORT_8000_TCP",
    "VLLM_PORT",
    "VLLM_PORT_8000_TCP_ADDR",
    "NIM_SPECDEC_ENABEL",
    "nim_model_path",
    "WANDB_API_KEY",
]
# The variables with the most to read come up most often.
FAVOURITES = ["NIM_SPECDEC_ARGS", "NIM_PASSTHROUGH_ARGS", "NIM_SERVED_MODEL_NAME", "NIM_SPECDEC_ENABLE", "NIM_STRICT"]

anything = st.text(st.characters(exclude_categories=()), max_size=30)
names = st.one_of(st.sampled_from(NAMES), st.sampled_from(FAVOURITES), anything.map("NIM_{}".format))
fragments = st.sampled_from(
    [
        *"{}[]:,\"'\\ \n$#“”\ufeff\xa0\x00\ud800",
        '"speculative_config"',
        '"method"',
        '"none"',
        "null",
        "{{ x }}",
        "${X}",
        "--api-key",
        "--hf-token ",
        "tcp://",
        "https://h/?",
        "NaN",
        "1e999",
        "\\u0000",
        '\\"',
        "1",
        "true",
        "0.5",
        "None",
        "/run/secrets/x",
    ]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
texts = st.one_of(
    anything,
    st.lists(fragments, max_size=12).map("".join),
    json_values.map(json.dumps),
    json_values.map(lambda value: json.dumps({"speculative_config": json.dumps(value)})),
)
# Long enough to count as one, printable, and nothing that our own sentences hold.
secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=24).map("Zq9{}".format)


@st.composite
def planted(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """An environment with a secret, in its own variable and somewhere in the others."""
    secret = draw(secrets)
    environ = draw(st.dictionaries(names, texts, max_size=6))
    for name in draw(st.lists(st.sampled_from([*environ, "NIM_SPECDEC_ARGS", "NIM_SERVER_PORT"]), max_size=3)):
        text = environ.get(name, "")
        place = draw(st.integers(0, len(text)))
        environ[name] = text[:place] + secret + text[place:]
    environ[draw(st.sampled_from(SECRETS))] = draw(st.sampled_from(["", " ", "\n"])) + secret
    return environ, secret


def read_text(path: str) -> str:
    """As different as files can be, by the length of their name."""
    results: tuple[str | Exception, ...] = (
        FileNotFoundError(2, "No such file or directory", path),
        PermissionError(13, "Permission denied", path),
        IsADirectoryError(21, "Is a directory", path),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ValueError("embedded null byte"),
        "",
        "two words",
        "a-fine-credential\n",
    )
    result = results[len(path) % len(results)]
    if isinstance(result, Exception):
        raise result
    return result


def shown(environ: dict[str, str]) -> list[str]:
    """Every text that a reading lets out."""
    try:
        found = parse_settings(environ, read_text)
    except LauncherError as error:
        problems = (error, *error.others)
        assert {problem.code for problem in problems} <= {2, 3, 4}
        assert error.code == min(problem.code for problem in problems)
        return [text for problem in problems for text in (str(problem), repr(problem), problem.what, problem.todo)]
    return [repr(found), str(found), *found.warnings, *found.notes]


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(planted())
@example(({"NIM_SPECDEC_ARGS": '{"a": "Zq9"ab"cd"}', "HF_TOKEN": 'Zq9"ab"cd'}, 'Zq9"ab"cd'))
@example(({"NIM_SPECDEC_ARGS": "{Zq9'ab\\cd}", "HF_TOKEN": "Zq9'ab\\cd"}, "Zq9'ab\\cd"))
def test_any_environment(case: tuple[dict[str, str], str]) -> None:
    environ, secret = case
    forms = (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])
    for text in shown(environ):
        assert not any(form in text for form in forms)
    level, _, hidden = early_log_setup(environ)
    assert level in logs.LEVELS and secret in hidden


@settings(deadline=None, max_examples=200)
@given(anything, st.lists(anything, max_size=3))
def test_masking_never_fails_and_covering_keeps_the_length(text: str, values: list[str]) -> None:
    assert len(logs.covered(text, values)) == len(text)
    masked = logs.masked(text, values)
    assert all(value not in masked for value in values if len(value) >= 8 and not set(value) & set("*"))
