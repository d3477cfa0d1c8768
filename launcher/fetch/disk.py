"""Writing parts: room for all of a file at once, short writes, and what the disk's refusals mean."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import cache
from types import ModuleType

from launcher.errors import DeniedError, IntegrityError, LauncherError, NoSpaceError
from launcher.typing import Any

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SYNC_FILE_RANGE_WRITE = 2
_MANY = 32  # files from which on flushing the whole file system is quicker than one after the other


def allocate(descriptor: int, size: int) -> None:
    """Reserve ``size`` bytes, so that a full disk shows before the first byte.

    The kernel's call, not the C library's posix_fallocate: where a file system cannot reserve (NFS), that one writes a
    byte into every block instead.  There the file only gets its size.
    """
    libc, ctypes = _kernel_calls()
    while libc.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)):
        number = ctypes.get_errno()
        if number in _FULL:
            raise OSError(number, os.strerror(number))
        if number != errno.EINTR:
            os.ftruncate(descriptor, size)
            return


def begin_flush(descriptor: int, position: int, size: int) -> None:
    """Let the disk begin to write these bytes, without waiting: the flush at the end then costs next to nothing."""
    libc, ctypes = _kernel_calls()
    libc.sync_file_range(descriptor, ctypes.c_int64(position), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def write_all(descriptor: int, data: memoryview, position: int) -> None:
    """Write every byte of ``data``."""
    written = os.pwrite(descriptor, data, position)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], position + written)


def flush(paths: list[str]) -> None:
    """Make the files survive a crash of the machine.  Raises OSError for an error of the disk."""
    if len(paths) > _MANY and _flush_file_system(paths[0]):
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _flush_file_system(path: str) -> bool:
    libc, _ = _kernel_calls()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(libc.syncfs(descriptor) == 0)
    finally:
        os.close(descriptor)


@cache
def _kernel_calls() -> tuple[Any, ModuleType]:
    """The C library, for what Python has no function for."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True), ctypes


def kernel() -> str:
    """What changes when this machine starts anew; empty where the system does not say."""
    with suppress(OSError, ValueError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read(36)
    return ""


def refusal(path: str, error: OSError) -> LauncherError:
    """What an error of the file system means for the user."""
    if error.errno in _FULL:
        return NoSpaceError(
            f"no space left for {path}: {error.strerror}",
            "Free some space, or set NIM_CACHE_PATH to a larger volume; what has arrived is kept",
        )
    if error.errno in _FORBIDDEN:
        return DeniedError(
            f"{path} cannot be written by uid {os.getuid()}, gid {os.getgid()}: {error.strerror}",
            "Make the cache writable for that user or its group, or set NIM_CACHE_PATH",
        )
    return IntegrityError(f"{path} cannot be written: {error.strerror}", "Check the file system that it is on")
