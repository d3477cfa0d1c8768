"""Facts of checkpoints, remembered between starts under the cache.

A large index costs more to parse than all the rest of a warm start.  What it gave is kept in one small file a folder,
together with every file's size, time and inode; when one of them differs the facts are computed again.  Nothing here
may fail a start: what cannot be read or written is as good as not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from launcher.checkpoint import Checkpoint, Head, Portion, Tensor, Weights, read_config
from launcher.places import make_shared
from launcher.sources import Entry
from launcher.typing import Any, NamedTuple

_PRIME = 2**61 - 1  # what a key's bytes are reduced by; zlib's checksum would have to be imported
FORMAT = 3  # raise it whenever a fact is added or means something else


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
        path = self._file(key)
        aside = f"{path}.{os.urandom(4).hex()}"  # containers share process ids
        try:
            make_shared(self.folder)
            with open(aside, "w", encoding="ascii") as file:
                file.write(json.dumps(document))
            os.replace(aside, path)
        except (OSError, ValueError, TypeError):
            try:
                os.unlink(aside)
            except OSError:
                pass

    def _file(self, key: str) -> str:
        """One file a key.  Two keys may share one by chance: the key inside tells, and they take turns."""
        number = int.from_bytes(key.encode(errors="surrogateescape"), "big")
        return f"{self.folder}/{number % _PRIME:016x}.json"


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
            heads=tuple([Head(kind, many, name, dtype, tuple(of)) for kind, many, name, dtype, of in weights["heads"]]),
            tensors=tuple([Tensor(name, dtype, tuple(shape)) for name, dtype, shape in weights["tensors"]]),
            unlisted=weights["unlisted"],
            portions=tuple([Portion(*portion) for portion in weights["portions"]]),
        ),
        drafts=tuple(document["drafts"]),
        custom_code=document["custom_code"],
        lora=document["lora"],
        runtime=document["runtime"],
        mistral=document["mistral"],
    )
