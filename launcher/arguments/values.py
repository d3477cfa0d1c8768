"""The values that pass between reading words, merging levels and the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import Flag

SPECULATIVE = "--speculative-config"


class Argument(NamedTuple):
    """One vLLM flag from one origin."""

    flag: str  # canonical, "--max-model-len"
    values: tuple[str, ...]  # () for a switch; ("false",) never: a negated boolean has negated=True
    negated: bool  # came as --no-…
    words: tuple[str, ...]  # what vLLM gets: as it came, abbreviations expanded
    origin: str  # "command line", "NIM_PASSTHROUGH_ARGS", "NIM_MAX_MODEL_LEN", "runtime_config.json" …
    repeats: bool = False  # every occurrence counts, as of --middleware


class JsonLayer(NamedTuple):
    """What one origin says about one JSON-object flag.  ``value`` None means switched off (null, "", none)."""

    flag: str
    value: Mapping[str, Any] | None
    origin: str


class Parsed(NamedTuple):
    """One source of arguments, read."""

    arguments: tuple[Argument, ...]  # last one wins already applied; --config expanded below the flags
    layers: tuple[JsonLayer, ...]  # at most two a flag, highest first: the source's own words, then its --config file
    positionals: tuple[str, ...]  # words that are no flag's value: the model
    rest: tuple[str, ...]  # "--" and what follows it
    secrets: tuple[tuple[str, str], ...]  # (variable name, value) taken off argv: --api-key, --hf-token
    config_file: str | None
    warnings: tuple[str, ...]


class Merged(NamedTuple):
    """All levels together.  JSON-object flags are merged into ``arguments``, all but the speculative one."""

    arguments: tuple[Argument, ...]  # winners, lowest level first
    layers: Mapping[str, tuple[JsonLayer, ...]]  # flag -> its layers, highest first
    warnings: tuple[str, ...]


def given(flag: Flag, values: tuple[str, ...], origin: str, *, negated: bool = False) -> Argument:
    """An argument that came from no word of the user's: a variable, a profile, a derived value."""
    name = flag.negatives[0] if negated else flag.name
    repeats = flag.kind in ("append", "append-list")
    return Argument(flag.name, values, negated, spelled(name, values), origin, repeats)


def spelled(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The words for one flag.

    vLLM reads a single value that begins with a dash only behind ``=``, whole numbers apart: as a word of its own it is
    taken for an option, and ``-0.5`` even for a dotted field named 5.
    """
    if len(values) == 1 and values[0].startswith("-") and not values[0][1:].isdecimal():
        return (f"{name}={values[0]}",)
    return (name, *values)


def compact(value: Mapping[str, Any]) -> str:
    """JSON in the one spelling that goes on vLLM's command line.

    Readable where it can be; text that is no valid Unicode (a file name of undecodable bytes) is escaped, because a
    program argument could not hold it.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that holds no further object, as ``outer.inner``; an empty object is a leaf."""
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def same(one: Any, other: Any) -> bool:
    """Equality that keeps ``1`` and ``true`` apart."""
    return type(one) is type(other) and bool(one == other)
