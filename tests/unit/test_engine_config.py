"""engineConfig maps: which keys an engine allows, what their strings mean, and how they are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.arguments.merge import Level, effective, level, merge
from launcher.arguments.values import SPECULATIVE, Argument, JsonLayer
from launcher.engine_config import allowed_keys, read, speculative_keys
from launcher.errors import ConfigurationError, DeniedError, LauncherError, NotFoundError
from launcher.settings.parse import parse_settings
from launcher.settings.values import DYNAMO, VLLM, EngineConfig
from launcher.vllm import tables

TABLE = tables.pinned()
ORIGIN = "NIM_ENGINE_CONFIG"
SC = "speculative-config"
BOTH = ("method", "model", "num_speculative_tokens", "draft_tensor_parallel_size")


def parsed(document: dict[str, Any], engine: str = VLLM, table: tables.EngineTable = TABLE) -> Any:
    return read(EngineConfig(document), table, engine, ORIGIN)


def refusal(document: dict[str, Any], engine: str = VLLM, table: tables.EngineTable = TABLE) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parsed(document, engine, table)
    return [str(caught.value), *map(str, caught.value.others)]


@pytest.mark.parametrize(
    ("engine", "version", "fields"),
    [
        (DYNAMO, "0.32.0", [*BOTH, "draft_sample_method", ""]),
        (DYNAMO, "0.15.0", [*BOTH, "draft_sample_method", ""]),
        (VLLM, "0.18.2", [*BOTH, "prompt_lookup_min", "prompt_lookup_max"]),
        (VLLM, "0.19.0", [*BOTH, "prompt_lookup_min", "prompt_lookup_max", "moe_backend"]),
        (VLLM, "0.25.9", [*BOTH, "prompt_lookup_min", "prompt_lookup_max", "moe_backend"]),
        (VLLM, "0.26.0+crwv.0", [*BOTH, "prompt_lookup_min", "prompt_lookup_max", "moe_backend", "kv_cache_dtype"]),
        (VLLM, "0.32.0+cpu", [*BOTH, "prompt_lookup_min", "prompt_lookup_max", "moe_backend", "kv_cache_dtype"]),
    ],
)
def test_the_allowed_keys(engine: str, version: str, fields: list[str]) -> None:
    assert [key.name for key in allowed_keys(engine, version)] == [f"{SC}.{field}" if field else SC for field in fields]


def test_every_listed_field_is_one_of_vllms() -> None:
    for version in tables.supported():
        table = tables.load(version)
        for key in speculative_keys():
            field = key.name.partition(".")[2]
            assert not field or table.field(field) is not None, (version, field)


def test_strings_are_typed_by_the_flag_table() -> None:
    found = parsed(
        {
            "max-model-len": "32k",
            "max_num_seqs": "64",
            "enable-prefix-caching": "false",
            "trust-remote-code": "true",
            "kv-cache-dtype": "fp8",
            "served-model-name": '["one", "two"]',
            "middleware": "a.b",
            "compilation-config.level": "3",
            f"{SC}.method": "mtp",
            f"{SC}.num-speculative-tokens": "5",
        }
    )
    said = {argument.flag: (argument.values, argument.negated) for argument in found.arguments}
    assert said == {
        "--max-model-len": (("32k",), False),
        "--max-num-seqs": (("64",), False),
        "--enable-prefix-caching": ((), True),
        "--trust-remote-code": ((), False),
        "--kv-cache-dtype": (("fp8",), False),
        "--served-model-name": (("one", "two"), False),
        "--middleware": (("a.b",), False),
    }
    assert found.layers == (
        JsonLayer(SPECULATIVE, {"method": "mtp", "num_speculative_tokens": "5"}, ORIGIN),
        JsonLayer("--compilation-config", {"level": 3}, ORIGIN),
    )
    assert found.warnings == ()


def test_text_stays_text_whatever_it_looks_like() -> None:
    """A draft folder called 007 is no number."""
    assert parsed({f"{SC}.model": "007"}).layers[0].value == {"model": "007"}


def test_the_whole_object_with_single_fields_over_it() -> None:
    whole = json.dumps({"method": "eagle3", "model": "d", "num-speculative-tokens": 3})
    found = parsed({SC: whole, f"{SC}.num_speculative_tokens": "5"}, DYNAMO)
    assert found.layers[0].value == {"method": "eagle3", "model": "d", "num_speculative_tokens": "5"}
    assert found.warnings == (f"{ORIGIN} gives {SC}.num_speculative_tokens twice; the single field counts",)


@pytest.mark.parametrize("off", ["", "null", "none"])
def test_the_whole_object_switched_off(off: str) -> None:
    assert parsed({SC: off}, DYNAMO).layers == (JsonLayer(SPECULATIVE, None, ORIGIN),)


@pytest.mark.parametrize(
    ("engine", "key", "why", "todo"),
    [
        (VLLM, SC, "only dynamo-vllm (every version)", f"allows {SC}. with method, model"),
        (VLLM, f"{SC}.draft_sample_method", "only dynamo-vllm (every version)", f"allows {SC}. with method, model"),
        (DYNAMO, f"{SC}.prompt_lookup_min", "only vllm (every version)", "or draft_sample_method."),
        (DYNAMO, f"{SC}.prompt_lookup_max", "only vllm (every version)", "or draft_sample_method."),
        (DYNAMO, f"{SC}.moe_backend", "only vllm from 0.19.0 on", "or draft_sample_method."),
        (DYNAMO, f"{SC}.kv_cache_dtype", "only vllm from 0.26.0 on", "or draft_sample_method."),
        (VLLM, f"{SC}.metod", "there is no such key", f"{SC}.method: dynamo-vllm and vllm (every version)"),
        (VLLM, f"{SC}.kv_cache_dtyp", "there is no such key", f"{SC}.kv_cache_dtype: vllm from 0.26.0 on"),
        (DYNAMO, f"{SC}.model.name", "there is no such key", f"allows {SC}. with method, model"),
        (VLLM, f"{SC}.quantization", "no engine of hosted inference allows it", "works in --speculative-config"),
        (VLLM, "spec-tokens", "no engine of hosted inference allows it", f"Write {SC}.num_speculative_tokens"),
        (VLLM, "max-model-length", "vLLM 0.32.0 has no flag --max-model-length", "max-model-len."),
        (VLLM, "speculativ-config", "vLLM 0.32.0 has no flag", SC),
        (VLLM, "model", "it cannot be set here", "NIM_MODEL_PATH"),
        (VLLM, "", "has no flag", "flags without dashes"),
        (VLLM, "--max-num-seqs", "has no flag", "max-num-seqs"),
    ],
)
def test_a_refused_key_says_why_and_what_is_nearest(engine: str, key: str, why: str, todo: str) -> None:
    (sentence,) = refusal({key: "1"}, engine)
    assert sentence.startswith(f"{ORIGIN}: invalid runtime config: [{key}]: ")
    assert why in sentence and todo in sentence


def test_a_flag_of_another_version_names_it() -> None:
    only_new = next(
        name[2:]
        for name in tables.load("0.33.0").flag_spellings()
        if name.startswith("--") and TABLE.flag(name) is None and not name.startswith("--no-")
    )
    (sentence,) = refusal({only_new: "1"})
    assert f"[{only_new}]" in sentence and "(known to 0.33.0)" in sentence


@pytest.mark.parametrize("key", [f"{SC}.moe_backend", f"{SC}.kv_cache_dtype"])
def test_a_key_of_a_later_version(key: str) -> None:
    old = TABLE._replace(version="0.18.0")
    (sentence,) = refusal({key: "auto"}, VLLM, old)
    first = {"moe_backend": "0.19.0", "kv_cache_dtype": "0.26.0"}[key.partition(".")[2]]
    assert f"[{key}]: vllm allows it from {first} on, and this is 0.18.0" in sentence


@pytest.mark.parametrize(
    ("value", "what", "todo"),
    [
        (5, "a number", '"speculative-config.num_speculative_tokens": "5"'),
        (True, "true", '"true"'),
        (None, "null", "as one string"),
        ({"a": 1}, "an object", "as one string"),
    ],
)
def test_all_values_are_strings(value: object, what: str, todo: str) -> None:
    (sentence,) = refusal({f"{SC}.num_speculative_tokens": value})
    assert f"the value is {what}, and all values are strings" in sentence and todo in sentence


def test_all_problems_are_shown() -> None:
    found = refusal({f"{SC}.metod": "a", "max-num-seqs": "many", "seed": 5, "nope-nope": "1"})
    assert len(found) == 4
    assert any("--max-num-seqs takes an integer, not 'many'" in sentence for sentence in found)


def test_a_secret_goes_to_the_environment_and_into_no_message() -> None:
    found = parsed({"api-key": "planted"})
    assert (found.secrets, found.arguments) == ((("VLLM_API_KEY", "planted"),), ())
    with pytest.raises(ConfigurationError) as caught:
        parsed({"api-key": "planted", "planted": "1"})
    assert "planted" not in str(caught.value)


def test_a_newer_vllm_takes_unknown_flags_with_a_warning() -> None:
    newer = TABLE._replace(exact=False)
    found = parsed({"brand-new": "1"}, VLLM, newer)
    assert [argument.flag for argument in found.arguments] == ["--brand-new"]
    assert "passed on unread" in found.warnings[0]


def test_its_place_among_the_levels() -> None:
    hosted = parsed({"max-num-seqs": "64", "seed": "1", f"{SC}.method": "mtp"})
    variable = Argument("--max-num-seqs", ("8",), False, ("--max-num-seqs", "8"), "NIM_X")
    model = Argument("--seed", ("9",), False, ("--seed", "9"), "runtime_config.json")
    merged = merge([Level(3, "variables", (variable,)), level(3, ORIGIN, hosted), Level(4, "model", (model,))])
    assert effective(merged) == {"--max-num-seqs": ("8",), "--seed": ("1",)}
    assert merged.warnings == (f"--max-num-seqs is '8' in NIM_X and '64' in {ORIGIN}; NIM_X counts",)


# The variable ---------------------------------------------------------------------------------------------------------


def no_file(path: str) -> str:
    raise FileNotFoundError(path)


def test_inline_or_file_or_the_block_that_it_came_from(tmp_path: Path) -> None:
    keys = {f"{SC}.method": "mtp"}
    file = tmp_path / "engine.json"
    file.write_text("\ufeff" + json.dumps(keys))
    block = {"engine": "vllm", "version": "0.32.0", "engineConfig": keys}
    expected = EngineConfig(keys)
    for text, value in [
        (json.dumps(keys), expected),
        (f"  \n{json.dumps(keys, indent=1)}\n", expected),
        (json.dumps(json.dumps(keys)), expected),
        (f"'{json.dumps(keys)}'", expected),
        (str(file), expected),
        (json.dumps(block), EngineConfig(keys, "vllm", "0.32.0")),
        (json.dumps({"runtime": block}), EngineConfig(keys, "vllm", "0.32.0")),
    ]:
        settings = parse_settings({"NIM_ENGINE_CONFIG": text}, lambda path: Path(path).read_text(encoding="utf-8-sig"))
        assert settings.engine_config is not None
        assert settings.engine_config == (value, ORIGIN)
        assert settings.warnings == ()


def test_the_page_is_pasted_as_it_stands() -> None:
    """Without the braces of the request that it is a part of."""
    page = """"runtime": {
  "engine": "vllm",
  "version": "0.32.0",
  "engineConfig": {
    "speculative-config.method": "ngram",
    "speculative-config.num_speculative_tokens": "5",
    "speculative-config.prompt_lookup_min": "3",
    "speculative-config.prompt_lookup_max": "5"
  }
}"""
    given = parse_settings({"NIM_ENGINE_CONFIG": page}, no_file).engine_config
    assert given is not None and (given.value.engine, given.value.version) == ("vllm", "0.32.0")
    assert given.value.keys["speculative-config.prompt_lookup_min"] == "3"
    member = '"engineConfig": {"max-model-len": "4096"},'
    inner = parse_settings({"NIM_ENGINE_CONFIG": member}, no_file).engine_config
    assert inner is not None and inner.value.keys == {"max-model-len": "4096"}


def test_what_a_deployment_says_besides_is_ignored_with_a_warning() -> None:
    text = json.dumps({"name": "x", "runtime": {"engine": "vllm", "replicas": 2, "engineConfig": {}}})
    settings = parse_settings({"NIM_ENGINE_CONFIG": text}, no_file)
    assert settings.warnings == (f"{ORIGIN}: only 'runtime' is read; ignored: 'replicas', 'name'",)


@pytest.mark.parametrize(
    ("text", "kind", "piece"),
    [
        ("engine.json", ConfigurationError, "neither a JSON object nor an absolute path"),
        ("/no/such/file", NotFoundError, "does not exist"),
        ('{"a": "b",}', ConfigurationError, "a trailing comma"),
        ('["a"]', ConfigurationError, "is a list, not a JSON object"),
        ('{"engineConfig": []}', ConfigurationError, "engineConfig is a list"),
        ('{"engineConfig": {}, "engine": 3}', ConfigurationError, "engine is a number, not a string"),
    ],
)
def test_what_cannot_be_read(text: str, kind: type[LauncherError], piece: str) -> None:
    with pytest.raises(kind, match=piece):
        parse_settings({"NIM_ENGINE_CONFIG": text}, no_file)


def test_a_file_that_may_not_be_read() -> None:
    def denied(path: str) -> str:
        raise PermissionError(path)

    with pytest.raises(DeniedError, match="may not be read"):
        parse_settings({"NIM_ENGINE_CONFIG": "/engine.json"}, denied)


def test_a_block_for_another_engine_or_version() -> None:
    with pytest.raises(ConfigurationError, match=r"written for the engine 'dynamo-vllm'.*Set NIM_ENGINE=dynamo-vllm"):
        read(EngineConfig({}, "dynamo-vllm", None), TABLE, VLLM, ORIGIN)
    with pytest.raises(ConfigurationError, match="engines are vllm and dynamo-vllm"):
        read(EngineConfig({}, "sglang", None), TABLE, VLLM, ORIGIN)
    found = read(EngineConfig({}, VLLM, "0.26.0+crwv.0"), TABLE, VLLM, ORIGIN)
    assert found.warnings == (f"{ORIGIN} is written for version 0.26.0+crwv.0; it is checked against vLLM 0.32.0",)
    assert read(EngineConfig({}, VLLM, "[ENGINE-VERSION]"), TABLE, VLLM, ORIGIN).warnings == ()
