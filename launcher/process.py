"""The hand-over: this process becomes ``vllm serve``.

No shell and no supervising parent: vLLM gets our process id, so signals, exit code and cgroup are its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from launcher import logs, signals
from launcher.errors import ConfigurationError
from launcher.typing import NoReturn

TERMINATION_LOG = "/dev/termination-log"


def hand_over(argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``argv``.  Raises ConfigurationError when the program cannot be executed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a closed descriptor has none
            stream.flush()
    signals.restore()
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
