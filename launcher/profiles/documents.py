"""Profile files as people write them: YAML, decoded strictly.  Imported only where a file is really read.

Every mistake is one sentence with the file, the line, the key and what is allowed there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from stat import S_ISDIR, S_ISREG

import msgspec
import yaml

from launcher.errors import ConfigurationError, NotFoundError, shortened
from launcher.profiles.schema import Document
from launcher.settings.hints import listed, nearest
from launcher.typing import Any, NamedTuple

Path = tuple[str | int, ...]
MOST_BYTES = 1_000_000
_DEEPEST = 50  # levels of nesting: the schema has eight
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_TRUE = ("true", "yes", "on")
_NUMBERS = {"int": int, "float": float}
_TAG = "tag:yaml.org,2002:"


class Written(NamedTuple):
    """A profile file, and the line of each of its keys."""

    document: Document
    path: str
    lines: Mapping[Path, int]

    def refusal(self, place: Path, what: str, todo: str) -> ConfigurationError:
        """What is wrong at ``place`` although the schema allows it, with the file and the line."""
        return ConfigurationError(f"{self.path}:{_line(self.lines, place)}: {what}", todo)


def read_document(path: str) -> Written:
    """The profile file at ``path``.

    Raises NotFoundError when it is not there and ConfigurationError for whatever is wrong in it.
    """
    try:
        found = os.stat(path)
        if not S_ISREG(found.st_mode):
            kind = "it is a folder" if S_ISDIR(found.st_mode) else "it is no regular file"
            raise ConfigurationError(f"the profile file {path} cannot be read: {kind}", "Give another name to it")
        if found.st_size > MOST_BYTES:
            what = f"the profile file {path} has {found.st_size} bytes, and a family takes a few thousand"
            raise ConfigurationError(what, f"Divide it: a file may have {MOST_BYTES}")
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except FileNotFoundError:
        raise NotFoundError(f"there is no profile file {path}", "Check the path and the mount") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigurationError(f"the profile file {path} cannot be read: {reason}", "Check the file") from None
    return parse_document(text, path)


def parse_document(text: str, path: str) -> Written:
    """The profile file whose content is ``text``.  Raises ConfigurationError; ``path`` is for its messages."""
    reading = _Reading(path)
    plain = reading.plain(text)
    try:
        return Written(msgspec.convert(plain, Document), path, reading.lines)
    except msgspec.ValidationError as error:
        raise reading.explained(str(error), plain) from None


class _Loader(yaml.SafeLoader):
    """A YAML reader without aliases: a profile is read by people, and says each thing where it belongs."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (*name) stands here", mark)
        if self.depth == _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"more than {_DEEPEST} levels", mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


class _Reading:
    """One file: its plain values, and the line of each key."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: dict[Path, int] = {}

    def refusal(self, line: int, what: str, todo: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path}:{line}: {what}", todo)

    def plain(self, text: str) -> Any:
        """The file's content as plain values."""
        for number, line in enumerate(text.splitlines(), 1):
            if "\t" in line[: len(line) - len(line.lstrip())]:
                raise self.refusal(number, "a tab indents this line", "Indent with spaces: YAML allows no tabs")
        try:
            node = _Loader(text).get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or error.context or "unreadable"
            raise self.refusal(mark.line + 1 if mark else 1, f"no valid YAML: {problem}", "Correct the line") from None
        except yaml.YAMLError as error:
            raise self.refusal(1, f"no valid YAML: {str(error).splitlines()[0]}", "Correct the file") from None
        if node is None:
            raise self.refusal(1, "the file is empty", "Write a profile, or remove the file")
        return self._value(node, ())

    def _value(self, node: yaml.Node, place: Path) -> Any:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, place))
        if isinstance(node, yaml.SequenceNode):
            return [self._value(entry, (*place, position)) for position, entry in enumerate(node.value)]
        return self._scalar(node)

    def _pairs(self, node: yaml.MappingNode, place: Path) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key, str) or key_node.tag == f"{_TAG}merge":
                raise self.refusal(line, "a key that is no plain word", "Write each key as one word")
            if key in seen:
                what = f"the key {key} stands here and on line {seen[key]}"
                raise self.refusal(line, what, "Keep one of the two")
            seen[key] = line
            self.lines[(*place, key)] = line
            yield key, self._value(value_node, (*place, key))

    def _scalar(self, node: yaml.Node) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind == "null":
            return None
        if kind == "bool":
            return node.value.lower() in _TRUE
        if kind in _NUMBERS:
            try:
                return _NUMBERS[kind](node.value.replace("_", ""))
            except ValueError:
                return node.value  # a notation of YAML's own (0x1f, 1:30): the schema says what belongs here
        return node.value  # dates too: they are texts here

    # What the schema says of it ------------------------------------------------------------------------------------

    def explained(self, message: str, plain: Any) -> ConfigurationError:
        """A message of the schema's, with the line, the key and what is allowed."""
        what, _, where = message.partition(" - at ")
        place: list[str | int] = []
        kind: msgspec.inspect.Type = msgspec.inspect.type_info(Document)
        for step in _STEP.finditer(where.strip("`")[1:]):
            word: str | int = step[1] if step[1] is not None else int(step[2] or 0)
            place.append(word)
            kind = _below(kind, word)
        unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what)
        missing = re.fullmatch(r"Object missing required field `(.*)`", what)
        name = _dotted(place)
        if unknown:
            return self._unknown(tuple(place), unknown[1], _keys(kind))
        line = self._line(tuple(place))
        if missing:
            todo = f"Add it; {name or 'the file'} takes {listed(_keys(kind))}"
            return self.refusal(line, f"{name or 'the file'} has no {missing[1]}", todo)
        value = shortened(repr(_found(plain, place)), 60)
        return self.refusal(line, f"{name or 'the file'} is {value}", f"It takes {_allowed(kind, what)}")

    def _unknown(self, place: Path, key: str, known: tuple[str, ...]) -> ConfigurationError:
        near = nearest(key, known)
        hint = f"Did you mean {near}? " if near else ""
        where = _dotted(place) or "a profile file"
        return self.refusal(self._line((*place, key)), f"{where} takes no key {key}", f"{hint}It takes {listed(known)}")

    def _line(self, place: Path) -> int:
        return _line(self.lines, place)


