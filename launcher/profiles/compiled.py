"""The compiled profiles, read as little as a start needs: the index, then the line of one model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from launcher.profiles.values import Profile, canonical_source, from_document
from launcher.typing import Any, NamedTuple

FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "profiles.json")
FORMAT = 1


class Store(NamedTuple):
    """Compiled models.  ``text`` holds their lines, ``lines`` where each begins and how long it is."""

    sources: Mapping[str, int]
    shapes: Mapping[str, list[int]]
    lines: tuple[tuple[int, int], ...]
    text: str
    generic: Mapping[str, str]  # description -> id of the usual generic profiles: digests take long to import

    def document(self, number: int) -> dict[str, Any]:
        """Everything that is known of one model, as it was compiled."""
        start, length = self.lines[number]
        found: dict[str, Any] = json.loads(self.text[start : start + length])
        return found

    def model(self, number: int) -> tuple[Profile, ...]:
        """The profiles of one model."""
        return from_document(self.document(number))

    def of_source(self, source: str) -> tuple[Profile, ...]:
        """The profiles of the model that ``source`` (such as "hf://org/model") is; none if it is no known one."""
        number = self.sources.get(canonical_source(source))
        return () if number is None else self.model(number)

    def of_shape(self, key: str | None) -> tuple[tuple[Profile, ...], ...]:
        """The models of one class and size (`launcher.profiles.compile.shape`)."""
        return tuple([self.model(number) for number in self.shapes.get(key or "", ())])

    def all(self) -> tuple[Profile, ...]:
        """Every profile, by model."""
        return tuple([profile for number in range(len(self.lines)) for profile in self.model(number)])


EMPTY = Store({}, {}, (), "", {})


def load(path: str = FILE) -> Store | None:
    """The profiles of this installation, or None when it has none of its own: a source tree before ``make setup``."""
    try:
        with open(path, encoding="ascii") as stream:
            return from_text(stream.read())
    except (OSError, ValueError, KeyError):  # made by another version of the source tree
        return None


def from_text(text: str) -> Store:
    """A store from the content of a compiled file."""
    _, first, rest = text.split("\n", 2)
    index: Mapping[str, Any] = json.loads(first.rstrip(","))
    return Store(index["sources"], index["shapes"], tuple([(a, b) for a, b in index["lines"]]), rest, index["generic"])
