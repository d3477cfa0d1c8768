"""One thread of a download: it asks for a span, receives it into its buffer, and writes it to the part."""

from __future__ import annotations

import os
import threading
import time

from launcher.errors import IntegrityError
from launcher.fetch.answer import Answer
from launcher.fetch.behind import Behind
from launcher.fetch.channel import FAILURES, Channel, Route, reason
from launcher.fetch.disk import refusal
from launcher.fetch.incoming import Incoming
from launcher.fetch.remote import Location
from launcher.fetch.retry import Hindrance, Refused, broken_off, changed, check_status, wrong_size
from launcher.fetch.schedule import Schedule, Task
from launcher.fetch.spans import Span

_BUFFER = 512 * 1024  # bytes; larger ones of all threads together fall out of the processors' caches
_LEAST = 16 * 1024  # bytes read at once from a slow connection, so that its progress is seen and recorded
_QUICK, _SLOW = 0.05, 0.5  # seconds for one piece


class Fetcher:
    """A thread with its own connections and one buffer."""

    def __init__(self, schedule: Schedule, behind: Behind, route: Route) -> None:
        self.channel = Channel(route)
        self.thread = threading.Thread(target=self._run, name="fetch", daemon=True)
        self.received = 0  # bytes, whether they were of use or not
        self.last_piece = 0.0  # time.monotonic() of the last progress; 0 while it waits for work
        self.tasks = 0  # begun so far
        self._schedule = schedule
        self._behind = behind
        self._buffer = memoryview(bytearray(_BUFFER))
        self._piece = 2 * _LEAST

    def _run(self) -> None:
        last: Incoming | None = None
        while (task := self._schedule.next(last)) is not None:
            last = task.incoming
            self.tasks += 1
            self.last_piece = time.monotonic()
            try:
                self._do(task)
            except BaseException as error:
                self._schedule.give_up(error, last.job.label)
            self.last_piece = 0.0
        self.channel.drop()

    def _do(self, task: Task) -> None:
        incoming = task.incoming
        try:
            if incoming.file.xet:
                _by_xet(incoming)
            else:
                self._fetch(incoming, task.span)
        except Hindrance as hindrance:
            self._schedule.failed(task, hindrance)
        else:
            self._schedule.done(task)
        if incoming.needs_tending():
            self._behind.add(incoming)

    def _fetch(self, incoming: Incoming, span: Span) -> None:
        """One request, and what comes of it."""
        location = incoming.locate()
        is_whole = span == (0, incoming.file.size)
        headers = {} if is_whole else {"Range": f"bytes={span.start}-{span.stop - 1}"}
        asked = time.monotonic()
        response, final = self.channel.open(location, headers, incoming.file.path)
        self._schedule.pace.replied(time.monotonic() - asked)
        try:
            try:
                check_status(response.status, response.fields, incoming.file.path, final.url)
            except Refused as refusal:
                if not incoming.refused(location):
                    raise refusal.error from None
                raise
            span = self._accept(incoming, span, response, final)
            if not incoming.accepted(final, response.fields.get("etag", "")):
                incoming.spoil(changed(incoming.file.path, "the server gives it another ETag than before"))
            else:
                incoming.open()
                self._receive(incoming, span, response, final.url)
        finally:
            if not response.isclosed():
                self.channel.drop(response)

    def _accept(self, incoming: Incoming, span: Span, response: Answer, location: Location) -> Span:
        """Check that the answer holds what was asked for; the span that it really brings."""
        file, url = incoming.file, location.url
        if response.status == 206:
            found = _content_range(response.fields.get("content-range", ""))
            if found is None or found[0] != span.start:
                raise wrong_size(file.path, url, f"asked for bytes from {span.start}, got {found}")
            if found[2] not in (None, file.size):
                raise changed(file.path, f"it has {found[2]} bytes, its listing says {file.size}")
            return Span(span.start, min(span.stop, found[1]))
        length = response.fields.get("content-length", "")
        if length.isdecimal() and int(length) != file.size:
            raise wrong_size(file.path, url, f"{length} bytes, its listing says {file.size}")
        if span != (0, file.size):
            incoming.without_ranges()
            return Span(span.start, span.start)
        return span

    def _receive(self, incoming: Incoming, span: Span, response: Answer, url: str) -> None:
        hashing = incoming.begins_hashing(span.start)
        position = span.start
        try:
            while position < span.stop and not self._schedule.stopped and not incoming.spoiled:
                count = self._receive_piece(response, min(incoming.room(position), span.stop - position))
                if not count:
                    raise _ended_early(incoming, position - span.start, response, url)
                if incoming.write(self._buffer[:count], position, hashing):
                    self._behind.add(incoming)
                position += count
            if position == span.stop and not incoming.spoiled and not response.isclosed() and response.read(1):
                raise wrong_size(incoming.file.path, url, "the answer goes on after its end")
        except FAILURES as error:
            raise broken_off(incoming.file.path, url, reason(error)) from None
        finally:
            if hashing:
                incoming.ends_hashing()

    def _receive_piece(self, response: Answer, most: int) -> int:
        """Fill the buffer with up to ``most`` bytes: as many as come in a moment."""
        began = time.monotonic()
        count = response.readinto(self._buffer[: min(most, self._piece)])
        self.last_piece = now = time.monotonic()
        self.received += count
        if now - began < _QUICK:
            self._piece = min(_BUFFER, 2 * self._piece)
        elif now - began > _SLOW:
            self._piece = max(_LEAST, self._piece // 2)
        return count


def _content_range(text: str) -> tuple[int, int, int | None] | None:
    """First byte, end (not part of it) and size of the object, of ``bytes 0-9/100``."""
    unit, _, rest = text.partition(" ")
    numbers, _, size = rest.partition("/")
    first, _, last = numbers.partition("-")
    if unit != "bytes" or not first.isdecimal() or not last.isdecimal():
        return None
    return int(first), int(last) + 1, int(size) if size.isdecimal() else None


def _ended_early(incoming: Incoming, count: int, response: Answer, url: str) -> Hindrance:
    if response.fields.get("content-length") or response.chunked:
        return broken_off(incoming.file.path, url, f"the connection was closed after {count} bytes")
    return wrong_size(
        incoming.file.path, url, f"the answer ended after {incoming.present} of {incoming.file.size} bytes"
    )


def _by_xet(incoming: Incoming) -> None:
    """Leave a file that only Xet storage serves to hf-xet, which writes the part by itself."""
    from launcher.fetch.hf import Repository
    from launcher.fetch.xet import fetch_by_xet

    job = incoming.job
    if not isinstance(job.remote, Repository):
        raise IntegrityError(f"{job.file.path} is said to be in Xet storage, but comes from elsewhere", "Report this")
    try:
        fetch_by_xet(job.remote, job.file, job.part)
        size = os.stat(job.part).st_size
    except OSError as error:
        raise refusal(job.part, error) from None
    if size != job.file.size:
        raise IntegrityError(f"hf-xet wrote {size} bytes of {job.file.path}, which has {job.file.size}", "Start again")
    incoming.arrived_by_itself()
