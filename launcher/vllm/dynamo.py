"""The vLLM worker of ai-dynamo: where it is, and which of vLLM's arguments it takes.

``python -m dynamo.vllm`` runs vLLM's engine without its HTTP server; requests come through Dynamo's own frontend.  What
must be known of it stands in ``dynamo.json``, made from the package by tools/make_dynamo_table.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from launcher.typing import NamedTuple
from launcher.vllm.installed import Engine, newest_record

MODULE = "dynamo.vllm"
_RECORD = "ai_dynamo"


class WorkerTable(NamedTuple):
    """The arguments of one version of the worker."""

    version: str
    vllm: str  # the version of vLLM that it pins
    own: frozenset[str]  # option strings that it reads before vLLM's parser sees the rest
    not_taken: frozenset[str]  # flags of `vllm serve` that it does not know: those of the HTTP server


class Worker(NamedTuple):
    """An installed worker: the interpreter that runs it, and its package's version (empty where it is not there)."""

    python: str
    version: str

    @property
    def installed(self) -> bool:
        return bool(self.version)

    @property
    def start(self) -> tuple[str, ...]:
        """The words before the model."""
        return (self.python, "-m", MODULE, "--model")


def load() -> WorkerTable:
    """The table of the one version that is known."""
    with open(f"{__file__.rpartition('/')[0]}/dynamo.json", encoding="utf-8") as stream:
        document = json.load(stream)
    own = frozenset((*document["own"], *document["router"]))
    return WorkerTable(document["version"], document["vllm"], own, frozenset(document["not_taken"]))


def find(engine: Engine | None, modules: Sequence[str] | None = None) -> Worker:
    """The worker beside ``engine``, the vLLM that would run; beside our own interpreter where there is none.

    ``modules`` is where our interpreter finds packages: sys.path unless given.
    """
    if engine is None or engine.own:
        python, folders = sys.executable, tuple(sys.path if modules is None else modules)
    else:
        python, folders = engine.python, engine.packages
    version = newest_record(_RECORD, folders) if any(os.path.isdir(f"{path}/dynamo/vllm") for path in folders) else ""
    return Worker(python, version)
