"""The levels of vLLM arguments, merged with provenance, and the words that vLLM finally gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from launcher.arguments.typed import shown
from launcher.arguments.values import (
    SPECULATIVE,
    Argument,
    JsonLayer,
    Merged,
    Parsed,
    compact,
    leaves,
    same,
)
from launcher.errors import shortened
from launcher.typing import Any, NamedTuple

OFF = "off"


class Level(NamedTuple):
    """One part of one level.  Parts of equal ``rank`` that contradict each other are worth a warning."""

    rank: int  # 1 (command line) to 7 (defaults)
    origin: str
    arguments: tuple[Argument, ...] = ()
    layers: tuple[JsonLayer, ...] = ()  # highest first


class MergedJson(NamedTuple):
    """One JSON flag.  ``value`` None: off, or never mentioned.  ``origins`` are keyed ``outer.inner``."""

    value: Mapping[str, Any] | None
    origins: Mapping[str, str]


def level(rank: int, origin: str, parsed: Parsed) -> Level:
    """A source of arguments at its place in the precedence."""
    return Level(rank, origin, parsed.arguments, parsed.layers)


def merge(levels: Sequence[Level]) -> Merged:
    """Merge ``levels``, highest first.

    For each flag the highest level counts, a flag and its ``--no-`` twin being one; repeatable flags add up, lowest
    first.  JSON-object flags are merged key by key into one argument each; the layers of the speculative one are left
    apart, since its keys depend on each other (`launcher.speculation`).
    """
    said = [argument for part in reversed(levels) for argument in part.arguments]
    last = {argument.flag: position for position, argument in enumerate(said)}
    plain = [argument for position, argument in enumerate(said) if argument.repeats or last[argument.flag] == position]
    layers: dict[str, tuple[JsonLayer, ...]] = {}
    for part in levels:
        for layer in part.layers:
            layers[layer.flag] = (*layers.get(layer.flag, ()), layer)
    objects = [argument for flag in sorted(layers) if flag != SPECULATIVE for argument in _object(flag, layers[flag])]
    return Merged((*plain, *objects), layers, tuple(_contradictions(levels)))


def merge_json(layers: Sequence[JsonLayer]) -> MergedJson:
    """Merge the layers of one flag, highest first, key by key and inside nested objects; None ends the merge there."""
    said = []
    for layer in layers:
        if layer.value is None:
            break
        said.append(layer)
    if not said:
        return MergedJson(None, {})
    merged: dict[str, Any] = {}
    for layer in reversed(said):
        merged = _over(merged, layer.value or {})
    origins = {}
    for key, _ in leaves(merged):
        origins[key] = next(layer.origin for layer in said if _holds(layer.value or {}, key))
    return MergedJson(merged, origins)


def emit(merged: Merged, speculative: Mapping[str, Any] | None, rest: Sequence[str] = ()) -> tuple[str, ...]:
    """The words behind the model: lowest level first, the one speculative configuration, then ``rest``.

    ``rest`` begins with ``--`` unless it is empty.
    """
    words = [word for argument in merged.arguments for word in argument.words]
    if speculative is not None:
        words += (SPECULATIVE, compact(speculative))
    return (*words, *rest)


def effective(merged: Merged) -> dict[str, tuple[str, ...]]:
    """Flag -> values of what is said: () for a switch; a switch that is off stands under its ``--no-`` spelling."""
    flags: dict[str, tuple[str, ...]] = {}
    for argument in merged.arguments:
        if argument.negated:
            flags[f"--no-{argument.flag[2:]}"] = ()
            continue
        earlier = flags.get(argument.flag, ()) if argument.repeats else ()
        flags[argument.flag] = earlier + argument.values
    return flags


def _object(flag: str, layers: Sequence[JsonLayer]) -> Iterator[Argument]:
    merged = merge_json(layers)
    if merged.value is not None:
        text = compact(merged.value)
        origins = dict.fromkeys(merged.origins.values()) or {layers[0].origin: None}
        yield Argument(flag, (text,), False, (flag, text), ", ".join(origins))


def _over(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = _over(below if isinstance(below, Mapping) else {}, value) if isinstance(value, Mapping) else value
    return merged


def _holds(value: Mapping[str, Any], key: str) -> bool:
    return any(name == key for name, _ in leaves(value))


def _contradictions(levels: Sequence[Level]) -> Iterator[str]:
    """Where two parts of one level set a flag, or a key of a JSON flag, differently."""
    for high, low in combinations(levels, 2):
        if high.rank != low.rank:
            continue
        below = _settings(low)
        for name, (value, origin) in _settings(high).items():
            other, where = below.get(name, (value, origin))
            if not same(value, other):
                yield f"{name} is {_text(value)} in {origin} and {_text(other)} in {where}; {origin} counts"


def _settings(part: Level) -> dict[str, tuple[Any, str]]:
    """Everything that a part sets: name -> (value, origin)."""
    found: dict[str, tuple[Any, str]] = {}
    for argument in part.arguments:
        if not argument.repeats:
            value = " ".join(argument.values) if argument.values else not argument.negated
            found[argument.flag] = (value, argument.origin)
    for layer in reversed(part.layers):
        if layer.value is None:
            found[layer.flag] = (OFF, layer.origin)
        for key, value in leaves(layer.value or {}):
            found[f"{layer.flag}.{key}"] = (value, layer.origin)
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else OFF
    return shown(value) if isinstance(value, str) else shortened(str(value))
