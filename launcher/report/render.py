"""Runs and comparisons as a table for people, as JSON and as CSV (pure)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence

from launcher.report.run import Pair, Run, together
from launcher.typing import Any, NamedTuple

SCHEMA = 1
OVERALL = "overall"
OFF, IDLE = "off", "no drafts"
_UNKNOWN = "-"
_WORDS = ("traffic", "model")  # columns that start at the left


class Report(NamedTuple):
    """What is shown: single runs, or pairs of them."""

    runs: tuple[Run, ...] = ()
    pairs: tuple[Pair, ...] = ()
    remarks: tuple[str, ...] = ()  # lines above the table

    @property
    def overall(self) -> Pair | None:
        """All pairs as one."""
        if not self.pairs:
            return None
        off, on = [pair.off for pair in self.pairs], [pair.on for pair in self.pairs]
        return Pair(together(OVERALL, off), together(OVERALL, on))

    @property
    def notes(self) -> tuple[str, ...]:
        """Each note once."""
        runs = (*self.runs, *(run for pair in self.pairs for run in pair))
        return tuple(dict.fromkeys(note for run in runs for note in run.notes))


def acceptance_text(run: Run) -> str:
    """The acceptance rate; off and idle in words, because neither is an acceptance of zero."""
    if run.acceptance is None:
        return OFF
    if run.acceptance.rate is None and run.acceptance.length is None:
        return IDLE
    return _number(run.acceptance.rate, 3)


def table(report: Report) -> str:
    """Aligned columns, with the remarks above and what a reader must know below."""
    rows: Sequence[Run | Pair] = report.runs
    columns: Sequence[tuple[str, Callable[[Any], str]]] = _RUN_COLUMNS
    if report.pairs:
        overall = report.overall
        rows = (*report.pairs, *((overall,) if overall and len(report.pairs) > 1 else ()))
        columns = _PAIR_COLUMNS
    cells = [[title for title, _ in columns], *([text(row) for _, text in columns] for row in rows)]
    shown = [number for number in range(len(columns)) if any(row[number] != _UNKNOWN for row in cells[1:])]
    widths = {number: max(len(row[number]) for row in cells) for number in shown}
    lines = [
        "  ".join(row[i].ljust(widths[i]) if columns[i][0] in _WORDS else row[i].rjust(widths[i]) for i in shown)
        for row in cells
    ]
    return "\n".join((*report.remarks, *map(str.rstrip, lines), *(f"note: {note}" for note in report.notes)))


def to_json(report: Report) -> str:
    """One object; ``null`` is what is not known, and ``speculation`` says whether there was any."""
    document: dict[str, Any] = {"schema": SCHEMA, "remarks": list(report.remarks)}
    if report.pairs:
        overall = report.overall
        document["pairs"] = [_pair_record(pair) for pair in report.pairs]
        document["overall"] = _pair_record(overall) if overall else None
    else:
        document["runs"] = [record(run) for run in report.runs]
    return json.dumps(document, indent=2, ensure_ascii=False)


def to_csv(report: Report) -> str:
    """A line for each run; of a pair both, the column ``speculation`` telling them apart."""
    runs = [*report.runs, *(run for pair in report.pairs for run in pair)]
    records = [{name: _flat(value) for name, value in record(run).items()} for run in runs]
    output = io.StringIO()
    writer = csv.DictWriter(output, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return output.getvalue().rstrip("\n")


def record(run: Run) -> dict[str, Any]:
    """All that is known of a run, by stable names."""
    figures, speed = run.acceptance, run.speed
    counts = figures.counts if figures else None
    return {
        "traffic": run.name,
        "model": run.model,
        "speculation": figures is not None,
        "acceptance_rate": figures and figures.rate,
        "acceptance_length": figures and figures.length,
        "acceptance_by_position": list(figures.positions) if figures else None,
        "drafts": counts and counts.drafts,
        "draft_tokens": counts and counts.proposed,
        "accepted_tokens": counts and counts.accepted,
        "draft_tokens_per_second": run.drafted_per_second,
        "accepted_tokens_per_second": run.accepted_per_second,
        "output_tokens": speed.tokens,
        "output_tokens_per_second": speed.tokens_per_second,
        "seconds": speed.seconds,
        "requests": speed.requests,
        "errors": speed.errors,
        "first_token_ms": speed.first_token_ms,
        "latency_ms": speed.latency_ms,
        "origin": run.origin,
        "notes": list(run.notes),
    }


def _pair_record(pair: Pair) -> dict[str, Any]:
    same = pair.same_answers
    return {
        "traffic": pair.on.name,
        "speedup": pair.speedup,
        "same_answers": same and {"equal": same[0], "of": same[1]},
        "off": record(pair.off),
        "on": record(pair.on),
    }


def _flat(value: object) -> object:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


def _number(value: float | None, digits: int = 1) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}f}"


def _positions(run: Run) -> str:
    figures = run.acceptance.positions if run.acceptance else ()
    return " ".join(f"{rate:.2f}" for rate in figures) or _UNKNOWN


def _length(run: Run) -> str:
    return _number(run.acceptance.length if run.acceptance else None, 2)


def _errors(run: Run) -> str:
    return _number(run.speed.errors, 0) if run.speed.errors else _UNKNOWN


def _speedup(pair: Pair) -> str:
    return _UNKNOWN if pair.speedup is None else f"{pair.speedup:.2f}x"


def _same(pair: Pair) -> str:
    same = pair.same_answers
    return f"{same[0]}/{same[1]}" if same else _UNKNOWN


_RUN_COLUMNS: tuple[tuple[str, Callable[[Run], str]], ...] = (
    ("traffic", lambda run: run.name or _UNKNOWN),
    ("model", lambda run: run.model or _UNKNOWN),
    ("requests", lambda run: _number(run.speed.requests, 0)),
    ("errors", _errors),
    ("tokens/s", lambda run: _number(run.speed.tokens_per_second)),
    ("first token ms", lambda run: _number(run.speed.first_token_ms)),
    ("latency ms", lambda run: _number(run.speed.latency_ms)),
    ("acceptance", acceptance_text),
    ("length", _length),
    ("by position", _positions),
    ("drafted/s", lambda run: _number(run.drafted_per_second)),
    ("accepted/s", lambda run: _number(run.accepted_per_second)),
)
_PAIR_COLUMNS: tuple[tuple[str, Callable[[Pair], str]], ...] = (
    ("traffic", lambda pair: pair.on.name),
    ("requests", lambda pair: _number(pair.on.speed.requests, 0)),
    ("errors off", lambda pair: _errors(pair.off)),
    ("errors on", lambda pair: _errors(pair.on)),
    ("tokens/s off", lambda pair: _number(pair.off.speed.tokens_per_second)),
    ("tokens/s on", lambda pair: _number(pair.on.speed.tokens_per_second)),
    ("speed-up", _speedup),
    ("latency ms off", lambda pair: _number(pair.off.speed.latency_ms)),
    ("latency ms on", lambda pair: _number(pair.on.speed.latency_ms)),
    ("acceptance", lambda pair: acceptance_text(pair.on)),
    ("length", lambda pair: _length(pair.on)),
    ("by position", lambda pair: _positions(pair.on)),
    ("same answers", _same),
)
