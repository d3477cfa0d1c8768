"""How many connections at once (pure): as many as still make the whole faster.

Large files: twice as many are tried while the threads mostly wait for data, and kept while the total rate grows by a
good part; a single connection is often capped by the store, and only a measurement tells.  Small files: what counts is
how long an answer takes to begin.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST = 4
MOST_FOR_SMALL = 32

_WINDOW = 0.3  # seconds of one measurement; longer where answers begin late
_WORTH = 1.3  # growth of the rate that justifies doubling
_FIRST_REST, _LONGEST_REST = 1.0, 30.0  # seconds after a trial that brought nothing; doubled from one to the next
_STRAINED = 0.6  # share of the threads' time without waiting from which on more of them would not help


class Pace:
    """The number of connections for large files (`limit`), and for small ones (`small_limit`)."""

    def __init__(self, most: int) -> None:
        self.limit = min(FIRST, most)
        self._most = most
        self._delay = 0.0  # seconds until an answer begins, smoothed
        self._before: tuple[int, float] | None = None  # limit and rate before the trial that is going on
        self._since: tuple[float, int] | None = None  # time and bytes at the start of the measurement
        self._rest = _FIRST_REST
        self._rests_until = 0.0

    @property
    def small_limit(self) -> int:
        """One connection more for each millisecond that an answer takes to begin, above the first."""
        wanted = FIRST + int(max(0.0, self._delay - 0.001) * 1000)
        return min(wanted, MOST_FOR_SMALL, max(2 * self._most, 1))

    def replied(self, seconds: float) -> None:
        """An answer took ``seconds`` to begin."""
        self._delay += (seconds - self._delay) / 8

    def slow_down(self) -> None:
        """The server asked for fewer requests."""
        self.limit = max(1, self.limit // 2)
        self._most = max(1, self._most // 2)
        self._before = self._since = None

    def observe(self, now: float, total: int, busy: int, strain: Callable[[], float]) -> None:
        """``total`` bytes have come by ``now`` (seconds); ``busy`` connections work.  Adapts `limit`.

        ``strain`` gives the share of their time, since it was last asked, in which the threads were not waiting.
        """
        if self._since is None or busy < self.limit:
            self._since = (now, total)
            strain()
            return
        elapsed = now - self._since[0]
        if elapsed < max(_WINDOW, 4 * self._delay):
            return
        rate, strained = (total - self._since[1]) / elapsed, strain() > _STRAINED
        self._since = (now, total)
        if self._before is not None and rate < self._before[1] * _WORTH:
            self.limit, self._before = self._before[0], None
            self._rests_until = now + self._rest
            self._rest = min(_LONGEST_REST, 2 * self._rest)
        elif self.limit < self._most and now >= self._rests_until and not strained:
            self._before = (self.limit, rate)
            self.limit = min(self._most, 2 * self.limit)
        else:
            self._before = None
