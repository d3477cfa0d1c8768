"""The facts of a folder through its source: which files count, what is checked, what is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cache.remembered import Remembered
from launcher.checkpoint import Checkpoint, Head, Portion, Tensor
from launcher.errors import ConfigurationError, IntegrityError, NotFoundError
from launcher.fetch.local import LocalFolder
from launcher.gather import SubFolder, gather_checkpoint, gather_draft
from launcher.sources import Entry
from tests.unit.shards import bf16, shard, write_json

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2, "num_hidden_layers": 4}
INDEX = "model.safetensors.index.json"


def model(path: Path, **files: bytes) -> Path:
    write_json(path / "config.json", CONFIG)
    for name, data in files.items():
        (path / f"{name}.safetensors").write_bytes(data)
    return path


def index(path: Path, weight_map: dict[str, str], name: str = INDEX) -> None:
    write_json(path / name, {"metadata": {}, "weight_map": weight_map})


def gather(path: Path) -> Checkpoint:
    return gather_checkpoint(LocalFolder(str(path)), str(path))


def test_a_whole_folder(tmp_path: Path) -> None:
    data = shard({**bf16("model.embed_tokens.weight", "model.layers.4.eh_proj.weight"), "d2t": ("I64", (3,))})
    model(tmp_path, model=data)
    write_json(tmp_path / "runtime_config.json", {"max_num_seqs": 4})
    write_json(tmp_path / "speculator/a/config.json", {})
    write_json(tmp_path / "eagle3_draft/config.json", {})
    facts = gather(tmp_path)
    assert facts.place == str(tmp_path)
    assert facts.config.architecture == "LlamaForCausalLM"
    assert facts.weights == (
        "safetensors",
        len(data),
        1,
        (Head("mtp", 1, "model.layers.4.eh_proj.weight", "BF16", (0,)),),
        (Tensor("d2t", "I64", (3,)), Tensor("model.embed_tokens.weight", "BF16", (2, 2))),
        "",
        (Portion("embedding", True, False, 8), Portion("head", False, False, 8), Portion("other", False, False, 24)),
    )
    assert facts.drafts == ("eagle3_draft", "speculator/a")
    assert (facts.custom_code, facts.lora, facts.runtime) == (False, False, {"max_num_seqs": 4})
    assert facts.mistral is False


def test_only_indexed_shards_count(tmp_path: Path) -> None:
    model(tmp_path, a=shard(bf16("lm_head.weight")), mtp=shard(bf16("mtp.fc.weight")))
    index(tmp_path, {"lm_head.weight": "a.safetensors"})
    facts = gather(tmp_path)
    assert (facts.weights.files, facts.weights.heads, facts.weights.unlisted) == (1, (), "mtp.safetensors")
    (tmp_path / "mtp.safetensors").write_bytes(b"damaged, and not loaded by anybody")
    assert gather(tmp_path).weights.unlisted == ""


def test_an_index_that_promises_a_head_is_no_proof(tmp_path: Path) -> None:
    model(tmp_path, a=shard(bf16("lm_head.weight")))
    index(tmp_path, {"lm_head.weight": "a.safetensors", "mtp.fc.weight": "a.safetensors"})
    assert gather(tmp_path).weights.head("mtp") is None


def test_without_an_index_every_shard_counts(tmp_path: Path) -> None:
    model(tmp_path, a=shard(bf16("lm_head.weight")), mtp=shard(bf16("mtp.fc.weight")))
    assert gather(tmp_path).weights.head("mtp") == Head("mtp", 1, "mtp.fc.weight", "BF16")


def test_absent_shards_are_an_error(tmp_path: Path) -> None:
    model(tmp_path, a=shard(bf16("a")))
    index(tmp_path, {"a": "a.safetensors", "b": "b.safetensors"})
    with pytest.raises(IntegrityError) as caught:
        gather(tmp_path)
    assert caught.value.what == f"{tmp_path}/{INDEX} lists 1 of 2 files that are not there: b.safetensors"


def test_an_index_alone_is_an_error(tmp_path: Path) -> None:
    model(tmp_path)
    index(tmp_path, {"a": "a.safetensors"})
    with pytest.raises(IntegrityError, match="lists 1 of 1 files"):
        gather(tmp_path)


@pytest.mark.parametrize("data", [b"<html>", shard(bf16("a"))[:-1]])
def test_a_damaged_shard_is_named(tmp_path: Path, data: bytes) -> None:
    model(tmp_path, a=shard(bf16("a")), b=data)
    with pytest.raises(IntegrityError) as caught:
        gather(tmp_path)
    assert caught.value.what.startswith(f"{tmp_path}/b.safetensors is ")


def test_a_header_longer_than_the_first_read(tmp_path: Path) -> None:
    names = [f"model.layers.0.mlp.experts.{number}.weight" for number in range(2000)]
    model(tmp_path, a=shard(bf16(*names, "mtp.fc.weight")))
    assert gather(tmp_path).weights.head("mtp") == Head("mtp", 1, "mtp.fc.weight", "BF16")


@pytest.mark.parametrize(
    ("names", "form", "files"),
    [
        (["pytorch_model.bin", "training_args.bin"], "pickle", 1),
        (["model.pt", "optimizer.pt"], "pickle", 1),
        (["model.Q4.gguf"], "gguf", 1),
        (["training_args.bin", "tokenizer.json"], "", 0),
        (["onnx/model.safetensors"], "", 0),
    ],
)
def test_other_weights(tmp_path: Path, names: list[str], form: str, files: int) -> None:
    model(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"xx")
    weights = gather(tmp_path).weights
    assert (weights.form, weights.files, weights.bytes) == (form, files, 2 * files)


def test_mistrals_own_files_win(tmp_path: Path) -> None:
    model(tmp_path, consolidated=shard(bf16("output.weight")), model=b"not looked at")
    assert gather(tmp_path).weights.files == 1


def test_params_json_stands_in_for_the_config(tmp_path: Path) -> None:
    write_json(tmp_path / "params.json", {"dim": 16, "n_layers": 2, "n_heads": 4, "vocab_size": 32})
    (tmp_path / "consolidated.safetensors").write_bytes(shard(bf16("output.weight")))
    facts = gather(tmp_path)
    assert (facts.config.architecture, facts.config.hidden_size) == ("MistralForCausalLM", 16)
    assert facts.mistral is True


def test_an_older_modelopt_checkpoint_is_quantised(tmp_path: Path) -> None:
    model(tmp_path)
    write_json(tmp_path / "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}})
    assert gather(tmp_path).config.quantization == "modelopt"


def test_code_and_adapters_are_seen(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {**CONFIG, "auto_map": {"AutoModel": "modeling_x.X"}})
    write_json(tmp_path / "adapter_config.json", {})
    (tmp_path / "modeling_x.py").write_text("")
    facts = gather(tmp_path)
    assert (facts.custom_code, facts.lora) == (True, True)
    (tmp_path / "adapter_model.safetensors").write_bytes(shard(bf16("lora_A.weight")))
    assert gather(tmp_path).lora is True
    (tmp_path / "model.safetensors").write_bytes(shard(bf16("lm_head.weight")))
    assert gather(tmp_path).lora is False


def test_an_unreadable_runtime_config_is_a_setting(tmp_path: Path) -> None:
    model(tmp_path)
    (tmp_path / "runtime_config.json").write_text('{"a": 1,}')
    with pytest.raises(ConfigurationError, match=r"runtime_config.json is no valid JSON \(line 1, column"):
        gather(tmp_path)


def test_an_adapter_alone_is_said_to_be_one(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", {})
    for look in (gather, draft):
        with pytest.raises(NotFoundError) as caught:
            look(tmp_path)
        assert caught.value.what == f"{tmp_path} is a LoRA adapter, not a model: it has no config.json"
        assert "NIM_PEFT_SOURCE" in caught.value.todo


def test_a_target_without_config_says_where_one_is(tmp_path: Path) -> None:
    model(tmp_path / "v1")
    model(tmp_path / "v2")
    with pytest.raises(NotFoundError) as caught:
        gather(tmp_path)
    assert caught.value.what == f"{tmp_path} has no config.json, but these of its folders have one: v1, v2"
    assert caught.value.todo == f"Give the model's own folder, such as {tmp_path}/v1"


def test_an_empty_folder_and_one_of_other_files(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is empty"):
        gather(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(NotFoundError, match=r"has no config.json: it is no model folder"):
        gather(tmp_path)


def draft(path: Path) -> Checkpoint:
    return gather_draft(LocalFolder(str(path)), str(path))


def test_a_draft_is_its_own_folder(tmp_path: Path) -> None:
    model(tmp_path, model=shard(bf16("fc.weight")))
    write_json(tmp_path / "other/config.json", {})
    assert draft(tmp_path).place == str(tmp_path)


def test_a_draft_may_be_the_only_child(tmp_path: Path) -> None:
    model(tmp_path / "abc", model=shard(bf16("fc.weight")))
    (tmp_path / "README.md").write_text("")
    facts = draft(tmp_path)
    assert facts.place == f"{tmp_path}/abc"
    assert facts.weights.tensors == (Tensor("fc.weight", "BF16", (2, 2)),)


def test_several_drafts_are_listed(tmp_path: Path) -> None:
    model(tmp_path / "b")
    model(tmp_path / "a")
    with pytest.raises(ConfigurationError) as caught:
        draft(tmp_path)
    assert caught.value.what == f"{tmp_path} has no config.json of its own and holds several drafts: a, b"


def test_no_draft_at_all(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(NotFoundError):
        draft(tmp_path)


def test_a_drafts_runtime_config_is_not_read(tmp_path: Path) -> None:
    model(tmp_path)
    (tmp_path / "runtime_config.json").write_text("broken")
    assert draft(tmp_path).runtime is None


class Counting:
    """A source that counts its reads; ``remote`` ones have no inodes."""

    def __init__(self, path: Path, *, remote: bool = False) -> None:
        self.folder = LocalFolder(str(path))
        self.remote = remote
        self.read_paths: list[str] = []

    def listing(self) -> tuple[Entry, ...]:
        entries = self.folder.listing()
        return tuple(entry._replace(mtime_ns=0, inode=0) for entry in entries) if self.remote else entries

    def read(self, path: str, offset: int, length: int) -> bytes:
        self.read_paths.append(path)
        return self.folder.read(path, offset, length)


def test_the_second_time_nothing_is_read(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", a=shard(bf16("fc.weight", "mtp.x.weight")))
    memory = Remembered(str(tmp_path / "facts"))
    first = gather_checkpoint(Counting(folder), str(folder), memory)
    source = Counting(folder)
    assert gather_checkpoint(source, str(folder), memory) == first
    assert source.read_paths == []


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    memory = Remembered(str(tmp_path / "facts"))
    gather_checkpoint(Counting(folder), str(folder), memory)
    write_json(folder / "config.json", {**CONFIG, "hidden_size": 1024})
    assert gather_checkpoint(Counting(folder), str(folder), memory).config.hidden_size == 1024


def test_target_and_draft_of_one_folder_are_remembered_apart(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    write_json(folder / "runtime_config.json", {"a": 1})
    memory = Remembered(str(tmp_path / "facts"))
    assert gather_draft(Counting(folder), str(folder), memory).runtime is None
    assert gather_checkpoint(Counting(folder), str(folder), memory).runtime == {"a": 1}


def test_a_remote_folder_is_not_remembered(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    gather_checkpoint(Counting(folder, remote=True), "s3://b/m", Remembered(str(tmp_path / "facts")))
    assert not (tmp_path / "facts").exists()


def test_of_a_remote_index_only_the_shards_that_tell_are_opened(tmp_path: Path) -> None:
    folder = model(
        tmp_path,
        a=shard(bf16("model.layers.0.mlp.weight")),
        b=shard(bf16("mtp.fc.weight", "mtp.a.weight")),
        c=shard(bf16("mtp.z.weight")),
    )
    shards = {"model.layers.0.mlp.weight": "a", "mtp.fc.weight": "b", "mtp.a.weight": "b", "mtp.z.weight": "c"}
    index(folder, {name: f"{stem}.safetensors" for name, stem in shards.items()})
    source = Counting(folder, remote=True)
    facts = gather_checkpoint(source, "hf://org/m")
    assert sorted(set(source.read_paths)) == ["b.safetensors", "config.json", INDEX]
    assert facts.weights.heads == (Head("mtp", 3, "mtp.a.weight", "BF16"),)


def test_a_sub_folder_is_a_source(tmp_path: Path) -> None:
    model(tmp_path / "speculator/a")
    source = SubFolder(LocalFolder(str(tmp_path)), "speculator/a")
    assert [entry.path for entry in source.listing()] == ["config.json"]
    assert json.loads(source.read("config.json", 0, 1000)) == CONFIG


def test_a_large_index_is_remembered_small(tmp_path: Path) -> None:
    names = [f"model.layers.0.mlp.experts.{number}.weight" for number in range(20_000)]
    folder = model(tmp_path / "m", a=shard(bf16(*names)))
    index(folder, dict.fromkeys(names, "a.safetensors"))
    gather_checkpoint(LocalFolder(str(folder)), str(folder), Remembered(str(tmp_path / "facts")))
    (kept,) = (tmp_path / "facts").iterdir()
    assert kept.stat().st_size < 2000
