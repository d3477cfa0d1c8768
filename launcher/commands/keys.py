"""``profiles keys``: what NIM_ENGINE_CONFIG takes for an engine and a version of vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from launcher.engine_config import Key, allowed_keys
from launcher.errors import ConfigurationError
from launcher.typing import Any
from launcher.vllm import installed, tables
from launcher.vllm.tables import EngineTable

_COLUMN = 50


def run(engine: str, version: str | None, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the list.  Raises ConfigurationError for a version that is none."""
    if version is None:
        found = installed.find(environ)
        version = found.version if found and found.version else tables.PINNED
    elif tables.minor(version) is None:
        raise ConfigurationError(f"--version is {version!r}, not a version", "Give it as in 0.32.0")
    keys = allowed_keys(engine, version)
    table = _table(version)
    click.echo(_json(engine, version, keys, table) if as_json else _text(engine, version, keys, table))
    return 0


def _table(version: str) -> EngineTable | None:
    """The table of a version that is supported; of an older one the speculative keys alone are known."""
    try:
        return tables.load(version)
    except ConfigurationError:
        return None


def _flags(table: EngineTable | None) -> list[str]:
    if table is None:
        return []
    names = {flag.name for flag in map(table.flag, table.flag_spellings()) if flag is not None}
    speculative = ("--spec-method", "--spec-model", "--spec-tokens", "--speculative-config")
    return sorted(name[2:] for name in names if name not in (*speculative, "--model", "--config"))


def _json(engine: str, version: str, keys: tuple[Key, ...], table: EngineTable | None) -> str:
    document: dict[str, Any] = {
        "engine": engine,
        "version": version,
        "speculative": [{"key": key.name, "since": key.since[engine], "help": key.help} for key in keys],
        "flags": _flags(table),
    }
    return json.dumps(document, indent=2)


def _text(engine: str, version: str, keys: tuple[Key, ...], table: EngineTable | None) -> str:
    lines = [f"{key.name:<{_COLUMN}} {key.help}" for key in keys]
    flags = _flags(table)
    if flags:
        lines += ["", f"and every flag of vLLM {version} without its dashes:", "  " + "\n  ".join(flags)]
    else:
        lines += ["", f"and the flags of vLLM {version}, which this launcher has no table of"]
    return "\n".join([f"{engine} {version} takes these keys for speculation:", *lines])
