"""The model and the draft that the tests of the cache fetch."""

from __future__ import annotations

from tests.storage.launchers import Launcher
from tests.storage.web import Server
from tests.unit.shards import shard

MODEL = "hf://org/model"
WEIGHTS = shard({"a": ("F32", (1024, 1024))})
CONTENT = {
    "README.md": b"# model",
    "config.json": b'{"model_type": "llama"}',
    "draft/config.json": b"{}",
    "model.safetensors": WEIGHTS,
}
DRAFT = {"config.json": b'{"draft": 1}', "model.safetensors": shard({"d": ("F32", (256, 1024))})}
SIZE = sum(map(len, CONTENT.values()))


def keyed(launcher: Launcher, store: Server) -> Launcher:
    return launcher.with_(
        AWS_ENDPOINT_URL=store.url, AWS_ACCESS_KEY_ID="key-id-of-test", AWS_SECRET_ACCESS_KEY="secret"
    )
