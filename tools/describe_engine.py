"""Write down what the importable vLLM accepts: options, speculative keys, methods, architectures.

Runs inside an interpreter that can import vLLM (``tools/make_tables.py`` starts one per version) and writes JSON to
the file named by its only argument; standard output belongs to vLLM's log.  Asks vLLM's own parser and classes, so that
nothing is restated here.  A value type that it has never met ends the script: a guess would end in every launcher.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

# Where the parser of `vllm serve` lives moves between versions.
PARSERS = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args")

# How vLLM's conversion functions are called, and what they read.
CONVERSIONS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "human_readable_int": "human-int",
    "human_readable_int_or_auto": "human-int",
    "parse_dataclass": "json",
    "parse_reasoning_parser": "str",
}
# Wrappers around another conversion; the first also reads "None" and the empty word as no value.
WRAPPERS = ("_optional_type", "_parse_type")


def main(target: str) -> None:
    import vllm

    options = parser()
    document = {
        "package": vllm.__file__,
        "flags": sorted(flag_row(action, options) for action in distinct(options)),
        "fields": sorted(field_rows()),
        **speculation(),
        **registry(),
    }
    Path(target).write_text(json.dumps(document), encoding="utf-8")


def parser() -> Any:
    """The real parser of ``vllm serve``."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for name in PARSERS:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if not name.startswith(str(missing.name)):
                raise
        else:
            return module.make_arg_parser(FlexibleArgumentParser())
    raise SystemExit(f"no argument parser in any of {', '.join(PARSERS)}")


def distinct(options: Any) -> list[Any]:
    """The options: neither the positional model nor --help."""
    return [action for action in options._actions if action.option_strings and action.dest != "help"]


def flag_row(action: Any, options: Any) -> list[Any]:
    """One option, in the order of `launcher.vllm.tables.Flag`."""
    # The parser knows spellings that the action hides from help.
    spellings = [text for text, owner in options._option_string_actions.items() if owner is action]
    negatives = [text for text in spellings if switches_off(action, text)]
    positives = [text for text in spellings if text not in negatives]
    name = next(text for text in positives if text.startswith("--"))
    aliases = [text for text in positives if text != name]
    reads, words, scaled = conversion(action)
    choices = [str(choice) for choice in action.choices or () if str(choice) != "None"]
    folded = bool(choices) and reads == "str" and action.type is not None and action.type("A-B") == "a_b"
    kind = arity(action)
    return [name, aliases, kind, reads, sorted(choices), action.dest, negatives, words, folded, scaled]


def switches_off(action: Any, spelling: str) -> bool:
    """Whether this spelling of a two-way switch means no."""
    if not isinstance(action, argparse.BooleanOptionalAction):
        return False
    namespace = argparse.Namespace()
    action(argparse.ArgumentParser(), namespace, None, spelling)
    return getattr(namespace, action.dest) is False


