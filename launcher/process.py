"""The hand-over: this process becomes ``vllm serve``.

No shell and no supervising parent: vLLM gets our process id, so signals, exit code and cgroup are its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from launcher import logs
from launcher.errors import INTERRUPTED, TERMINATED, ConfigurationError

TERMINATION_LOG = "/dev/termination-log"


class Stopped(BaseException):
    """SIGTERM or SIGINT before the hand-over.  Not an Exception: nothing on the way may swallow it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def install_signals() -> None:
    """Turn SIGTERM and SIGINT into `Stopped`.

    As process 1 of a container, a signal without a handler would simply be ignored.
    """
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(INTERRUPTED if number == signal.SIGINT else TERMINATED)


def restore_signals() -> None:
    """Give the next program the signal dispositions that a shell would have given it.

    Handlers fall away at exec by themselves, but what Python set to "ignore" would be inherited.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def hand_over(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``argv``.  Raises ConfigurationError when the program cannot be executed."""
    sys.stdout.flush()
    sys.stderr.flush()
    restore_signals()
    try:
        os.execvpe(argv[0], list(argv), dict(environment))
    except OSError as error:
        raise ConfigurationError(
            f"cannot execute {argv[0]!r}: {error.strerror}",
            "Check that the file exists, is executable and fits this machine",
        ) from None
    except ValueError:
        raise ConfigurationError("an argument or a variable holds a NUL character", "Remove it") from None


def last_words(sentence: str) -> None:
    """Leave the reason of a refusal where Kubernetes looks for it.  A missing or read-only file is no error."""
    try:
        # Opened without O_CREAT: the file exists only where a kubelet put it.
        descriptor = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return
    try:
        os.write(descriptor, logs.mask(sentence).encode()[:4096])
    except OSError:
        pass
    finally:
        os.close(descriptor)
