"""From a bucket and a hub to measured acceptance; then again with all of them gone, from a copy nobody can write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.engine.conftest import Launch
from tests.engine.test_speculation import EAGLE3_DRAFT, check
from tests.models import files
from tests.storage import servers
from tests.storage.hub import TOKEN, Hub
from tests.storage.test_s3 import administrator, environment

BUCKET = "models"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """An S3 store that holds the plain target; the variables that lead to it."""
    with servers.moto(tmp_path) as server:
        client = administrator(server)
        client.create_bucket(Bucket=BUCKET)
        for name, data in files("plain").items():
            client.put_object(Bucket=BUCKET, Key=f"llama/plain/{name}", Body=data)
        yield environment(server.url)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/eagle3", files("eagle3"))
    yield hub
    hub.close()


def test_target_in_a_bucket_and_draft_on_a_hub(
    bucket: Mapping[str, str], hub: Hub, launch: Launch, tmp_path: Path
) -> None:
    sources = {"NIM_DRAFT_MODEL_PATH": "hf://org/eagle3", "NIM_CACHE_PATH": f"{tmp_path}/models"}
    words = ("--speculative-config", EAGLE3_DRAFT)
    online = {**bucket, "HF_ENDPOINT": hub.url}
    secret = ("--hf-token", TOKEN)
    with launch(f"s3://{BUCKET}/llama/plain", *words, *secret, **sources, **online, HF_HUB_OFFLINE="0") as server:
        check(server, "eagle3", 0.6)
        assert TOKEN not in server.ask("/metrics").body.decode()
        assert server.model() == f"{BUCKET}/llama/plain"
    served = hub.content
    hub.close()
    carried = tmp_path / "carried"
    shutil.copytree(tmp_path / "models", carried, symlinks=True)
    for path in (carried, *carried.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    offline = {**sources, "NIM_CACHE_PATH": str(carried), "HF_HUB_OFFLINE": "1"}
    with launch(f"s3://{BUCKET}/llama/plain", *words, **offline) as server:
        check(server, "eagle3", 0.6)
    assert hub.content == served
