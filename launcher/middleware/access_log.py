"""Successful probes and scrapes leave no line in the access log: they come every few seconds, and say nothing."""

from __future__ import annotations

import logging

LOGGER = "uvicorn.access"
PROBES = frozenset(
    ("/v1/health/live", "/v1/health/ready", "/v1/metrics", "/health", "/ping", "/metrics", "/load"),
)


class NoProbes(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        # uvicorn's arguments: client address, method, path with query, HTTP version, status.
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) != 5:
            return True
        path, status = arguments[2], arguments[4]
        return not (isinstance(status, int) and status < 400 and str(path).partition("?")[0] in PROBES)


def silence_probes() -> None:
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(known, NoProbes) for known in logger.filters):
        logger.addFilter(NoProbes())
