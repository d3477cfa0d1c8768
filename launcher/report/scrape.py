"""What a metrics page says, in the Prometheus text format of vLLM, SGLang and TensorRT-LLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.errors import ConfigurationError, IntegrityError, shortened
from launcher.report import acceptance
from launcher.report.acceptance import Acceptance, Counts
from launcher.report.run import Run, Speed
from launcher.typing import NamedTuple

_RESTARTED = "the server was started again between the two readings, so their difference says nothing"


class Sample(NamedTuple):
    """One line: a metric's full name (a counter's with ``_total``), its labels and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


class State(NamedTuple):
    """What one served model has come to since its server started; all engines of a server (data parallel) summed."""

    model: str
    drafting: Counts | None  # None: it does not speculate, or states ratios only
    stated: Acceptance | None  # ratios by the engine's own account
    tokens: float | None  # of output
    requests: float | None  # finished
    first_token: tuple[float, float] | None  # seconds in all, and how many
    latency: tuple[float, float] | None
    notes: tuple[str, ...] = ()

    @property
    def speculates(self) -> bool:
        return self.drafting is not None or self.stated is not None


def samples(text: str, origin: str) -> tuple[Sample, ...]:
    """Parse a metrics page.  Raises ConfigurationError for what is none."""
    from prometheus_client.parser import text_string_to_metric_families  # lazy: a tenth of a second

    if text.lstrip()[:1] == "<":
        raise ConfigurationError(f"{origin} is a web page, not a page of metrics", _WHERE)
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise ConfigurationError(f"{origin} is no page of metrics ({_printable(str(error))})", _WHERE) from None
    return tuple(Sample(line.name, line.labels, line.value) for family in families for line in family.samples)


def _printable(text: str) -> str:
    """The parser repeats what it met, which may be anything."""
    return "".join(character if character.isprintable() else "?" for character in shortened(text))


def states(found: Iterable[Sample], origin: str) -> tuple[State, ...]:
    """One state for each served model.  Raises ConfigurationError where no known engine is among the metrics."""
    by_model: dict[tuple[str, str], list[Sample]] = {}
    for sample in found:
        engine = next((engine for engine in _ENGINES if sample.name.startswith(engine)), None)
        if engine is not None:
            by_model.setdefault((engine, sample.labels.get("model_name", "")), []).append(sample)
    named = {engine for engine, model in by_model if model}  # some lines of a server name no model
    by_model = {key: own for key, own in by_model.items() if key[1] or key[0] not in named}
    if not by_model:
        raise ConfigurationError(
            f"{origin} holds no metrics of vLLM, SGLang or TensorRT-LLM",
            f"{_WHERE}; vLLM has none under --disable-log-stats, SGLang only with --enable-metrics",
        )
    return tuple(_ENGINES[engine](model, _Metrics(own)) for (engine, model), own in sorted(by_model.items()))


def run_since_start(state: State, name: str, origin: str) -> Run:
    """All that a server did since its start; rates over time are not known."""
    return Run(name, state.model, _acceptance(state), _speed(state, None), origin, notes=state.notes)


def run_between(before: State, after: State, seconds: float | None, name: str, origin: str) -> Run:
    """What a server did between two readings.  Raises IntegrityError when it was started again in between."""
    grown = State(
        after.model,
        _grown(before.drafting, after.drafting),
        after.stated,
        _less(after.tokens, before.tokens),
        _less(after.requests, before.requests),
        _less_pair(after.first_token, before.first_token),
        _less_pair(after.latency, before.latency),
        after.notes,
    )
    if (grown.drafting is not None and grown.drafting.falls) or (grown.tokens or 0.0) < 0:
        raise IntegrityError(_RESTARTED, "Take both from one life of the server")
    return Run(name, after.model, _acceptance(grown), _speed(grown, seconds), origin, notes=grown.notes)


def _acceptance(state: State) -> Acceptance | None:
    if state.drafting is not None:
        return acceptance.of(state.drafting, state.stated)
    return state.stated


def _speed(state: State, seconds: float | None) -> Speed:
    return Speed(
        seconds=seconds,
        requests=state.requests,
        tokens=state.tokens,
        first_token_ms=_mean_ms(state.first_token),
        latency_ms=_mean_ms(state.latency),
    )


def _mean_ms(pair: tuple[float, float] | None) -> float | None:
    return 1000 * pair[0] / pair[1] if pair and pair[1] else None


def _grown(before: Counts | None, after: Counts | None) -> Counts | None:
    return after.since(before) if after is not None and before is not None else after


def _less(after: float | None, before: float | None) -> float | None:
    return after - before if after is not None and before is not None else after


def _less_pair(after: tuple[float, float] | None, before: tuple[float, float] | None) -> tuple[float, float] | None:
    return (after[0] - before[0], after[1] - before[1]) if after and before else after


