from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError
from launcher.vllm import tables
from launcher.vllm.tables import EngineTable

DATA = Path(tables.__file__).parent / "data"
VERSIONS = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


@pytest.fixture(scope="module", params=VERSIONS)
def table(request: pytest.FixtureRequest) -> EngineTable:
    return tables.load(request.param)


def test_one_table_for_each_supported_version() -> None:
    assert tables.supported() == VERSIONS
    assert sorted(path.stem for path in DATA.iterdir()) == sorted(VERSIONS)
    assert tables.pinned() == tables.load("0.32.0")
    assert tables.pinned().version == "0.32.0"


def test_a_table_says_what_it_was_made_from(table: EngineTable) -> None:
    document = json.loads((DATA / f"{table.version}.json").read_text())
    assert document["version"] == table.version
    assert f"-{table.version}-" in document["wheel"]
    assert len(bytes.fromhex(table.sha256)) == 32


@pytest.mark.parametrize(
    ("installed", "version", "exact"),
    [
        ("0.29.0", "0.29.0", True),
        ("0.32.0+cpu", "0.32.0", True),
        ("0.32.3", "0.32.3", True),
        ("0.33.1.dev12+gabc1234.cu129", "0.33.1.dev12", True),
        ("0.31.2rc1", "0.31.2rc1", True),
        ("0.34.0", "0.33.0", False),
        ("1.0.0", "0.33.0", False),
        ("0.100.0", "0.33.0", False),
    ],
)
def test_the_table_of_an_installed_version(installed: str, version: str, exact: bool) -> None:
    table = tables.load(installed)
    assert (table.version, table.exact) == (version, exact)
    assert table.release == tables.minor(version)


def test_too_old_names_the_range() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        tables.load("0.28.1")
    assert str(refusal.value) == "vLLM 0.28.1 is older than what this launcher knows. Use vLLM 0.29 to 0.33."
    assert refusal.value.code == 2


@pytest.mark.parametrize(("version", "said"), [("", "it has none"), ("dev", "dev"), ("0.x", "0.x"), ("².1", "².1")])
def test_a_version_that_is_none(version: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        tables.load(version)
    assert f"cannot be read ({said})" in refusal.value.what


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("--max-model-len", "--max-model-len"),
        ("--max_model_len", "--max-model-len"),
        ("-sc", "--speculative-config"),
        ("--speculative_config", "--speculative-config"),
        ("-tp", "--tensor-parallel-size"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--no_enable_prefix_caching", "--enable-prefix-caching"),
        ("-O", None),
        ("-h", None),
        ("--help", None),
        ("--specul", None),
        ("--no-max-model-len", None),
        ("model_tag", None),
        ("", None),
    ],
)
def test_full_spellings(table: EngineTable, spelling: str, name: str | None) -> None:
    flag = table.flag(spelling)
    assert (flag.name if flag else None) == name


def test_every_spelling_is_one_flag(table: EngineTable) -> None:
    spelled = [text for flag in table.flags for text in (flag.name, *flag.aliases, *flag.negatives)]
    assert len(spelled) == len(set(spelled)) == len(table.flag_spellings())
    assert [flag.name for flag in table.flags] == sorted(flag.name for flag in table.flags)
    assert not [text for text in spelled if "_" in text or not text.startswith("-")]


def test_only_booleans_can_be_negated(table: EngineTable) -> None:
    for flag in table.flags:
        assert bool(flag.negatives) == (flag.kind == "boolean")
        if flag.negatives:
            assert flag.negatives[0] == "--no-" + flag.name.removeprefix("--")


def test_which_spelling_means_no() -> None:
    older, newer = tables.load("0.32.0"), tables.load("0.33.0")
    caching, docs = newer.flag("--enable-prefix-caching"), newer.flag("--disable-fastapi-docs")
    assert caching and docs
    assert caching.negatives == ("--no-enable-prefix-caching", "--disable-prefix-caching")
    assert newer.flag("--disable_prefix_caching") is caching
    assert caching.negates("--disable_prefix_caching") and not caching.negates("--enable-prefix-caching")
    assert docs.negates("--enable-fastapi-docs") and not docs.negates("--disable-fastapi-docs")
    assert older.flag("--disable-prefix-caching") is None


@pytest.mark.parametrize(
    ("name", "kind", "type_", "words"),
    [
        ("--max-model-len", "value", "human-int", ("auto",)),
        ("--max-num-batched-tokens", "value", "human-int", ()),
        ("--kv-cache-memory-bytes", "value", "human-int", ("None",)),
        ("--tensor-parallel-size", "value", "int", ()),
        ("--gpu-memory-utilization", "value", "float", ()),
        ("--speculative-config", "value", "json", ("None",)),
        ("--hf-overrides", "value", "json", ()),
        ("--compilation-config", "value", "json", ()),
        ("--allowed-origins", "value", "json-any", ()),
        ("--pt-load-map-location", "value", "str", ()),
        ("--served-model-name", "list", "str", ("None",)),
        ("--api-key", "list", "str", ("None",)),
        ("--cudagraph-capture-sizes", "list", "int", ()),
        ("--middleware", "append", "str", ()),
        ("--hf-token", "optional", "str", ()),
        ("--headless", "switch", "bool", ()),
        ("--enforce-eager", "boolean", "bool", ()),
        ("--config", "value", "str", ()),
    ],
)
def test_how_a_flag_is_read(table: EngineTable, name: str, kind: str, type_: str, words: tuple[str, ...]) -> None:
    flag = table.flag(name)
    assert flag
    assert (flag.kind, flag.type, flag.words) == (kind, type_, words)
    assert flag.dest == name.removeprefix("--").replace("-", "_")


