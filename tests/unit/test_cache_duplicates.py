"""What is left out of a download: the same weights in other formats, and what patterns say."""

from __future__ import annotations

import pytest

from launcher.fetch.duplicates import Choice, Wishes, choose, has_complete_set, patterns_that_miss
from launcher.fetch.remote import RemoteFile


def choice(names: list[str], wishes: Wishes = Wishes()) -> Choice:  # noqa: B008 - an immutable value
    return choose([RemoteFile(name, 100, "e", None) for name in sorted(names)], wishes, "hf://o/m")


def fetched(names: list[str], wishes: Wishes = Wishes()) -> list[str]:  # noqa: B008
    return [file.path for file in choice(names, wishes).files]


EVERYTHING = [
    "config.json",
    "model.safetensors",
    "pytorch_model.bin",
    "consolidated.safetensors",
    "original/consolidated.00.pth",
    "original/params.json",
    "model-q4.gguf",
    "onnx/model.onnx",
    "metal/model.bin",
    "tokenizer.json",
]


def test_a_complete_set_of_safetensors_is_enough() -> None:
    assert fetched(EVERYTHING) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_bytes_saved_are_said() -> None:
    found = choice(EVERYTHING)
    assert len(found.skipped) == 7
    assert found.notes == (
        "hf://o/m: 7 duplicates of the safetensors weights are left out, 700 bytes: consolidated.safetensors, "
        "metal/model.bin, model-q4.gguf and 4 more (NIM_FETCH_INCLUDE brings them)",
    )


def test_a_pattern_brings_a_duplicate() -> None:
    wishes = Wishes(include=("*.json", "*.gguf"))
    assert fetched(EVERYTHING, wishes) == ["config.json", "model-q4.gguf", "original/params.json", "tokenizer.json"]


def test_a_pattern_leaves_out() -> None:
    assert fetched(["config.json", "model.safetensors", "figures/a.png"], Wishes(exclude=("figures/",))) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (Wishes(exclude=("config.json",)), "NIM_FETCH_EXCLUDE leaves out config.json"),
        (Wishes(exclude=("*.safetensors",)), "NIM_FETCH_EXCLUDE leaves out model.safetensors"),
        (Wishes(include=("*.json",)), "NIM_FETCH_INCLUDE leaves out model.safetensors"),
        (Wishes(include=("*.txt",), exclude=("y",)),
         "NIM_FETCH_INCLUDE and NIM_FETCH_EXCLUDE leave out config.json and model.safetensors"),
        (Wishes(exclude=("sub/",)), ""),
        (Wishes(), ""),
    ],
)  # fmt: skip
def test_patterns_that_leave_no_model_are_named(wishes: Wishes, said: str) -> None:
    paths = ("config.json", "model.safetensors", "sub/config.json", "sub/model.safetensors", "a.txt")
    choice = choose([RemoteFile(path, 1, path, None) for path in paths], wishes, "hf://org/m")
    assert patterns_that_miss(choice.files, choice.skipped, wishes) == said
    assert choice.warnings == ((f"hf://org/m: {said}, which a model needs",) if said else ())


def test_an_incomplete_set_replaces_nothing() -> None:
    names = ["model-00001-of-00002.safetensors", "pytorch_model.bin"]
    assert fetched(names) == names


def test_mistral_files_stay_when_their_format_is_asked_for() -> None:
    names = ["consolidated.safetensors", "model-00001-of-00001.safetensors", "params.json"]
    assert fetched(names) == ["model-00001-of-00001.safetensors", "params.json"]
    assert fetched(names, Wishes(mistral=True)) == ["consolidated.safetensors", "params.json"]


def test_only_mistral_files_are_no_duplicates() -> None:
    assert fetched(["consolidated.safetensors", "params.json"]) == ["consolidated.safetensors", "params.json"]


def test_a_draft_in_a_folder_of_its_own_keeps_its_pickles() -> None:
    names = ["draft/config.json", "draft/pytorch_model.bin", "model.safetensors"]
    assert fetched(names) == names


def test_pickles_alone_are_used_with_a_warning() -> None:
    found = choice(["config.json", "pytorch_model.bin"])
    assert [file.path for file in found.files] == ["config.json", "pytorch_model.bin"]
    assert found.warnings == (
        "hf://o/m has no safetensors: its pickle weights are used (pytorch_model.bin), which can run code when loaded",
    )


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        ({"model.safetensors"}, True),
        ({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, True),
        ({"model-00001-of-00002.safetensors"}, False),
        ({"model-00001-of-00002.safetensors", "model-00002-of-00003.safetensors"}, False),
        ({"consolidated.safetensors"}, False),
        ({"adapter_model.safetensors"}, False),
        (set(), False),
    ],
)
def test_complete_sets(names: set[str], complete: bool) -> None:
    assert has_complete_set(names) is complete
