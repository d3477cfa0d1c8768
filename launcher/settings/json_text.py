"""JSON as people put it into variables and flags: one canonical result, or an error that points at the character.

Accepted besides plain JSON: line breaks between tokens, the outer quotes that an env file keeps, a string that holds
JSON (decoded again), and one escape too many (``{\\"key\\": 1}``).  Refused with the position: everything else, what
Python's decoder would let pass included (NaN, infinite numbers, text that cannot be encoded).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from launcher import logs
from launcher.errors import ConfigurationError, shortened
from launcher.typing import Any, NamedTuple, NoReturn

BLANKS = " \t\r\n"  # JSON's own; a no-break space is none of them
_CURLY = "“”„‟«»‘’‚‛"
_DEEPEST = 64  # levels of nesting
_AROUND = 40  # characters shown on each side of a mistake
_NAMES = {"\ufeff": "byte order mark", "\u200b": "zero width space"}


class Decoded(NamedTuple):
    value: Any
    warnings: tuple[str, ...]  # "gives the key … twice …": to be put behind a name


class NotJson(Exception):
    """What is wrong (``reason``) at ``position`` of ``text``."""

    def __init__(self, text: str, position: int, reason: str, todo: str = "") -> None:
        super().__init__(reason)
        self.text = text
        self.position = position
        self.reason = reason
        self.todo = todo


def read_json(text: str, origin: str, hide: Callable[[str], str] = logs.cover) -> Decoded:
    """Decode the value of the variable, flag or file called ``origin``.

    A string that holds JSON is decoded again, twice at most.  ``hide`` covers secrets without moving anything, since
    the error shows a part of the text.
    Raises ConfigurationError.  Its first lines show the place; its last line stands by itself.
    """
    try:
        return decode(text)
    except NotJson as problem:
        raise refusal(problem, origin, hide) from None


def decode(text: str, again: int = 2) -> Decoded:
    """Decode; while the result is a string that may hold JSON, decode that too, ``again`` times at most.

    Raises NotJson.
    """
    repeated: list[str] = []
    value = _decode_once(text, repeated)
    for _ in range(again):
        if not isinstance(value, str) or not value.strip(BLANKS):
            break
        value = _decode_once(value, repeated)
    return Decoded(value, tuple(dict.fromkeys(repeated)))


def refusal(problem: NotJson, origin: str, hide: Callable[[str], str] = logs.cover) -> ConfigurationError:
    """The error for ``problem``: the line with a caret below the place, then the sentence."""
    text, position = hide(problem.text), problem.position
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    column = position - start
    first = max(0, column - _AROUND)
    before = ("…" if first else "") + _visible(line[first:column])
    after = _visible(line[column : column + _AROUND]) + ("…" if column + _AROUND < len(line) else "")
    place = f"line {text.count(chr(10), 0, position) + 1}, column {column + 1}"
    picture = f"    {before}{after}\n    {' ' * len(before)}^"
    return ConfigurationError(
        f"{origin} is not valid JSON:\n{picture}\n{origin}, {place}: {problem.reason}", problem.todo
    )


def kind(value: Any) -> str:
    """What a decoded value is, for a sentence; it is never shown itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"


def _decode_once(text: str, repeated: list[str]) -> Any:
    """Decode one layer.  Where the text as it stands is no JSON, try it without the quotes and escapes around it."""
    if not text.isascii():
        _refuse_undecodable(text)
    try:
        return _strict(text, repeated)
    except NotJson as problem:
        inner = _unquoted(text)
        if inner is not None:
            return _decode_once(inner, repeated)
        if text.strip(BLANKS).startswith(('{\\"', '[\\"')):
            try:
                return json.loads(f'"{text.strip(BLANKS)}"', strict=False)
            except ValueError:
                pass
        raise problem from None


def _unquoted(text: str) -> str | None:
    """What stands between outer quotes, if it looks like JSON."""
    bare = text.strip(BLANKS)
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "'\"":
        inner = bare[1:-1].strip(BLANKS)
        if inner[:1] in ("{", "["):
            return inner
    return None


