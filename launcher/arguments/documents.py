"""Mappings of flag names to typed values, written as the words they stand for.

``--config`` files and runtime configurations are such mappings; they mean what the flags mean on a command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from launcher.arguments.options import Option, Options, is_negative_number, read_option
from launcher.arguments.typed import shown
from launcher.arguments.values import spelled
from launcher.errors import ConfigurationError, LauncherError, shortened
from launcher.settings import scalars
from launcher.settings.hints import did_you_mean
from launcher.typing import Any
from launcher.vllm.tables import Flag

_MANY = ("list", "append-list")


def words_of(
    document: Mapping[str, Any], options: Options, origin: str, *, abbreviated: bool
) -> tuple[list[str], list[LauncherError]]:
    """The words of a document, in its order, and what is wrong with the keys that gave none.

    ``abbreviated``: a key may be the beginning of a flag's name.

    ``true`` gives the flag, ``false`` its ``--no-`` twin (nothing where there is none), a list several words, an object
    JSON; ``null`` leaves the flag unset, or switches a JSON-object flag off.
    """
    words: list[str] = []
    problems: list[LauncherError] = []
    for key, value in document.items():
        try:
            words += _words(_option(key, options, origin, abbreviated), key, value, origin)
        except ConfigurationError as problem:
            problems.append(problem)
    return words, problems


def _words(option: Option, key: Any, value: Any, origin: str) -> tuple[str, ...]:
    flag, name = option.flag, option.name
    if flag is None:
        return _unread(option.word, value, origin, key)
    if option.path:
        return (option.word, value if isinstance(value, str) else _json(value, origin, key))
    if flag.type == "json" and flag.kind == "value":
        return (name, value if isinstance(value, str) else _json(value, origin, key))
    if value is None:
        return ()
    if flag.kind in ("switch", "boolean"):
        return _switch(option, flag, value, origin, key)
    if isinstance(value, bool):
        return _bare(name, flag, value)
    return _valued(name, flag, value, origin, key)


def _option(key: Any, options: Options, origin: str, abbreviated: bool) -> Option:
    if not isinstance(key, str) or not key or key.startswith("-") or "=" in key:
        raise ConfigurationError(f"{origin}: {shown(str(key))} is no key", "Write a flag's name without its dashes")
    stem = key.partition(".")[0].replace("_", "-")
    if abbreviated or f"--{stem}" in options.flags or not options.exact:
        option = read_option(f"--{key}", None, options, origin)
        if option is not None and (option.flag is not None or not options.exact):
            return option
    known = [name[2:].replace("-", "_") for name in options.flags if name.startswith("--")]
    raise ConfigurationError(
        f"{origin}: unknown key {shown(key)}",
        did_you_mean(stem, known, "Keys are the names of vLLM's flags, with underscores or dashes"),
    )


def _switch(option: Option, flag: Flag, value: Any, origin: str, key: Any) -> tuple[str, ...]:
    try:
        wanted = scalars.boolean(str(value).strip())
    except scalars.Unreadable as problem:
        raise ConfigurationError(
            f"{origin}: {key} is {shown(str(value))}, not {problem.expected}", problem.todo
        ) from None
    if wanted != option.negated:
        return (flag.name,)
    return flag.negatives[:1]


def _bare(name: str, flag: Flag, value: bool) -> tuple[str, ...]:
    """A truth value for a flag that takes words: alone where the value may be left out, else read by its type."""
    if not value:
        return ()
    return (name,) if flag.kind == "optional" else (name, "true")


def _valued(name: str, flag: Flag, value: Any, origin: str, key: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or flag.type == "json-any":
        return spelled(name, (_text(value, origin, key),))
    items = _items(value, origin, key)
    if flag.kind in _MANY and len(items) == 1:
        return spelled(name, items)
    if flag.kind in _MANY:
        _refuse_flags(items, origin, key)
        return (name, *items) if items else ()
    if flag.kind == "append":
        return tuple(word for item in items for word in spelled(name, (item,)))
    raise ConfigurationError(f"{origin}: {key} takes one value, not a list", f"Correct or remove {key}")


def _unread(name: str, value: Any, origin: str, key: Any) -> tuple[str, ...]:
    """A flag that only a newer vLLM knows."""
    if value is None or value is False:
        return ()
    if value is True:
        return (name,)
    if isinstance(value, list) and "." not in name:  # a field of an object takes one value, which may be a list
        items = _items(value, origin, key)
        _refuse_flags(items, origin, key)
        return (name, *items)
    return (f"{name}={_text(value, origin, key)}",)


def _items(value: Sequence[Any], origin: str, key: Any) -> tuple[str, ...]:
    return tuple(_text(item, origin, key) for item in value)


def _refuse_flags(items: Sequence[str], origin: str, key: Any) -> None:
    """Of several words behind a flag, one that begins with a dash would be a flag of its own."""
    for item in items:
        if item.startswith("-") and not is_negative_number(item):
            raise ConfigurationError(
                f"{origin}: an item of {shortened(key)} begins with a dash", "A flag has its own key, without dashes"
            )


def _text(value: Any, origin: str, key: Any) -> str:
    return _json(value, origin, key) if isinstance(value, bool | dict | list) else str(value)


def _json(value: Any, origin: str, key: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{origin}: the value of {key} cannot be written as JSON ({str(error)[:80]})",
            "Use text, numbers, lists and mappings",
        ) from None
