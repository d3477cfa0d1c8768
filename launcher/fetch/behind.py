"""What follows behind the download: digests that fell back, the final comparison, flushing to disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from launcher.errors import IntegrityError
from launcher.fetch import disk
from launcher.fetch.incoming import Incoming, Job
from launcher.fetch.schedule import Schedule

_THREADS = 2  # more than two files at once would read from a disk that is busy with writing
_BUFFER = 512 * 1024
_AT_ONCE = 1024  # small files that are flushed together, at most
_PAUSE = 0.02  # seconds without a new file after which those at hand may be flushed


class Behind:
    """A few threads that hash, compare and flush the files which need tending."""

    def __init__(self, schedule: Schedule, finished: Callable[[Job], None]) -> None:
        self._schedule = schedule
        self._finished = finished
        self._waiting: SimpleQueue[Incoming | None] = SimpleQueue()
        self.threads = [threading.Thread(target=self._run, name="behind", daemon=True) for _ in range(_THREADS)]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        for _ in self.threads:
            self._waiting.put(None)

    def add(self, incoming: Incoming) -> None:
        """``incoming`` needs tending, and the caller has handed its role to us."""
        self._waiting.put(incoming)

    def _run(self) -> None:
        buffer = memoryview(bytearray(_BUFFER))
        small: list[Incoming] = []  # verified, and to be flushed together
        while not self._schedule.stopped:
            try:
                incoming = self._after_a_pause() if small else self._waiting.get()
                if incoming is None:
                    return
                self._tend(incoming, buffer, small)
                if len(small) >= _AT_ONCE:
                    self._flush(small)
            except Empty:
                if not self._schedule.small_left:
                    self._flush(small)
            except BaseException as error:
                self._schedule.give_up(error, incoming.job.label if incoming else "")

    def _after_a_pause(self) -> Incoming | None:
        """The next file, if one comes within a moment.  Raises Empty.

        Not by a timed wait: where another thread takes the item that ended it, CPython 3.11 goes on waiting for ever.
        """
        with suppress(Empty):
            return self._waiting.get_nowait()
        time.sleep(_PAUSE)
        return self._waiting.get_nowait()

    def _tend(self, incoming: Incoming, buffer: memoryview, small: list[Incoming]) -> None:
        if not incoming.tend(buffer):
            return
        incoming.open()
        if not incoming.is_right():
            kind = incoming.digest.algorithm if incoming.digest else "content"
            self._fetch_anew(incoming, f"{incoming.file.path} has the wrong {kind}")
        elif incoming.is_small:
            incoming.close()
            small.append(incoming)
        else:
            incoming.flush()
            if incoming.is_ours():
                incoming.close()
                self._finished(incoming.job)
                self._schedule.settled(1)
            else:
                self._fetch_anew(incoming, f"the unfinished {incoming.file.path} was taken over by another process")

    def _fetch_anew(self, incoming: Incoming, what: str) -> None:
        error = IntegrityError(what, "Check the object at its source: it was fetched twice with this outcome")
        incoming.spoil(error, tending=True)
        self._schedule.again(incoming)

    def _flush(self, small: list[Incoming]) -> None:
        jobs = [incoming.job for incoming in small]
        small.clear()
        try:
            disk.flush([job.part for job in jobs])
        except OSError as error:
            raise disk.refusal(jobs[0].part, error) from None
        for job in jobs:
            self._finished(job)
        self._schedule.settled(len(jobs))
