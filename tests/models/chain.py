"""The language that every embedded checkpoint speaks, and the two matrices that make a network speak it.

A network whose blocks add nothing to the residual stream computes ``next = argmax(lm_head · norm(embed[token]))``: the
next token depends on the last one alone.  Here that function is chosen, so a test can state the text before the server
runs, and a draft that reproduces it is accepted always.

There are as many states as hidden dimensions.  State 0 is shared by every token outside the recited text; the others
are the characters of the text in order and the end-of-sequence token.  A state's code is a row of the Hadamard matrix:
its entries are ±1, so the norm leaves it as it is, and two rows are orthogonal, so the right logit is ``HIDDEN / 2``
and every other is exactly 0.  The margin is wide enough for sampling at temperature 1 to follow the chain as well.
"""

from __future__ import annotations

import string
from functools import cache

from tests.models.tensors import Tensor, matrix

TEXT = string.ascii_letters + string.digits
BOS, EOS, PAD = 256, 257, 258  # after the 256 bytes, which are their own ids
VOCAB = 320  # the next multiple of 64, to which engines pad anyway
HIDDEN = 64

CYCLE: tuple[int, ...] = (*TEXT.encode(), EOS)  # after EOS the text begins again
_STATE: dict[int, int] = {token: number for number, token in enumerate(CYCLE, start=1)}


def successor(token: int) -> int:
    """What follows a token: the next of the cycle, or its beginning for a token outside."""
    return CYCLE[_STATE.get(token, 0) % len(CYCLE)]


def continuation(token: int, count: int) -> list[int]:
    """The ``count`` tokens that follow ``token`` under greedy decoding."""
    tokens = []
    for _ in range(count):
        token = successor(token)
        tokens.append(token)
    return tokens


def code(state: int) -> list[float]:
    """Row ``state`` of the Hadamard matrix.  Its first entry is 1 in every row."""
    return [1.0 - 2.0 * ((state & column).bit_count() % 2) for column in range(HIDDEN)]


@cache
def embedding(vocab: int = VOCAB) -> Tensor:
    """Token -> code of its state."""
    return matrix([code(_STATE.get(token, 0)) for token in range(vocab)])


@cache
def advance(steps: int) -> Tensor:
    """The matrix that takes the code of a token of the cycle to the code ``steps`` later, and state 0 to nothing."""
    rows = [[0.0] * HIDDEN for _ in range(HIDDEN)]
    for number in range(len(CYCLE)):
        before = code(number + 1)
        after = code((number + steps) % len(CYCLE) + 1)
        for row, value in zip(rows, after, strict=True):
            for column, other in enumerate(before):
                row[column] += value * other / HIDDEN
    return matrix(rows)


@cache
def head(tokens: tuple[int, ...] = tuple(range(VOCAB)), ahead: int = 1) -> Tensor:
    """lm_head over ``tokens``: a token's row adds up the codes of the states from which it is ``ahead`` steps away."""
    rows = []
    for token in tokens:
        row = [0.0] * HIDDEN
        for state in range(HIDDEN):
            start = CYCLE[state - 1] if state else BOS
            if continuation(start, ahead)[-1] == token:
                row = [total + value / 2 for total, value in zip(row, code(state), strict=True)]
        rows.append(row)
    return matrix(rows)
