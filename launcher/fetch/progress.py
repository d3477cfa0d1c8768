"""How far a download is: a bar on a terminal, otherwise a line every few seconds; target and draft apart.

Nothing here may hold up the download: what a full pipe or a stopped terminal does not take at once is left out.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

from launcher import logs

_EVERY = 5.0  # seconds between two lines
_REDRAW = 0.25  # seconds between two states of the bar
_OBSERVED = 0.5  # seconds between two reports to an observer
_MEMORY = 15.0  # seconds over which the rate is taken
_BAR = 20  # characters
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Progress:
    """Shows one download at a time.

    ``bar``: draw over one line; None means on a terminal.  Log records that are lines of JSON leave no room for one.
    ``observer`` is told the bytes in all and the bytes that are there, by label, several times a second.
    """

    def __init__(
        self,
        jsonl: bool = False,
        bar: bool | None = None,
        every: float = _EVERY,
        observer: Callable[[Mapping[str, int], Mapping[str, int]], None] | None = None,
    ) -> None:
        self.blamed = ""  # the label of the job that ended the download
        self._bar = not jsonl and (_is_terminal() if bar is None else bar)
        self._every = _REDRAW if self._bar else every
        self._observer = observer
        self._observed = 0.0
        self._totals: dict[str, int] = {}
        self._history: deque[tuple[float, int]] = deque()
        self._began = 0.0
        self._at_first = 0
        self._shown = 0.0
        self._drawn = False

    def begin(self, totals: Mapping[str, int], present: Mapping[str, int]) -> None:
        """``totals`` and ``present`` are bytes by label; what is present was left by an earlier download."""
        self._totals = dict(totals)
        self._began = self._shown = time.monotonic()
        self._at_first = sum(present.values())
        self._history = deque([(self._began, self._at_first)])
        if self._observer is not None:
            self._observer(self._totals, present)
        if self._at_first:
            logs.info(f"an earlier attempt left {self._states(present)}")

    def show(self, state: Callable[[], Mapping[str, int]], now: float) -> None:
        """Draw or write when it is time to; ``state`` is asked then for the bytes that are there."""
        if self._observer is not None and now - self._observed >= _OBSERVED:
            self._observed = now
            self._observer(self._totals, state())
        if now - self._shown < self._every:
            return
        self._shown = now
        present = state()
        done = sum(present.values())
        self._history.append((now, done))
        while len(self._history) > 2 and now - self._history[0][0] > _MEMORY:
            self._history.popleft()
        since, before = self._history[0]
        rate = max(0.0, (done - before) / (now - since)) if now > since else 0.0
        if self._bar:
            self._draw(present, rate)
        elif _takes_a_line():
            logs.info(f"fetched {self._states(present)}{_pace(sum(self._totals.values()) - done, rate)}")

    def end(self, present: Mapping[str, int]) -> None:
        """Everything is there."""
        self._erase()
        if self._observer is not None:
            self._observer(self._totals, self._totals)
        seconds = max(time.monotonic() - self._began, 0.001)
        come = sum(present.values()) - self._at_first
        if sum(self._totals.values()) and _takes_a_line():
            logs.info(f"fetched {readable(come)} in {seconds:.1f} s ({readable(come / seconds)}/s)")

    def stop(self) -> None:
        """The download has ended in another way."""
        self._erase()

    def _states(self, present: Mapping[str, int]) -> str:
        return "; ".join(
            f"{label} {readable(present[label])} of {readable(total)} ({percent(present[label], total)} %)"
            for label, total in sorted(self._totals.items(), reverse=True)
        )

    def _draw(self, present: Mapping[str, int], rate: float) -> None:
        fields = []
        for label, total in sorted(self._totals.items(), reverse=True):
            full = _BAR * percent(present[label], total) // 100
            fields.append(f"{label} [{'#' * full}{'.' * (_BAR - full)}] {percent(present[label], total):3d} %")
        left = sum(self._totals.values()) - sum(present.values())
        _put(f"\r{'  '.join(fields)}{_pace(left, rate)}\x1b[K")
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            _put("\r\x1b[K")
            self._drawn = False


def readable(number: float) -> str:
    """Bytes with three digits and a decimal unit."""
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    digits = 0 if unit == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f} {_UNITS[unit]}"


def counted(number: int, noun: str = "file") -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(part: int, whole: int) -> int:
    """Whole percents; 100 only for everything."""
    return 100 * part // whole if whole else 100


def clock(seconds: float) -> str:
    """A duration as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _pace(left: int, rate: float) -> str:
    if rate < 1:
        return ", waiting" if left else ""
    return f", {readable(rate)}/s, {clock(left / rate)} left"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
    except (AttributeError, ValueError):
        return False


def _takes_a_line() -> bool:
    """Whether stderr takes a line without making us wait; a pipe says so as long as a page of it is free."""
    try:
        poll = select.poll()
        poll.register(sys.stderr.fileno(), select.POLLOUT)
        return any(events & select.POLLOUT for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return True


def _put(text: str) -> None:
    if _takes_a_line():
        try:
            os.write(sys.stderr.fileno(), text.encode())
        except (AttributeError, OSError, ValueError):
            return
