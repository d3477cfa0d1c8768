"""NIM_CAPTURE_ARGS and the other settings of the middleware: read strictly, before vLLM starts."""

from __future__ import annotations

import json

import pytest

from launcher.errors import ConfigurationError
from launcher.middleware.configuration import Capture, Cors
from launcher.settings.parse import parse_settings
from launcher.settings.values import Settings


def parse(**environ: str) -> Settings:
    return parse_settings(environ, lambda path: "")


def test_off_by_default() -> None:
    assert parse().capture is None
    assert parse(NIM_CAPTURE_ENABLE="0").capture is None


def test_the_toggle_alone() -> None:
    assert parse(NIM_CAPTURE_ENABLE="1").capture == Capture(
        path="/captures/requests.jsonl",
        format="mooncake_payload",
        endpoint_pattern="^/v1/chat/completions$",
        max_bytes=1 << 30,
        max_files=4,
        sample=1.0,
    )


def test_every_key() -> None:
    told = {
        "path": "/c/r.jsonl",
        "format": "raw_payload",
        "endpoint_pattern": "^/v1/",
        "max_bytes": 100_000,
        "max_files": 1,
        "sample": 1,
    }
    for text in (json.dumps(told), json.dumps(json.dumps(told)), json.dumps(told, indent=2) + "\n"):
        found = parse(NIM_CAPTURE_ENABLE="on", NIM_CAPTURE_ARGS=text).capture
        assert found == Capture("/c/r.jsonl", "raw_payload", "^/v1/", 100_000, 1, 1.0)


def test_arguments_without_the_toggle_are_checked_and_ignored() -> None:
    settings = parse(NIM_CAPTURE_ARGS='{"path": "/c/r"}')
    assert settings.capture is None
    assert settings.warnings == ("NIM_CAPTURE_ARGS is ignored: set NIM_CAPTURE_ENABLE=1 to record requests",)
    with pytest.raises(ConfigurationError):
        parse(NIM_CAPTURE_ARGS='{"paht": "/c/r"}')


@pytest.mark.parametrize(
    ("text", "what", "todo"),
    [
        ("[]", "a list, not a JSON object", "Write"),
        ("{,}", "NIM_CAPTURE_ARGS", ""),
        ('{"paht": "/c/r"}', "unknown key 'paht'", "Did you mean path?"),
        ('{"Format": "raw_payload"}', "unknown key 'Format'", "Did you mean format?"),
        ('{"zzz": 1}', "unknown key 'zzz'", "Keys are path, format"),
        ('{"path": "requests.jsonl"}', "path is 'requests.jsonl', not the absolute path of a file", "/captures"),
        ('{"path": "/captures/"}', "not the absolute path of a file", "/captures"),
        ('{"path": 1}', "path is 1, not a text", "quotes"),
        ('{"path": null}', "path is null, not a text", "quotes"),
        (
            '{"format": "mooncake_trace"}',
            "not one of mooncake_payload or raw_payload",
            "AIPerf replays mooncake_payload as mooncake_trace",
        ),
        ('{"endpoint_pattern": "("}', "not a regular expression", "Write"),
        ('{"endpoint_pattern": ""}', "not a text", ""),
        ('{"endpoint_pattern": "%s"}' % ("a" * 2000), "longer than 1000 characters", ""),
        ('{"max_bytes": 10}', "max_bytes is 10, not a whole number of at least 65536", "digits"),
        ('{"max_bytes": "1GB"}', "not a whole number", "digits"),
        ('{"max_bytes": true}', "max_bytes is true, not a whole number", "digits"),
        ('{"max_files": 0}', "max_files is 0, not a whole number from 1 to 10000", "digits"),
        ('{"sample": 0}', "not a share above 0 and at most 1", "0.1"),
        ('{"sample": 1.5}', "not a share above 0 and at most 1", "0.1"),
        ('{"sample": "0.5"}', "not a share above 0 and at most 1", "0.1"),
        (
            '{"format": "raw_payload", "endpoint_pattern": "^/v1/completions$"}',
            "raw_payload can replay chat",
            "mooncake",
        ),
    ],
)
def test_refusals(text: str, what: str, todo: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(NIM_CAPTURE_ENABLE="1", NIM_CAPTURE_ARGS=text)
    assert what in caught.value.what
    assert todo in caught.value.todo
    assert "NIM_CAPTURE_ARGS" in caught.value.what


def test_cors() -> None:
    assert parse().cors == Cors()
    found = parse(NIM_CORS_EXPOSE_HEADERS="X-Request-Id, Date,X-Request-Id", NIM_CORS_MAX_AGE="0").cors
    assert found == Cors(("X-Request-Id", "Date"), 0)
    assert parse(NIM_CORS_EXPOSE_HEADERS="*").cors == Cors(("*",), None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NIM_CORS_EXPOSE_HEADERS", "X Request"),
        ("NIM_CORS_EXPOSE_HEADERS", "A\r\nSet-Cookie: x"),
        ("NIM_CORS_EXPOSE_HEADERS", ","),
        ("NIM_CORS_MAX_AGE", "-1"),
        ("NIM_CORS_MAX_AGE", "1h"),
        ("NIM_SPECDEC_MIN_ACCEPTANCE", "30%"),
        ("NIM_SPECDEC_MIN_ACCEPTANCE", "30"),
    ],
)
def test_what_else_is_unreadable(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        parse(**{name: value})


def test_the_floor() -> None:
    assert parse().min_acceptance is None
    assert parse(NIM_SPECDEC_MIN_ACCEPTANCE="0.3").min_acceptance == 0.3