class _Metrics:
    """The samples of one model, by exact name: ``_created`` and ``_bucket`` lines have names of their own."""

    def __init__(self, found: Iterable[Sample]) -> None:
        self._by_name: dict[str, list[Sample]] = {}
        for sample in found:
            self._by_name.setdefault(sample.name, []).append(sample)

    def total(self, name: str) -> float | None:
        """The sum over engines; None when the metric is not there."""
        found = self._by_name.get(name)
        return sum(sample.value for sample in found) if found else None

    def mean(self, name: str) -> float | None:
        """The mean over engines, of a gauge."""
        found = self._by_name.get(name)
        return sum(sample.value for sample in found) / len(found) if found else None

    def by_label(self, name: str, label: str) -> tuple[float, ...]:
        """Sums over engines for each value of a numeric label, from 0 on without gaps."""
        sums: dict[int, float] = {}
        for sample in self._by_name.get(name, ()):
            number = int(sample.labels.get(label, "0"))
            sums[number] = sums.get(number, 0.0) + sample.value
        return tuple(sums.get(number, 0.0) for number in range(max(sums) + 1)) if sums else ()

    def histogram(self, name: str) -> tuple[float, float] | None:
        total, count = self.total(f"{name}_sum"), self.total(f"{name}_count")
        return (total, count) if total is not None and count is not None else None


def _vllm(model: str, metrics: _Metrics) -> State:
    drafts = metrics.total("vllm:spec_decode_num_drafts_total")
    drafting = None
    if drafts is not None:
        drafting = Counts(
            drafts,
            metrics.total("vllm:spec_decode_num_draft_tokens_total") or 0.0,
            metrics.total("vllm:spec_decode_num_accepted_tokens_total") or 0.0,
            metrics.by_label("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position"),
        )
    return State(
        model,
        drafting,
        None,
        metrics.total("vllm:generation_tokens_total"),
        metrics.total("vllm:request_success_total"),
        metrics.histogram("vllm:time_to_first_token_seconds"),
        metrics.histogram("vllm:e2e_request_latency_seconds"),
    )


def _sglang(model: str, metrics: _Metrics) -> State:
    """SGLang counts verification steps and output tokens, when a request is finished; a request's first token comes
    from its prefill.  A linear draft proposes one token less than the number that a step verifies.
    """
    steps = metrics.total("sglang:spec_verify_calls_total")
    width = metrics.mean("sglang:spec_num_draft_tokens")
    tokens = metrics.total("sglang:generation_tokens_total")
    requests = metrics.total("sglang:num_requests_total")
    drafting = None
    notes: tuple[str, ...] = ()
    if steps and width and width > 1 and tokens is not None:
        drafting = Counts(steps, steps * (width - 1), max(tokens - (requests or 0.0) - steps, 0.0))
        notes = ("SGLang counts a request when it is finished, and has no rates by position",)
    rate, length = metrics.mean("sglang:spec_accept_rate"), metrics.mean("sglang:spec_accept_length")
    stated = Acceptance(rate, length) if length else None
    if stated and drafting is None:
        notes = ("gauges of SGLang: its last logging interval only",)
    if stated is None and width:
        stated = Acceptance(None, None)
    return State(
        model,
        drafting,
        stated,
        tokens,
        requests,
        metrics.histogram("sglang:time_to_first_token_seconds"),
        metrics.histogram("sglang:e2e_request_latency_seconds"),
        notes,
    )


def _tensorrt_llm(model: str, metrics: _Metrics) -> State:
    """By position once requests are finished (``return_perf_metrics``), totals with ``enable_iter_perf_stats``.

    Before the first finished request there is no counter, so speculation that is idle looks as if it were off.
    """
    drafted = metrics.by_label("trtllm_spec_decode_drafted_tokens_total", "token_position")
    by_position = metrics.by_label("trtllm_spec_decode_accepted_tokens_total", "token_position")
    proposed = metrics.total("trtllm_spec_decode_num_draft_tokens_total")
    accepted = metrics.total("trtllm_spec_decode_num_accepted_tokens_total")
    length = metrics.mean("trtllm_spec_decode_acceptance_length")
    drafting = None
    if drafted:
        drafting = Counts(drafted[0], sum(drafted), sum(by_position), by_position)
    elif proposed is not None:
        drafting = Counts(None, proposed, accepted or 0.0)
    return State(
        model,
        drafting,
        Acceptance(None, length) if length else None,
        None,  # it counts no output
        metrics.total("trtllm_request_success_total"),
        metrics.histogram("trtllm_time_to_first_token_seconds"),
        metrics.histogram("trtllm_e2e_request_latency_seconds"),
    )


_ENGINES = {"vllm:": _vllm, "sglang:": _sglang, "trtllm_": _tensorrt_llm}
_WHERE = "Give the server's address, or that of its metrics such as http://localhost:8000/v1/metrics"
