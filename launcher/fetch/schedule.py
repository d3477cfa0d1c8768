"""Who fetches what next.

Small files come first: they want more connections than the network's rate needs.  Of large files each thread streams
one while there are enough of them; threads that are left over help with ranges of the files that others have begun.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence

from launcher.fetch.incoming import Incoming
from launcher.fetch.pace import Pace
from launcher.fetch.retry import Hindrance, Refused, is_hopeless, wait_before
from launcher.fetch.spans import CHUNK, Span
from launcher.typing import NamedTuple

_LONG = 8 * CHUNK  # bytes of one request while there are enough files for all threads
_IDLE = 0.5  # seconds after which a waiting thread looks again by itself


class Task(NamedTuple):
    """A span of a file, to be fetched by one thread."""

    incoming: Incoming
    span: Span


class Schedule:
    """The work of one download, shared by its threads."""

    def __init__(self, files: Sequence[Incoming], pace: Pace, retries: int) -> None:
        self.pace = pace
        self.error: BaseException | None = None  # what ended the download
        self.blamed = ""  # the label of the file that failed
        self.stopped = False
        self.busy = 0  # threads that have a task
        self._retries = retries
        self._failing: dict[Incoming, float] = {}  # since when, on time.monotonic()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._unsettled = len(files)
        self._small = deque(file for file in files if file.is_small and not file.is_complete)
        self._large = [file for file in files if not file.is_small and not file.is_complete]
        self._pause_until = 0.0
        self._due = math.inf  # when the next file that failed may be tried again
        if not files:
            self._over.set()

    def wait(self, seconds: float) -> bool:
        """Whether everything is done, or has failed, within ``seconds``."""
        return self._over.wait(seconds)

    @property
    def small_left(self) -> bool:
        """Whether small files are still to be fetched."""
        return bool(self._small)

    @property
    def limit(self) -> int:
        """How many threads may work now."""
        return max(self.pace.limit, self.pace.small_limit) if self._small else self.pace.limit

    def next(self, last: Incoming | None) -> Task | None:
        """Wait for something to fetch; None when there will be nothing more.  ``last``: what this thread did before."""
        with self._changed:
            while not self.stopped and self._unsettled:
                now = time.monotonic()
                if self.busy < self.limit and now >= self._pause_until:
                    task = self._pick(now, last)
                    if task is not None:
                        task.incoming.active += 1
                        self.busy += 1
                        return task
                self._changed.wait(self._time_to_look_again(now))
        return None

    def done(self, task: Task) -> None:
        """The span is there, or was given up without a failure."""
        with self._changed:
            self._put_back(task)

    def failed(self, task: Task, hindrance: Hindrance) -> None:
        """Try the span again later; raises the error that it has become when there were too many failures."""
        incoming = task.incoming
        with self._changed:
            self._put_back(task)
            if isinstance(hindrance, Refused):  # a new location is asked for, at once
                return
            now = time.monotonic()
            if incoming.got_somewhere() or not incoming.failures:
                incoming.failures = 0
                self._failing[incoming] = now
            incoming.failures += 1
            since = now - self._failing.get(incoming, now)
            if is_hopeless(hindrance.error, incoming.failures, since, self._retries):
                raise hindrance.error
            incoming.not_before = now + wait_before(incoming.failures, hindrance.wait)
            self._due = min(self._due, incoming.not_before)
            if hindrance.crowded:
                self.pace.slow_down()
                self._pause_until = max(self._pause_until, now + (hindrance.wait or 0.0))

    def again(self, incoming: Incoming) -> None:
        """A file that was complete has to be fetched anew."""
        with self._changed:
            if incoming.is_small:
                self._small.append(incoming)
            elif incoming not in self._large:
                self._large.append(incoming)
            self._changed.notify_all()

    def settled(self, count: int) -> None:
        """So many files are complete, verified and flushed."""
        with self._changed:
            self._unsettled -= count
            if not self._unsettled:
                self._over.set()
                self._changed.notify_all()

    def give_up(self, error: BaseException, label: str = "") -> None:
        """End the download; the first error is the one that counts."""
        with self._changed:
            if self.error is None:
                self.error, self.blamed = error, label
            self.stop()

    def stop(self) -> None:
        """Nothing is handed out any more.  Takes no lock: a signal may have come at any point."""
        self.stopped = True
        self._over.set()

    def _time_to_look_again(self, now: float) -> float:
        """Seconds for which a thread without work may sleep."""
        if self._due <= now:
            self._due = math.inf
        return max(0.001, min(_IDLE, self._due - now))

    def _put_back(self, task: Task) -> None:
        incoming = task.incoming
        incoming.release(task.span)
        incoming.active -= 1
        self.busy -= 1
        if incoming.is_small and not incoming.is_complete:
            self._small.append(incoming)
        self._changed.notify()

    def _pick(self, now: float, last: Incoming | None) -> Task | None:
        for _ in range(len(self._small)):
            incoming = self._small.popleft()
            span = incoming.take(incoming.file.size) if incoming.not_before <= now else None
            if span is not None:
                return Task(incoming, span)
            self._small.append(incoming)
        if self.busy >= self.pace.limit:
            return None
        self._large = [file for file in self._large if not file.is_complete or file.spoiled]
        most = _LONG if len(self._large) >= self.pace.limit else CHUNK
        for incoming in sorted(self._large, key=lambda file: _rank(file, last)):
            span = incoming.take(most) if incoming.not_before <= now else None
            if span is not None:
                return Task(incoming, span)
        return None


def _rank(file: Incoming, last: Incoming | None) -> tuple[int, int]:
    """One's own file, then one that nobody fetches, then the one with the most left for each that fetches it."""
    if file is last and file.active == 0:
        return (0, 0)
    if file.active == 0:
        return (1, 0)
    return (2, -(file.file.size - file.present) // file.active)
