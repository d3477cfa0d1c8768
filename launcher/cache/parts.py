"""Unfinished files, and the one process that may write each.

A part's name carries a key of what it holds and the token of its owner.  The part of an owner that is gone is adopted
by renaming it to one's own token, which one process wins; so downloads resume, and two writers never share a part.

An owner is alive while it holds a lock on its own file.  The lock is only believed where it works, and only between
processes of one kernel; everywhere else an owner is alive that touched its file within the last minute.  Times are
compared on the file system's own clock.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from launcher.errors import DeniedError, LauncherError, NoSpaceError
from launcher.fetch.remote import RemoteFile
from launcher.places import let_group_write, make_shared
from launcher.typing import NamedTuple

BEAT = 10.0  # seconds between two touches of an owner's file
SILENCE = 60.0  # seconds without a touch after which an owner counts as gone

_OWNER, _PART, _RECORD = ".owner", ".part", ".record"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Part(NamedTuple):
    """An unfinished file and the record of its progress (absolute paths; neither need exist yet)."""

    path: str
    record: str

    def settle(self, final: str) -> None:
        """Give the finished part its final name, in one step; the record goes.

        Raises FileNotFoundError when the part is no longer ours.
        """
        os.replace(self.path, final)
        with suppress(FileNotFoundError):
            os.unlink(self.record)

    def discard(self) -> None:
        """Remove the part and its record."""
        for path in (self.path, self.record):
            with suppress(FileNotFoundError):
                os.unlink(path)


class Owner:
    """This process as the owner of parts in ``folder``, which is created.  A context manager.

    A forked child must not keep the lock: call `release_in_child` there.  Leaving the context gives up ownership; the
    parts stay, for whoever claims them next.
    """

    def __init__(self, folder: str, *, beat: float = BEAT, silence: float = SILENCE) -> None:
        self.folder = folder
        self.token = f"{_kernel()}{os.urandom(8).hex()}"
        self._beat, self._silence = beat, silence
        self._path = f"{folder}/{self.token}{_OWNER}"
        self._lock = -1
        self._locks_work = False
        self._left = threading.Event()
        self._listed = -1  # the folder's mtime_ns when `_parts` was made
        self._parts: dict[str, list[str]] = {}  # names of all parts by key

    def __enter__(self) -> Owner:
        """Raises DeniedError or NoSpaceError when the folder cannot be written."""
        try:
            make_shared(self.folder)
            self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unusable(self.folder, error) from None
        let_group_write(self._lock)
        self._locks_work = self._take_lock()
        threading.Thread(target=self._keep_touching, name="part-owner", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self.release_in_child()
        with suppress(OSError):
            os.unlink(self._path)

    def release_in_child(self) -> None:
        """Close the lock's descriptor, which a forked child shares with us."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def claim(self, file: RemoteFile) -> Part:
        """The part for ``file``: our own, else an adopted one, else a name for a new one."""
        key = key_of(file)
        mine = Part(f"{self.folder}/{key}.{self.token}{_PART}", f"{self.folder}/{key}.{self.token}{_RECORD}")
        if os.path.exists(mine.path):
            return mine
        for token in self._unowned(key):
            with suppress(FileNotFoundError):  # somebody else was quicker
                os.rename(f"{self.folder}/{key}.{token}{_PART}", mine.path)
                # The part decides who has won; only its winner may take the record.
                with suppress(FileNotFoundError):
                    os.rename(f"{self.folder}/{key}.{token}{_RECORD}", mine.record)
                self._listed = self._changed()  # by us
                return mine
        with suppress(FileNotFoundError):  # a record without its part describes nothing
            os.unlink(mine.record)
        return mine

    def has_company(self) -> bool:
        """Whether another living process owns parts here: so it is seen where locks are not."""
        tokens = [name.removesuffix(_OWNER) for name in self._names() if name.endswith(_OWNER)]
        return any(token != self.token and not self._is_gone(token, f"{token}{_OWNER}") for token in tokens)

    def leftovers(self) -> tuple[str, ...]:
        """Everything in the folder that belongs to no living process: what a clean-up may remove."""
        gone: dict[str, bool] = {self.token: False}
        found = []
        for name in self._names():
            token = _token(name)
            if token is not None and gone.setdefault(token, self._is_gone(token, name)):
                found.append(f"{self.folder}/{name}")
        return tuple(sorted(found))

    def _unowned(self, key: str) -> Iterator[str]:
        """Tokens of the parts of ``key`` whose owner is gone, the latest first."""
        for name in sorted(self._parts_of(key), key=self._touched, reverse=True):
            token = _token(name)
            if token is not None and token != self.token and self._is_gone(token, name):
                yield token

    def _parts_of(self, key: str) -> Sequence[str]:
        """Names of the parts of ``key``.

        The folder is listed anew when others have changed it, and not for each of thousands of files.
        """
        changed = self._changed()
        if changed != self._listed:
            self._listed, self._parts = changed, {}
            for name in self._names():
                if name.endswith(_PART):
                    self._parts.setdefault(name.partition(".")[0], []).append(name)
        return self._parts.get(key, ())

    def _changed(self) -> int:
        """When a name in the folder was made or went, on the file system's clock; -1 where that cannot be known."""
        try:
            return os.stat(self.folder).st_mtime_ns
        except OSError:
            return -1

    def _names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(self.folder)
        return []

    def _touched(self, name: str) -> float:
        try:
            return os.stat(f"{self.folder}/{name}").st_mtime
        except OSError:
            return 0.0

    def _is_gone(self, token: str, name: str) -> bool:
        path = f"{self.folder}/{token}{_OWNER}"
        if self._locks_work and token.startswith(_kernel()):
            with suppress(PermissionError):
                return not os.path.exists(path) or _lock_is_free(path)
        now = self._now()
        last = max(self._touched(f"{token}{_OWNER}"), self._touched(name))
        return now - last > self._silence

    def _now(self) -> float:
        """The file system's time, which may be another machine's."""
        self._touch()
        return self._touched(f"{self.token}{_OWNER}")

    def _take_lock(self) -> bool:
        """Lock our own file; whether locks exclude anybody here."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            return not _lock_is_free(self._path)
        except OSError:
            return False

    def _keep_touching(self) -> None:
        while not self._left.wait(self._beat):
            self._touch()

    def _touch(self) -> None:
        try:
            os.utime(self._path)
        except FileNotFoundError:  # somebody cleaned up too much
            with suppress(OSError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
        except OSError:
            return


def key_of(file: RemoteFile) -> str:
    """What a part holds, as the first half of its name: 32 hex digits."""
    text = f"{file.path}\0{file.identity}\0{file.size}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _token(name: str) -> str | None:
    """The owner's token in the name of a part, a record or an owner's file."""
    stem, dot, kind = name.rpartition(".")
    if f"{dot}{kind}" not in (_OWNER, _PART, _RECORD):
        return None
    return stem.rpartition(".")[2]


def _kernel() -> str:
    """Eight hex digits that processes share which see each other's locks."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except (OSError, ValueError):
        return "00000000"


def _lock_is_free(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _unusable(folder: str, error: OSError) -> LauncherError:
    if error.errno in _FULL:
        return NoSpaceError(f"no space left for {folder}", "Free some space, or set NIM_CACHE_PATH to a larger volume")
    return DeniedError(
        f"the cache folder {folder} cannot be written by uid {os.getuid()}, gid {os.getgid()}: {error.strerror}",
        "Make it writable for that user or its group (chmod -R g+rwX), or set NIM_CACHE_PATH",
    )
