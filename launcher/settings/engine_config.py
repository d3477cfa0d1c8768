"""NIM_ENGINE_CONFIG: an engineConfig map, inline or in a file, alone or in the ``runtime`` block that it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NotFoundError
from launcher.settings import json_text
from launcher.settings.reading import Reading
from launcher.settings.values import EngineConfig, Given
from launcher.typing import Any

VARIABLE = "NIM_ENGINE_CONFIG"
_INLINE = ("{", "[", '"', "'")
_BLOCK = ("engine", "version", "engineConfig")


def read_engine_config(reading: Reading, read_text: Callable[[str], str]) -> Given[EngineConfig] | None:
    """The map as it stands: keys and values are not looked at yet.  ``read_text`` as for `parse_settings`."""
    given = reading.given(VARIABLE, json_text.BLANKS)
    if given is None:
        return None
    try:
        text, where = (given.value, given.origin)
        if not text.startswith(_INLINE) and not text.startswith("\ufeff"):
            text, where = _file(reading, given, read_text), f"{given.origin} (file {reading.shown(given.value)})"
        decoded = json_text.read_json(_whole(text), where, reading.cover)
        reading.warnings += [f"{where} {warning}" for warning in decoded.warnings]
        return Given(_unwrapped(reading, decoded.value, where), given.origin)
    except LauncherError as problem:
        reading.problems.append(problem)
        return None


def _whole(text: str) -> str:
    """A member of a request (``"runtime": {...}``), as a page prints it, becomes an object of its own."""
    stripped = text.strip()
    named = stripped.partition(":")[0].strip() in ('"runtime"', '"engineConfig"')
    return f"{{{stripped.rstrip(',')}}}" if named else text


def _file(reading: Reading, given: Given[str], read_text: Callable[[str], str]) -> str:
    path = reading.shown(given.value)
    if not given.value.startswith("/"):
        raise ConfigurationError(
            f"{given.origin} is {path}, neither a JSON object nor an absolute path", 'Write {"KEY": "VALUE"}, or a path'
        )
    try:
        return read_text(given.value)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{given.origin}: the file {path} does not exist", "Is the volume mounted?") from None
    except PermissionError:
        raise DeniedError(f"{given.origin}: the file {path} may not be read", "Check its mode and owner") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise ConfigurationError(f"{given.origin}: the file {path} cannot be read ({reason})") from None


def _unwrapped(reading: Reading, document: Any, where: str) -> EngineConfig:
    """The map itself, out of ``{"runtime": {"engine", "version", "engineConfig"}}`` or the inner object alone."""
    whole = _object(document, where)
    block = _object(whole["runtime"], f"{where}, runtime") if isinstance(whole.get("runtime"), dict) else whole
    if "engineConfig" not in block:
        return EngineConfig(whole if block is whole else {})
    ignored = [*(key for key in block if key not in _BLOCK), *(key for key in whole if block is not whole)]
    ignored = [key for key in ignored if key != "runtime"]
    if ignored:
        reading.warnings.append(f"{where}: only 'runtime' is read; ignored: {', '.join(map(reading.shown, ignored))}")
    engine, version = (_text(block, key, where) for key in ("engine", "version"))
    return EngineConfig(_object(block["engineConfig"], f"{where}, engineConfig"), engine, version)


def _text(block: Mapping[str, Any], key: str, where: str) -> str | None:
    value = block.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ConfigurationError(f"{where}: {key} is {json_text.kind(value)}, not a string", "Write it in quotes")


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise ConfigurationError(
        f"{where} is {json_text.kind(value)}, not a JSON object", 'Write {"speculative-config.method": "mtp"}'
    )
