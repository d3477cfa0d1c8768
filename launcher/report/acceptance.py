"""Acceptance, from what an engine counts: the formulas and nothing else (pure).

A target verifies the tokens of a draft in one step, which yields one token of its own besides the accepted ones.
So with ``accepted``, ``proposed`` (draft tokens) and ``drafts`` (steps that verified a draft):

* acceptance rate = accepted / proposed
* mean acceptance length = 1 + accepted / drafts, in tokens for each step, at most the draft's length + 1
* rate at position i = accepted at i / drafts: never rises with i, as a token counts only where all before it do
* conditional rate at i = accepted at i / accepted at i - 1: how good the draft is once it got that far
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from launcher.typing import NamedTuple


class Counts(NamedTuple):
    """What drafting amounted to, over some time.  Tokens, but for ``drafts``, which are verification steps."""

    drafts: float | None  # None: the engine does not say
    proposed: float
    accepted: float
    by_position: tuple[float, ...] = ()  # accepted at the first, second, … position; empty: the engine does not say

    def since(self, earlier: Counts) -> Counts:
        """What came after ``earlier``, a count of the same server."""
        return Counts(
            None if self.drafts is None or earlier.drafts is None else self.drafts - earlier.drafts,
            self.proposed - earlier.proposed,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in zip_longest(self.by_position, earlier.by_position, fillvalue=0.0)),
        )

    @property
    def falls(self) -> bool:
        """Whether a difference of two counts cannot be one: the server was started again in between."""
        return min(self.drafts or 0.0, self.proposed, self.accepted, *self.by_position) < 0


class Acceptance(NamedTuple):
    """The figures.  None: nothing was drafted, or the engine does not say."""

    rate: float | None
    length: float | None
    positions: tuple[float, ...] = ()
    counts: Counts | None = None  # None: the engine states ratios only, and sums cannot be made of them

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """The rate at each position among the drafts that were accepted up to it."""
        before = (1.0, *self.positions)
        return tuple(now / then if then else None for now, then in zip(self.positions, before, strict=False))


def of(counts: Counts, stated: Acceptance | None = None) -> Acceptance:
    """The figures of ``counts``; what they do not tell is taken from those that the engine itself stated."""
    rate = counts.accepted / counts.proposed if counts.proposed else None
    length = 1 + counts.accepted / counts.drafts if counts.drafts else None
    positions = tuple(accepted / counts.drafts for accepted in counts.by_position) if counts.drafts else ()
    if stated is not None:
        return Acceptance(stated.rate if rate is None else rate, stated.length if length is None else length,
                          positions, counts)  # fmt: skip
    return Acceptance(rate, length, positions, counts)


def summed(counts: Iterable[Counts]) -> Counts:
    """The counts of several runs or servers as one: ratios of sums, not means of ratios."""
    items = list(counts)
    known = [item.drafts for item in items if item.drafts is not None]
    return Counts(
        sum(known) if len(known) == len(items) else None,
        sum(item.proposed for item in items),
        sum(item.accepted for item in items),
        tuple(map(sum, zip_longest(*(item.by_position for item in items), fillvalue=0.0))),
    )
