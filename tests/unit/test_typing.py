"""The package's own NamedTuple does what the one of `typing` does, which type checkers take it for."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

import launcher.typing


class Pair(launcher.typing.NamedTuple):
    left: int
    right: str = "r"


class Standard(typing.NamedTuple):
    left: int
    right: str = "r"


def test_it_is_made_as_the_standard_one_is() -> None:
    assert tuple(Pair(1)) == tuple(Standard(1)) == (1, "r")
    assert Pair(1, "x") == Pair(right="x", left=1) == Pair(1, right="x") == (1, "x")
    assert (Pair(1).left, Pair(1).right) == (1, "r")
    assert Pair._fields == Standard._fields == ("left", "right")
    assert Pair._make([2, "y"]) == Pair(2, "y")


@pytest.mark.parametrize(
    ("given", "named"),
    [((), {}), ((1, "x", 2), {}), ((1,), {"left": 2}), ((1,), {"middle": 2}), ((), {"right": "x"})],
    ids=["nothing", "too many", "twice", "unknown", "missing"],
)
def test_it_refuses_what_the_standard_one_refuses(given: tuple[typing.Any, ...], named: dict[str, typing.Any]) -> None:
    with pytest.raises(TypeError):
        Standard(*given, **named)
    with pytest.raises(TypeError, match="Pair takes left, right"):
        Pair(*given, **named)


def test_it_changes_and_shows_itself_as_the_standard_one_does() -> None:
    pair = Pair(1)
    assert type(pair._replace(right="x")) is Pair
    assert pair._replace(right="x") == (1, "x")
    assert pair._asdict() == Standard(1)._asdict() == {"left": 1, "right": "r"}
    assert repr(pair) == "Pair(left=1, right='r')"
    assert hash(pair) == hash(Standard(1))
    with pytest.raises(TypeError):
        pair._replace(middle=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        pair.left = 2  # type: ignore[misc]


def test_it_travels() -> None:
    pair = Pair(1, "x")
    for there in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert (type(there), there) == (Pair, pair)


def test_it_matches() -> None:
    match Pair(1, "x"):
        case Pair(left, right):
            assert (left, right) == (1, "x")
