"""Runs inside an interpreter of its own: the worker's own reading of command lines, from the unpacked package.

    python dynamo_parser.py PACKAGE LINES ANSWER

LINES is a JSON file of argument lists.  What ai-dynamo compiles (its runtime, another package) is not there and is
replaced by objects that do nothing; the parsers, the worker's and vLLM's, are real.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

COMPILED = ("_core", "_internal", "llm", "runtime", "prometheus_names", "health_check", "logits_processing")
SHOWN = ("model", "served_model_name", "speculative_config", "max_num_seqs", "tensor_parallel_size", "hf_overrides")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, module = name.partition(".")
        if package != "dynamo" or module.partition(".")[0] not in COMPILED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        module.get_reasoning_parser_names = module.get_tool_parser_names = list
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def main(package: str, lines: str, answer: str) -> None:
    sys.meta_path.insert(0, Absent())
    sys.path.insert(0, package)
    worker = importlib.import_module("dynamo.vllm.args")
    read = {}
    for name, words in json.loads(Path(lines).read_text()).items():
        _, engine = worker._parse_cli_args(words)
        read[name] = {key: getattr(engine, key) for key in SHOWN}
    Path(answer).write_text(json.dumps(read))


if __name__ == "__main__":
    main(*sys.argv[1:])
