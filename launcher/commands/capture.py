"""``launcher capture validate``: every line of a trace that would stop a replay, in a second instead of one a run."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator

from launcher import logs
from launcher.errors import DeniedError, IntegrityError, NotFoundError
from launcher.middleware.replay import Trace, problems
from launcher.typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing import BinaryIO

_MOST_SHOWN = 1000


def validate(path: str, form: str | None) -> int:
    """Print ``PATH:LINE: why`` for each bad line.

    Raises IntegrityError when there is one, or nothing to replay; NotFoundError and DeniedError for an unreadable file.
    """
    trace = Trace(form)
    bad = 0
    for number, why in problems(_lines(path), trace):
        bad += 1
        if bad <= _MOST_SHOWN:
            print(f"{path}:{number}: {why}")
    sys.stdout.flush()
    if bad > _MOST_SHOWN:
        logs.error(f"{bad - _MOST_SHOWN} more bad lines are not shown")
    for note in trace.notes():
        logs.warning(f"{path}: {note}")
    if bad:
        raise IntegrityError(
            f"{path}: {bad} of {trace.lines} lines would stop a replay", "Remove them; the first stops the whole run"
        )
    if not trace.lines:
        raise IntegrityError(f"{path} holds no request", "A replay needs at least one line")
    logs.info(f"{path}: {trace.summary()}")
    return 0


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a trace, plain or compressed, without their ends."""
    if os.path.isdir(path):
        raise IntegrityError(
            f"{path} is a folder: AIPerf reads one file as a trace, and a folder as conversations one after the other",
            f"Put the files together: cat {path}/*.jsonl > trace.jsonl",
        )
    try:
        with _opened(path) as file:
            for line in file:
                yield line.rstrip(b"\r\n")
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist", "Name a captured trace") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise IntegrityError(f"{path} is no whole gzip file: {error}", "Compress it again") from None
    except OSError as error:
        raise DeniedError(f"{path} cannot be read: {error.strerror}", "Check who may read it") from None


def _opened(path: str) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.endswith(".gz") else open(path, "rb")
