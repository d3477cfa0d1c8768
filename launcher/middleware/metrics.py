"""The middleware's own metrics.  They stand in vLLM's registry, and so on ``/metrics`` and ``/v1/metrics``.

With several API servers prometheus_client adds their counters up, as it does for vLLM's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

# Why a captured request was not written.
DROPPED = ("queue_full", "too_large", "unusable", "write_failed", "incomplete", "too_many_endpoints")


class CaptureMetrics:
    """``taken`` = ``written`` + all ``dropped`` + what still waits."""

    def __init__(self) -> None:
        self.taken = _counter("launcher_capture_requests", "Requests taken for the capture")
        self.written = _counter("launcher_capture_written", "Requests written to a capture file")
        self.bytes = _counter("launcher_capture_written_bytes", "Bytes written to capture files")
        self.rotations = _counter("launcher_capture_rotations", "Capture files that were full")
        self.seconds = _counter("launcher_capture_writer_seconds", "Processor time of the capture's thread")
        dropped = _counter("launcher_capture_dropped", "Requests taken and not written", ("reason",))
        self.dropped = {reason: dropped.labels(reason) for reason in DROPPED}


class SpeculationMetrics:
    def __init__(self) -> None:
        self.expected = _gauge("launcher_speculation_expected", "1 where the launcher started vLLM with speculation")
        self.active = _gauge("launcher_speculation_active", "1 where vLLM exports counters of speculation")
        self.fallback = _gauge(
            "launcher_speculation_fallback", "1 where the server runs without the speculation that was asked for"
        )
        self.floor = _gauge("launcher_speculation_acceptance_floor", "The least acceptance rate asked for; 0 for none")
        self.below = _gauge(
            "launcher_speculation_below_floor", "1 while too few drafted tokens are accepted to be worth their time"
        )


@cache
def capture() -> CaptureMetrics:
    """One set a process: a name can be registered once."""
    return CaptureMetrics()


@cache
def speculation() -> SpeculationMetrics:
    return SpeculationMetrics()


def _counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
    from prometheus_client import Counter  # lazy: vLLM brings it; the launcher itself has none

    return Counter(name, text, labels)


def _gauge(name: str, text: str) -> Gauge:
    from prometheus_client import Gauge

    return Gauge(name, text, multiprocess_mode="max")
