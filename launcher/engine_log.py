"""How vLLM's process writes its log: the launcher's layouts and the launcher's masking.

vLLM's interpreter imports this by the name that its logging configuration gives (`launcher.vllm.log_config`).  Secrets
are known from the environment of that process, as they are in the launcher; no file holds one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from launcher import logs
from launcher.settings.parse import early_log_setup

# The process that clients talk to; the others are named in front of their messages.
_FRONT = ("APIServer", "MainProcess")
_ESCAPE = "\x1b["
ACCESS_LOGGER = "uvicorn.access"


class Formatter(logging.Formatter):
    """One record as NIM's text layout or as a line of JSON; an exception's traceback belongs to its message."""

    def __init__(self, jsonl: bool = False) -> None:
        super().__init__()
        self._layout = logs.json_line if jsonl else logs.text_line
        self._secrets = early_log_setup(os.environ).secrets
        logging.captureWarnings(True)  # else Python writes them to stderr in a layout of its own

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        parts = (message, record.exc_text, record.stack_info and self.formatStack(record.stack_info))
        text = _process(record) + "\n".join(part for part in parts if part)
        text = _plain(logs.masked(text, self._secrets))
        # The id that a client gave its request, put there by the middleware (`launcher.middleware.headers`).
        named = getattr(record, "request_id", "")
        # The handler ends the line itself.
        return self._layout(record.levelname, record.created, record.filename, record.lineno, text, named)[:-1]


class NotThese(logging.Filter):
    """Leaves out the access lines of some paths, which vLLM does itself only with a configuration of its own."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = frozenset(paths)

    def filter(self, record: logging.LogRecord) -> bool:
        # uvicorn's arguments: client address, method, path with query, HTTP version, status.
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) < 3:
            return True
        return str(arguments[2]).partition("?")[0] not in self._paths


def _process(record: logging.LogRecord) -> str:
    name = getattr(record, "vllm_process_name", record.processName)
    return "" if name is None or name.startswith(_FRONT) else f"({name} pid={record.process}) "


def _plain(text: str) -> str:
    """Without the colours of a terminal, which vLLM's greeting has."""
    if _ESCAPE not in text:
        return text
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
