"""JSON-object flags: reading one, and laying dotted fields over it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from launcher.arguments.typed import human_int
from launcher.arguments.values import compact, same
from launcher.errors import ConfigurationError, shortened
from launcher.settings import json_text
from launcher.settings.hints import placeholder
from launcher.typing import Any, NamedTuple

_OFF = ("", "none", "null")
_DECODINGS = 3  # the text itself, and JSON held in a JSON string at most twice more
_DEEPEST = 64  # levels; keeps every later walk clear of the interpreter's recursion limit


class Assignment(NamedTuple):
    """One dotted field: ``--flag.a.b value`` is (("a", "b"), value)."""

    path: tuple[str, ...]
    value: Any
    extends: bool


class Document(NamedTuple):
    """A JSON object as read.  ``value`` None: switched off.  ``warnings`` are whole sentences."""

    value: dict[str, Any] | None
    warnings: tuple[str, ...] = ()


def read_object(text: str, where: str, *, units: bool = False) -> Document:
    """Read a JSON object, or a JSON string that holds one; an empty text, ``null`` and ``none`` switch the flag off.

    ``where`` names the flag and its origin.  ``units``: numbers may be written ``80m``, as vLLM allows in the flags
    that describe one of its config classes.  Raises ConfigurationError for all else.
    """
    warnings: list[str] = []
    value: Any = text
    for _ in range(_DECODINGS):
        if _is_off(value):
            return Document(None)
        value, notes = _decoded(value, where, units)
        warnings += [f"{where} {note}" for note in notes]
        if not isinstance(value, str):
            break
    if _is_off(value):
        return Document(None)
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{where} takes a JSON object, not {_kind(value)}", 'Write an object: {"key": "value"}'
        )
    unexpanded = placeholder(text)
    if unexpanded:
        warnings.append(f"{where}: {unexpanded} looks like an unexpanded variable")
    return Document(value, tuple(warnings))


def field_value(text: str) -> Any:
    """The value of a dotted field: JSON where it is JSON, an integer with a suffix (``1k``), else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_int(text)
    except ValueError:
        return text


def overlay(
    base: Mapping[str, Any], fields: Sequence[Assignment], where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Lay dotted fields over an object, in order; gives the result and the keys that got two different values.

    Two fields of one name that hold lists add up, as in vLLM; a list of ``base`` is added to only by ``field+``.
    Raises ConfigurationError for what a whole object could not hold either: NUL, NaN, bottomless nesting.
    """
    document = _copied(base)
    clashes: list[str] = []
    given: set[tuple[str, ...]] = set()
    for field in fields:
        if len(field.path) + _depth(field.value) > _DEEPEST:
            raise ConfigurationError(
                f"{where}: the field {shortened(field.path[0])} is nested too deeply", "No setting nests so far"
            )
        node = document
        for depth, key in enumerate(field.path[:-1], start=1):
            below = node.get(key)
            if not isinstance(below, dict):
                if key in node:
                    clashes.append(".".join(field.path[:depth]))
                below = node[key] = {}
            node = below
        _assign(node, field.path, field, given, clashes)
    if fields:
        _refuse_unusable(document, where)
    return document, tuple(clashes)


def _assign(
    node: dict[str, Any], path: tuple[str, ...], field: Assignment, given: set[tuple[str, ...]], clashes: list[str]
) -> None:
    """Put ``field.value`` at the last key of ``path`` into ``node``, the object that holds it."""
    key, value, old = path[-1], field.value, node.get(path[-1])
    if isinstance(value, dict) and isinstance(old, dict):
        for inner, part in value.items():
            _assign(old, (*path, inner), field._replace(value=part), given, clashes)
    elif isinstance(value, list) and isinstance(old, list) and (field.extends or path in given):
        node[key] = old + value
    else:
        if key in node and not same(old, value):
            clashes.append(".".join(path))
        node[key] = _copied(value) if isinstance(value, dict) else value
    given.add(path)


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(inner) if isinstance(inner, Mapping) else inner for key, inner in value.items()}


def _is_off(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().casefold() in _OFF)


def _decoded(text: str, where: str, units: bool) -> json_text.Decoded:
    try:
        return json_text.decode(text, again=0)
    except json_text.NotJson as problem:
        expanded = _expanded(text) if units else text
        if expanded != text:
            return _decoded(expanded, where, units=False)
        raise json_text.refusal(problem, where) from None


def _refuse_unusable(document: Mapping[str, Any], where: str) -> None:
    try:
        json_text.decode(compact(document), again=0)
    except json_text.NotJson as problem:
        raise json_text.refusal(problem, where) from None


def _expanded(text: str) -> str:
    """``80m`` outside of strings written out as a number."""
    import re

    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for position in range(0, len(parts), 2):
        parts[position] = re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", _expansion, parts[position])
    return "".join(parts)


def _expansion(found: Any) -> str:
    try:
        return str(human_int(found.group()))
    except ValueError:
        return str(found.group())


def _kind(value: Any) -> str:
    for kind, name in ((bool, "a boolean"), (list, "a list"), (str, "a text"), (int, "a number"), (float, "a number")):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def _depth(value: Any) -> int:
    deepest, pending = 0, [(value, 0)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        pending += [(part, depth + 1) for part in inner]
    return deepest
