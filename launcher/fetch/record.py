"""The record of a part's progress: which of its bytes are there, kept beside it while they arrive.

A line of JSON in a block of fixed length says what the part is; four bytes a chunk follow, rewritten in place after
each write.  So a process that is killed loses no more than what it had in its hands.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence

from launcher.fetch.disk import kernel
from launcher.fetch.remote import RemoteFile
from launcher.places import let_group_write
from launcher.typing import NamedTuple

FORMAT = 1
_HEAD = 512  # bytes


class Record(NamedTuple):
    """An open record."""

    descriptor: int

    def note(self, number: int, count: int) -> None:
        """Chunk ``number`` has ``count`` bytes, all of which were written before."""
        os.pwrite(self.descriptor, struct.pack("<I", count), _HEAD + 4 * number)

    def close(self) -> None:
        os.close(self.descriptor)


def begin(path: str, part: int, file: RemoteFile, chunk: int, counts: Sequence[int], validator: str) -> Record:
    """Open the record of an open part (its descriptor), new or as it was `read`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    let_group_write(descriptor)
    # The counts first: a record without its head is no record.
    os.pwrite(descriptor, struct.pack(f"<{len(counts)}I", *counts), _HEAD)
    os.pwrite(descriptor, _head(file, chunk, os.fstat(part).st_ino, validator), 0)
    return Record(descriptor)


def read(path: str, part: str, file: RemoteFile, chunk: int, checked: bool) -> tuple[Sequence[int], str] | None:
    """The counts and the validator that were recorded for ``part``; None when they do not describe it.

    ``checked``: a digest will be compared in the end.  Without one, bytes that were written before the machine last
    started are not trusted, for a record can reach the disk before what it describes.
    """
    try:
        with open(path, "rb") as opened:
            head = json.loads(opened.read(_HEAD))
            counts = struct.unpack(f"<{-(-file.size // chunk)}I", opened.read())
        status = os.stat(part)
        wanted = json.loads(_head(file, chunk, status.st_ino, head["validator"]))
        if not checked and head["kernel"] != wanted["kernel"]:
            return None
        if head | {"kernel": ""} != wanted | {"kernel": ""} or status.st_size != file.size:
            return None
        return counts, str(head["validator"])
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None


def _head(file: RemoteFile, chunk: int, inode: int, validator: str) -> bytes:
    document = {
        "format": FORMAT,
        "identity": hashlib.sha256(file.identity.encode("utf-8", "surrogateescape")).hexdigest(),
        "size": file.size,
        "chunk": chunk,
        "inode": inode,
        "kernel": kernel(),
        "validator": validator[:100],
    }
    return json.dumps(document).encode().ljust(_HEAD)
