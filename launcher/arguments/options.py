"""Which option one word of a command line is, by the rules of vLLM's parser.

vLLM lays its own rules over argparse's: underscores count as dashes before the first ``.`` or ``=``, ``--flag.key`` is
a field of a JSON flag, ``-O3`` is an optimization level.  Below them argparse takes any unambiguous beginning of an
option for the whole, lets a one-letter option hold its value (``-n2``), and reads what looks like a negative number as
a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.errors import ConfigurationError, shortened
from launcher.typing import NamedTuple
from launcher.vllm.tables import EngineTable, Flag, Spellings

# The tables leave it out, because no setting lies behind it.
_HELP = ("--help", ("-h",), "switch", "bool", (), "help", (), (), False, False)
_OPTIMIZATION = "--optimization-level"
_OPTIMIZATION_LEVELS = ("0", "1", "2", "3")
_LISTED = 8  # candidates that an error names


class Options(NamedTuple):
    """Every option string of one vLLM version, negating ones included."""

    flags: Mapping[str, Flag]
    version: str
    exact: bool  # False: the table is of an older vLLM, unknown flags may exist


class Option(NamedTuple):
    """One word, read as an option.  ``flag`` is None when the table has none of that name."""

    flag: Flag | None
    name: str  # the option string: the user's with dashes, or the whole one where it was abbreviated
    negated: bool
    path: tuple[str, ...]  # of a dotted field; () when the word is no field
    extends: bool  # ".field+": adds to a list
    inline: str | None  # the value inside the word, after "=" or glued to a one-letter option
    word: str  # what vLLM gets for it: as it came, abbreviations written out


def options_of(table: EngineTable) -> Options:
    return Options(Spellings((*table.spellings.rows, _HELP)), table.version, table.exact)


def read_option(word: str, following: str | None, options: Options, origin: str) -> Option | None:
    """The option that ``word`` is, or None when it is a value.  ``following`` is the next word.

    Raises ConfigurationError for an abbreviation that fits several options; the text never shows what follows ``=``.
    """
    if len(word) < 2 or not word.startswith("-") or is_negative_number(word):
        return None
    if word.startswith("-O"):
        return _optimization(word, following, options)
    head, equals, tail = word.partition("=")
    inline = tail if equals else None
    name, dot, fields = head.partition(".")
    if dot:
        return _field(word, name, fields, inline, options, origin)
    return _plain(word, head, inline, options, origin)


def _optimization(word: str, following: str | None, options: Options) -> Option:
    """``-O3``, ``-O=3`` and ``-O 3``; a bare ``-O`` before anything else is no option of vLLM's."""
    flag = options.flags.get(_OPTIMIZATION)
    if word == "-O":
        return Option(flag if following in _OPTIMIZATION_LEVELS else None, word, False, (), False, None, word)
    level = word[3:] if word[2] == "=" else word[2:]
    return Option(flag, "-O", False, (), False, level, word)


def _plain(word: str, head: str, inline: str | None, options: Options, origin: str) -> Option:
    name = _dashed(head)
    flag = options.flags.get(name)
    if flag is not None:
        return Option(flag, name, flag.negates(name), (), False, inline, word)
    if not name.startswith("--"):
        flag = options.flags.get(word[:2])
        if flag is not None:
            return Option(flag, word[:2], False, (), False, word[2:], word)
    # argparse looks for a short option that begins with the whole word, "=" and all.
    whole = _completed(name if name.startswith("--") else word, options, origin)
    if whole is None:
        return Option(None, name, False, (), False, inline, word)
    flag = options.flags[whole]
    written = whole if inline is None else f"{whole}={inline}"
    return Option(flag, whole, flag.negates(whole), (), False, inline, written)


def _field(word: str, name: str, fields: str, inline: str | None, options: Options, origin: str) -> Option:
    extends = fields.endswith("+")
    path = tuple((fields[:-1] if extends else fields).split("."))
    name = _dashed(name)
    whole = name if name in options.flags else _completed(name, options, origin)
    if whole is None:
        return Option(None, f"{name}.{fields}", False, path, extends, inline, word)
    return Option(options.flags[whole], whole, False, path, extends, inline, word)


def _completed(start: str, options: Options, origin: str) -> str | None:
    """The one option string that begins with ``start``."""
    candidates = [spelling for spelling in options.flags if spelling.startswith(start)]
    if len({(options.flags[found].name, options.flags[found].negates(found)) for found in candidates}) > 1:
        raise ConfigurationError(
            f"{origin}: {shortened(start.partition('=')[0])} is short for several options: {_listed(candidates)}",
            "Write the whole name",
        )
    return candidates[0] if candidates else None


def _listed(names: Iterable[str]) -> str:
    first, more = [*names][:_LISTED], len([*names]) - _LISTED
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _dashed(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def is_negative_number(word: str) -> bool:
    """Whether argparse takes the word for a negative number: ``-1``, ``-0.5``, ``-.5``, but not ``-1.`` or ``-1e3``."""
    whole, dot, fraction = word[1:].partition(".")
    if not dot:
        return word.startswith("-") and whole.isdecimal()
    return word.startswith("-") and (not whole or whole.isdecimal()) and fraction.isdecimal()
