"""``NIM_PEFT_SOURCE``: a folder of LoRA adapters as vLLM arguments."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.arguments.values import Argument, Merged, given
from launcher.errors import (
    ConfigurationError,
    DeniedError,
    IncompatibleError,
    IntegrityError,
    NotFoundError,
    shortened,
)
from launcher.sources import parse_source, shown
from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import EngineTable, Flag

ORIGIN = "NIM_PEFT_SOURCE"
CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
_OWNER = "Make it readable for this user"
_ENABLE, _MODULES, _RANK = "--enable-lora", "--lora-modules", "--max-lora-rank"


class AdapterFolder(NamedTuple):
    """A sub-folder that claims to be an adapter."""

    name: str
    path: str  # absolute
    config: bytes  # of adapter_config.json
    files: tuple[str, ...]  # names of all its files


class Adapter(NamedTuple):
    name: str
    path: str
    rank: int  # the largest of its modules


def read_folders(text: str) -> tuple[AdapterFolder, ...]:
    """The adapters below the folder that ``NIM_PEFT_SOURCE`` names, by name (an effect: reads the folder).

    Raises ConfigurationError for a source that is no local folder, NotFoundError for a missing folder or one without
    adapters, DeniedError for one that cannot be read.
    """
    source = parse_source(text, ORIGIN)
    if not source.is_local:
        raise ConfigurationError(
            f"{ORIGIN}: {shown(text)} is not a local folder", "Mount the adapters and give their folder"
        )
    folder = Path(source.name)
    try:
        if not folder.is_dir():
            raise NotFoundError(f"{ORIGIN}: there is no folder {folder}", _nearest(folder))
        found = tuple(_read(child) for child in sorted(folder.iterdir()) if _is_adapter(child))
    except OSError as error:
        place = f"{ORIGIN}: {shortened(str(error.filename or folder))}"
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigurationError(f"{place} is no path: a name in it is too long", "Check the path") from None
        raise DeniedError(f"{place} cannot be read: {error.strerror}", _OWNER) from None
    if not found:
        raise NotFoundError(f"{ORIGIN}: {folder} holds no adapter", _form(folder))
    return found


def adapters_of(folders: Sequence[AdapterFolder]) -> tuple[Adapter, ...]:
    """Read the configurations.  Raises IntegrityError naming the file that is not what it should be."""
    return tuple(Adapter(folder.name, folder.path, _rank(folder)) for folder in folders)


def adapter_arguments(adapters: Sequence[Adapter], table: EngineTable) -> tuple[Argument, ...]:
    """The flags that serve ``adapters``, with the smallest rank limit that holds them all.

    Raises IncompatibleError when this vLLM allows no such rank, ConfigurationError when it has no LoRA flags.
    """
    largest = max(adapters, key=lambda adapter: adapter.rank)
    limit = _limit(largest, _flag(table, _RANK))
    return (
        given(_flag(table, _ENABLE), (), ORIGIN),
        given(_flag(table, _MODULES), tuple(_module(adapter) for adapter in adapters), ORIGIN),
        given(_flag(table, _RANK), (str(limit),), ORIGIN),
    )


def settled(merged: Merged) -> Merged:
    """``merged`` without what is left of `adapter_arguments` where a higher level decided otherwise, and a warning.

    Only for launches that have NIM_PEFT_SOURCE.

    Other ``--lora-modules`` take the place of these adapters, and the limit of their rank says nothing of the others;
    ``--no-enable-lora`` leaves neither a meaning.
    """
    stale: tuple[str, ...]
    winners = {argument.flag: argument for argument in merged.arguments}
    enable, modules = winners.get(_ENABLE), winners.get(_MODULES)
    if enable is not None and enable.negated and modules is not None and modules.origin == ORIGIN:
        stale, why = (_MODULES, _RANK), f"{enable.words[0] if enable.words else _ENABLE} ({enable.origin})"
    elif modules is not None and modules.origin != ORIGIN:
        stale, why = (_RANK,), f"{_MODULES} ({modules.origin})"
    else:
        return merged
    kept = tuple(a for a in merged.arguments if not (a.flag in stale and a.origin == ORIGIN))
    warning = f"{ORIGIN} is ignored, and none of its adapters is served: {why} counts"
    return merged._replace(arguments=kept, warnings=(*merged.warnings, warning))


def _nearest(folder: Path) -> str:
    parent = next(parent for parent in folder.parents if parent.exists())
    return f"Is the volume mounted? The nearest existing parent is {parent}"


def _form(folder: Path) -> str:
    if (folder / CONFIG).is_file():
        return f"It is an adapter itself: give the folder above, {folder.parent}"
    return f"Each adapter is a sub-folder with an {CONFIG}, named as it is to be served"


def _is_adapter(child: Path) -> bool:
    """Hidden folders are a volume's own (``..data`` of a Kubernetes mount)."""
    return not child.name.startswith(".") and (child / CONFIG).is_file()


def _read(folder: Path) -> AdapterFolder:
    files = tuple(sorted(child.name for child in folder.iterdir()))
    return AdapterFolder(folder.name, str(folder), (folder / CONFIG).read_bytes(), files)


def _rank(folder: AdapterFolder) -> int:
    file = f"{folder.path}/{CONFIG}"
    config = _object(folder.config, file)
    patterns = config.get("rank_pattern") or {}
    ranks: list[int] = []
    for rank in (config.get("r"), *(patterns.values() if isinstance(patterns, dict) else (patterns,))):
        if type(rank) is not int or rank < 1:
            raise IntegrityError(f"{file}: the rank r is {rank!r}, not a positive integer", "Export the adapter again")
        ranks.append(rank)
    if not set(folder.files) & set(WEIGHTS):
        raise IntegrityError(f"{folder.path} has an {CONFIG} and no {WEIGHTS[0]}", "Copy the whole adapter")
    return max(ranks)


def _object(content: bytes, file: str) -> Mapping[str, Any]:
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{file} is not JSON: {error}", "Copy the adapter again") from None
    if not isinstance(config, dict):
        raise IntegrityError(f"{file} holds no JSON object", "Copy the adapter again")
    return config


def _limit(largest: Adapter, flag: Flag) -> int:
    allowed = sorted(int(choice) for choice in flag.choices) or [largest.rank]
    fitting = [limit for limit in allowed if limit >= largest.rank]
    if not fitting:
        raise IncompatibleError(
            f"{ORIGIN}: adapter {largest.name} has rank {largest.rank}, and this vLLM takes at most {allowed[-1]}",
            "Remove it from the folder, or export it with a lower rank",
        )
    return fitting[0]


def _module(adapter: Adapter) -> str:
    """``name=path``; as JSON where vLLM would cut such a word at the wrong place."""
    if "=" in adapter.name or "," in adapter.name or "," in adapter.path or adapter.name.startswith("-"):
        return json.dumps({"name": adapter.name, "path": adapter.path})
    return f"{adapter.name}={adapter.path}"


def _flag(table: EngineTable, name: str) -> Flag:
    flag = table.flag(name)
    if flag is None:
        raise ConfigurationError(f"{ORIGIN}: vLLM {table.version} has no {name}", f"Unset {ORIGIN}")
    return flag
