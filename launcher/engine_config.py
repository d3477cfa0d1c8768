"""engineConfig maps of hosted inference: flat keys of vLLM's flags, every value a string.

Keys that configure speculation are allowed by engine and version, as the service allows them (``engine_keys.json``);
all others are flags of vLLM, typed by its table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from launcher.arguments.runtime import NOT_HERE, from_runtime_config
from launcher.arguments.spellings import SHORTCUTS, hidden
from launcher.arguments.typed import shown
from launcher.arguments.values import SPECULATIVE, JsonLayer, Parsed
from launcher.errors import ConfigurationError, LauncherError, gathered, shortened
from launcher.settings.hints import listed, nearest
from launcher.settings.json_text import kind
from launcher.settings.values import DYNAMO, VLLM, EngineConfig
from launcher.typing import Any, NamedTuple
from launcher.vllm import tables
from launcher.vllm.tables import EngineTable, Flag

WHOLE = SPECULATIVE.removeprefix("--")
_MANY = ("list", "append", "append-list")
_ALWAYS = "0"
_ELSEWHERE = "Any key of vLLM works in --speculative-config and NIM_SPECDEC_ARGS"


class Key(NamedTuple):
    """A speculative key of the service.  ``since`` maps an engine to the first version that allows it."""

    name: str
    since: Mapping[str, str]
    help: str

    def allowed(self, engine: str, version: str) -> bool:
        first = self.since.get(engine)
        return first is not None and _numbers(first) <= _numbers(version)

    def availability(self) -> str:
        """Who allows it, for a sentence: ``vllm from 0.26.0 on``, ``dynamo-vllm and vllm (every version)``."""
        always = " and ".join(engine for engine, first in self.since.items() if first == _ALWAYS)
        later = [f"{engine} from {first} on" for engine, first in self.since.items() if first != _ALWAYS]
        return " and ".join(([f"{always} (every version)"] if always else []) + later)


def speculative_keys() -> tuple[Key, ...]:
    """All of them, allowed or not, in the order of the service's own list."""
    with open(f"{__file__.rpartition('/')[0]}/engine_keys.json", encoding="utf-8") as stream:
        document = json.load(stream)
    engines = document["engines"]
    return tuple(
        Key(name, {engine: first for engine, first in zip(engines, firsts, strict=True) if first is not None}, text)
        for name, *firsts, text in document["keys"]
    )


def allowed_keys(engine: str, version: str) -> tuple[Key, ...]:
    """The speculative keys that an engine allows at a version of vLLM; ``version`` may have a local part."""
    return tuple(key for key in speculative_keys() if key.allowed(engine, version))


def read(config: EngineConfig, table: EngineTable, engine: str, origin: str) -> Parsed:
    """The arguments that an engineConfig map stands for.

    Raises ConfigurationError, carrying all that is wrong: keys that ``engine`` does not allow or no vLLM has, values
    that are no strings or not of the flag's type, a map that was written for another engine.
    """
    problems: list[LauncherError] = []
    if config.engine not in (None, engine):
        problems.append(
            ConfigurationError(
                f"{origin} is written for the engine {shown(str(config.engine))}, and the engine here is {engine}",
                f"Set NIM_ENGINE={config.engine}, or take 'engine' out"
                if config.engine in (VLLM, DYNAMO)
                else f"The engines are {VLLM} and {DYNAMO}",
            )
        )
    flags: dict[str, Any] = {}
    reading = _Speculative(table, engine, origin)
    for key, value in config.keys.items():
        try:
            text = _string(key, value, origin)
            name = _canonical(key)
            if name.partition(".")[0] == WHOLE or f"--{name}" in SHORTCUTS:
                reading.take(key, name, text)
            else:
                if name in NOT_HERE:
                    raise _invalid(key, origin, "it cannot be set here", NOT_HERE[name])
                flags[key] = _typed(_flag(key, name, table, origin), name, text)
        except ConfigurationError as problem:
            problems.append(problem)
    try:
        parsed = from_runtime_config(flags, table, origin)
    except ConfigurationError as problem:
        raise gathered([*problems, problem, *problem.others]) from None
    if problems:
        raise hidden(gathered(problems), parsed.secrets)
    layers = tuple(reading.layers())
    warnings = (*_version_note(config, table, engine, origin), *reading.warnings, *parsed.warnings)
    return parsed._replace(layers=(*layers, *parsed.layers), warnings=warnings)


