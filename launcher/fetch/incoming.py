"""One file on its way in: its part on disk, what of it is there, and its digest.

Several threads write to different spans of a file at once.  The digest needs the bytes in order, so one at a time has
the role of tending the file: the thread that is just writing at the hashed edge, or one that reads behind the others.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from launcher.errors import IntegrityError, LauncherError
from launcher.fetch import disk, record
from launcher.fetch.digests import Running, running
from launcher.fetch.remote import Location, Remote, RemoteFile
from launcher.fetch.spans import CHUNK, Span, Spans
from launcher.places import let_group_write
from launcher.typing import NamedTuple

SMALL = 1024 * 1024  # bytes up to which a file is fetched at once, and anew after a crash: it needs no record
_BEHIND = 8 * 1024 * 1024  # bytes that may lie unhashed before a thread is called to read them
_ENOUGH = 1024 * 1024  # bytes that make a failed attempt a useful one


class Job(NamedTuple):
    """A file to fetch into ``part``, whose progress stands in ``record`` (absolute paths); both may exist already."""

    remote: Remote
    file: RemoteFile
    part: str
    record: str
    label: str = "target"  # or "draft": progress is shown for each


class Incoming:
    """The state of one job.  Every public method may be called from any thread."""

    def __init__(self, job: Job, verify: bool) -> None:
        self.job = job
        self.file = job.file
        self.digest = job.file.digest if verify else None
        self.is_small = job.file.size <= SMALL
        self.by_ranges = not job.file.xet
        self.active = 0  # spans being fetched; the schedule's
        self.not_before = 0.0  # time.monotonic() of the next attempt; the schedule's
        self.failures = 0  # attempts in a row that brought next to nothing; the schedule's
        self.spoiled = False  # what is there cannot be used: to be reset once nobody works on it
        self._spans = Spans(job.file.size, CHUNK)
        self._lock = threading.Lock()
        self._locating = threading.Lock()
        self._location: Location | None = None
        self._refused = 0  # locations in a row
        self._validator = ""
        self._descriptor = -1
        self._record: record.Record | None = None
        self._reached = 0  # the most bytes that were ever there at a failure
        self._second_time = False
        self._tended = False  # whether somebody has the role of hashing, and at the end settling, this file
        self._hashed = 0
        self._running = self._new_digest()
        self._resume()

    @property
    def present(self) -> int:
        """Bytes that are there."""
        return self._spans.valid

    @property
    def is_complete(self) -> bool:
        return self._spans.complete

    def take(self, most: int) -> Span | None:
        """The next span to fetch; without support for ranges, or for a small file, everything.

        A spoiled file is reset first, when nobody works on it any more.
        """
        with self._lock:
            if self.spoiled:
                if self.active or self._tended:
                    return None
                self._reset()
            return self._spans.take(most if self.by_ranges else self.file.size)

    def release(self, span: Span) -> None:
        with self._lock:
            if not self.spoiled:
                self._spans.release(span)
                if (self.is_small or not self.by_ranges) and not self._spans.complete:
                    self._reset()

    def room(self, position: int) -> int:
        """The most bytes that one `write` at ``position`` may have."""
        return self._spans.room(position)

    def locate(self) -> Location:
        """Where the bytes are; the source is asked once."""
        with self._locating:
            if self._location is None:
                self._location = self.job.remote.locate(self.file)
            return self._location

    def accepted(self, location: Location, validator: str) -> bool:
        """``location`` gave an answer with this validator (ETag); whether that is the content which is there already.

        Where a digest will be compared it decides: copies of one object on several machines may differ in ETag.
        """
        with self._lock:
            self._location = location
            self._refused = 0
            if self.digest is None and validator and not validator.startswith("W/"):
                if self._validator and self._validator != validator[:100]:
                    return False
                self._validator = validator[:100]
        return True

    def refused(self, location: Location) -> bool:
        """``location`` answered 401 or 403; whether another one is worth a try."""
        with self._lock:
            if self._location is location:
                self._location = None
                self._refused += 1
            return self._refused < 2

    def open(self) -> None:
        """Make the part ready for writing.  Raises what the disk's refusal means."""
        with self._lock:
            if self._descriptor < 0:
                try:
                    self._open()
                except OSError as error:
                    raise disk.refusal(self.job.part, error) from None

    def begins_hashing(self, position: int) -> bool:
        """Take the tending role for a span that starts at ``position``, if the digest is just there."""
        with self._lock:
            if self.digest is None or self._tended or self._hashed != position:
                return False
            self._tended = True
            return True

    def write(self, data: memoryview, position: int, hashing: bool) -> bool:
        """Store ``data``; whether the digest has fallen so far behind that somebody must `tend` the file now.

        ``hashing``: the caller has the tending role and writes at the hashed edge.
        """
        try:
            disk.write_all(self._descriptor, data, position)
            with self._lock:
                number, count = self._spans.advance(position, len(data))
                if self._record is not None:
                    self._record.note(number, count)
                lags = not hashing and self._takes_role(_BEHIND)
            if count == CHUNK:
                disk.begin_flush(self._descriptor, number * CHUNK, CHUNK)
        except OSError as error:
            raise disk.refusal(self.job.part, error) from None
        if hashing and self._running is not None:
            self._running.update(data)
            self._hashed += len(data)
        return lags

    def ends_hashing(self) -> None:
        """Give the tending role back."""
        with self._lock:
            self._tended = False

    def needs_tending(self) -> bool:
        """Whether the caller must see to it that somebody `tend`s the file: it has the role now."""
        with self._lock:
            return self._takes_role(1)

    def tend(self, buffer: memoryview) -> bool:
        """Read what is there behind the digest; whether all is there and hashed, so that the file can be settled.

        Only for who has the role; it is given back unless the answer is True.
        """
        while True:
            with self._lock:
                count = 0 if self.spoiled or self._running is None else self._spans.edge - self._hashed
                if not count:
                    self._tended = self._spans.complete and not self.spoiled
                    return self._tended
            self.open()
            read = os.preadv(self._descriptor, [buffer[:count]], self._hashed)
            if not read or self._running is None:
                raise IntegrityError(f"{self.job.part} became shorter while it was read", "Start again")
            self._running.update(buffer[:read])
            self._hashed += read

    def is_right(self) -> bool:
        """Whether the digest of the whole file is the source's."""
        return self._running is None or self.digest is None or self._running.hexdigest() == self.digest.value

    def spoil(self, error: LauncherError, tending: bool = False) -> None:
        """What is there cannot be used.  The first time it is dropped and fetched anew, then ``error`` is raised.

        ``tending``: the caller has the tending role and gives it back.
        """
        with self._lock:
            if self._second_time and not self.spoiled:
                raise error
            self._second_time = self.spoiled = True
            self._tended = False if tending else self._tended

    def without_ranges(self) -> None:
        """The server answers with the whole file whatever it is asked for."""
        with self._lock:
            self.by_ranges = False
            self.spoiled = True

    def got_somewhere(self) -> bool:
        """Whether more is there than at the last failure."""
        with self._lock:
            gained = self._spans.valid - self._reached
            self._reached = max(self._reached, self._spans.valid)
        return gained >= min(_ENOUGH, max(1, self.file.size))

    def arrived_by_itself(self) -> None:
        """Somebody else has written the whole part."""
        with self._lock:
            self._spans.restore([CHUNK] * len(self._spans.counts))

    def is_ours(self) -> bool:
        """Whether the part still has its name: a process that was asleep too long may have lost it."""
        try:
            return os.fstat(self._descriptor).st_ino == os.stat(self.job.part).st_ino
        except OSError:
            return False

    def flush(self) -> None:
        """Make the part survive a crash of the machine.  Raises what the disk's refusal means."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise disk.refusal(self.job.part, error) from None

    def close(self) -> None:
        with self._lock:
            self._close_files()

    def _takes_role(self, least: int) -> bool:
        if self._tended or self.spoiled:
            return False
        lag = self._spans.edge - self._hashed if self.digest else 0
        self._tended = lag >= least or self._spans.complete
        return self._tended

    def _new_digest(self) -> Running | None:
        return running(self.digest, self.file.size) if self.digest else None

    def _resume(self) -> None:
        """Take over what an earlier process has left."""
        file, job = self.file, self.job
        if self.is_small:
            with suppress(OSError):
                if self.digest and os.stat(job.part).st_size == file.size:
                    self._spans.restore([CHUNK])
            return
        found = record.read(job.record, job.part, file, CHUNK, checked=self.digest is not None)
        if found is not None:
            self._spans.restore(found[0])
            self._validator = found[1]

    def _open(self) -> None:
        job = self.job
        if self._spans.valid:
            self._descriptor = os.open(job.part, os.O_RDWR | os.O_CLOEXEC)
            if not self.is_small and not self.file.xet:
                self._begin_record()
            return
        if not self.is_small:  # the record first, for it must never describe another part
            with suppress(FileNotFoundError):
                os.unlink(job.record)
        self._descriptor = _created(job.part)
        if not self.is_small:
            disk.allocate(self._descriptor, self.file.size)
            self._begin_record()

    def _begin_record(self) -> None:
        self._record = record.begin(
            self.job.record, self._descriptor, self.file, CHUNK, self._spans.counts, self._validator
        )

    def _close_files(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._record is not None:
            self._record.close()
            self._record = None

    def _reset(self) -> None:
        """Forget all that is there; the next `open` makes a new part."""
        self._close_files()
        self._spans.clear()
        self._validator = ""
        self._hashed = 0
        self._running = self._new_digest()
        self._tended = self.spoiled = False


def _created(path: str) -> int:
    """A new file.  What was there is removed, not truncated: a process that once owned it may still write to it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        os.unlink(path)
        descriptor = os.open(path, flags, 0o666)
    let_group_write(descriptor)
    return descriptor