def _line(lines: Mapping[Path, int], place: Path) -> int:
    """The line of a key, or of what it stands in."""
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _dotted(place: list[str | int] | Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


def _found(plain: Any, place: list[str | int]) -> Any:
    for step in place:
        if isinstance(plain, Mapping) and step not in plain:
            break
        plain = plain[step]
    return plain


def _kinds(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """A type's alternatives, without what only describes it."""
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from _kinds(one)
    else:
        yield kind


def _below(kind: msgspec.inspect.Type, step: str | int) -> msgspec.inspect.Type:
    """The type under a key or in a list."""
    for one in _kinds(kind):
        if isinstance(one, msgspec.inspect.StructType) and isinstance(step, str):
            for field in one.fields:
                if field.encode_name == step:
                    return field.type
        if isinstance(one, msgspec.inspect.VarTupleType):
            return one.item_type
        if isinstance(one, msgspec.inspect.DictType):
            return one.value_type
    return msgspec.inspect.AnyType()


def _keys(kind: msgspec.inspect.Type) -> tuple[str, ...]:
    structs = (one for one in _kinds(kind) if isinstance(one, msgspec.inspect.StructType))
    return tuple(field.encode_name for struct in structs for field in struct.fields)


_WORDS: tuple[tuple[type[msgspec.inspect.Type], str], ...] = (
    (msgspec.inspect.StructType, "a mapping"),
    (msgspec.inspect.DictType, "a mapping"),
    (msgspec.inspect.VarTupleType, "a list"),
    (msgspec.inspect.NoneType, "null"),
    (msgspec.inspect.AnyType, "any value"),
)


def _allowed(kind: msgspec.inspect.Type, said: str) -> str:
    """What belongs in a place, in words."""
    words: list[str] = []
    bound = re.search(r"(>=?|<=?) (\S+)$", said)
    limit = f" {bound[1]} {float(bound[2]):g}" if bound and "length" not in said else ""
    for one in _kinds(kind):
        if isinstance(one, msgspec.inspect.LiteralType):
            words += [str(value) for value in one.values]
        elif isinstance(one, msgspec.inspect.StrType):
            words.append(f"a text such as {_SUCH.get(one.pattern or '', 'some words')}")
        elif isinstance(one, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            words.append(("a whole number" if isinstance(one, msgspec.inspect.IntType) else "a number") + limit)
        else:
            words += [word for form, word in _WORDS if isinstance(one, form)]
    length = re.search(r"of length (>= \d+)$", said)
    return listed(words) + (f" of length {length[1]}" if length else "")


# An example of each pattern of the schema.
_SUCH = {
    r"^[a-z0-9][a-z0-9._-]*$": "qwen3-8b",
    r"^\d{4}-\d{2}-\d{2}$": "2026-08-21",
    r"^https://\S+$": "https://host/page",
    r"^((hf|modelscope|ngc|s3|gs):/)?/\S+$": "hf://org/model",
    r"^[0-9a-f]{40}$": "a commit of 40 hexadecimal digits",
    r"^\d+\.\d+$": "'9.0'",
}
