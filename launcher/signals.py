"""SIGTERM and SIGINT until the hand-over.

As process 1 of a container, a signal without a handler would simply be ignored; and Python's own answer to Ctrl-C is a
traceback.
"""

from __future__ import annotations

import signal

from launcher.errors import INTERRUPTED, TERMINATED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


class Stopped(BaseException):
    """A signal came.  Not an Exception: nothing on the way may swallow it."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(name)
        self.name = name
        self.exit_code = exit_code


def install() -> None:
    """Turn both signals into `Stopped`."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)


def restore() -> None:
    """Give the next program the signal dispositions that a shell would have given it.

    Handlers fall away at exec by themselves, but what Python set to "ignore" would be inherited.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    # A second one, while the first is being dealt with, must not interrupt that.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise Stopped(signal.Signals(number).name, INTERRUPTED if number == signal.SIGINT else TERMINATED)
