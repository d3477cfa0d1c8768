"""The examples of a hosted service's page, in its own words, on the real vLLM."""

from __future__ import annotations

import json
from pathlib import Path

from tests import hosted
from tests.engine.conftest import Launch
from tests.engine.test_speculation import REPETITIVE, check
from tests.models import write


def test_mtp_with_five_tokens(models: Path, launch: Launch) -> None:
    with launch(models / "mtp", NIM_ENGINE_CONFIG=json.dumps(hosted.MTP)) as server:
        check(server, "mtp", 0.95)
        counters = server.counters()
        assert counters is not None and len(counters.per_position) == 5


def test_eagle3_with_draft_tensor_parallel_size_one(launch: Launch, tmp_path: Path) -> None:
    target = write("plain", tmp_path / "target")
    write("eagle3", target / "speculator" / "tuned" / "v1")
    with launch(target, NIM_ENGINE_CONFIG=json.dumps(hosted.EAGLE3)) as server:
        check(server, "eagle3", 0.6)


def test_ngram_with_a_window(models: Path, launch: Launch) -> None:
    with launch(models / "plain", NIM_ENGINE_CONFIG=json.dumps(hosted.WINDOW)) as server:
        check(server, "ngram", 0.7, REPETITIVE)


def test_ngram_with_vllms_own_window(models: Path, launch: Launch) -> None:
    with launch(models / "plain", NIM_ENGINE_CONFIG=json.dumps(hosted.NGRAM)) as server:
        check(server, "ngram", 0.7, REPETITIVE)
