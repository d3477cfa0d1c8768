"""Runs inside vLLM's interpreter: what the real parser, keys and classes do with samples.  Not a test module.

``python probe_table.py SAMPLES ANSWERS``: two JSON files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(samples: str, answers: str) -> None:
    asked = json.loads(Path(samples).read_text(encoding="utf-8"))
    answer = {
        "parsed": parsed(asked["command_lines"]),
        "keys": [key_error(key, value) for key, value in asked["keys"]],
        "marked": {name: marked(name) for name in asked["architectures"]},
    }
    Path(answers).write_text(json.dumps(answer), encoding="utf-8")


def parsed(command_lines: list[list[Any]]) -> list[Any]:
    """The value that vLLM's own parser stores for each ``[dest, words]``; a refusal is the string "refused"."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    values = []
    for dest, words in command_lines:
        try:
            values.append(getattr(parser.parse_args(["some/model", *words]), dest))
        except SystemExit:
            values.append("refused")
    return values


def key_error(key: str, value: Any) -> str | None:
    """What vLLM says against one key of an n-gram configuration; None if it takes it."""
    from vllm.config.speculative import SpeculativeConfig

    try:
        SpeculativeConfig(**{"method": "ngram", "num_speculative_tokens": 2, key: value})
    except ValueError as error:
        return str(error)
    return None


def marked(name: str) -> bool:
    """Whether the class of an architecture carries EAGLE3's marker."""
    from vllm.model_executor.models.interfaces import SupportsEagle3
    from vllm.model_executor.models.registry import ModelRegistry

    return SupportsEagle3 in ModelRegistry.models[name].load_model_cls().__mro__


if __name__ == "__main__":
    main(*sys.argv[1:])
