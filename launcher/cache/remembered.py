"""Facts of checkpoints, remembered between starts under the cache.

A large index costs more to parse than all the rest of a warm start.  What it gave is kept in one small file a folder,
together with every file's size, time and inode; when one of them differs the facts are computed again.  Nothing here
may fail a start: what cannot be read or written is as good as not there.
"""

import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from launcher.checkpoint import Checkpoint, Head, Tensor, Weights, read_config
from launcher.sources import Entry

FORMAT = 1  # raise it whenever a fact is added or means something else


class Remembered(NamedTuple):
    """The memory in ``folder``, which need not exist."""

    folder: str

    def recall(self, key: str, listing: Sequence[Entry]) -> Checkpoint | None:
        """What was kept under ``key`` (a place, and its role), if all its files are still as they were."""
        try:
            with open(self._file(key), "rb") as file:
                document = json.loads(file.read())
            if document["format"] != FORMAT or document["key"] != key or document["files"] != _stamp(listing):
                return None
            return _from_document(document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def keep(self, checkpoint: Checkpoint, key: str, listing: Sequence[Entry]) -> None:
        """Remember; a cache that cannot be written only means computing again."""
        document = {"format": FORMAT, "key": key, "files": _stamp(listing), **_to_document(checkpoint)}
        from pathlib import Path

        path = Path(self._file(key))
        aside = path.with_name(f"{path.name}.{os.urandom(4).hex()}")  # containers share process ids
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(document), encoding="ascii")
            aside.replace(path)
        except (OSError, ValueError, TypeError):
            with suppress(OSError):
                aside.unlink()

    def _file(self, key: str) -> str:
        """One file a key.  Two keys may share one by chance: the key inside tells, and they take turns."""
        return f"{self.folder}/{zlib.crc32(key.encode(errors='surrogateescape')):08x}.json"


def _stamp(listing: Sequence[Entry]) -> str:
    return "\n".join([f"{size} {mtime} {inode} {path}" for path, size, mtime, inode in listing])


def _to_document(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        **checkpoint._asdict(),
        "config": checkpoint.config.document,
        "quantization": checkpoint.config.quantization,  # it may stand in a file of its own
        "weights": checkpoint.weights._asdict(),
    }


def _from_document(document: dict[str, Any]) -> Checkpoint:
    weights = document["weights"]
    return Checkpoint(
        place=document["place"],
        config=read_config(document["config"])._replace(quantization=document["quantization"]),
        weights=Weights(
            form=weights["form"],
            bytes=weights["bytes"],
            files=weights["files"],
            heads=tuple([Head(*head) for head in weights["heads"]]),
            tensors=tuple([Tensor(name, dtype, tuple(shape)) for name, dtype, shape in weights["tensors"]]),
        ),
        drafts=tuple(document["drafts"]),
        custom_code=document["custom_code"],
        lora=document["lora"],
        runtime=document["runtime"],
    )