def _strict(text: str, repeated: list[str]) -> Any:
    def constant(name: str) -> NoReturn:
        raise NotJson(text, max(0, text.find(name)), f"{name} is no JSON value", "Write a number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in items:
            if key in found and found[key] != value:
                repeated.append(f"gives the key {shortened(key, _AROUND)!r} twice; the last one counts")
            found[key] = value
        return found

    try:
        value = json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except json.JSONDecodeError as problem:
        raise _complaint(text, problem) from None
    except RecursionError:
        raise NotJson(text, 0, "nested too deeply") from None
    except ValueError:  # an integer of more digits than Python converts
        raise NotJson(text, 0, "a number has too many digits") from None
    _refuse_unusable(value, text, _DEEPEST)
    return value


def _refuse_unusable(value: Any, text: str, depth: int) -> None:
    """Stop at what JSON can spell and nothing can use: infinity, half a character, NUL, bottomless nesting."""
    if not depth:
        raise NotJson(text, 0, f"nested more than {_DEEPEST} levels deep")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise NotJson(text, max(0, text.find("\\u")), "an escape that stands for no character")
    elif isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise NotJson(text, 0, "a number is too large")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unusable(key, text, depth)
            _refuse_unusable(item, text, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_unusable(item, text, depth - 1)


def _refuse_undecodable(text: str) -> None:
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise NotJson(text, position, "a byte that is not UTF-8")


def _complaint(text: str, problem: json.JSONDecodeError) -> NotJson:
    """The decoder's complaint in terms of what people really type."""
    position, message = problem.pos, problem.msg
    if message.startswith("Unterminated string"):
        curly = next((index for index in range(position, len(text)) if text[index] in _CURLY), None)
        if curly is None:
            return NotJson(text, position, "a quote that is never closed")
        position = curly
    if position >= len(text.rstrip(BLANKS)):
        return NotJson(text, position, "the text ends too early: a bracket or a quote is not closed")
    comma = _trailing_comma(text, position)
    if comma is not None:
        return NotJson(text, comma, "a trailing comma", "Remove it")
    reason, todo = _about(text, position)
    return NotJson(text, position, reason or _expectation(message, text[position]), todo)


def _trailing_comma(text: str, position: int) -> int | None:
    """Where the comma before a closing bracket stands, when the decoder stopped at either."""
    if text[position] in "}]":
        before = text[:position].rstrip(BLANKS)
        return len(before) - 1 if before.endswith(",") else None
    if text[position] == "," and text[position + 1 :].lstrip(BLANKS)[:1] in ("", "}", "]"):
        return position
    return None


def _about(text: str, position: int) -> tuple[str, str]:
    """What to say about the character where the decoder stopped; empty when it says nothing by itself."""
    character = text[position]
    if character in _CURLY:
        return f"a curly quote, {_named(character)}", 'Use straight double quotes (")'
    if character in _NAMES or (character.isspace() and character not in BLANKS):
        return f"an invisible character, {_named(character)}", "Remove it, or use an ordinary space"
    if character == "'":
        return "a single quote where JSON wants a double one", 'Use double quotes (")'
    if character == "{" and text[:position].rstrip(BLANKS).endswith("{"):
        return "a doubled brace", "Write single braces, or fill in the template"
    if character == "$":
        return "what looks like an unexpanded variable", "Write its value"
    for word in ("True", "False", "None"):
        if text.startswith(word, position):
            return f"{word} is Python", "Write true, false or null"
    if character == "#" or text.startswith(("//", "/*"), position):
        return "a comment, which JSON does not have", "Remove it"
    return "", ""


def _expectation(message: str, character: str) -> str:
    expected = message.replace("Expecting", "expected", 1).replace("Extra data", "expected nothing more", 1)
    return f"{expected[:1].lower()}{expected[1:]}, found {_named(character)}"


def _named(character: str) -> str:
    """A character as it looks, if it can be seen, and as Unicode calls it, unless it is ASCII."""
    if character.isascii():
        return repr(character)
    from unicodedata import name

    title = _NAMES.get(character) or name(character, "unnamed").lower()
    shown = f"{character} " if character.isprintable() else ""
    return f"{shown}U+{ord(character):04X} ({title})"


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else " " if character == "\t" else "·" for character in text)