class _Speculative:
    """The speculative keys of one map: the whole object, and single fields that are laid over it."""

    def __init__(self, table: EngineTable, engine: str, origin: str) -> None:
        self.table, self.engine, self.origin = table, engine, origin
        self.keys = {key.name: key for key in speculative_keys()}
        self.allowed = [name for name, key in self.keys.items() if key.allowed(engine, table.version)]
        self.whole: Mapping[str, Any] | None = None
        self.said_whole = False
        self.fields: dict[str, str] = {}
        self.warnings: list[str] = []

    def take(self, key: str, name: str, text: str) -> None:
        if name not in self.allowed:
            raise self._refused(key, name)
        if name != WHOLE:
            field = name.partition(".")[2]
            if self.fields.get(field, text) != text:
                self.warnings.append(f"{self.origin} gives {name} twice, with different values; the last counts")
            self.fields[field] = text
            return
        from launcher.arguments import objects  # lazy: only where an object is given

        document = objects.read_object(text, f"{self.origin}: {name}")
        self.warnings += document.warnings
        self.said_whole, self.whole = True, document.value

    def layers(self) -> Iterator[JsonLayer]:
        """One layer, of what was said."""
        if self.fields:
            if self.said_whole and self.whole is None:
                self.warnings.append(
                    f"{self.origin}: {WHOLE} is switched off, and single fields of it are given; the fields count"
                )
            whole = {str(key).replace("-", "_"): value for key, value in (self.whole or {}).items()}
            for field, text in self.fields.items():
                if field in whole and str(whole[field]) != text:
                    self.warnings.append(f"{self.origin} gives {WHOLE}.{field} twice; the single field counts")
            yield JsonLayer(SPECULATIVE, {**whole, **self.fields}, self.origin)
        elif self.said_whole:
            yield JsonLayer(SPECULATIVE, self.whole, self.origin)

    def _refused(self, key: str, name: str) -> ConfigurationError:
        if f"--{name}" in SHORTCUTS:
            todo = f"Write {WHOLE}.{SHORTCUTS[f'--{name}']}"
            return _invalid(key, self.origin, "no engine of hosted inference allows it", todo)
        known = self.keys.get(name)
        if known is None:
            own = self.table.field(name.partition(".")[2]) is not None
            why = "vLLM has the key, but no engine of hosted inference allows it" if own else "there is no such key"
            return _invalid(key, self.origin, why, self._near(name) + (f". {_ELSEWHERE}" if own else ""))
        first = known.since.get(self.engine)
        if first is not None:
            why = f"{self.engine} allows it from {first} on, and this is {self.table.version}"
            return _invalid(key, self.origin, why, "Leave it out, or use that version")
        return _invalid(
            key, self.origin, f"{self.engine} does not allow it, only {known.availability()}", self._near(name)
        )

    def _near(self, name: str) -> str:
        """The allowed key whose field is spelled most like the one in ``name``; all fields when none is."""
        fields = {allowed.partition(".")[2]: allowed for allowed in self.allowed if allowed != WHOLE}
        near = nearest(name.partition(".")[2], fields)
        if near is not None:
            return f"The nearest key is {fields[near]}: {self.keys[fields[near]].availability()}"
        return f"{self.engine} {self.table.version} allows {WHOLE}. with {listed(fields)}"


def _version_note(config: EngineConfig, table: EngineTable, engine: str, origin: str) -> Iterator[str]:
    """Dynamo counts its versions by itself."""
    written = tables.minor(config.version or "")
    if engine == VLLM and written is not None and written != tables.minor(table.version):
        yield f"{origin} is written for version {config.version}; it is checked against vLLM {table.version}"


def _string(key: Any, value: Any, origin: str) -> str:
    if isinstance(value, str):
        return value
    shows = isinstance(value, bool | int | float)
    todo = f'Write "{shortened(str(key))}": "{json.dumps(value)}"' if shows else "Write the value as one string"
    raise _invalid(str(key), origin, f"the value is {kind(value)}, and all values are strings", todo)


def _canonical(key: str) -> str:
    """Dashes in a flag's name, underscores in the speculative fields behind it."""
    stem, dot, field = key.partition(".")
    stem = stem.replace("_", "-")
    return stem + dot + (field.replace("-", "_") if stem == WHOLE else field)


def _flag(key: str, name: str, table: EngineTable, origin: str) -> Flag | None:
    """The flag of a key; None where a newer vLLM may know it."""
    stem = name.partition(".")[0]
    flag = table.flag(f"--{stem}") if stem and not stem.startswith("-") and "=" not in stem else None
    if flag is not None or (not table.exact and stem):
        return flag
    known = [spelling[2:] for spelling in table.flag_spellings() if spelling.startswith("--")]
    near = nearest(stem, [*known, WHOLE])
    others = [version for version in tables.supported() if _has(version, stem)]
    why = f"vLLM {table.version} has no flag --{shortened(stem)}"
    why += f" (known to {', '.join(others)})" if others else ""
    raise _invalid(key, origin, why, f"The nearest key is {near}" if near else "Keys are vLLM's flags without dashes")


def _has(version: str, stem: str) -> bool:
    return bool(stem) and tables.load(version).flag(f"--{stem}") is not None


def _typed(flag: Flag | None, name: str, text: str) -> Any:
    """A list where the flag takes several words and the text is a JSON list; else the text."""
    if flag is None or flag.kind not in _MANY or "." in name or not text.lstrip().startswith("["):
        return text
    try:
        items = json.loads(text)
    except ValueError:
        return text
    return items if all(isinstance(item, str | int | float) for item in items) else text


def _invalid(key: str, origin: str, why: str, todo: str) -> ConfigurationError:
    return ConfigurationError(f"{origin}: invalid runtime config: [{shortened(key)}]: {why}", todo)


def _numbers(version: str) -> tuple[int, ...]:
    """A version for comparison, without patch letters, pre-releases and local parts."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
