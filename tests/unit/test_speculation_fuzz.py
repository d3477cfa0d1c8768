"""Whatever is said about speculation, and whatever the files hold: a decision or an error with a documented code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.checkpoint import Checkpoint, Head, Portion, Tensor, Weights, read_config
from launcher.errors import (
    TREE,
    DeniedError,
    IncompatibleError,
    IntegrityError,
    LauncherError,
    NetworkError,
    NotFoundError,
)
from launcher.machine import Machine
from launcher.speculation.select import candidates, decide
from launcher.speculation.values import Decision, Layer, Published, Request
from launcher.vllm import tables
from tests.unit.checkpoints import DEEPSEEK, DFLASH, DSPARK, EAGLE3, LLAMA, TARGET

CODES = {error.code for error in TREE}
TABLES = [tables.load(version) for version in (*tables.SUPPORTED, "0.99.0")]
KEYS = sorted({field.name for table in TABLES for field in table.fields})
METHODS = sorted({method for table in TABLES for method in table.methods})
FLAGS = [
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--max-model-len",
    "--max-num-batched-tokens",
    "--max-num-seqs",
    "--async-scheduling",
    "--enable-lora",
    "--load-format",
    "--kv-transfer-config",
    "--no-enable-prefix-caching",
    "--enable-prefix-caching",
    "--trust-remote-code",
]
FIELDS = sorted(
    {*LLAMA, *DEEPSEEK, *EAGLE3, *DFLASH, *DSPARK, "text_config", "eagle_config", "target_hidden_size", "layer_types"}
    | {"eagle_aux_hidden_state_layer_ids", "speculators_model_type", "speculators_config", "transformer_layer_config"}
    | {"index_topk", "rope_scaling", "num_mtp_modules", "mtp_num_hidden_layers", "pard_token", "decoder", "auto_map"}
)

text = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.integers(-2, 9) | st.floats() | text
json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=8
)
references = st.sampled_from(
    [
        "eagle3_draft",
        "a.b",
        "/drafts/a",
        "/tmp/model/speculator/a",
        "org/name",
        "hf://org/name",
        "s3://b/x",
        "../x",
        "two",
        "",
    ]
)
configs = st.dictionaries(
    st.sampled_from(KEYS) | text,
    json | st.integers(0, 9) | st.sampled_from([*METHODS, "none", "true", "3"]) | references,
    max_size=6,
) | st.fixed_dictionaries(
    {"method": st.sampled_from(METHODS)},
    optional={"model": references, "num_speculative_tokens": st.integers(1, 9)}
    | {key: json for key in KEYS if key not in ("method", "model", "num_speculative_tokens")},
)
layers = st.lists(st.builds(Layer, st.sampled_from(["command line", "profile"]), configs | json), max_size=3)
requests = st.builds(
    Request,
    layers=layers.map(tuple),
    enabled=st.booleans(),
    enabled_origin=st.none() | st.just("NIM_SPECDEC_ENABLE"),
    draft=st.none() | references | text,
    policy=st.sampled_from(["required", "fallback"]),
    flags=st.dictionaries(
        st.sampled_from(FLAGS),
        st.lists(text | st.sampled_from(["2", "1k", "dummy", "{}", "false"]), max_size=2).map(tuple),
    ),
    trust_custom_code=st.booleans(),
    published=st.lists(
        st.builds(
            Published,
            st.sampled_from(["mtp", "eagle3", "eagle", "dspark"]),
            st.just({"num_speculative_tokens": 2}),
            st.none() | references,
        ),
        max_size=2,
    ).map(tuple),
    model_runner=st.none() | st.sampled_from([1, 2]),
)
documents = st.dictionaries(st.sampled_from(FIELDS), json, max_size=6).flatmap(
    lambda changes: st.sampled_from([{}, LLAMA, DEEPSEEK, EAGLE3, DFLASH, DSPARK]).map(lambda base: base | changes)
)
shapes = st.lists(st.integers(0, 512), max_size=3).map(tuple)
weights = st.builds(
    Weights,
    form=st.sampled_from(["safetensors", "pickle", "gguf", ""]),
    bytes=st.integers(0, 10),
    files=st.integers(0, 3),
    heads=st.lists(
        st.builds(
            Head,
            st.sampled_from(["mtp", "dspark", "dflash"]),
            st.integers(1, 9),
            text,
            text,
            st.lists(st.integers(0, 3), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    portions=st.lists(
        st.builds(Portion, st.sampled_from(["layers", "head"]), st.booleans(), st.booleans(), st.integers(0, 9)),
        max_size=2,
    ).map(tuple),
    tensors=st.lists(
        st.builds(Tensor, st.sampled_from(["fc.weight", "d2t", "embed_tokens.weight"]), st.just("BF16"), shapes),
        max_size=3,
    ).map(tuple),
)
checkpoints = st.builds(
    Checkpoint,
    place=st.just(TARGET),
    config=documents.map(read_config),
    weights=weights,
    drafts=st.lists(st.sampled_from(["eagle3_draft", "speculator/a", "two/a", "two/b"]), max_size=3, unique=True).map(
        tuple
    ),
    custom_code=st.booleans(),
    lora=st.booleans(),
    runtime=st.none(),
    mistral=st.booleans(),
)
failures: st.SearchStrategy[LauncherError] = st.sampled_from(
    [NotFoundError("x"), DeniedError("x"), NetworkError("x"), IntegrityError("x"), IncompatibleError("x")]
)
SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@SETTINGS
@given(requests, checkpoints, st.data(), st.sampled_from(TABLES), st.sampled_from(["cpu", "cuda", None]))
def test_any_request_on_any_files(
    request: Request, target: Checkpoint, data: st.DataObject, table: tables.EngineTable, device: str | None
) -> None:
    machine = Machine(device, data.draw(st.sampled_from([True, False, None])))
    try:
        asked = candidates(request, target, table, machine)
    except LauncherError as error:
        assert error.code == 2
        return
    read: dict[str, Checkpoint | LauncherError] = {
        reference.source: data.draw(checkpoints | failures) for reference in asked if data.draw(st.integers(0, 9))
    }
    try:
        decision = decide(request, target, read, table, machine)
    except LauncherError as error:
        assert error.code == 2
        return
    _consistent(decision, request, table)


@SETTINGS
@given(json | configs, json | configs, st.booleans(), st.sampled_from(TABLES))
def test_any_json_as_a_speculative_config(high: Any, low: Any, enabled: bool, table: tables.EngineTable) -> None:
    target = Checkpoint(TARGET, read_config(DEEPSEEK), Weights("safetensors", 1, 1, (), ()), (), False)
    said = (Layer("command line", high), Layer("runtime_config.json", low))
    request = Request(said, enabled, None, None, "required", {}, False)
    try:
        decision = decide(request, target, {}, table, Machine("cpu"))
    except LauncherError as error:
        assert error.code in CODES
        assert str(error)
        return
    _consistent(decision, request, table)


def _consistent(decision: Decision, request: Request, table: tables.EngineTable) -> None:
    """What holds for every decision."""
    chosen = decision.speculation
    failed = [check.error for check in decision.checks if check.error is not None]
    assert all(error.code in CODES for error in failed)
    assert all(check.message for check in decision.checks)
    assert chosen.reason
    if request.policy == "fallback":  # it forgives the draft and the method, never the target
        named = [check for check in decision.checks if check.name != "target-weights"]
        assert all(check.error is None or check.error.code in (2, 6) for check in named)
    if not chosen.enabled:
        assert chosen.config == {}
        return
    config: Mapping[str, Any] = chosen.config
    assert config["method"] == chosen.method
    assert config.get("num_speculative_tokens") == chosen.tokens
    if chosen.tokens is None:
        assert failed  # something else is wrong, before a token count is asked for
    else:
        assert chosen.tokens >= 1
    assert ("model" in config) <= (chosen.method == "custom_class")
    assert set(chosen.origins) == set(config)
    if table.exact:
        assert chosen.method in table.methods
        assert all(table.field(key) is not None for key in config)
