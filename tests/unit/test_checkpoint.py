"""config.json, safetensors headers and indexes: what they say, and what is said of files that are something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.checkpoint import (
    Config,
    Head,
    Tensor,
    decode_object,
    has_custom_code,
    parse_config,
    parse_quantization,
    read_config,
)
from launcher.errors import ConfigurationError, IntegrityError
from launcher.tensors import check_shards, header_length, heads_of, parse_header, parse_index, survey, telling_of
from tests.unit.shards import bf16, framed, shard

SIZES = {
    "hidden_size": 64,
    "vocab_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "max_position_embeddings": 2048,
}


def sizes(config: Config) -> tuple[int | None, ...]:
    return config[4:9]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (SIZES, (64, 512, 4, 8, 2048)),
        ({"hidden_size": 1, "text_config": SIZES}, (64, 512, 4, 8, 2048)),
        ({"llm_config": SIZES}, (64, 512, 4, 8, 2048)),
        ({"language_config": SIZES}, (64, 512, 4, 8, 2048)),
        ({"thinker_config": {"audio_config": {}, "text_config": SIZES}}, (64, 512, 4, 8, 2048)),
        ({"vocab_size": 7, "text_config": {"hidden_size": 64}}, (64, 7, None, None, None)),
        ({"text_config": {}, **SIZES}, (64, 512, 4, 8, 2048)),
        ({"speculators_config": {}, "transformer_layer_config": SIZES}, (64, 512, 4, 8, 2048)),
        ({"transformer_layer_config": SIZES}, (None,) * 5),
        ({"model_type": "eagle", "model": SIZES}, (64, 512, 4, 8, 2048)),
        ({"n_embd": 64, "n_layer": 4, "n_head": 8, "n_positions": 2048, "vocab_size": 512}, (64, 512, 4, 8, 2048)),
        ({"dim": 64, "n_layers": 4, "n_heads": 8, "vocab_size": 512}, (64, 512, 4, 8, None)),
        ({"layers_block_type": ["mamba", "moe", "attention"]}, (None, None, 3, None, None)),
        ({"hybrid_override_pattern": "M-M*"}, (None, None, 4, None, None)),
        ({"hidden_size": True, "vocab_size": "512", "num_hidden_layers": None}, (None,) * 5),
    ],
)
def test_sizes_come_from_the_language_model(document: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert sizes(read_config(document)) == expected


def test_config_names_architecture_type_and_quantization() -> None:
    config = parse_config(
        b'{"architectures": ["A", "B"], "model_type": "x", "quantization_config": {"quant_method": "fp8"}}',
        "config.json",
    )
    assert (config.architecture, config.architectures, config.model_type) == ("A", ("A", "B"), "x")
    assert config.quantization == "fp8"
    assert config.text is config.document


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, None),
        ({"quantization_config": {}}, None),
        ({"quantization_config": {"quant_algo": "NVFP4"}}, "modelopt"),
        ({"text_config": {"quantization_config": {"quant_method": "compressed-tensors"}}}, "compressed-tensors"),
        ({"quantization_config": {"bits": 4}}, "unknown"),
    ],
)
def test_quantization(document: dict[str, Any], expected: str | None) -> None:
    assert read_config(document).quantization == expected


def test_quantization_may_stand_in_a_file_of_its_own() -> None:
    assert parse_quantization(b'{"quantization": {"quant_algo": "NVFP4"}}', "q") == "modelopt"
    assert parse_quantization(b'{"quantization": {"quant_algo": null}}', "q") is None


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"dim": 8, "n_layers": 2}, ("MistralForCausalLM",)),
        ({"dim": 8, "n_layers": 2, "moe": {"num_experts": 8}}, ("MixtralForCausalLM",)),
        ({"dim": 8, "n_layers": 2, "moe": {"num_shared_experts": 1}}, ("MistralLarge3ForCausalLM",)),
        ({"architectures": None}, ()),
    ],
)
def test_architectures_of_mistrals_own_format(document: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert read_config(document).architectures == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,\n "b": }', "/m/config.json is no valid JSON (line 2, column 7: Expecting value)"),
        (b"[1]", "/m/config.json holds a JSON list where an object belongs"),
        (b"null", "/m/config.json holds a JSON null where an object belongs"),
        (b"", "/m/config.json is empty (line 1, column 1: Expecting value)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "/m/config.json is a Git-LFS pointer"),
        (b"<!DOCTYPE html><html>", "/m/config.json is an HTML page"),
        (b"\xff\xfe{", "/m/config.json is no UTF-8 text (byte 0)"),
        (b"[" * 100_000, "/m/config.json is no usable JSON (RecursionError)"),
    ],
)
def test_what_is_no_config(data: bytes, message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_config(data, "/m/config.json")
    assert caught.value.what.startswith(message)


def test_a_byte_order_mark_and_nan_are_accepted() -> None:
    assert decode_object(b'\xef\xbb\xbf{"limit": Infinity}', "f") == {"limit": float("inf")}


def test_the_refusal_is_the_callers() -> None:
    with pytest.raises(ConfigurationError):
        decode_object(b"{", "runtime_config.json", ConfigurationError)


@pytest.mark.parametrize(
    ("auto_map", "files", "expected"),
    [
        ({"AutoModel": "modeling_x.X"}, {"modeling_x.py"}, True),
        ({"AutoModel": "modeling_x.X"}, {"config.json"}, False),
        ({"AutoTokenizer": ["tok.T", None]}, {"tok.py"}, True),
        ({"AutoModel": "org/repo--modeling_x.X"}, set(), True),
        (None, {"x.py"}, False),
    ],
)
def test_custom_code_is_a_file_of_the_folder_or_of_another_repository(
    auto_map: object, files: set[str], expected: bool
) -> None:
    assert has_custom_code(read_config({"auto_map": auto_map}), frozenset(files)) is expected


WHOLE = shard({"a": ("BF16", (2, 3)), "b": ("F32", (4,))})


def test_a_header_gives_types_and_shapes() -> None:
    header = parse_header(WHOLE, len(WHOLE), "m.safetensors")
    assert header == {
        "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "F32", "shape": [4], "data_offsets": [12, 28]},
    }


def broken(**change: Any) -> bytes:
    return framed({"t": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4], **change}}) + bytes(4)


# Row 34 of the known faults, and their kind.
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (WHOLE[:-10], "m is truncated: its tensors take 28 bytes and 18 are there"),
        (WHOLE + b"xx", "m is damaged: its tensors take 28 bytes and 30 are there"),
        (WHOLE[:40], "m is truncated or no safetensors file: its header claims 163 bytes and 32 follow"),
        (b"", "m is no safetensors file: it is empty"),
        (b"\x10\x00", "m is no safetensors file: it has 2 bytes, too few for a header"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "m is no safetensors file: it is a Git-LFS pointer"),
        (b"\n<!DOCTYPE html>\n<html>", "m is no safetensors file: it is an HTML page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied", "m is no safetensors file: it is an XML document"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "m is no safetensors file: it is compressed with gzip"),
        (b"PK\x03\x04 torch archive", "m is no safetensors file: it is a zip archive"),
        (b"GGUF\x03\x00\x00\x00\x00\x00", "m is no safetensors file: it is a GGUF file"),
        (b'{"error": "Repository not found"}', "m is no safetensors file: it is a JSON text"),
        (b"/annex/objects/SHA256E-s1--0", "m is no safetensors file: it is a git-annex pointer"),
        ((4).to_bytes(8, "little") + b"[1]]", "m is no safetensors file: its header is no JSON object"),
        ((4).to_bytes(8, "little") + b"{no}", "m (its header) is no valid JSON (line 1, column 2"),
        (broken(data_offsets=[0, 8]), "m is truncated: its tensors take 8 bytes and 4 are there"),
        (broken(data_offsets=[2, 4]), "m is damaged: its tensors overlap or leave holes"),
        (broken(data_offsets=[0]), "m is no safetensors file: the entry 't' is malformed"),
        (broken(shape=None), "m is no safetensors file: the entry 't' is malformed"),
        (broken(dtype=["BF16"]), "m is no safetensors file: the entry 't' is malformed"),
        (broken(dtype="Q4_K"), "m holds tensors of the unknown type 'Q4_K'"),
    ],
)
def test_a_damaged_or_foreign_shard_is_told_apart(data: bytes, message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_header(data, len(data), "m")
    assert caught.value.what.startswith(message)


def test_a_header_may_be_the_whole_file() -> None:
    data = framed({})
    assert header_length(data, len(data), "m") == 2
    assert parse_header(data, len(data), "m") == {}


@pytest.mark.parametrize("length", [0x8B1F, 0x227B])
def test_a_length_that_spells_another_format_is_only_a_length(length: int) -> None:
    text = json.dumps({"__metadata__": {"pad": ""}}).encode()
    text += b" " * (length - len(text))
    data = length.to_bytes(8, "little") + text
    assert parse_header(data, len(data), "m") == {}


def test_an_index_maps_tensors_to_shards() -> None:
    data = json.dumps({"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}).encode()
    assert parse_index(data, "i") == {"a": "1.safetensors", "b": "2.safetensors"}


@pytest.mark.parametrize("data", [b"{}", b'{"weight_map": ["a"]}', b'{"weight_map": {"a": 1}}'])
def test_what_is_no_index(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="i has no weight_map from tensors to files"):
        parse_index(data, "i")


def test_absent_shards_are_named_and_counted() -> None:
    with pytest.raises(IntegrityError) as caught:
        check_shards(["a", "b", "c", "d", "e"], ["a"], "/m/index.json")
    assert caught.value.what == "/m/index.json lists 4 of 5 files that are not there: b, c, d and 1 more"
    check_shards(["a"], ["a", "extra"], "/m/index.json")


def heads(tensors: dict[str, tuple[str, tuple[int, ...]]], layers: int | None = 4) -> tuple[Head, ...]:
    header = parse_header(shard(tensors), len(shard(tensors)), "m")
    return heads_of([survey(header, layers)], 64)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("mtp.fc.weight", ()),
        ("mtp.2.eh_proj.weight", (2,)),
        ("model.mtp.layers.0.eh_proj.weight", (0,)),
        ("model.mtp.layers.1.mlp.experts.7.weight", (1,)),
        ("model.mtp_layers.0.input_proj.weight", (0,)),
        ("model.mtp_block.0.mlp.weight", (0,)),
        ("language_model.mtp.layers.0.enorm.weight", (0,)),
        ("model.layers.4.eh_proj.weight", (0,)),
        ("layers.5.enorm.weight", (1,)),
        ("language_model.model.layers.4.enorm.weight", (0,)),
        ("model.language_model.layers.4.enorm.weight", (0,)),
        ("thinker.model.layers.4.enorm.weight", (0,)),
        ("backbone.layers.4.enorm.weight", (0,)),
        ("decoder.extra_heads.0.weight", ()),
    ],
)
def test_evidence_of_an_mtp_head(name: str, layers: tuple[int, ...]) -> None:
    assert heads({"model.layers.3.mlp.weight": ("BF16", (2, 2)), name: ("BF16", (2, 2))}) == (
        Head("mtp", 1, name, "BF16", layers),
    )


def test_the_layers_of_a_head_are_those_of_all_shards() -> None:
    shards = [survey({f"model.layers.{layer}.eh_proj.weight": {}}, 4) for layer in (6, 4, 3)]
    assert heads_of(shards, 64)[0].layers == (0, 2)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.mlp.weight",
        "vision_tower.encoder.layers.26.mlp.weight",
        "model.vision_model.layers.9.mlp.weight",
        "audio_tower.layers.30.fc1.weight",
        "model.smtp.weight",
        "model.layers.0.prompt.weight",
    ],
)
def test_no_evidence_of_an_mtp_head(name: str) -> None:
    assert heads(bf16(name)) == ()


def test_unknown_depth_leaves_only_names_as_evidence() -> None:
    assert heads(bf16("model.layers.99.eh_proj.weight"), layers=None) == ()
    assert heads(bf16("mtp.fc.weight"), layers=None) == (Head("mtp", 1, "mtp.fc.weight", "BF16"),)


def test_dspark_stages_under_mtp_names_are_no_mtp_head() -> None:
    names = ("mtp.0.main_proj.weight", "mtp.0.attn.wkv.weight", "mtp.2.markov_head.markov_w1.weight")
    assert heads(bf16(*names)) == (Head("dspark", 3, "mtp.0.attn.wkv.weight", "BF16"),)


def test_a_dflash_head_reads_three_states_or_more() -> None:
    assert heads({"mtp.fc.weight": ("BF16", (64, 320))})[0].kind == "dflash"
    assert heads({"mtp.fc.weight": ("BF16", (64, 128))})[0].kind == "mtp"
    assert heads(bf16("dflash.layers.0.mlp.weight"))[0].kind == "dflash"
    assert heads(bf16("model.dspark.layers.0.mlp.weight"))[0].kind == "dspark"


def test_the_type_of_a_head_is_that_of_most_of_its_matrices() -> None:
    head = heads(
        {
            "mtp.norm.weight": ("F32", (2,)),
            "mtp.a.weight_scale": ("F32", (2, 2)),
            "mtp.b.weight_scale": ("F32", (2, 2)),
            "mtp.a.weight": ("F8_E4M3", (2, 2)),
            "mtp.b.weight": ("F8_E4M3", (2, 2)),
            "mtp.fc.weight": ("BF16", (2, 2)),
        }
    )
    assert head == (Head("mtp", 6, "mtp.a.weight", "F8_E4M3"),)


def test_the_tensors_that_tell_are_kept() -> None:
    names = ("model.embed_tokens.weight", "lm_head.weight", "eagle_linear.weight", "d2t", "model.xfc.weight", "t2d")
    header = parse_header(shard(bf16(*names)), len(shard(bf16(*names))), "m")
    kept = telling_of(survey(header, 1).telling)
    told = ("d2t", "eagle_linear.weight", "lm_head.weight", "model.embed_tokens.weight")
    assert kept == tuple(Tensor(name, "BF16", (2, 2)) for name in told)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_are_a_shard_or_refused(data: bytes, claimed: int) -> None:
    for text in (data, claimed.to_bytes(8, "little") + b"{" + data):
        try:
            parse_header(text, len(text), "m")
        except IntegrityError as error:
            assert error.what.startswith("m ")
