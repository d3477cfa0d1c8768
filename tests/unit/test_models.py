"""The embedded checkpoints are what the tests that use them believe."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from tests.models import NAMES, files, write, write_snapshot
from tests.models.chain import BOS, CYCLE, EOS, HIDDEN, TEXT, VOCAB, advance, continuation, embedding, head, successor
from tests.models.drafts import AUX_LAYERS, LARGE_VOCAB, SMALL_HIDDEN, SMALL_VOCAB, small_vocabulary
from tests.models.members import MEMBERS
from tests.models.targets import LAYERS
from tests.models.tensors import Tensor

TWO_MEGABYTES = 2_000_000


def config(name: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(files(name)["config.json"]))


def header(data: bytes) -> dict[str, Any]:
    (size,) = struct.unpack_from("<Q", data)
    return cast("dict[str, Any]", json.loads(data[8 : 8 + size]))


def numbers(tensor: Tensor) -> list[list[float]]:
    """The rows of a bf16 matrix."""
    height, width = tensor.shape
    halves = struct.unpack(f"<{height * width}H", tensor.data)
    flat = struct.unpack(f"<{height * width}f", struct.pack(f"<{height * width}I", *[half << 16 for half in halves]))
    return [list(flat[row * width : (row + 1) * width]) for row in range(height)]


def argmax(matrix: list[list[float]], vector: list[float]) -> tuple[int, float]:
    """The row with the largest product, and its lead over the next."""
    products = [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
    best = max(range(len(products)), key=products.__getitem__)
    return best, products[best] - max(value for row, value in enumerate(products) if row != best)


@pytest.mark.parametrize("name", NAMES)
def test_equal_calls_write_equal_bytes(name: str, tmp_path: Path) -> None:
    first = write(name, tmp_path / "first")
    second = write(name, tmp_path / "second")
    contents = {path.name: path.read_bytes() for path in first.iterdir()}
    assert contents == {path.name: path.read_bytes() for path in second.iterdir()} == files(name)
    assert sum(map(len, contents.values())) < TWO_MEGABYTES


@pytest.mark.parametrize("name", [name for name in NAMES if MEMBERS[name]().tensors is not None])
def test_header_describes_the_whole_file(name: str) -> None:
    data = files(name)["model.safetensors"]
    described = header(data)
    assert described.pop("__metadata__") == {"format": "pt"}
    size = {"BF16": 2, "I64": 8, "BOOL": 1}
    end = 0
    for tensor in described.values():
        begin, stop = tensor["data_offsets"]
        count = 1
        for length in tensor["shape"]:
            count *= length
        assert (begin, stop - begin) == (end, count * size[tensor["dtype"]])
        end = stop
    assert len(data) == 8 + struct.unpack_from("<Q", data)[0] + end


@pytest.mark.parametrize("token", range(VOCAB))
def test_embedding_and_head_make_the_chain(token: int) -> None:
    code = numbers(embedding())[token]
    assert argmax(numbers(head()), code) == (successor(token), HIDDEN / 2)


def test_the_chain_recites_its_text_and_ends() -> None:
    assert continuation(ord("!"), len(CYCLE)) == [*TEXT.encode(), EOS]
    assert continuation(ord("x"), 4) == list(b"yzAB")
    assert successor(EOS) == successor(BOS) == ord("a")


def test_small_vocabulary_holds_the_cycle() -> None:
    ids = small_vocabulary()
    assert len(ids) == SMALL_VOCAB == len(set(ids))
    assert set(CYCLE) <= set(ids)
    tensors = MEMBERS["eagle3-small-vocab"]().tensors
    assert tensors is not None
    offsets = struct.unpack(f"<{SMALL_VOCAB}q", tensors["d2t"].data)
    assert tuple(own + offset for own, offset in enumerate(offsets)) == ids
    assert [token for token, used in enumerate(tensors["t2d"].data) if used] == sorted(ids)
    best, _ = argmax(numbers(tensors["lm_head.weight"]), numbers(embedding())[ord("a")])
    assert ids[best] == ord("b")


@pytest.mark.parametrize("name", ["mtp", "mtp-stripped", "mtp-stripped-quantized"])
def test_every_deepseek_config_claims_a_head(name: str) -> None:
    document = config(name)
    assert (document["model_type"], document["num_nextn_predict_layers"]) == ("deepseek_v3", 1)
    beyond = [tensor for tensor in header(files(name)["model.safetensors"]) if f"layers.{LAYERS}." in tensor]
    assert len(beyond) == (16 if name == "mtp" else 0)
    assert ("quantization_config" in document) == name.endswith("quantized")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("eagle3-hidden", "hidden_size", SMALL_HIDDEN),
        ("eagle3-vocab", "vocab_size", LARGE_VOCAB),
        ("eagle3-aux", "eagle_aux_hidden_state_layer_ids", [1, 2]),
        ("eagle3-aux-repeated", "eagle_aux_hidden_state_layer_ids", [1, 2, 2]),
        ("eagle3-aux-beyond", "eagle_aux_hidden_state_layer_ids", [1, 2, LAYERS + 1]),
        ("eagle3-aux-default", "eagle_aux_hidden_state_layer_ids", None),
        ("eagle3", "eagle_aux_hidden_state_layer_ids", list(AUX_LAYERS)),
        ("draft-other-vocab", "vocab_size", LARGE_VOCAB),
    ],
)
def test_what_does_not_fit(name: str, key: str, value: object) -> None:
    assert config(name).get(key) == value


def test_shards_are_indexed() -> None:
    contents = files("plain", shards=2)
    index = json.loads(contents["model.safetensors.index.json"])
    shards = sorted(name for name in contents if name.endswith(".safetensors"))
    assert shards == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    held = {tensor: shard for shard in shards for tensor in header(contents[shard]) if tensor != "__metadata__"}
    assert index["weight_map"] == held
    assert held.keys() == header(files("plain")["model.safetensors"]).keys() - {"__metadata__"}


def test_snapshot_holds_links_alone(tmp_path: Path) -> None:
    snapshot = write_snapshot("plain", tmp_path, "embedded/plain")
    assert snapshot.parent == tmp_path / "models--embedded--plain" / "snapshots"
    assert (tmp_path / "models--embedded--plain" / "refs" / "main").read_text() == snapshot.name
    assert all(path.is_symlink() for path in snapshot.iterdir())
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == files("plain")


def test_advance_moves_codes_along_the_cycle() -> None:
    codes = numbers(embedding())
    two_on = numbers(advance(2))

    def moved(code: list[float]) -> list[float]:
        return [sum(a * b for a, b in zip(row, code, strict=True)) for row in two_on]

    assert moved(codes[ord("a")]) == codes[ord("c")]
    assert moved(codes[ord("9")]) == codes[ord("a")]
    assert moved(codes[BOS]) == [0.0] * HIDDEN
