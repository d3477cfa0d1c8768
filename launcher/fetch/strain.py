"""How much of their time threads work, or wait for a processor; the rest is waiting for the network."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable


class Strain:
    """Looks at the kernel's own counts for threads of this process."""

    def __init__(self) -> None:
        self._last = 0.0
        self._counts: dict[int, int] = {}

    def share(self, threads: Iterable[int]) -> float:
        """The share of the time since the last call in which the threads (by their native id) were not waiting.

        0 where the kernel does not tell.
        """
        now, before = time.monotonic(), self._counts
        elapsed, self._last = now - self._last, now
        self._counts = {thread: _nanoseconds(thread) for thread in threads}
        shared = [thread for thread in self._counts if thread in before]
        if not shared or elapsed <= 0:
            return 0.0
        return sum(self._counts[thread] - before[thread] for thread in shared) / (len(shared) * elapsed * 1e9)


def _nanoseconds(thread: int) -> int:
    """Time on a processor, and in the queue for one."""
    try:
        with open(f"/proc/{os.getpid()}/task/{thread}/schedstat", "rb") as file:
            running, queued, _ = file.read().split()
        return int(running) + int(queued)
    except (OSError, ValueError):
        return 0
