"""NIM_CAPTURE_ARGS: which requests are recorded, where and how; every key and value checked before vLLM starts."""

from __future__ import annotations

import re
from collections.abc import Callable

from launcher.errors import ConfigurationError, LauncherError
from launcher.middleware.configuration import Capture
from launcher.middleware.records import FORMATS, RAW
from launcher.settings import json_text
from launcher.settings.hints import did_you_mean, listed
from launcher.settings.reading import Reading
from launcher.typing import Any

VARIABLE = "NIM_CAPTURE_ARGS"
_LEAST_BYTES = 1 << 16  # of a file: less would put one aside every few requests
_MOST_FILES = 10_000
_LONGEST_PATTERN = 1000  # characters


def read_capture(reading: Reading) -> Capture | None:
    """What to record; None where nothing is.  Arguments are checked even where the toggle leaves them unused."""
    told = _arguments(reading)
    if not reading.is_on("NIM_CAPTURE_ENABLE"):
        if told is not None:
            reading.warnings.append(f"{VARIABLE} is ignored: set NIM_CAPTURE_ENABLE=1 to record requests")
        return None
    return told or Capture()


def _arguments(reading: Reading) -> Capture | None:
    given = reading.given(VARIABLE, json_text.BLANKS)
    if given is None:
        return None
    try:
        decoded = json_text.read_json(given.value, given.origin, reading.cover)
        reading.warnings += [f"{given.origin} {warning}" for warning in decoded.warnings]
        return _checked(decoded.value)
    except LauncherError as problem:
        reading.problems.append(problem)
        return None


def _checked(value: Any) -> Capture:
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{VARIABLE} is {json_text.kind(value)}, not a JSON object", 'Write {"path": "/captures/requests.jsonl"}'
        )
    for key in value:
        if key not in _READERS:
            raise ConfigurationError(
                f"{VARIABLE} holds the unknown key {key!r}", did_you_mean(key, _READERS, f"Keys are {listed(_READERS)}")
            )
    told = Capture(**{key: _READERS[key](key, item) for key, item in value.items()})
    if told.format == RAW and not re.search(told.endpoint_pattern, "/v1/chat/completions"):
        raise ConfigurationError(
            f"{VARIABLE}: {RAW} can replay chat requests alone, and {told.endpoint_pattern!r} matches no "
            "/v1/chat/completions",
            "Use the format mooncake_payload",
        )
    return told


def _path(key: str, value: Any) -> str:
    text = _text(key, value)
    if not text.startswith("/") or text.endswith("/") or "\0" in text:
        raise _wrong(key, value, "the absolute path of a file", "Write such as /captures/requests.jsonl")
    return text


def _format(key: str, value: Any) -> str:
    text = _text(key, value)
    if text not in FORMATS:
        raise _wrong(
            key,
            value,
            f"one of {listed(FORMATS)}",
            did_you_mean(text, FORMATS, "AIPerf replays mooncake_payload as mooncake_trace"),
        )
    return text


def _pattern(key: str, value: Any) -> str:
    text = _text(key, value)
    if len(text) > _LONGEST_PATTERN:
        raise ConfigurationError(
            f"{VARIABLE}: {key} is longer than {_LONGEST_PATTERN} characters", "Write a shorter one"
        )
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise _wrong(key, value, f"a regular expression: {error}", "Write such as ^/v1/chat/completions$") from None
    return text


def _bytes(key: str, value: Any) -> int:
    return _whole(key, value, _LEAST_BYTES, None)


def _files(key: str, value: Any) -> int:
    return _whole(key, value, 1, _MOST_FILES)


def _sample(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise _wrong(key, value, "a share above 0 and at most 1", "Write 0.1 for every tenth request")
    return float(value)


def _whole(key: str, value: Any, minimum: int, maximum: int | None) -> int:
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum or value > (maximum or value):
        raise _wrong(key, value, f"a whole number {limits}", "Write it in digits, without quotes")
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(key, value, "a text", "Write it in quotes")
    return value


def _wrong(key: str, value: Any, expected: str, todo: str) -> ConfigurationError:
    shown = json_text.kind(value) if value is None or isinstance(value, dict | list) else _shown(value)
    return ConfigurationError(f"{VARIABLE}: {key} is {shown}, not {expected}", todo)


def _shown(value: Any) -> str:
    """As it stands in the JSON: true, and not True."""
    return str(value).lower() if isinstance(value, bool) else repr(value)[:100]


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "path": _path,
    "format": _format,
    "endpoint_pattern": _pattern,
    "max_bytes": _bytes,
    "max_files": _files,
    "sample": _sample,
}
