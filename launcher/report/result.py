"""A run as the document that ``launcher bench`` keeps: written here, read here."""

from __future__ import annotations

import json
from collections.abc import Mapping

from launcher.report import acceptance
from launcher.report.acceptance import Acceptance, Counts
from launcher.report.run import Run, Speed
from launcher.typing import Any

FILE = "launcher_bench.json"
SCHEMA = 1


def to_text(run: Run) -> str:
    """The document of ``run``; `parse` gives the same run again."""
    figures = run.acceptance
    document = {
        "schema": SCHEMA,
        "traffic": run.name,
        "model": run.model,
        "acceptance": figures
        and {
            "rate": figures.rate,
            "length": figures.length,
            "counts": figures.counts and figures.counts._asdict(),
        },
        "speed": run.speed._asdict(),
        "answers": list(run.answers),
        "notes": list(run.notes),
    }
    return json.dumps(document, indent=2) + "\n"


def parse(document: Mapping[str, Any], origin: str) -> Run:
    """The run of a document.  Raises KeyError, TypeError or ValueError for one that is none."""
    if document["schema"] > SCHEMA:
        raise ValueError(f"schema {document['schema']} is newer than this launcher")
    figures = document["acceptance"]
    measured = None
    if figures is not None:
        measured = Acceptance(figures["rate"], figures["length"])
        if figures["counts"] is not None:
            counts = Counts(**{**figures["counts"], "by_position": tuple(figures["counts"]["by_position"])})
            measured = acceptance.of(counts, measured)
    return Run(
        document["traffic"],
        document["model"],
        measured,
        Speed(**document["speed"]),
        origin,
        tuple(document["answers"]),
        tuple(document["notes"]),
    )
