"""Checkpoints that the project writes itself: small, deterministic, with a known text and a known acceptance.

``NAMES`` lists them and `members` says what each is for.  Heads and drafts that fit guess every token right, but for
one that forgets some letters.
"""

from __future__ import annotations

import json
from hashlib import sha1, sha256
from pathlib import Path

from tests.models import tokenizer
from tests.models.documents import to_json
from tests.models.members import MEMBERS
from tests.models.targets import Tensors
from tests.models.tensors import to_safetensors

NAMES = tuple(MEMBERS)


def files(name: str, shards: int = 1) -> dict[str, bytes]:
    """The files of the member ``name``.  With more than one shard the weights are split and have an index."""
    member = MEMBERS[name]()
    contents = {"config.json": to_json(member.config)}
    if member.tensors is not None:
        contents |= _weights(member.tensors, shards)
    if member.tokenizer:
        contents |= tokenizer.files()
    return contents


def write(name: str, folder: Path, *, shards: int = 1) -> Path:
    """Write the member ``name`` into ``folder`` (made if missing) and return it.  Equal calls write equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files(name, shards).items():
        (folder / file).write_bytes(data)
    return folder


def write_snapshot(name: str, hub: Path, repository: str) -> Path:
    """Write the member as Hugging Face's cache keeps ``repository`` ("org/name") and return the snapshot's folder.

    A snapshot holds links alone; the bytes are in ``blobs``, under the names that the hub gives them.
    """
    contents = files(name)
    revision = sha1(b"".join(contents.values())).hexdigest()
    entry = hub / f"models--{repository.replace('/', '--')}"
    snapshot = entry / "snapshots" / revision
    for folder in (entry / "blobs", entry / "refs", snapshot):
        folder.mkdir(parents=True)
    (entry / "refs" / "main").write_text(revision)
    for file, data in contents.items():
        blob = _blob(file, data)
        (entry / "blobs" / blob).write_bytes(data)
        (snapshot / file).symlink_to(Path("../../blobs") / blob)
    return snapshot


def _weights(tensors: Tensors, shards: int) -> dict[str, bytes]:
    if shards == 1:
        return {"model.safetensors": to_safetensors(tensors)}
    names = sorted(tensors)
    contents = {}
    places: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        share = names[number::shards]
        contents[file] = to_safetensors({name: tensors[name] for name in share})
        places |= dict.fromkeys(share, file)
    total = sum(len(tensor.data) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    contents["model.safetensors.index.json"] = json.dumps(index, indent=2).encode()
    return contents


def _blob(file: str, data: bytes) -> str:
    """Large files are known by their SHA-256, the others by their git object id."""
    if file.endswith(".safetensors"):
        return sha256(data).hexdigest()
    return sha1(b"blob %d\0" % len(data) + data).hexdigest()
