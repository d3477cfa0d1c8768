"""Profile files: each kind of mistake is one sentence with the file, the line, the key and what is allowed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
import yaml

from launcher.errors import ConfigurationError, NotFoundError
from launcher.profiles import compile as compiling
from launcher.profiles import schema
from launcher.profiles.compiled import from_text
from launcher.profiles.documents import parse_document, read_document
from launcher.profiles.values import canonical, identify

ROOT = Path(__file__).parents[2]
FILE = "/profiles/tiny.yaml"
GOOD = """\
schema: 1
family: tiny
models:
  - name: tiny-1b
    architectures: [LlamaForCausalLM]
    sizes: {hidden_size: 128}
    runtime: {max_num_seqs: 64}
    speculation:
      draft:
        source: hf://org/draft
        revision: 0123456789abcdef0123456789abcdef01234567
        licence: Apache-2.0
        method: eagle3
        tokens: 2
        evidence: {url: https://host/page, date: 2026-01-02}
    variants:
      - precision: bf16
        sources: [hf://org/tiny]
        tensor_parallel: [1, 2]
        memory_gb: 4.5
      - precision: fp8
        sources: [hf://org/tiny-FP8]
"""


def test_a_good_file() -> None:
    model = parse_document(GOOD, FILE).document.models[0]
    assert (model.name, model.variants[0].tensor_parallel, model.variants[0].memory_gb) == ("tiny-1b", (1, 2), 4.5)
    assert model.speculation.draft is not None
    assert model.speculation.draft.evidence.date == "2026-01-02"


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        # unknown key
        ("    sizes:", "    size:", "6: models[0] takes no key size. Did you mean sizes? It takes name, variants, "),
        ("tokens: 2", "token: 2", "14: models[0].speculation.draft takes no key token. Did you mean tokens? "),
        ("{hidden_size: 128}", "{hiden: 1}", "6: models[0].sizes takes no key hiden. It takes hidden_size, "),
        ("family:", "familly:", "2: a profile file takes no key familly. Did you mean family? It takes schema, "),
        # missing key
        ("    licence: Apache-2.0\n    ", "", "9: models[0].speculation.draft has no licence. Add it; "),
        # wrong type, value or form
        (
            "tokens: 2",
            "tokens: two",
            "14: models[0].speculation.draft.tokens is 'two'. It takes a whole number or null",
        ),
        (
            "tokens: 2",
            "tokens: 0",
            "14: models[0].speculation.draft.tokens is 0. It takes a whole number >= 1 or null.",
        ),
        ("precision: bf16", "precision: bf17", "17: models[0].variants[0].precision is 'bf17'. It takes bf16, "),
        ("method: eagle3", "method: eagel3", "13: models[0].speculation.draft.method is 'eagel3'. It takes dflash, "),
        ("[1, 2]", "1", "19: models[0].variants[0].tensor_parallel is 1. It takes a list."),
        ("[1, 2]", "[]", "19: models[0].variants[0].tensor_parallel is []. It takes a list of length >= 1."),
        ("schema: 1", "schema: 2", "1: schema is 2. It takes 1."),
        (
            "[hf://org/tiny]",
            "[org/tiny]",
            "18: models[0].variants[0].sources[0] is 'org/tiny'. It takes a text such as hf",
        ),
        (
            "2026-01-02",
            "last week",
            "15: models[0].speculation.draft.evidence.date is 'last week'. It takes a text such",
        ),
        ("0123456789abcdef0123456789abcdef01234567", "main", "11: models[0].speculation.draft.revision is 'main'. It "),
        # what YAML itself refuses, and what it would let pass
        ("    sizes:", "\tsizes:", "6: a tab indents this line. Indent with spaces: YAML allows no tabs."),
        (
            "    sizes:",
            "    name: other\n    sizes:",
            "6: the key name stands here and on line 4. Keep one of the two.",
        ),
        ("[LlamaForCausalLM]", "[LlamaForCausalLM", "6: no valid YAML: expected ',' or ']', but got ':'. Correct the"),
        ("family: tiny", "family: *tiny", "2: no valid YAML: an alias (*name) stands here. Correct the line."),
        ("    sizes:", "    [1]: 2\n    sizes:", "6: a key that is no plain word. Write each key as one word."),
        (GOOD, "", "1: the file is empty. Write a profile, or remove the file."),
        (GOOD, "[1]", "1: the file is [1]. It takes a mapping."),
        (GOOD, "\x01", "1: no valid YAML: "),
        ("{hidden_size: 128}", "[" * 3000 + "]" * 3000, "6: no valid YAML: more than 50 levels. Correct the line."),
        (
            "memory_gb: 4.5",
            "memory_gb: -1",
            "20: models[0].variants[0].memory_gb is -1. It takes a number > 0 or null.",
        ),
    ],
)
def test_every_mistake_is_one_sentence_with_its_line(before: str, after: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_document(GOOD.replace(before, after, 1), FILE)
    assert str(caught.value).startswith(f"{FILE}:{what}"), str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no profile file /nowhere/x"):
        read_document("/nowhere/x.yaml")
    with pytest.raises(NotFoundError, match="there is no folder of profiles /nowhere"):
        compiling.files_in("/nowhere")
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read: it is no UTF-8 text"):
        read_document(str(path))
    folder, pipe, huge = tmp_path / "folder.yaml", tmp_path / "pipe.yaml", tmp_path / "huge.yaml"
    folder.mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read: it is a folder"):
        read_document(str(folder))
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="cannot be read: it is no regular file"):
        read_document(str(pipe))  # whose reading would never end
    huge.write_text("#" * 1_000_001)
    with pytest.raises(ConfigurationError, match="has 1000001 bytes, and a family takes a few thousand"):
        read_document(str(huge))
    with pytest.raises(ConfigurationError, match=r"is a file, not a folder of profiles\. Give the folder that it lies"):
        compiling.files_in(str(path))


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"a.yaml": GOOD, "b.yaml": GOOD}, "b.yaml:4: the model tiny-1b is also in "),
        (
            {"a.yaml": GOOD, "b.yaml": GOOD.replace("tiny-1b", "other")},
            "b.yaml:18: the source hf://org/tiny of other also belongs to tiny-1b",
        ),
        (
            {"a.yaml": GOOD.replace("precision: fp8", "precision: bf16")},
            "a.yaml:21: tiny-1b has two profiles vllm-bf16-tp1-pp1-tiny-1b",
        ),
        (
            {"a.yaml": GOOD.replace("hf://org/tiny]", "hf://org/tiny:v1]")},
            "a.yaml:18: the source hf://org/tiny:v1 of tiny-1b has a revision. Lea",
        ),
        (
            {"a.yaml": GOOD.replace("org/draft", "org/draft:v1")},
            "a.yaml:10: the source hf://org/draft:v1 of tiny-1b has a revision. Write the draft's as rev",
        ),
        (
            {"a.yaml": GOOD.replace("max_num_seqs: 64", "speculative_config: {}")},
            "a.yaml:7: the runtime key speculative_config of tiny-1b cannot be set here. Write it under speculation.",
        ),
        (
            {"a.yaml": GOOD.replace("hf://org/tiny]", "hf://org]")},
            "a.yaml:18: tiny-1b: ",
        ),
    ],
)
def test_files_that_contradict_each_other(files: dict[str, str], what: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        compiling.compiled(str(tmp_path))
    assert what in str(caught.value)


def test_a_profile_for_each_number_of_gpus_and_its_share_of_memory(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(GOOD)
    store = from_text(compiling.text_of(compiling.compiled(str(tmp_path))))
    found = {profile.description: profile for profile in store.all()}
    assert list(found) == [
        "vllm-bf16-tp1-pp1-tiny-1b",
        "vllm-bf16-tp2-pp1-tiny-1b",
        "vllm-fp8-tp1-pp1-tiny-1b",
    ]
    assert [profile.memory for profile in found.values()] == [4.5, 2.3, None]
    assert [profile.capability for profile in found.values()] == [(8, 0), (8, 0), (8, 9)]
    first = found["vllm-bf16-tp1-pp1-tiny-1b"]
    assert first.model.origin == str(tmp_path / "tiny.yaml") and first.runtime == {"max_num_seqs": 64}
    assert first.model.draft is not None and first.model.draft.pinned
    assert first.model.draft.draft == "hf://org/draft:0123456789abcdef0123456789abcdef01234567"
    assert store.of_source("hf://ORG/tiny-fp8")[2].sources == ("hf://org/tiny-FP8",)
    assert store.of_source("hf://org/other") == ()


def test_the_origin_is_part_of_the_id(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(GOOD)
    own, built_in = (compiling.compiled(str(tmp_path), origin) for origin in (None, "built-in"))
    assert own[0]["profiles"][0]["id"] != built_in[0]["profiles"][0]["id"]


# The files of this repository ----------------------------------------------------------------------------------------


def test_every_id_is_the_digest_of_its_content_and_no_two_are_one() -> None:
    ids: list[str] = []
    for model in compiling.compiled(str(ROOT / "profiles"), "built-in"):
        common = {key: value for key, value in model.items() if key != "profiles"}
        for entry in model["profiles"]:
            content = {**common, **{key: value for key, value in entry.items() if key != "id"}}
            assert entry["id"] == identify(content), entry["description"]
            ids.append(entry["id"])
    assert len(set(ids)) == len(ids) > 400


def test_the_compiled_file_is_that_of_the_profile_files() -> None:
    text = compiling.text_of(compiling.compiled(str(ROOT / "profiles"), "built-in"))
    assert (ROOT / "launcher" / "profiles.json").read_text(encoding="ascii") == text
    assert isinstance(json.loads(text), list)  # one JSON document, whatever else its lines are good for
    assert canonical(json.loads(text)[1]) in text


def test_enough_models_have_a_head_or_a_draft_and_every_default_its_source() -> None:
    models = [
        model for path in sorted(ROOT.glob("profiles/*.yaml")) for model in read_document(str(path)).document.models
    ]
    ways = [way for model in models for way in (model.speculation.head, model.speculation.draft) if way is not None]
    assert len(ways) >= 60
    assert all(way.evidence.url.startswith("https://") for way in ways)
    measured = [one for way in ways for one in way.acceptance]
    assert len(measured) >= 15
    assert all(one.length <= one.tokens + 1 for one in measured)


def test_the_schema_for_editors_accepts_the_files() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "profiles" / "schema.json").read_text()))
    for path in sorted(ROOT.glob("profiles/*.yaml")):
        plain = yaml.load(path.read_text(), yaml.BaseLoader)
        assert plain["schema"] == "1"
        typed = json.loads(msgspec.json.encode(read_document(str(path)).document))
        assert list(validator.iter_errors(typed)) == [], path
    assert list(validator.iter_errors({"schema": 1, "family": "x", "models": [], "more": 1})) != []
    assert schema.json_schema()["$ref"].endswith("Document")


def test_the_example_of_the_page_is_a_profile() -> None:
    page = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    example = page[page.index("    # yaml-language-server") : page.index("    launcher profiles check")]
    model = parse_document("\n".join(line[4:] for line in example.splitlines()), "docs/profiles.md").document.models[0]
    assert (model.name, model.variants[0].tensor_parallel) == ("my-model-8b", (1, 2, 4))
