"""A complete snapshot as a source: exactly the files that its proof names, read where they lie."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launcher.errors import IntegrityError
from launcher.fetch.local import LocalFolder
from launcher.fetch.remote import RemoteFile
from launcher.sources import Entry, Source
from launcher.typing import NamedTuple


class Snapshot(NamedTuple):
    """The ``files`` of the snapshot in ``folder``; whatever else lies there does not count."""

    folder: str
    files: tuple[RemoteFile, ...]

    def listing(self) -> tuple[Entry, ...]:
        """Every file, sorted by path.  Raises IntegrityError for one that is missing or has another size."""
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _lost(self.folder, error.strerror or "") from None
        try:
            return tuple([self._entry(file, descriptor) for file in self.files])
        finally:
            os.close(descriptor)

    def read(self, path: str, offset: int, length: int) -> bytes:
        return LocalFolder(self.folder).read(path, offset, length)

    def _entry(self, file: RemoteFile, descriptor: int) -> Entry:
        try:
            status = os.stat(file.path, dir_fd=descriptor)
        except OSError as error:
            raise _lost(f"{self.folder}/{file.path}", error.strerror or "") from None
        if status.st_size != file.size:
            raise _lost(f"{self.folder}/{file.path}", f"it has {status.st_size} bytes instead of {file.size}")
        return Entry(file.path, status.st_size, status.st_mtime_ns, status.st_ino)


def snapshot_source(folder: str, files: Sequence[RemoteFile]) -> Source:
    """The snapshot in ``folder``; without ``files`` (an index was its only proof) it is all that lies there."""
    return Snapshot(folder, tuple(files)) if files else LocalFolder(folder)


def _lost(path: str, why: str) -> IntegrityError:
    return IntegrityError(f"{path} of the cache has changed while it was read: {why}", "Start again")