def arity(action: Any) -> str:
    """How many words the option takes, and whether it may be repeated; see `Flag.kind`."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "boolean"
    if action.nargs == 0:
        return "switch"
    many = action.nargs in ("+", "*")
    if isinstance(action, argparse._AppendAction):
        return "append-list" if many else "append"
    if action.nargs not in (None, "?", "+", "*"):
        raise SystemExit(f"{action.option_strings}: nargs {action.nargs!r} is new")
    return "list" if many else "optional" if action.nargs == "?" else "value"


def conversion(action: Any) -> tuple[str, list[str], bool]:
    """What a value is read as, words accepted beside that, and whether numbers in its JSON may carry a unit."""
    if action.nargs == 0:
        return "bool", [], False
    convert = action.type
    words: list[str] = []
    while getattr(convert, "__name__", "") in WRAPPERS:
        if convert.__name__ == WRAPPERS[0]:
            words.append("None")
        convert = convert.__closure__[0].cell_contents
    name = getattr(convert, "__name__", "str")
    if name == "human_readable_int_or_auto":
        words.append("auto")
    if name == "loads":
        return ("json-any" if isinstance(action.default, list) else "json"), words, False
    if name == "union_dict_and_str":
        return ("json" if isinstance(action.default, dict) else "str"), words, False
    if name == "<lambda>":
        return "str", words, False
    if name not in CONVERSIONS:
        raise SystemExit(f"{action.option_strings}: conversion {name!r} is new")
    return CONVERSIONS[name], words, name == "parse_dataclass"


def field_rows() -> list[list[Any]]:
    """The keys of --speculative-config, in the order of `launcher.vllm.tables.Field`."""
    from vllm.config.speculative import SpeculativeConfig

    # Objects that vLLM hands over itself.  The draft's is one too, but a dictionary in its place is read (by
    # extract_hidden_states), so it counts as an ordinary key.
    rows = []
    for name, field in SpeculativeConfig.__pydantic_fields__.items():
        engine_object = any(type(part).__name__ == "SkipValidation" for part in field.metadata)
        reads, choices, nullable = annotation(field.annotation)
        rows.append(
            [name, reads, choices, minimum(field.metadata), engine_object and name != "draft_model_config", nullable]
        )
    return rows


def annotation(hint: Any) -> tuple[str, list[str], bool]:
    """Type, choices and whether null is a value."""
    parts = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    nullable = type(None) in parts
    parts = [part for part in parts if part is not type(None)]
    if str in parts:  # a list of known names beside free text is no restriction
        return "str", [], nullable
    (part,) = parts
    if get_origin(part) is Literal:
        return "str", sorted(str(choice) for choice in literals(part)), nullable
    if get_origin(part) is list:
        return "json-any", [], nullable
    for plain, name in ((bool, "bool"), (int, "int"), (float, "float")):
        if part is plain:
            return name, [], nullable
    if isinstance(part, type) and issubclass(part, enum.Enum):
        return "str", [], nullable  # read by name in any case, "auto" included
    if dataclasses.is_dataclass(part):
        return "json", [], nullable
    raise SystemExit(f"speculative type {hint!r} is new")


def literals(hint: Any) -> list[Any]:
    """The values of a Literal, nested ones included."""
    return [value for part in get_args(hint) for value in (literals(part) if get_args(part) else [part])]


def minimum(metadata: list[Any]) -> float | None:
    """The smallest value that the constraints allow, inclusive; all strict ones are over whole numbers."""
    for part in metadata:
        if (strict := getattr(part, "gt", None)) is not None:
            return float(strict) + 1
        if (least := getattr(part, "ge", None)) is not None:
            return float(least)
    return None


def speculation() -> dict[str, list[str]]:
    """Methods, MTP families, speculators formats, and the methods that Model Runner V2 drives."""
    from vllm.config import speculative
    from vllm.config.vllm import VllmConfig
    from vllm.transformers_utils.configs.speculators.base import SUPPORTED_SPECULATORS_TYPES

    methods = sorted(literals(speculative.SpeculativeMethod))
    families = set(literals(speculative.MTPModelTypes))
    unsupported = VllmConfig._get_v2_model_runner_unsupported_features
    return {
        "methods": methods,
        "mtp_types": sorted(families),
        "speculators": sorted(SUPPORTED_SPECULATORS_TYPES),
        "v2_methods": [m for m in methods if not unsupported(plain_config("mtp" if m in families else m))],
    }


def plain_config(method: str) -> Any:
    """The parts of a configuration that the runner's list of gaps looks at, with nothing special but the method."""
    parallel = types.SimpleNamespace(
        distributed_executor_backend=None,
        pipeline_parallel_size=1,
        tensor_parallel_size=1,
        enable_dbo=False,
        use_ubatching=False,
        enable_elastic_ep=False,
    )
    return types.SimpleNamespace(
        model_config=None,
        parallel_config=parallel,
        speculative_config=types.SimpleNamespace(method=method, parallel_drafting=False, use_heterogeneous_vocab=False),
        compilation_config=types.SimpleNamespace(mode=None, pass_config=types.SimpleNamespace(enable_sp=False)),
        cache_config=types.SimpleNamespace(kv_sharing_fast_prefill=False, mamba_cache_mode="none"),
    )


def registry() -> dict[str, Any]:
    """Every architecture, where its class lives, and which of them are drafts."""
    from vllm.model_executor.models import registry as models

    return {
        "architectures": {
            name: [model.module_name, model.class_name] for name, model in models.ModelRegistry.models.items()
        },
        "drafts": sorted(models._SPECULATIVE_DECODING_MODELS),
    }


if __name__ == "__main__":
    main(sys.argv[1])
