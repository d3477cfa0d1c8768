"""Facts remembered under the cache: equal when nothing changed, forgotten when anything did, never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cache.remembered import FORMAT, Remembered
from launcher.checkpoint import Checkpoint, Head, Tensor, Weights, read_config
from launcher.sources import Entry

LISTING = (Entry("config.json", 10, 111, 7), Entry("model.safetensors", 99, 222, 8))
FACTS = Checkpoint(
    place="/m",
    config=read_config({"architectures": ["A"], "text_config": {"hidden_size": 8}})._replace(quantization="modelopt"),
    weights=Weights(
        "safetensors",
        99,
        1,
        (Head("mtp", 2, "mtp.fc.weight", "BF16", (0, 2)),),
        (Tensor("d2t", "I64", (256,)), Tensor("fc.weight", "BF16", (8, 24))),
        "mtp.safetensors",
    ),
    drafts=("speculator/a",),
    custom_code=True,
    lora=True,
    runtime={"max_num_seqs": 4},
    mistral=True,
)


def memory(tmp_path: Path) -> Remembered:
    return Remembered(str(tmp_path / "cache/facts"))


def file_of(tmp_path: Path) -> Path:
    (only,) = (tmp_path / "cache/facts").iterdir()
    return only


def test_facts_come_back_equal(tmp_path: Path) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    known = memory(tmp_path).recall("/m", LISTING)
    assert known == FACTS
    assert known is not None
    assert isinstance(known.weights.tensors[0], Tensor)
    assert isinstance(known.weights.heads[0], Head)
    assert known.config.text is known.config.document["text_config"]


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    assert memory(tmp_path).recall("/m", LISTING) is None


@pytest.mark.parametrize(
    "changed",
    [
        (Entry("config.json", 11, 111, 7), LISTING[1]),
        (Entry("config.json", 10, 112, 7), LISTING[1]),
        (Entry("config.json", 10, 111, 9), LISTING[1]),
        LISTING[:1],
        (*LISTING, Entry("runtime_config.json", 2, 3, 4)),
    ],
)
def test_a_change_of_any_file_is_noticed(tmp_path: Path, changed: tuple[Entry, ...]) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    assert memory(tmp_path).recall("/m", changed) is None


def test_another_place_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    path = file_of(tmp_path)
    path.rename(memory(tmp_path)._file("/other"))
    assert memory(tmp_path).recall("/other", LISTING) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 0}', '{"format": 2, "key": "/m"}', "[" * 100_000, "\\udc00"]
)
def test_a_corrupt_memory_is_ignored(tmp_path: Path, text: str) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    file_of(tmp_path).write_text(text)
    assert memory(tmp_path).recall("/m", LISTING) is None


@pytest.mark.parametrize("key", ["weights", "config", "drafts", "quantization"])
def test_a_memory_of_another_shape_is_ignored(tmp_path: Path, key: str) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    path = file_of(tmp_path)
    document = json.loads(path.read_text())
    del document[key]
    path.write_text(json.dumps(document))
    assert memory(tmp_path).recall("/m", LISTING) is None


def test_a_memory_of_another_format_is_ignored(tmp_path: Path) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    path = file_of(tmp_path)
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 999'))
    assert memory(tmp_path).recall("/m", LISTING) is None


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder belongs")
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    assert memory(tmp_path).recall("/m", LISTING) is None


def test_keeping_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    memory(tmp_path).keep(FACTS, "/m", LISTING)
    memory(tmp_path).keep(FACTS._replace(drafts=()), "/m", LISTING[:1])
    assert file_of(tmp_path).suffix == ".json"
    known = memory(tmp_path).recall("/m", LISTING[:1])
    assert known is not None
    assert known.drafts == ()


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    listing = (Entry("caf\udce9.json", 1, 2, 3),)
    memory(tmp_path).keep(FACTS, "/m\udce9", listing)
    assert memory(tmp_path).recall("/m\udce9", listing) == FACTS
