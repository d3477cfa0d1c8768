"""Programs that a benchmark starts: in a process group of their own, logged to a file, gone when it is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from launcher.errors import DeniedError, NotFoundError

STOP_WITHIN = 60.0  # seconds from SIGTERM to SIGKILL
_STEP = 0.1
_PR_SET_PDEATHSIG = 1


@contextmanager
def starting(words: Sequence[str], environ: Mapping[str, str], log: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for the length of the block; at its end the whole group is ended."""
    try:
        with open(log, "wb") as output:
            process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
    except FileNotFoundError:
        raise NotFoundError(f"{words[0]} is not there", "Check the path") from None
    except OSError as error:
        raise DeniedError(f"{words[0]} cannot be started: {error.strerror}", "Check its mode") from None
    try:
        yield process
    finally:
        stop(process)


def ended(process: subprocess.Popen[bytes], patience: float) -> int | None:
    """The exit code; None when it still runs after ``patience`` seconds."""
    limit = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < limit:
        time.sleep(_STEP)
    return process.poll()


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the group: politely, then hard.  Workers that outlive their parent go too."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        ended(process, STOP_WITHIN)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def _die_with_parent() -> None:
    """In the child: a clean end when the benchmark dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
