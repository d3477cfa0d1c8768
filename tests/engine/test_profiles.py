"""A profile with a published draft, from a hub to measured acceptance; the toggle; and a draft of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Launch
from tests.engine.test_speculation import check
from tests.models import files, write
from tests.storage.hub import Hub

PROFILE = """\
schema: 1
family: tiny
models:
  - name: tiny-plain
    runtime: {max_num_seqs: 16}
    speculation:
      draft:
        source: hf://org/eagle3
        revision: null
        licence: Apache-2.0
        method: eagle3
        tokens: 2
        evidence: {url: https://host/page, date: 2026-01-02}
    variants:
      - precision: bf16
        sources: [hf://org/plain]
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/plain", files("plain"))
    hub.add("org/eagle3", files("eagle3"))
    yield hub
    hub.close()


@pytest.fixture
def knowing(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """An environment with a profile of its own and a hub on loopback."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(PROFILE)
    return {
        "NIM_PROFILES_PATH": str(folder),
        "NIM_CACHE_PATH": f"{tmp_path}/cache",
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
    }


def test_the_toggle_brings_the_published_draft(hub: Hub, knowing: dict[str, str], launch: Launch) -> None:
    with launch("hf://org/plain", NIM_SPECDEC_ENABLE="1", **knowing) as server:
        check(server, "eagle3", 0.6)
        counters = server.counters()
        assert counters is not None and len(counters.per_position) == 2  # the profile's tokens, not the method's three
    assert hub.ledger.asked("org/eagle3")


def test_without_the_toggle_no_byte_of_it_is_asked_for(hub: Hub, knowing: dict[str, str], launch: Launch) -> None:
    with launch("hf://org/plain", **knowing) as server:
        assert "vllm:spec_decode" not in server.ask("/metrics").body.decode()
        assert server.model() == "org/plain"
    assert hub.ledger.asked("org/plain") and hub.ledger.asked("eagle3") == []
    assert hub.storage.ledger.asked("eagle3") == []


def test_a_draft_of_the_users_own_wins(hub: Hub, knowing: dict[str, str], launch: Launch, tmp_path: Path) -> None:
    own = write("eagle3", tmp_path / "own")
    with launch("hf://org/plain", NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH=str(own), **knowing) as server:
        check(server, "eagle3", 0.6)
    assert hub.ledger.asked("eagle3") == []