def test_kinds_and_types_are_the_documented_ones(table: EngineTable) -> None:
    assert {flag.kind for flag in table.flags} <= {
        "value",
        "optional",
        "list",
        "switch",
        "boolean",
        "append",
        "append-list",
    }
    assert {flag.type for flag in table.flags} <= {"str", "int", "float", "human-int", "json", "json-any", "bool"}
    assert {field.type for field in table.fields} <= {"str", "int", "float", "json", "json-any", "bool"}


def test_choices(table: EngineTable) -> None:
    runner, backend, parser = (table.flag(name) for name in ("--runner", "--moe-backend", "--tool-call-parser"))
    assert runner and backend and parser
    assert runner.choices == ("auto", "draft", "generate", "pooling") and not runner.folded
    assert {"auto", "flashinfer_cutlass"} < set(backend.choices) and backend.folded
    assert parser.choices == ()
    assert not [flag.name for flag in table.flags if "None" in flag.choices]


def test_json_in_which_numbers_may_carry_a_unit(table: EngineTable) -> None:
    with_units = {flag.name for flag in table.flags if flag.units}
    assert {"--kv-transfer-config", "--compilation-config"} < with_units
    assert "--speculative-config" not in with_units


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("num_speculative_tokens", "0.29.0", "0.33.0"),
        ("dspark_draft_topk", "0.29.0", "0.33.0"),
        ("disable_eagle_block_drop", "0.30.0", "0.33.0"),
        ("fly_window_size", "0.33.0", "0.33.0"),
        ("draft_lm_head_quantization", "0.33.0", "0.33.0"),
    ],
)
def test_speculative_keys_by_version(name: str, first: str, last: str) -> None:
    having = [version for version in VERSIONS if tables.load(version).field(name)]
    assert (having[0], having[-1]) == (first, last)


def test_speculative_keys(table: EngineTable) -> None:
    tokens, dashed, sampling = (
        table.field(name) for name in ("num_speculative_tokens", "prompt-lookup-min", "draft_sample_method")
    )
    assert tokens and dashed and sampling
    assert (tokens.type, tokens.minimum, tokens.nullable) == ("int", 1, False)
    assert (dashed.name, dashed.minimum, dashed.nullable) == ("prompt_lookup_min", 1, True)
    assert sampling.choices == ("greedy", "probabilistic")
    assert table.field("num_speculative_tokrns") is None
    assert {field.name for field in table.fields if field.internal} == {
        "target_model_config",
        "target_parallel_config",
        "draft_parallel_config",
    }


def test_the_method_key_takes_the_methods(table: EngineTable) -> None:
    method = table.field("method")
    assert method and set(method.choices) == table.methods
    assert {"mtp", "deepseek_mtp"} < table.mtp_types < table.methods
    assert {"ngram", "eagle3", "dflash", "dspark", "suffix", "draft_model"} < table.methods - table.mtp_types


def test_methods_by_version() -> None:
    having = {method: [v for v in VERSIONS if method in tables.load(v).methods] for method in ("medusa", "step5_mtp")}
    assert having == {"medusa": list(VERSIONS[:4]), "step5_mtp": ["0.33.0"]}
    by_runner_v2 = {
        method: [v for v in VERSIONS if method in tables.load(v).v2_methods] for method in ("ngram", "suffix")
    }
    assert by_runner_v2 == {"ngram": ["0.32.0", "0.33.0"], "suffix": []}


def test_sets_of_architectures(table: EngineTable) -> None:
    assert table.eagle3_over_stages <= table.eagle3_targets < table.architectures
    assert table.drafts < table.architectures
    assert not table.drafts & table.eagle3_targets
    assert table.v2_methods < table.methods
    assert table.speculators == {"eagle3", "peagle", "dflash", "dflash2", "dspark"}


@pytest.mark.parametrize(
    "architecture",
    [
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "GptOssForCausalLM",
        "LlamaForCausalLM",  # a decoder that a method makes
        "DeepseekV3ForCausalLM",  # one that a class attribute names
        "MistralForCausalLM",  # an inherited marker
        "DeepseekV4ForCausalLM",  # a package that chooses by platform
        "Qwen3VLForConditionalGeneration",  # a decoder inside a multimodal wrapper
    ],
)
def test_takes_an_eagle3_draft(table: EngineTable, architecture: str) -> None:
    assert architecture in table.eagle3_targets


@pytest.mark.parametrize(
    "architecture",
    [
        "MiMoForCausalLM",  # this and the next two carry the marker over decoders that yield no auxiliary states
        "Exaone4_5_ForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "Glm4MoeForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
    ],
)
def test_takes_no_eagle3_draft(table: EngineTable, architecture: str) -> None:
    assert architecture in table.architectures
    assert architecture not in table.eagle3_targets
