"""vLLM's logging configuration: the same layout, level and masking as the launcher's own log (pure).

vLLM reads a file in the form of `logging.config.dictConfig` that VLLM_LOGGING_CONFIG_PATH names, in each of its
processes, and hands the same to uvicorn.  A configuration of the user's own is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from launcher.typing import NamedTuple

VARIABLE = "VLLM_LOGGING_CONFIG_PATH"
LEVEL = "VLLM_LOGGING_LEVEL"
_STREAM = "VLLM_LOGGING_STREAM"
_OWN_FLAGS = ("--log-config-file", "--logging-config")
_SILENCED = "--disable-access-log-for-endpoints"
_LOGGERS = ("vllm", "launcher", "uvicorn", "uvicorn.error", "uvicorn.access")
_RARE = ("ERROR", "CRITICAL")
_OFF = ("0", "false")


class Said(NamedTuple):
    """What decides vLLM's log: the launcher's settings, the environment, the effective arguments."""

    level: str
    jsonl: bool
    environ: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]


def obstacle(said: Said) -> str | None:
    """Why vLLM's log keeps another layout, or None where ours can be had."""
    if said.environ.get(VARIABLE, "").strip():
        return f"{VARIABLE} is set"
    if said.environ.get("VLLM_CONFIGURE_LOGGING", "").strip().lower() in _OFF:
        return "VLLM_CONFIGURE_LOGGING is off"
    for flag in _OWN_FLAGS:
        if flag in said.flags:
            return f"{flag} is given"
    if said.flags.get("--distributed-executor-backend") == ("ray",):
        return "workers on other nodes, which Ray starts, could not read our configuration"
    return None


def text(said: Said) -> str:
    """The content of the file."""
    level = (said.flags.get("--log-level") or (said.environ.get(LEVEL, "").strip().upper() or said.level,))[-1]
    silenced = [path.strip() for path in ",".join(said.flags.get(_SILENCED, ())).split(",") if path.strip()]
    handler = {
        "class": "logging.StreamHandler",
        "formatter": "launcher",
        "stream": said.environ.get(_STREAM, "").strip() or "ext://sys.stderr",
    }
    loggers = {name: {"handlers": ["launcher"], "level": level, "propagate": False} for name in _LOGGERS}
    loggers["uvicorn.access"]["handlers"] = ["access"]
    document = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"launcher": {"()": "launcher.engine_log.Formatter", "jsonl": said.jsonl}},
        "filters": {"silenced": {"()": "launcher.engine_log.NotThese", "paths": silenced}},
        "handlers": {"launcher": handler, "access": {**handler, "filters": ["silenced"]}},
        "loggers": loggers,
        "root": {"handlers": ["launcher"], "level": level if level in _RARE else "WARNING"},
    }
    return json.dumps(document)
