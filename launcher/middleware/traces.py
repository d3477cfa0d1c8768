"""The files that captured requests are written to: names, locks, repair of a torn end, rotation.

One process writes a file.  The n-th API server takes the n-th name; where another launcher already holds that (its lock
tells), the next free one.  Nothing here runs on the event loop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator

from launcher.middleware.records import MOONCAKE, RAW, Unusable, decoded
from launcher.typing import NamedTuple

_MOST_NAMES = 256  # of writers that share a folder
_BLOCK = 1 << 16
_BEGINNING = b'{"timestamp": '  # of our own lines: a torn one that is the file's only line may be cut
_LONGEST_LINE = 1 << 27  # bytes; no line of ours is longer


class Naming(NamedTuple):
    """``/captures/requests.jsonl`` and what its companions are called.  ``endpoint`` is empty for the first one."""

    folder: str
    stem: str
    suffix: str
    endpoint: str = ""

    def path(self, number: int) -> str:
        """The file of the ``number``-th writer, from 1."""
        return f"{self._base(number)}{self.suffix}"

    def rotated(self, number: int, begun: float, copy: int = 1) -> str:
        """What a full file is called from then on: by the time of its first record (epoch seconds), in UTC."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun))
        return f"{self._base(number)}.{stamp}{f'-{copy}' if copy > 1 else ''}{self.suffix}"

    def all_rotated(self, number: int) -> list[str]:
        """The full files that are there, oldest first."""
        base = os.path.basename(self._base(number))
        pattern = re.compile(rf"{re.escape(base)}\.\d{{8}}T\d{{6}}Z(-\d+)?{re.escape(self.suffix)}")
        found = [f"{self.folder}/{name}" for name in os.listdir(self.folder) if pattern.fullmatch(name)]
        return sorted(found, key=lambda path: (os.stat(path).st_mtime_ns, path))

    def _base(self, number: int) -> str:
        endpoint = f".{self.endpoint}" if self.endpoint else ""
        return f"{self.folder}/{self.stem}{endpoint}{f'.{number}' if number > 1 else ''}"


def naming(path: str, endpoint: str = "") -> Naming:
    """``endpoint`` is a request's path, where it is not the one that ``path`` itself is for."""
    folder, _, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    plain = re.sub(r"[^A-Za-z0-9]+", "-", endpoint).strip("-")[:80]
    return Naming(folder, stem, dot + suffix, plain) if stem else Naming(folder, name, "", plain)


class Trace:
    """One file, opened when there is something to write and again when it was taken away."""

    def __init__(self, naming: Naming, number: int, form: str, max_bytes: int, max_files: int) -> None:
        self.naming = naming
        self.number = number
        self.form = form
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.rotations = 0
        self._descriptor = -1
        self._begun = 0.0

    @property
    def path(self) -> str:
        return self.naming.path(self.number)

    def open(self) -> None:
        """Make sure that the file is the one at its path.  Raises OSError."""
        if self._descriptor >= 0:
            if self._is_in_place():
                return
            self.close()
        for number in range(self.number, self.number + _MOST_NAMES):
            if self._opened(number):
                self.number = number
                return
        raise OSError(errno.EBUSY, "every name is in use")

    def write(self, line: bytes, begun: float) -> None:
        """Append one line; all of it or nothing.  ``begun``: the record's time, in epoch seconds.  Raises OSError."""
        if self._descriptor < 0:
            self.open()
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        if size and size + len(line) > self.max_bytes:
            self._rotate()
            size = 0
        if not size:
            self._begun = begun
        written = os.write(self._descriptor, line)
        if written < len(line):
            # The disk is full, or a limit on file sizes is reached.
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))

    def _opened(self, number: int) -> bool:
        """Whether the file of this number is ours now.  False: another process writes it."""
        path = self.naming.path(number)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        while True:
            descriptor = os.open(path, flags, 0o600)
            try:
                _refuse_other_kinds(descriptor)
                if not _locked(descriptor):
                    os.close(descriptor)
                    return False
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    _keep_private(descriptor)
                    self._take(descriptor, number)
                    return True
            except FileNotFoundError:
                pass  # whoever held it has just renamed it
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _take(self, descriptor: int, number: int) -> None:
        """Go on with what the file holds: repaired, or put aside where it is of the other format."""
        form, begun = _repair(descriptor)
        self._descriptor, self._begun, self.number = descriptor, begun, number
        if form not in ("", self.form):
            self._rotate()

    def _rotate(self) -> None:
        copy = 1
        while os.path.exists(aside := self.naming.rotated(self.number, self._begun, copy)):
            copy += 1
        os.rename(self.path, aside)
        self.close()
        self.rotations += 1
        for old in self.naming.all_rotated(self.number)[: -max(self.max_files - 1, 0) or None]:
            os.unlink(old)
        self.open()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: the number alone tells writers apart
    return True


def _refuse_other_kinds(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def _keep_private(descriptor: int) -> None:
    """Prompts are in it.  A file system without modes, or another owner's file, stays as it is."""
    try:
        os.fchmod(descriptor, 0o600)
    except OSError:
        return


def _repair(descriptor: int) -> tuple[str, float]:
    """Cut the torn end that a crash left, or end the last line.  The format of what is there, and when it began.

    Raises OSError where the file holds something else, which is left alone.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        return "", 0.0
    form, begun = _first(descriptor, size)
    if os.pread(descriptor, 1, size - 1) != b"\n":
        start = _last_line(descriptor, size)
        tail = os.pread(descriptor, min(size - start, _LONGEST_LINE), start)
        if _form(tail):
            os.write(descriptor, b"\n")
        else:
            os.ftruncate(descriptor, start)
    return form, begun


def _first(descriptor: int, size: int) -> tuple[str, float]:
    head = b""
    while b"\n" not in head and len(head) < min(size, _LONGEST_LINE):
        head += os.pread(descriptor, max(_BLOCK, len(head)), len(head))
    line, newline, _ = head.partition(b"\n")
    form = _form(line)
    if not form and (newline or not line.startswith(_BEGINNING)):
        raise OSError(errno.EEXIST, "it holds something else than captured requests")
    begun = os.fstat(descriptor).st_mtime
    if form == MOONCAKE:
        stamp = decoded(line)["timestamp"]
        begun = stamp / 1000 if isinstance(stamp, int | float) and 0 <= stamp < 1e14 else begun
    return form, begun


def _form(line: bytes) -> str:
    """The format of a line; empty for what is none."""
    try:
        record = decoded(line)
    except Unusable:
        return ""
    if not isinstance(record, dict) or not record:
        return ""
    if record.keys() == {"timestamp", "payload"}:
        return MOONCAKE
    return RAW if isinstance(record.get("messages"), list) else ""


def _last_line(descriptor: int, size: int) -> int:
    """Where the last line begins."""
    for start in _backwards(size):
        block = os.pread(descriptor, _BLOCK, start)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
    return 0


def _backwards(size: int) -> Iterator[int]:
    start = size
    while start > 0:
        start = max(0, start - _BLOCK)
        yield start
