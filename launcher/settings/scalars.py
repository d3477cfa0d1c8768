"""From the text of one variable to one value.  Each reader raises `Unreadable`, which never holds the text itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_MOST_DIGITS = 18  # no setting needs more, and int() refuses thousands of them with an error of its own
_HEADER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")
_MULTIPLES = "kKmMgGtT"


class Unreadable(Exception):
    """``expected`` ends the sentence "X is 'text', which is not …"; ``todo`` may say what to write instead."""

    def __init__(self, expected: str, todo: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.todo = todo


def boolean(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise Unreadable("a boolean (1/0, true/false, yes/no, on/off)", nothing(word))


def whole(text: str, minimum: int, maximum: int | None = None) -> int:
    """A whole number in plain digits."""
    limits = f"from {minimum} to {maximum}" if maximum is not None else f"of at least {minimum}"
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        raise Unreadable(f"a whole number {limits}", nothing(text.lower()) or _plain_digits(text))
    number = sign * int(digits)
    if number < minimum or (maximum is not None and number > maximum):
        raise Unreadable(f"a whole number {limits}")
    return number


def length(text: str) -> str:
    """A number of tokens as vLLM reads it: digits, ``32k`` (thousands), ``32K`` (times 1024), ``auto`` or ``-1``."""
    if text == "-1" or text.lower() == "auto":
        return "auto"
    stem, unit = (text[:-1], text[-1]) if text[-1:] in _MULTIPLES else (text, "")
    whole_part, point, fraction = stem.partition(".")
    if unit and point and unit.islower() and _is_digits(whole_part) and _is_digits(fraction):
        return text
    if unit and point:
        raise Unreadable("a number of tokens", f"A fraction takes a small letter: {stem}{unit.lower()}")
    try:
        return f"{whole(stem, 1)}{unit}"
    except Unreadable as problem:
        raise Unreadable("a number of tokens (8192, 32k, 1M or auto)", problem.todo) from None


def fraction(text: str) -> str:
    """A number above 0 and at most 1, as it was written."""
    if text.endswith("%"):
        raise Unreadable("a fraction", "Write 0.9 for 90 %")
    try:
        number = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        raise Unreadable("a fraction above 0 and at most 1", nothing(text.lower()) or "Write 0.9 for 90 %") from None
    if 1 < number <= 100:
        raise Unreadable("a fraction above 0 and at most 1", f"Write {number / 100:g} for {number:g} %")
    if not 0 < number <= 1:  # false for "nan" as well
        raise Unreadable("a fraction above 0 and at most 1")
    return text


def choice(text: str, words: Sequence[str]) -> str:
    """One of ``words`` in any case, as ``words`` spells it."""
    for word in words:
        if text.casefold() == word.casefold():
            return word
    from launcher.settings.hints import did_you_mean, listed

    raise Unreadable(f"one of {listed(words)}", did_you_mean(text, words))


def names(text: str) -> tuple[str, ...]:
    """A list separated by commas; empty items and repetitions do not count.

    No name begins with a dash: among the words of a command line it would be a flag.
    """
    found = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    if not found:
        raise Unreadable("a list of names separated by commas")
    if any(name.startswith("-") for name in found):
        raise Unreadable("a list of names: one begins with a dash", "Flags belong into NIM_PASSTHROUGH_ARGS")
    return found


def header_names(text: str) -> tuple[str, ...]:
    """Names of HTTP headers, or ``*``, separated by commas."""
    found = tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    if not found or any(set(name) - _HEADER for name in found):
        raise Unreadable("a list of header names separated by commas")
    return found


def words(text: str) -> tuple[str, ...]:
    """Command-line words as a POSIX shell would split them; nothing is expanded."""
    import shlex

    try:
        split = shlex.split(text)
        if len(split) == 1 and split[0].startswith("-") and len(split[0].split()) > 1:
            split = shlex.split(split[0])  # an env file keeps the quotes that a shell would have taken off
    except ValueError:
        raise Unreadable("a command line: a quote is not closed, or a backslash ends it") from None
    return tuple(word for word in split if word not in ("\n", "\r"))  # backslash and newline join two lines


def same(kind: str, one: str, other: str) -> bool:
    """Whether two texts of a variable mean the same: ``08000`` and ``8000``, ``on`` and ``1``."""
    if one == other:
        return True
    reader = _MEANINGS.get(kind)
    try:
        return reader is not None and reader(one) == reader(other)
    except (Unreadable, ValueError):
        return False


_MEANINGS: dict[str, Callable[[str], object]] = {
    "bool": boolean,
    "int": lambda text: whole(text, 0),
    "port": lambda text: whole(text, 0),
    "fraction": lambda text: float(fraction(text)),
}


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def nothing(word: str) -> str:
    """What to do about a word by which other languages say "not set", or about quotes around the value.

    ``word`` is in lower case.  Empty where it is neither.
    """
    if word in ("none", "null", "nil", "~", "undefined"):
        return "Leave it empty to unset it"
    if word[:1] in ("'", '"'):
        return "Write the value without quotes: an env file keeps them"
    return ""


def _plain_digits(text: str) -> str:
    bare = text.replace(",", "").replace("_", "").removeprefix("+").removesuffix(".0")
    return f"Write {bare}" if _is_digits(bare) and len(bare) <= _MOST_DIGITS else ""
