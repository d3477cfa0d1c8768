"""The name in ``/v1/models`` for every kind of source."""

from __future__ import annotations

import pytest

from launcher.served_name import served_names
from launcher.sources import parse_source

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/models/Llama-3.1-8B", "Llama-3.1-8B"),
        ("/models/Llama-3.1-8B/", "Llama-3.1-8B"),
        ("local:///models/my model", "my model"),
        ("file:///models/a:b", "a-b"),
        (f"/cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/{SHA}", "meta-llama/Llama-3.1-8B"),
        (f"/cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/{SHA}/", "meta-llama/Llama-3.1-8B"),
        (f"/cache/hub/models--gpt2/snapshots/{SHA}", "gpt2"),
        (f"/cache/models--org--name/snapshots/{SHA}/speculator", "speculator"),
        (f"/snapshots/{SHA}", SHA),
        ("/", "/"),
        ("hf://org/model", "org/model"),
        ("hf://org/model:main", "org/model"),
        ("ngc://nim/meta/llama:1.8.0", "nim/meta/llama"),
        ("modelscope://org/model:v1", "org/model"),
        ("s3://bucket/some/prefix/", "bucket/some/prefix"),
        ("gs://bucket/a:b/c", "bucket/a-b/c"),
        ("s3://bucket", "bucket"),
    ],
)
def test_derived_names(source: str, name: str) -> None:
    assert served_names(parse_source(source, "NIM_MODEL_PATH"), None) == (name,)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("mine", ("mine",)),
        ("mine, yours ,mine", ("mine", "yours")),
        ("a:b", ("a:b",)),
        (" , ", ("model",)),
        ("", ("model",)),
    ],
)
def test_a_given_list_wins(given: str, names: tuple[str, ...]) -> None:
    assert served_names(parse_source("/m/model", "NIM_MODEL_PATH"), given) == names
