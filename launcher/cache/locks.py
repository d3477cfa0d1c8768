"""Advisory locks of the cache.  They save bytes and say who is waited for; nothing is wrong without them.

Some network file systems accept locks and ignore them, others refuse them: a launcher then works as if it were alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable

from launcher import logs
from launcher.errors import BusyError, DeniedError
from launcher.places import let_group_write, make_shared, why_not_writable
from launcher.typing import NamedTuple

REPEAT = 30.0  # seconds between two lines about the same wait
_POLL = (0.02, 0.5)  # seconds between two tries, growing
_NO_SUPPORT = frozenset((errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))


class Held(NamedTuple):
    """A lock that is held, or (None) that could not be had and is gone without."""

    descriptor: int | None

    def release(self) -> None:
        if self.descriptor is not None:
            # Unlocked by name: a child that was forked meanwhile has the descriptor too, and would keep the lock.
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)


class Clock(NamedTuple):
    """Time, as a test may want to replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


_CLOCK = Clock()


def acquire(path: str, what: str, limit: float, clock: Clock = _CLOCK) -> Held:
    """The lock at ``path``, for oneself, after at most ``limit`` seconds.

    ``what`` is what the lock stands for, as messages call it.  After the limit, and on a file system without locks, the
    answer is a lock that is not held, with one warning.  Raises DeniedError where the file cannot be made.
    """
    descriptor = _open(path)
    try:
        end = clock.now() + limit
        start = _stamp()
        said = -REPEAT * 2
        pause = _POLL[0]
        while not _taken(descriptor, path):
            now = clock.now()
            if now >= end:
                logs.warning(
                    f"{what} has been held by {holder(path)} for over {limit:.0f} s; going on without the lock"
                )
                return _without(descriptor)
            if now - said >= REPEAT:
                logs.info(f"waiting for {what} since {start}: held by {holder(path)}")
                said = now
            clock.sleep(min(pause, max(0.0, end - now)))
            pause = min(pause * 1.5, _POLL[1])
    except _NoLocks as problem:
        _warn_once(problem.reason, os.path.dirname(path))
        return _without(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    _sign(descriptor)
    return Held(descriptor)


def acquire_now(path: str, what: str) -> Held:
    """The lock at ``path``, at once.  Raises BusyError when somebody holds it, DeniedError where it cannot be made."""
    descriptor = _open(path)
    try:
        if _taken(descriptor, path):
            _sign(descriptor)
            return Held(descriptor)
    except _NoLocks as problem:
        _warn_once(problem.reason, os.path.dirname(path))
        return _without(descriptor)
    os.close(descriptor)
    raise BusyError(f"{what} is held by {holder(path)}", "Wait until it has ended, and run this again")


def acquire_folder(path: str, what: str) -> Held:
    """The lock of a folder itself, at once; nothing is left in it.  Raises BusyError when somebody holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError(
            f"{what} is being written by another process", "Wait until it has ended, and run this again"
        ) from None
    except OSError:  # network file systems lock only what is open for writing
        return _without(descriptor)
    return Held(descriptor)


def share(path: str) -> Held:
    """The lock at ``path`` together with others, at once and inherited by whatever this process becomes.

    Not held where it cannot be had: on a read-only cache, or while somebody prunes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        let_group_write(descriptor)
    except OSError:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return Held(None)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return Held(None)
    os.set_inheritable(descriptor, True)
    return Held(descriptor)


def holder(path: str) -> str:
    """Who holds the lock at ``path``, and since when, by its own word."""
    try:
        with open(path, encoding="utf-8") as file:
            process, host, since = file.read(500).split("\n")[:3]
    except (OSError, ValueError):
        return "another process"
    return f"process {process} on {host} since {since}"


def _stamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


class _NoLocks(Exception):
    """The file system refuses locks."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _open(path: str) -> int:
    try:
        make_shared(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _unwritable(os.path.dirname(path), error) from None
    let_group_write(descriptor)
    return descriptor


def _unwritable(folder: str, error: OSError) -> DeniedError:
    if error.errno == errno.EROFS:
        return DeniedError(f"cannot write to the cache at {folder}: {error.strerror}", "Mount it writable for this")
    return DeniedError(
        f"cannot write to the cache at {folder}: {error.strerror}; {why_not_writable(folder)}",
        "Make it writable for that user or its group, or set NIM_CACHE_PATH to a writable folder",
    )


def _taken(descriptor: int, path: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_SUPPORT:
            raise _NoLocks(error.strerror or "no support") from None
        raise
    return True


def _sign(descriptor: int) -> None:
    """Leave one's name for those who wait.  Its loss (a full disk) harms nobody."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{os.uname().nodename}\n{_stamp()}\n".encode(), 0)
    except OSError:
        return


def _without(descriptor: int) -> Held:
    os.close(descriptor)
    return Held(None)


_warned: set[str] = set()


def _warn_once(reason: str, folder: str) -> None:
    if folder not in _warned:
        _warned.add(folder)
        logs.warning(f"{folder} cannot be locked ({reason}): two launchers at once may fetch the same files twice")
