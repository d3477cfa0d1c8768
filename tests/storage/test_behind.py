"""The threads behind a download: nothing that was handed to them is left lying."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from launcher.fetch.behind import Behind
from launcher.fetch.incoming import Incoming, Job
from launcher.fetch.pace import Pace
from launcher.fetch.schedule import Schedule
from tests.storage.fetching import Place, content, described, job

ROUNDS = 24


class Feeding(Schedule):
    """A download whose small files arrive for as long as the test says so."""

    small_left = True


@pytest.fixture
def slow_switches() -> Iterator[None]:
    """Threads get their turn late, as on a machine with more work than processors."""
    before = sys.getswitchinterval()
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            pass

    sys.setswitchinterval(0.03)
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    yield
    over.set()
    worker.join()
    sys.setswitchinterval(before)


def test_small_files_that_come_one_by_one_are_all_settled(tmp_path: Path, slow_switches: None) -> None:
    """A timed wait for a queue's next item can last for ever where another thread takes that item (CPython 3.11).

    So each round gives a file to both threads, and a third one about when they have waited for long enough.
    """
    incoming = []
    for number in range(3 * ROUNDS):
        data = content(10, number)
        work = job(Place("http://nowhere.invalid"), described(f"{number}.json", data), tmp_path)
        Path(work.part).write_bytes(data)
        incoming.append(Incoming(work, True))
    settled: SimpleQueue[Job] = SimpleQueue()
    schedule = Feeding(incoming, Pace(4), retries=1)
    behind = Behind(schedule, settled.put)
    behind.start()
    for first, second, third in zip(incoming[::3], incoming[1::3], incoming[2::3], strict=True):
        schedule.small_left = True
        for one, pause in ((first, 0.0), (second, 0.02), (third, 0.0)):
            assert one.needs_tending()
            behind.add(one)
            time.sleep(pause)
        schedule.small_left = False
        assert {settled.get(timeout=5) for _ in range(3)} == {first.job, second.job, third.job}
    assert schedule.wait(5) and schedule.error is None
    behind.stop()
    for thread in behind.threads:
        thread.join(5)
        assert not thread.is_alive()
