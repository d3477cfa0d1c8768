"""Whether speculation is on when it was asked for, and whether it is worth its time.

A thread looks at vLLM's own counters a few times a minute.  It judges windows, not the whole life of the server:
traffic changes, and so does what a draft is good for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from threading import Event, Thread

from launcher.middleware import metrics
from launcher.middleware.configuration import Speculation
from launcher.typing import Any, NamedTuple

DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ENOUGH = 1000  # drafted tokens to a judgement: the rate is then known within a few hundredths
EVERY = 10.0  # seconds between two looks
PATIENCE = 10  # looks, a second apart, that the counters may take to appear after the start

log = logging.getLogger("vllm.launcher.watch")


class Counted(NamedTuple):
    """vLLM's counters since its start, all engines together."""

    drafted: int
    accepted: int


class Judge:
    """Judges each window of enough drafted tokens."""

    def __init__(self, told: Speculation, floor: float) -> None:
        self.told = told
        self.floor = floor
        self.below = False
        self._last = Counted(0, 0)

    def sentence(self, now: Counted) -> str | None:
        """What to log, if the judgement has changed."""
        drafted = now.drafted - self._last.drafted
        if drafted < ENOUGH:
            return None
        rate = (now.accepted - self._last.accepted) / drafted
        self._last, before, self.below = now, self.below, rate < self.floor
        if self.below == before:
            return None
        seen = f"{rate:.3f} of the last {drafted} drafted tokens were accepted"
        if not self.below:
            return f"speculation is worth its time again: {seen}"
        return (
            f"speculation is likely costing time: {seen}, less than NIM_SPECDEC_MIN_ACCEPTANCE={self.floor:g}; "
            f"{self._advice(rate)}, or switch it off (NIM_SPECDEC_ENABLE=0, or --speculative-config none); "
            "'launcher bench' compares both"
        )

    def _advice(self, rate: float) -> str:
        method, tokens = self.told.method, self.told.num_speculative_tokens or 0
        if rate == 0 and method == "mtp":
            return "nothing at all suggests a head whose weights are not in the checkpoint: try another method"
        if rate < 0.02 and method not in ("ngram", "suffix"):
            return "so little suggests a draft that was made for another model: check which one is meant"
        if method in ("ngram", "suffix"):
            return "the text repeats itself too little for it: try a draft model"
        fewer = f"try fewer than {tokens} tokens (num_speculative_tokens)" if tokens > 1 else "try another draft"
        return f"{fewer}, and mind that a high temperature lowers it"


class Watch:
    """The thread, and the gauges."""

    def __init__(self, told: Speculation, floor: float | None, read: Callable[[], Counted | None]) -> None:
        self.told = told
        self._read = read
        self._judge = None if floor is None else Judge(told, floor)
        self._gauges = metrics.speculation()
        self._gauges.expected.set(told.enabled)
        self._gauges.fallback.set(bool(told.fallback))
        self._gauges.floor.set(floor or 0)
        self._gauges.active.set(0)
        self._gauges.below.set(0)
        self._end = Event()
        self._thread = Thread(target=self._run, name="launcher-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()

    def _run(self) -> None:
        try:
            if self._is_active() and self._judge is not None:
                while not self._end.wait(EVERY):
                    self.look()
        except Exception:
            log.exception("the watch over speculation has ended")

    def look(self) -> None:
        counted = self._read()
        if counted is None or self._judge is None:
            return
        said = self._judge.sentence(counted)
        self._gauges.below.set(self._judge.below)
        if said:
            log.log(logging.WARNING if self._judge.below else logging.INFO, "%s", said)

    def _is_active(self) -> bool:
        """Look for the counters, and say loudly when they should be there and are not."""
        told = self.told
        if told.fallback:
            log.warning("SPECULATION IS OFF, and was asked for: %s", told.fallback)
        for _ in range(PATIENCE if told.enabled else 1):
            if self._read() is not None:
                self._gauges.active.set(1)
                log.info("speculation is active: %s, %s tokens", told.method or "?", told.num_speculative_tokens or "?")
                return True
            if self._end.wait(1.0):
                return False
        if told.enabled:
            log.error(
                "SPECULATION MAY BE OFF: %s was asked for, and vLLM exports no %s; look for the reason above, or drop "
                "--disable-log-stats if that is set",
                told.method,
                DRAFTED,
            )
        return False


def counted() -> Counted | None:
    """vLLM's counters in this process, or over all API servers; None while it exports none."""
    totals = {DRAFTED: 0.0, ACCEPTED: 0.0}
    found = False
    for family in _families():
        for sample in family.samples:
            if sample.name in totals:
                found = True
                totals[sample.name] += sample.value
    return Counted(int(totals[DRAFTED]), int(totals[ACCEPTED])) if found else None


def _families() -> Iterable[Any]:
    import prometheus_client  # lazy: vLLM brings it; the launcher itself has none

    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        from prometheus_client import multiprocess

        registry = prometheus_client.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry.collect()
    restricted = prometheus_client.REGISTRY.restricted_registry([DRAFTED, ACCEPTED])
    families: Iterable[Any] = restricted.collect()
    return families
