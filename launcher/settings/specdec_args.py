"""NIM_SPECDEC_ARGS: runtime-config keys as one JSON object, however a variable had to wrap it."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import ConfigurationError, LauncherError
from launcher.settings import json_text
from launcher.settings.reading import Reading
from launcher.settings.values import Given
from launcher.typing import Any

_OFF = ("", "none", "null")  # a speculative config that switches speculation off


def read_specdec_args(reading: Reading, enabled: bool) -> Given[Mapping[str, Any]] | None:
    """NIM_SPECDEC_ARGS: an object of runtime-config keys, with its own speculative_config decoded.

    Its syntax is checked even where the toggle leaves it unused; what it says is not.
    """
    given = reading.given("NIM_SPECDEC_ARGS", json_text.BLANKS)
    if given is None:
        return None
    try:
        decoded = json_text.read_json(given.value, given.origin, reading.cover)
        reading.warnings += [f"{given.origin} {warning}" for warning in decoded.warnings]
        if not isinstance(decoded.value, dict):
            raise ConfigurationError(
                f"{given.origin} is {json_text.kind(decoded.value)}, not a JSON object",
                'Write {"speculative_config": {...}}; null in place of the inner object switches speculation off',
            )
        if enabled and "method" in decoded.value:
            raise ConfigurationError(
                f"{given.origin} holds the key 'method', which belongs one level deeper",
                'Write {"speculative_config": {"method": ...}}',
            )
        keys = {
            key: _speculative_config(reading, value, f"{given.origin}, {key}") if _is_speculative(key) else value
            for key, value in decoded.value.items()
        }
    except LauncherError as problem:
        reading.problems.append(problem)
        return None
    return Given(keys, given.origin)


def _is_speculative(key: str) -> bool:
    return key.lstrip("-").replace("-", "_") == "speculative_config"


def _speculative_config(reading: Reading, value: Any, origin: str) -> Mapping[str, Any] | None:
    """An object, however often it was wrapped into strings; None where it switches speculation off."""
    if isinstance(value, str) and value.strip().lower() not in _OFF:
        try:
            decoded = json_text.decode(value, again=1)
        except json_text.NotJson as problem:
            raise json_text.refusal(problem, origin, reading.cover) from None
        reading.warnings += [f"{origin} {warning}" for warning in decoded.warnings]
        value = decoded.value
    if value is None or (isinstance(value, str) and value.strip().lower() in _OFF):
        return None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{origin} is {json_text.kind(value)}, not a JSON object",
            "Write an object, or null to switch speculation off",
        )
    return value
