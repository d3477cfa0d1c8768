"""Reading a little of a remote source before anything is downloaded: configuration, index, headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.remote import Location, Remote, RemoteFile
from launcher.fetch.rest import Answer, Service
from launcher.sources import Entry

MOST_BYTES = 1024 * 1024 * 1024  # of all reads together; the largest index known has some 10 MB
_EXPIRED = (401, 403)  # what stores answer to a link that was signed too long ago


class Peek:
    """The files of a remote listing as a `Source`."""

    def __init__(self, remote: Remote, files: Sequence[RemoteFile], environ: Mapping[str, str], source: str) -> None:
        self._remote = remote
        self._files = {file.path: file for file in files}
        self._service = Service(source, "", environ)
        self._source = source
        self._left = MOST_BYTES
        self.read_something = False

    def listing(self) -> tuple[Entry, ...]:
        return tuple(Entry(file.path, file.size, 0, 0) for file in self._files.values())

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes of a file from ``offset``.

        Raises DeniedError, NotFoundError or NetworkError as the source answers, and IntegrityError for an answer that
        is not what was asked for.
        """
        file = self._files[path]
        length = min(length, file.size - offset)
        if length <= 0:
            return b""
        self._left -= length
        if self._left < 0:
            raise IntegrityError(
                f"{self._source}: its configuration and headers take more than {MOST_BYTES} bytes",
                "Check that this is a model",
            )
        answer = self._ask(self._remote.locate(file), offset, length)
        if answer.status in _EXPIRED:
            answer = self._ask(self._remote.locate(file), offset, length)
        data = self._part(answer, file, offset, length)
        self.read_something = True
        return data

    def check_access(self) -> None:
        """Raise what the source answers to a read of its smallest file, unless it has answered one already.

        Some sources list to everybody what only few may read.
        """
        some = [file for file in self._files.values() if file.size > 0]
        if some and not self.read_something:
            self.read(min(some, key=lambda file: file.size).path, 0, 1)

    def _ask(self, location: Location, offset: int, length: int) -> Answer:
        wanted = {"Accept": "*/*", "Range": f"bytes={offset}-{offset + length - 1}"}
        return self._service.ask(location.url, {**dict(location.headers), **wanted})

    def _part(self, answer: Answer, file: RemoteFile, offset: int, length: int) -> bytes:
        data = answer.body[offset : offset + length] if answer.status == 200 else answer.body
        if answer.status not in (200, 206):
            raise self._refusal(answer, file)
        if len(data) != length:
            raise IntegrityError(
                f"{self._source}: {file.path} gave {len(data)} bytes where {length} were asked for",
                "Start again; if it stays so, the source is damaged",
            )
        return data

    def _refusal(self, answer: Answer, file: RemoteFile) -> LauncherError:
        what = f"{self._source}: {file.path} was answered with {answer.status}"
        if answer.status in _EXPIRED:
            return DeniedError(what, "Check the credentials: files may need more rights than the listing")
        if answer.status in (404, 410):
            return NotFoundError(f"{what} although it is listed", "Start again once the source is complete")
        if answer.status == 412:
            return IntegrityError(f"{what}: it changed after it was listed", "Start again once the upload is complete")
        return NetworkError(what, "Try again later")
