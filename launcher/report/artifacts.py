"""Runs from files: artifacts of AIPerf, `vllm bench serve --save-result`, `launcher bench`, and saved metrics pages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, NotFoundError
from launcher.report import acceptance, result
from launcher.report.acceptance import Counts
from launcher.report.run import Run, Speed
from launcher.report.scrape import Sample, State, run_between, run_since_start, samples, states
from launcher.typing import Any

AIPERF_PROFILE, AIPERF_METRICS = "profile_export_aiperf.json", "server_metrics_export.json"
_PREFIXES = ("speed_bench_", "spec_al_")  # of AIPerf's names for the categories of SPEED-Bench
_KINDS = (
    "Give a folder with AIPerf's artifacts (or one that holds such folders), a saved metrics page, or the file of "
    "'vllm bench serve --save-result'"
)
_NO_METRICS = "no metrics of the server: give AIPerf --server-metrics URL to have acceptance"


def read(path: str) -> tuple[Run, ...]:
    """The runs under ``path``, in the order of their names.

    Raises NotFoundError, DeniedError, IntegrityError (a broken file) or ConfigurationError (something else).
    """
    if not os.path.isdir(path):
        return _from_file(path)
    if _holds_run(path):
        return (_from_folder(path),)
    runs = [f"{path}/{name}" for name in sorted(os.listdir(path)) if _holds_run(f"{path}/{name}")]
    if not runs:
        both = all(os.path.isdir(f"{path}/{side}") for side in ("off", "on"))
        hint = f"Use --compare {path}/off {path}/on" if both else _KINDS
        raise ConfigurationError(f"{path} holds no result of a benchmark", hint)
    return tuple(map(_from_folder, runs))


def read_scrapes(before: str, after: str, seconds: float | None = None) -> tuple[Run, ...]:
    """What a server did between two saved pages, for each model that it serves."""
    then = {state.model: state for state in _saved_states(before)}
    now = _saved_states(after)
    missing = [state.model for state in now if state.model not in then]
    if missing:
        raise ConfigurationError(f"{before} knows no model {missing[0]!r}", "Give two pages of one server")
    return tuple(run_between(then[state.model], state, seconds, _stem(after), after) for state in now)


def _holds_run(folder: str) -> bool:
    return any(os.path.isfile(f"{folder}/{name}") for name in (AIPERF_PROFILE, result.FILE))


def _from_folder(folder: str) -> Run:
    own = f"{folder}/{result.FILE}"
    try:
        return result.parse(_json(own), own) if os.path.isfile(own) else _from_aiperf(folder)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise IntegrityError(f"{folder} holds a result that cannot be read ({error!r})", _KINDS) from None


def _from_aiperf(folder: str) -> Run:
    profile = _json(f"{folder}/{AIPERF_PROFILE}")
    metrics_file = f"{folder}/{AIPERF_METRICS}"
    exported = _json(metrics_file) if os.path.isfile(metrics_file) else {}
    state = _aiperf_state(exported, metrics_file)
    dataset: Mapping[str, Any] = next(iter(profile["input_config"].get("datasets") or ()), {})
    category = str(dataset.get("format") or "")
    for prefix in _PREFIXES:
        category = category.removeprefix(prefix)
    served = _run_of(state) if state else None
    return Run(
        category or os.path.basename(os.path.normpath(folder)),
        profile["input_config"]["models"]["items"][0]["name"],
        served and served.acceptance,
        Speed(
            seconds=_aiperf_seconds(profile, exported),
            requests=_statistic(profile, "request_count", "avg"),
            errors=float(sum(error.get("count", 1) for error in profile.get("error_summary") or ())),
            tokens=_statistic(profile, "total_output_tokens", "avg"),
            first_token_ms=_statistic(profile, "time_to_first_token", "p50"),
            latency_ms=_statistic(profile, "request_latency", "p50"),
            stated_rate=_statistic(profile, "output_token_throughput", "avg"),
        ),
        folder,
        notes=served.notes if served else (_NO_METRICS,),
    )


def _run_of(state: State) -> Run:
    return run_since_start(state, "", "")  # AIPerf's totals are those of its profiling phase


def _aiperf_state(exported: Mapping[str, Any], origin: str) -> State | None:
    """AIPerf scrapes ``/metrics`` besides the page that it was told: the same server's counters, twice.

    Of the pages of one server, one counts; several servers are summed.
    """
    metrics: Mapping[str, Any] = exported.get("metrics") or {}
    pages = {series["endpoint_url"] for metric in metrics.values() for series in metric.get("series") or ()}
    chosen: dict[str, str] = {}
    for page in sorted(pages):
        chosen.setdefault(urlsplit(page if "://" in page else f"//{page}").netloc, page)
    try:
        found = states(_aiperf_samples(metrics, set(chosen.values())), origin)
    except ConfigurationError:
        return None  # no page, or none of an engine: the speed is known all the same
    if len(found) > 1:
        raise ConfigurationError(f"{origin} holds metrics of several models", "Measure one model at a time")
    return next(iter(found), None)


def _aiperf_samples(metrics: Mapping[str, Any], pages: set[str]) -> Iterator[Sample]:
    """As on a metrics page.  AIPerf takes ``_total`` off the names, and gives what was counted as ``total``."""
    for name, metric in metrics.items():
        for series in metric.get("series") or ():
            if series["endpoint_url"] in pages:
                stats, labels = series.get("stats") or {}, series.get("labels") or {}
                if metric["type"] == "counter":
                    yield Sample(f"{name}_total", labels, float(stats["total"]))
                elif metric["type"] == "gauge":
                    yield Sample(name, labels, float(stats.get("avg", series.get("value", 0.0))))


def _aiperf_seconds(profile: Mapping[str, Any], exported: Mapping[str, Any]) -> float | None:
    stated = _statistic(profile, "benchmark_duration", "avg")
    if stated is not None:
        return stated
    phase = exported.get("summary", {}).get("phase_time_ranges", {}).get("profiling")
    return (phase["end_ns"] - phase["start_ns"]) / 1e9 if phase else None


def _statistic(profile: Mapping[str, Any], metric: str, statistic: str) -> float | None:
    value = (profile.get(metric) or {}).get(statistic)
    return None if value is None else float(value)


def _from_file(path: str) -> tuple[Run, ...]:
    text = _text(path)
    if text.lstrip()[:1] != "{":
        return tuple(run_since_start(state, _stem(path), path) for state in states(samples(text, path), path))
    document = _decoded(text, path)
    if "output_throughput" not in document or "model_id" not in document:
        raise ConfigurationError(f"{path} is not a result that can be read", _KINDS)
    try:
        return (_from_vllm_bench(document, path),)
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{path} cannot be read ({error!r})", _KINDS) from None


def _from_vllm_bench(document: Mapping[str, Any], path: str) -> Run:
    measured = None
    if "spec_decode_num_drafts" in document:
        drafts = float(document["spec_decode_num_drafts"])
        rates: Iterable[float] = document.get("spec_decode_per_position_acceptance_rates") or ()
        counts = Counts(
            drafts,
            float(document["spec_decode_draft_tokens"]),
            float(document["spec_decode_accepted_tokens"]),
            tuple(rate * drafts for rate in rates),
        )
        measured = acceptance.of(counts)
    return Run(
        _stem(path),
        str(document["model_id"]),
        measured,
        Speed(
            seconds=float(document["duration"]),
            requests=float(document["completed"]),
            errors=float(document.get("failed") or 0),
            tokens=float(document["total_output_tokens"]),
            first_token_ms=document.get("median_ttft_ms"),
            latency_ms=document.get("median_e2el_ms"),
            stated_rate=float(document["output_throughput"]),
        ),
        path,
    )


def _saved_states(path: str) -> tuple[State, ...]:
    return states(samples(_text(path), path), path)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _json(path: str) -> dict[str, Any]:
    return _decoded(_text(path), path)


def _decoded(text: str, path: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise IntegrityError(f"{path} is broken JSON: {error}", "Run the benchmark again") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} is not a result that can be read", _KINDS)
    return document


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist", _KINDS) from None
    except OSError as error:
        raise DeniedError(f"{path} cannot be read: {error.strerror}", "Check its owner and mode") from None
