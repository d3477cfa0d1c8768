"""A hub with a model and a draft, a launcher on it, and what else holds the same model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.cache.model import CONTENT, DRAFT
from tests.storage.hub import Hub
from tests.storage.launchers import Launcher, launcher_in
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Asked, Body, Reply, Server


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("org/model", CONTENT)
    hub.add("org/draft", DRAFT)
    return hub


@pytest.fixture
def launcher(hub: Hub, place: Path) -> Launcher:
    return launcher_in(place, HF_ENDPOINT=hub.url)


@pytest.fixture
def volume(place: Path) -> Iterator[Path]:
    """A file system of 6 MiB of its own at the cache's place."""
    (place / "cache").mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=755", "none", str(place / "cache")]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount")
    yield place / "cache"
    subprocess.run(["umount", "-l", str(place / "cache")], check=True)


@pytest.fixture
def bucket() -> Iterator[SmallS3]:
    yield SmallS3({f"m/model/{path}": data for path, data in CONTENT.items()} | {"m/model-v2/config.json": b"other"})


@pytest.fixture
def store(bucket: SmallS3) -> Iterator[Server]:
    server = Server(bucket)
    yield server
    server.close()


@pytest.fixture
def mirror(place: Path) -> Iterator[Server]:
    """The folder ``mirror``, as any web server would serve it."""

    def answer(asked: Asked) -> Reply:
        path = place / "mirror" / asked.path.lstrip("/")
        return Reply(200, {}, Body(path=path), ranges=True, content=True) if path.is_file() else Reply(404)

    server = Server(answer)
    yield server
    server.close()
