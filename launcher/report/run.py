"""A run: what is known of a server over some time, from wherever it was read."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.report import acceptance
from launcher.report.acceptance import Acceptance
from launcher.typing import NamedTuple


class Speed(NamedTuple):
    """How fast the answers came.  None: not known from this source."""

    seconds: float | None = None  # how long the run took
    requests: float | None = None  # finished
    errors: float | None = None
    tokens: float | None = None  # of output
    first_token_ms: float | None = None  # median where each request was seen, else mean
    latency_ms: float | None = None  # of a whole request, likewise
    stated_rate: float | None = None  # tokens of output a second, by the tool that measured

    @property
    def tokens_per_second(self) -> float | None:
        if self.stated_rate is not None:
            return self.stated_rate
        return self.tokens / self.seconds if self.tokens is not None and self.seconds else None


class Run(NamedTuple):
    """``acceptance`` is None when the server does not speculate, which is not the same as accepting nothing."""

    name: str  # of the traffic (a category) where it has one, else where the figures come from
    model: str
    acceptance: Acceptance | None
    speed: Speed
    origin: str = ""  # the path or URL that the figures come from
    answers: tuple[str, ...] = ()  # a digest of each answer's text, in the order of the requests
    notes: tuple[str, ...] = ()  # what a reader of the figures must know

    @property
    def drafted_per_second(self) -> float | None:
        """Draft throughput: proposed tokens a second."""
        return self._per_second("proposed")

    @property
    def accepted_per_second(self) -> float | None:
        return self._per_second("accepted")

    def _per_second(self, field: str) -> float | None:
        counts = self.acceptance and self.acceptance.counts
        return float(getattr(counts, field)) / self.speed.seconds if counts and self.speed.seconds else None


class Pair(NamedTuple):
    """The same traffic without speculation and with it."""

    off: Run
    on: Run

    @property
    def speedup(self) -> float | None:
        """Tokens a second, on over off."""
        before, after = self.off.speed.tokens_per_second, self.on.speed.tokens_per_second
        return after / before if before and after is not None else None

    @property
    def same_answers(self) -> tuple[int, int] | None:
        """How many answers have the same text, and of how many; None where the texts are not known."""
        if not self.off.answers or not self.on.answers:
            return None
        equal = sum(first == second for first, second in zip(self.off.answers, self.on.answers, strict=False))
        return equal, max(len(self.off.answers), len(self.on.answers))


def together(name: str, runs: Sequence[Run]) -> Run:
    """Several runs as one: acceptance from the sums of what was counted, speed from all tokens over all time."""
    figures = [run.acceptance for run in runs if run.acceptance is not None]
    counted = [figure.counts for figure in figures if figure.counts is not None]
    whole = acceptance.of(acceptance.summed(counted)) if figures and len(counted) == len(figures) else None
    if figures and whole is None:
        whole = Acceptance(None, None)  # ratios alone cannot be summed
    models = {run.model for run in runs}
    return Run(
        name,
        models.pop() if len(models) == 1 else "",
        whole,
        _speed([run.speed for run in runs]),
        answers=tuple(answer for run in runs for answer in run.answers),
    )


def _speed(speeds: Sequence[Speed]) -> Speed:
    """Times of single requests are left out: medians cannot be put together."""
    tokens = [_tokens(speed) for speed in speeds]
    return Speed(
        seconds=_total([speed.seconds for speed in speeds]),
        requests=_total([speed.requests for speed in speeds]),
        errors=_total([speed.errors for speed in speeds]),
        tokens=_total(tokens),
    )


def _tokens(speed: Speed) -> float | None:
    if speed.tokens is None and speed.stated_rate is not None and speed.seconds is not None:
        return speed.stated_rate * speed.seconds
    return speed.tokens


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
