"""The one transfer engine: fetch files, whatever their scheme, so that each is complete and verified, or say why not.

Interrupted downloads resume from their parts, in this process or a later one.  Memory does not grow with the files:
every thread has one buffer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from launcher.fetch.behind import Behind
from launcher.fetch.channel import Route, route
from launcher.fetch.fetching import Fetcher
from launcher.fetch.incoming import Incoming, Job
from launcher.fetch.pace import Pace
from launcher.fetch.progress import Progress
from launcher.fetch.schedule import Schedule
from launcher.fetch.strain import Strain
from launcher.typing import NamedTuple

__all__ = ["Job", "Options", "download"]

_LEAST_RATE = 1024  # bytes per second; a connection that brings less is given up, for a new one may be better
_TICK = 0.1  # seconds between two looks at the threads
_PARTING = 1.5  # seconds that the threads get to end after a signal; what is left ends with the process


class Options(NamedTuple):
    """How to transfer."""

    connections: int = 16  # the most at once for large files; small ones may take twice as many, up to 32
    verify: str = "digest"  # or "size": digests are not computed
    stall: float = 30.0  # seconds without a byte, or with less than a crawl, after which a connection is given up
    # Attempts in a row for one file that bring next to nothing, before it is an error; more while the network fails for
    # less than `retry.PATIENCE`.
    retries: int = 5
    environ: Mapping[str, str] = {}  # for proxies and certificate authorities


def download(
    jobs: Sequence[Job], options: Options, progress: Progress, finished: Callable[[Job], None] | None = None
) -> None:
    """Fetch every job's file into its part: complete, verified and flushed to disk when this returns.

    ``finished`` is called for each job as soon as that is so, from other threads; it may rename the part and remove the
    record.  Raises NetworkError after bounded retries, DeniedError, NotFoundError, NoSpaceError, IntegrityError (also
    for an object that changed meanwhile), ConfigurationError for unusable certificates or proxies.  The first error
    ends everything, and ``progress.blamed`` is the label of the job that it came from; what has arrived is kept for the
    next call.  What a signal raises in the calling thread ends all connections and passes on within two seconds.
    """
    files = [Incoming(job, options.verify == "digest") for job in jobs]
    _Transfer(files, options, progress, route(options.environ, options.stall), finished or _ignore).run()


class _Look(NamedTuple):
    """What one thread had done at a moment."""

    time: float  # on time.monotonic()
    received: int  # bytes
    task: int
    begun: int  # bytes at the start of its task


class _Transfer:
    """One download: the threads, and the loop that watches them."""

    def __init__(
        self,
        files: list[Incoming],
        options: Options,
        progress: Progress,
        way: Route,
        finished: Callable[[Job], None],
    ) -> None:
        self._files = files
        self._options = options
        self._progress = progress
        self._route = way
        self._pace = Pace(options.connections)
        self._strain = Strain()
        self._schedule = Schedule(files, self._pace, options.retries)
        self._behind = Behind(self._schedule, finished)
        self._fetchers: list[Fetcher] = []
        self._looks: dict[Fetcher, _Look] = {}

    def run(self) -> None:
        progress, schedule = self._progress, self._schedule
        progress.begin(self._totals(), self._present())
        try:
            self._tend_all()
            self._behind.start()
            self._watch(time.monotonic())
            while not schedule.wait(_TICK):
                self._watch(time.monotonic())
        finally:
            self._end()
            progress.stop()
        if schedule.error is not None:
            progress.blamed = schedule.blamed
            raise schedule.error
        progress.end(self._present())

    def _watch(self, now: float) -> None:
        """Enough threads, none of them stuck; progress is shown."""
        options, schedule = self._options, self._schedule
        while len(self._fetchers) < min(schedule.limit, len(self._files) + options.connections):
            self._fetchers.append(Fetcher(schedule, self._behind, self._route))
            self._fetchers[-1].thread.start()
        for fetcher in self._fetchers:
            if self._crawls(fetcher, now):
                fetcher.channel.interrupt()
        if not schedule.busy:
            # Whoever completes a file sees to it that it is tended; should that be missed, nothing else would move.
            self._tend_all()
        received = sum(fetcher.received for fetcher in self._fetchers)
        self._pace.observe(now, received, schedule.busy, self._strained)
        self._progress.show(self._present, now)

    def _tend_all(self) -> None:
        """Hand over every file that wants tending and that nobody tends."""
        for incoming in self._files:
            if incoming.needs_tending():
                self._behind.add(incoming)

    def _crawls(self, fetcher: Fetcher, now: float) -> bool:
        """Whether its present request brought next to nothing for the time of a stall.

        A connection that gives a byte now and then never times out by itself.
        """
        look = self._looks.get(fetcher)
        if look is None or look.task != fetcher.tasks or not fetcher.last_piece:
            self._looks[fetcher] = _Look(now, fetcher.received, fetcher.tasks, fetcher.received)
            return False
        elapsed = now - look.time
        # The beginning of an answer may take a connection, a redirect and another connection.
        if elapsed < self._options.stall * (2 if fetcher.received == look.begun else 1):
            return False
        self._looks[fetcher] = look._replace(time=now, received=fetcher.received)
        return fetcher.received - look.received < _LEAST_RATE * elapsed

    def _strained(self) -> float:
        return self._strain.share(fetcher.thread.native_id or 0 for fetcher in self._fetchers)

    def _end(self) -> None:
        self._schedule.stop()
        self._behind.stop()
        for fetcher in self._fetchers:
            fetcher.channel.cut()
        end = time.monotonic() + _PARTING
        threads = [*self._behind.threads, *(fetcher.thread for fetcher in self._fetchers)]
        if all(_ended(thread, end) for thread in threads):
            for incoming in self._files:
                incoming.close()

    def _totals(self) -> dict[str, int]:
        return _by_label(self._files, [incoming.file.size for incoming in self._files])

    def _present(self) -> dict[str, int]:
        return _by_label(self._files, [incoming.present for incoming in self._files])


def _ignore(job: Job) -> None:
    """Nothing is to be done with a single file."""


def _by_label(files: Sequence[Incoming], numbers: Sequence[int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for incoming, number in zip(files, numbers, strict=True):
        label = incoming.job.label
        sums[label] = sums.get(label, 0) + number
    return sums


def _ended(thread: threading.Thread, end: float) -> bool:
    if thread.ident is not None:
        thread.join(max(0.0, end - time.monotonic()))
    return not thread.is_alive()
