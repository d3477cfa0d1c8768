"""Values against the type that the flag table gives them.

Only what vLLM's parser is certain to refuse is refused here; what its configuration makes of a value is its own affair.
"""

from __future__ import annotations

import json

from launcher.errors import ConfigurationError, shortened
from launcher.settings.hints import did_you_mean, listed
from launcher.vllm.tables import Flag

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LONGEST = 80  # characters of a value that a message shows
_SERVED_NAME = "--served-model-name"
_NAMED_CHOICES = 12  # more than these do not fit a sentence


def check_value(flag: Flag, value: str, origin: str) -> None:
    """Raise ConfigurationError when ``value`` cannot be one of ``flag``'s."""
    if "\0" in value:
        raise ConfigurationError(
            f"{origin}: the value of {flag.name} holds a NUL character", "No program argument can; remove it"
        )
    if flag.name == _SERVED_NAME and not value.strip():
        raise ConfigurationError(f"{origin}: {flag.name} is given an empty name", "Leave the flag out, or write a name")
    if value in flag.words or (not value and "None" in flag.words):
        return
    if not _READERS.get(flag.type, _anything)(value):
        raise ConfigurationError(
            f"{origin}: {flag.name} takes {_EXPECTED[flag.type]}, not {shown(value)}", f"Correct or remove {flag.name}"
        )
    if flag.choices and not _is_choice(flag, value):
        raise ConfigurationError(f"{origin}: {flag.name} cannot be {shown(value)}", _advice(flag, value))


def human_int(text: str) -> int:
    """``64``, ``1k`` (1000), ``1K`` (1024), ``25.6k``; the suffixes are k m g t and K M G T.

    Raises ValueError for anything else: a fraction has no exact multiple of 1024.
    """
    text = text.strip()
    number, suffix = text[:-1], text[-1:]
    if suffix in _BINARY and number.isdecimal():
        return int(number) * _BINARY[suffix]
    if suffix in _DECIMAL and _is_plain(number):
        try:
            return int(float(number) * _DECIMAL[suffix])
        except OverflowError as error:
            raise ValueError(f"{text!r} is too large") from error
    return int(text)


def shown(value: str) -> str:
    """A value as an error shows it: quoted, and cut where it would drown the sentence."""
    return repr(shortened(value, _LONGEST))


def _is_plain(number: str) -> bool:
    whole, dot, fraction = number.partition(".")
    return whole.isdecimal() and (fraction.isdecimal() if dot else True)


def _is_choice(flag: Flag, value: str) -> bool:
    if flag.type == "int":
        value = str(int(value))
    return (value.lower().replace("-", "_") if flag.folded else value) in flag.choices


def _advice(flag: Flag, value: str) -> str:
    if flag.type == "int":
        return f"It takes {listed(sorted(flag.choices, key=int))}"
    if len(flag.choices) <= _NAMED_CHOICES:
        return did_you_mean(value, flag.choices, f"It takes {listed(flag.choices)}")
    return did_you_mean(value, flag.choices, f"It takes one of {', '.join(flag.choices[:_NAMED_CHOICES])} …")


def _is_int(value: str) -> bool:
    try:
        int(value)
    except ValueError:
        return False
    return True


def _is_human_int(value: str) -> bool:
    if value.strip().lower() == "auto":
        return True
    try:
        human_int(value)
    except ValueError:
        return False
    return True


def _is_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _anything(value: str) -> bool:
    return True


_READERS = {"int": _is_int, "human-int": _is_human_int, "float": _is_float, "json-any": _is_json}
_EXPECTED = {
    "int": "an integer",
    "human-int": "an integer (also 1k, 2M)",
    "float": "a number",
    "json-any": "JSON",
}
