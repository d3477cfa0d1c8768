"""Which bytes of one file are there, and which are on their way (pure).

A file is divided into chunks.  Each is filled from its start, so one number a chunk says all; a span is a run of chunks
that one connection fetches, from the first byte that the first of them lacks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from launcher.typing import NamedTuple

CHUNK = 16 * 1024 * 1024  # bytes


class Span(NamedTuple):
    """Bytes from ``start`` up to ``stop``, which is not part of it."""

    start: int
    stop: int


class Spans:
    """The state of one file of ``size`` bytes.  Not safe between threads by itself."""

    def __init__(self, size: int, chunk: int = CHUNK) -> None:
        self.size = size
        self.chunk = chunk
        self.clear()

    def clear(self) -> None:
        """Nothing is there, nothing is on its way."""
        self.counts = array("I", bytes(4 * -(-self.size // self.chunk)))  # bytes that each chunk has from its start
        self.valid = 0  # bytes
        self._taken = bytearray(len(self.counts))
        self._edge = 0  # the first chunk that is not full

    def restore(self, counts: Iterable[int]) -> None:
        """Take over what an earlier process recorded."""
        for number, count in enumerate(counts):
            self.counts[number] = min(count, self._length(number))
        self.valid = sum(self.counts)

    @property
    def complete(self) -> bool:
        return self.valid == self.size

    @property
    def edge(self) -> int:
        """All bytes before this one are there."""
        while self._edge < len(self.counts) and self.counts[self._edge] == self._length(self._edge):
            self._edge += 1
        if self._edge == len(self.counts):
            return self.size
        return self._edge * self.chunk + self.counts[self._edge]

    def has_free(self) -> bool:
        """Whether something lacks that nobody fetches."""
        return self._first_free() is not None

    def take(self, most: int) -> Span | None:
        """Bytes to fetch next: the first that nobody fetches, at most about ``most`` of them."""
        first = self._first_free()
        if first is None:
            return None
        stop = first + 1
        # Only empty chunks can be joined: what follows a partly filled one would be fetched a second time.
        while (
            stop < len(self.counts)
            and not self._taken[stop]
            and not self.counts[stop]
            and min(self.size, (stop + 1) * self.chunk) - first * self.chunk <= most
        ):
            stop += 1
        self._taken[first:stop] = b"\1" * (stop - first)
        return Span(first * self.chunk + self.counts[first], min(self.size, stop * self.chunk))

    def release(self, span: Span) -> None:
        """``span`` is no longer being fetched; what it still lacks is free again."""
        first, stop = span.start // self.chunk, -(-span.stop // self.chunk)
        self._taken[first:stop] = bytes(stop - first)

    def room(self, position: int) -> int:
        """How many bytes may be written at ``position`` before `advance`: up to the end of its chunk."""
        return min(self.size, (position // self.chunk + 1) * self.chunk) - position

    def advance(self, position: int, count: int) -> tuple[int, int]:
        """``count`` more bytes are there, at ``position``; the chunk's number and all that it has now."""
        number = position // self.chunk
        self.counts[number] += count
        self.valid += count
        return number, self.counts[number]

    def _length(self, number: int) -> int:
        return min(self.chunk, self.size - number * self.chunk)

    def _first_free(self) -> int | None:
        for number in range(self.edge // self.chunk, len(self.counts)):
            if not self._taken[number] and self.counts[number] < self._length(number):
                return number
        return None
