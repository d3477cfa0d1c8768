"""NIM_PEFT_SOURCE: what a folder of LoRA adapters becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.adapters import Adapter, AdapterFolder, adapter_arguments, adapters_of, read_folders, settled
from launcher.arguments.merge import Level, merge
from launcher.arguments.values import Argument, given
from launcher.errors import ConfigurationError, IncompatibleError, IntegrityError, LauncherError, NotFoundError
from launcher.vllm import tables

TABLE = tables.pinned()
ONE = Adapter("a", "/lora/a", 8)


def adapter(folder: Path, name: str, config: Any, weights: str = "adapter_model.safetensors") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / name / weights).write_bytes(b"")


def folder_of(config: bytes, *files: str) -> AdapterFolder:
    return AdapterFolder("one", "/lora/one", config, files or ("adapter_config.json", "adapter_model.safetensors"))


def test_a_folder_of_adapters(tmp_path: Path) -> None:
    adapter(tmp_path, "b", {"r": 24})
    adapter(tmp_path, "a", {"r": 8}, "adapter_model.bin")
    adapter(tmp_path, ".hidden", {"r": 512})
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    adapters = adapters_of(read_folders(str(tmp_path)))
    assert adapters == (Adapter("a", f"{tmp_path}/a", 8), Adapter("b", f"{tmp_path}/b", 24))
    assert [(argument.words, argument.origin) for argument in adapter_arguments(adapters, TABLE)] == [
        (("--enable-lora",), "NIM_PEFT_SOURCE"),
        (("--lora-modules", f"a={tmp_path}/a", f"b={tmp_path}/b"), "NIM_PEFT_SOURCE"),
        (("--max-lora-rank", "32"), "NIM_PEFT_SOURCE"),
    ]


@pytest.mark.parametrize(("rank", "limit"), [(1, "1"), (2, "8"), (8, "8"), (129, "256"), (300, "320"), (512, "512")])
def test_the_smallest_rank_that_holds_all(rank: int, limit: str) -> None:
    arguments = adapter_arguments([Adapter("a", "/a", 1), Adapter("b", "/b", rank)], TABLE)
    assert arguments[-1].values == (limit,)


def test_a_rank_beyond_vllm_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="adapter b has rank 513, and this vLLM takes at most 512"):
        adapter_arguments([Adapter("a", "/a", 8), Adapter("b", "/b", 513)], TABLE)


@pytest.mark.parametrize(
    ("config", "rank"),
    [({"r": 8}, 8), ({"r": 8, "rank_pattern": {"q_proj": 64}}, 64), ({"r": 8, "rank_pattern": None}, 8)],
)
def test_the_rank_is_the_largest_of_the_modules(config: Any, rank: int) -> None:
    assert adapters_of([folder_of(json.dumps(config).encode())]) == (Adapter("one", "/lora/one", rank),)


@pytest.mark.parametrize(
    ("name", "path", "word"),
    [
        ("a", "/l/a", "a=/l/a"),
        ("a b", "/l/a b", "a b=/l/a b"),
        ("a=b", "/l/a=b", '{"name": "a=b", "path": "/l/a=b"}'),
        ("a", "/l,m/a", '{"name": "a", "path": "/l,m/a"}'),
        ("-a", "/l/-a", '{"name": "-a", "path": "/l/-a"}'),
    ],
)
def test_names_that_vllm_would_cut_go_as_json(name: str, path: str, word: str) -> None:
    assert adapter_arguments([Adapter(name, path, 8)], TABLE)[1].words == ("--lora-modules", word)


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        (folder_of(b"{"), "/lora/one/adapter_config.json is not JSON"),
        (folder_of(b"\xff"), "/lora/one/adapter_config.json is not JSON"),
        (folder_of(b"[]"), "/lora/one/adapter_config.json holds no JSON object"),
        (folder_of(b"{}"), "/lora/one/adapter_config.json: the rank r is None"),
        (folder_of(b'{"r": true}'), "the rank r is True"),
        (folder_of(b'{"r": 0}'), "the rank r is 0"),
        (folder_of(b'{"r": 8, "rank_pattern": {"q": "x"}}'), "the rank r is 'x'"),
        (folder_of(b'{"r": 8}', "adapter_config.json"), "/lora/one has an adapter_config.json and no adapter_model"),
    ],
)
def test_broken_adapters(folder: AdapterFolder, what: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        adapters_of([folder])
    assert what in caught.value.what


@pytest.mark.parametrize(
    ("source", "kind", "what"),
    [
        ("hf://org/loras", ConfigurationError, "NIM_PEFT_SOURCE: 'hf://org/loras' is not a local folder"),
        ("loras", ConfigurationError, "NIM_PEFT_SOURCE: 'loras' is neither"),
        ("{tmp}/no/such", NotFoundError, "NIM_PEFT_SOURCE: there is no folder {tmp}/no/such"),
        ("{tmp}/file", NotFoundError, "there is no folder {tmp}/file"),
        ("{tmp}/empty", NotFoundError, "NIM_PEFT_SOURCE: {tmp}/empty holds no adapter"),
        ("{tmp}/set/one", NotFoundError, "{tmp}/set/one holds no adapter"),
    ],
)
def test_unusable_sources(tmp_path: Path, source: str, kind: type[LauncherError], what: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    adapter(tmp_path, "set/one", {"r": 8})
    with pytest.raises(kind) as caught:
        read_folders(source.format(tmp=tmp_path))
    assert what.format(tmp=tmp_path) in caught.value.what


def argument(name: str, origin: str, *values: str, negated: bool = False) -> Argument:
    flag = TABLE.flag(name)
    assert flag is not None
    return given(flag, values, origin, negated=negated)


@pytest.mark.parametrize(
    ("said", "left", "why"),
    [
        ((), ["--enable-lora", "--lora-modules", "--max-lora-rank"], None),
        (
            (argument("--max-lora-rank", "command line", "64"),),
            ["--enable-lora", "--lora-modules", "--max-lora-rank"],
            None,
        ),
        (
            (argument("--lora-modules", "command line", "x=/y"),),
            ["--enable-lora", "--lora-modules"],
            "--lora-modules (command line)",
        ),
        (
            (argument("--lora-modules", "command line", "x=/y"), argument("--max-lora-rank", "command line", "64")),
            ["--enable-lora", "--lora-modules", "--max-lora-rank"],
            "--lora-modules (command line)",
        ),
        (
            (argument("--enable-lora", "NIM_PASSTHROUGH_ARGS", negated=True),),
            ["--enable-lora"],
            "--no-enable-lora (NIM_PASSTHROUGH_ARGS)",
        ),
        (
            (
                argument("--enable-lora", "command line", negated=True),
                argument("--lora-modules", "command line", "x=/y"),
            ),
            ["--enable-lora", "--lora-modules"],
            "--lora-modules (command line)",
        ),
    ],
)
def test_what_a_higher_level_leaves_of_them(said: tuple[Argument, ...], left: list[str], why: str | None) -> None:
    merged = merge([Level(1, "command line", said), Level(3, "NIM variables", adapter_arguments([ONE], TABLE))])
    outcome = settled(merged)
    assert sorted(argument.flag for argument in outcome.arguments) == left
    assert outcome.warnings == (
        (f"NIM_PEFT_SOURCE is ignored, and none of its adapters is served: {why} counts",) if why else ()
    )


def test_a_source_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_folders(f"{tmp_path}/{'x' * 300}")
    assert caught.value.what.endswith("is no path: a name in it is too long")


def test_advice_for_missing_folders_and_single_adapters(tmp_path: Path) -> None:
    adapter(tmp_path, "one", {"r": 8})
    with pytest.raises(NotFoundError) as missing:
        read_folders(f"{tmp_path}/no/such")
    assert missing.value.todo == f"Is the volume mounted? The nearest existing parent is {tmp_path}"
    with pytest.raises(NotFoundError) as single:
        read_folders(f"{tmp_path}/one")
    assert single.value.todo == f"It is an adapter itself: give the folder above, {tmp_path}"
