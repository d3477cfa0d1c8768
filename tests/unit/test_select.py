"""Which method speculates: off, named, and what holds whatever was decided."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.checkpoint import Checkpoint
from launcher.errors import (
    ConfigurationError,
    DeniedError,
    IncompatibleError,
    IntegrityError,
    LauncherError,
    NetworkError,
    NoSpaceError,
    NotFoundError,
)
from launcher.machine import Machine
from launcher.speculation.select import candidates
from launcher.speculation.values import Layer, Request
from tests.unit.checkpoints import (
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK,
    DSPARK_HEAD,
    EAGLE,
    EAGLE3,
    GPU,
    LLAMA,
    MTP_HEAD,
    PINNED,
    TARGET,
    checkpoint,
    eagle3,
    fc,
    mtp_target,
    request,
    target,
)
from tests.unit.deciding import V4, V4_SILENT, decided, errors, steps

# Off ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request(), "nothing asks for speculation; NIM_SPECDEC_ENABLE=1 turns the automatic choice on"),
        (request(toggle="NIM_SPECDEC_ENABLE"), "NIM_SPECDEC_ENABLE is off"),
        (request(None, enabled=True), "command line switches speculation off"),
        (request(None, {"method": "mtp"}, enabled=True), "command line switches speculation off"),
    ],
)
def test_off(asked: Request, reason: str) -> None:
    decision = decided(asked, mtp_target())
    assert decision.speculation.enabled is False
    assert decision.speculation.reason == reason
    assert (decision.speculation.config, decision.checks, decision.warnings) == ({}, (), ())
    assert candidates(asked, mtp_target(), PINNED, CPU) == ()


def test_a_draft_that_nothing_uses_is_said_once() -> None:
    decision = decided(request(draft="/mnt/draft"))
    assert decision.warnings == (
        "NIM_DRAFT_MODEL_PATH is not used: nothing asks for speculation; NIM_SPECDEC_ENABLE=1 turns the automatic "
        "choice on",
    )
    assert decided(request(None, draft="/mnt/draft")).warnings == (
        "NIM_DRAFT_MODEL_PATH is not used: command line switches speculation off",
    )
    for method in ("ngram", "suffix"):
        assert decided(request({"method": method}, draft="/mnt/draft")).warnings == (
            f"NIM_DRAFT_MODEL_PATH is not used: the method {method} takes no draft",
        )
    for held in (None, eagle3("/mnt/draft"), checkpoint(DEEPSEEK, "/mnt/draft")):
        drafts: dict[str, Checkpoint | LauncherError] = {"/mnt/draft": held} if held else {}
        decision = decided(request({"method": "mtp"}, draft="/mnt/draft"), mtp_target(), drafts)
        assert decision.speculation.draft is None
        assert errors(decision) == []
        assert decision.warnings == ("NIM_DRAFT_MODEL_PATH is not used: the method mtp uses the target's own head",)
    with pytest.raises(ConfigurationError):
        decided(request(draft="models/draft"))


def test_an_explicit_zero_beside_a_configuration_warns_and_does_not_reach_it() -> None:
    decision = decided(request(Layer("runtime_config.json", {"method": "ngram"}), toggle="NIM_SPECDEC_ENABLE"))
    assert decision.speculation.method == "ngram"
    assert decision.warnings == (
        "NIM_SPECDEC_ENABLE is off, but runtime_config.json configures speculation, which holds all the same; "
        "--speculative-config none switches it off",
    )
    assert decided(request({"method": "ngram"})).warnings == ()


# A named method -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # A missing bound takes the other's value, and both missing are 5 and 5, as in vLLM.
        ({}, {"num_speculative_tokens": 3, "prompt_lookup_max": 5, "prompt_lookup_min": 5}),
        ({"prompt_lookup_max": 7}, {"num_speculative_tokens": 3, "prompt_lookup_max": 7, "prompt_lookup_min": 7}),
        ({"prompt_lookup_min": 2}, {"num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 2}),
        (
            {"num_speculative_tokens": "4", "prompt_lookup_max": 4, "prompt_lookup_min": 1},
            {"num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 1},
        ),
    ],
)
def test_ngram_by_name(said: dict[str, Any], expected: dict[str, Any]) -> None:
    chosen = decided(request({"method": "ngram"} | said)).speculation
    assert chosen.config == {"method": "ngram"} | expected
    assert (chosen.method, chosen.tokens, chosen.draft) == ("ngram", expected["num_speculative_tokens"], None)
    assert chosen.reason == "command line names ngram"
    assert chosen.origins["method"] == "command line"
    assert chosen.origins["prompt_lookup_max"] == ("command line" if "prompt_lookup_max" in said else "default")


@pytest.mark.parametrize(
    ("said", "on", "draft", "machine", "tokens"),
    [
        ({"method": "mtp"}, mtp_target(), None, CPU, 1),
        ({"method": "mtp"}, mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 3}), None, CPU, 3),
        ({"method": "deepseek_mtp"}, mtp_target(), None, CPU, 1),
        ({"method": "eagle3", "model": DRAFT}, target(), eagle3(), CPU, 3),
        ({"method": "eagle", "model": DRAFT}, target(), checkpoint(EAGLE, DRAFT, tensors=(fc(256),)), CPU, 3),
        ({"method": "draft_model", "model": DRAFT}, target(), checkpoint(LLAMA, DRAFT), CPU, 3),
        ({"method": "dflash", "model": DRAFT}, target(), checkpoint(DFLASH, DRAFT, tensors=(fc(384),)), CPU, 15),
        ({"method": "dspark", "model": DRAFT}, target(), checkpoint(DSPARK, DRAFT, tensors=(fc(384),)), GPU, 7),
        ({"method": "dspark"}, checkpoint(V4, heads=(DSPARK_HEAD,)), None, GPU, 5),
        ({"method": "suffix"}, target(), None, Machine("cpu", True), 24),
        ({"method": "suffix", "suffix_decoding_max_tree_depth": 9}, target(), None, Machine("cpu", True), 9),
        ({"method": "ngram_gpu", "num_speculative_tokens": 2}, target(), None, GPU, 2),
    ],
)
def test_the_default_token_count_is_always_written_out(
    said: dict[str, Any], on: Checkpoint, draft: Checkpoint | None, machine: Machine, tokens: int
) -> None:
    decision = decided(request(said), on, {DRAFT: draft} if draft else {}, machine=machine)
    assert errors(decision) == []
    chosen = decision.speculation
    assert chosen.tokens == chosen.config["num_speculative_tokens"] == tokens
    assert list(chosen.config)[:2] == ["method", "num_speculative_tokens"]
    assert "model" not in chosen.config
    assert (chosen.draft is not None) is (draft is not None)


def test_a_value_of_a_layer_beats_the_default() -> None:
    chosen = decided(
        request(Layer("profile", {"method": "mtp", "num_speculative_tokens": 2})), mtp_target()
    ).speculation
    assert (chosen.tokens, chosen.origins["num_speculative_tokens"]) == (2, "profile")


@pytest.mark.parametrize("method", ["ngram_gpu", "medusa", "custom_class", "extract_hidden_states"])
def test_every_other_method_must_name_its_token_count(method: str) -> None:
    said = {"method": method} | ({"model": "my.Proposer"} if method == "custom_class" else {})
    medusa = checkpoint(LLAMA | {"architectures": ["MedusaModel"], "model_type": "medusa"}, DRAFT)
    with pytest.raises(
        ConfigurationError, match=f"num_speculative_tokens is not given, and the method {method} has no"
    ):
        decided(request(said, draft=DRAFT), drafts={DRAFT: medusa}, machine=GPU)


def test_a_dflash_draft_that_states_no_block_must_be_told() -> None:
    silent = checkpoint({key: value for key, value in DFLASH.items() if key != "block_size"}, DRAFT)
    with pytest.raises(ConfigurationError, match=f"is not given, and the config.json of {DRAFT} states no block_size"):
        decided(request({"method": "dflash", "model": DRAFT}), drafts={DRAFT: silent})


def test_what_is_wrong_with_the_files_comes_before_a_token_count_that_is_not_given() -> None:
    for said, on, draft, words in (
        ({"method": "dflash", "model": DRAFT}, target(), eagle3(), "the method is dflash, but the draft"),
        ({"method": "dspark", "model": DRAFT}, target(), eagle3(), "the method is dspark, but the draft"),
        ({"method": "medusa", "model": DRAFT}, target(), eagle3(), "the method is medusa, but the draft"),
        ({"method": "dspark"}, mtp_target(V4_SILENT), None, f"{TARGET} has 0 tensors of a DSpark head"),
    ):
        drafts: dict[str, Checkpoint | LauncherError] = {DRAFT: draft} if draft else {}
        decision = decided(request(said), on, drafts, machine=GPU)
        assert {error.code for error in errors(decision)} == {8}
        assert words in errors(decision)[0].what
        assert (decision.speculation.method, decision.speculation.tokens) == (said["method"], None)
        fallen = decided(request(said, policy="fallback"), on, drafts, machine=GPU)
        assert (fallen.speculation.enabled, errors(fallen)) == (False, [])
    told = {"method": "dspark"}
    with pytest.raises(ConfigurationError, match=f"the config.json of {TARGET} states no dspark_block_size"):
        decided(request(told), checkpoint(V4_SILENT, heads=(DSPARK_HEAD,)), machine=GPU)


def test_a_bundled_head_that_states_no_block_is_a_rejected_step() -> None:
    decision = decided(request(enabled=True), checkpoint(V4_SILENT, heads=(DSPARK_HEAD,)), machine=GPU)
    assert steps(decision)[:2] == [("mtp", False), ("dspark", False)]
    assert decision.speculation.considered[1].reason == (
        f"num_speculative_tokens is not given, and the config.json of {TARGET} states no dspark_block_size"
    )
    mtp_only = decided(request(enabled=True), mtp_target(V4_SILENT), machine=GPU)
    assert mtp_only.speculation.method == "mtp"


def test_a_custom_class_keeps_its_python_path() -> None:
    said = {"method": "custom_class", "model": "pkg.Proposer", "num_speculative_tokens": 2}
    chosen = decided(request(said)).speculation
    assert chosen.config == {"method": "custom_class", "num_speculative_tokens": 2, "model": "pkg.Proposer"}
    assert chosen.draft is None
    assert candidates(request(said), target(), PINNED, CPU) == ()


def test_a_draft_named_beside_a_method_that_takes_none_is_not_used() -> None:
    decision = decided(request({"method": "ngram", "model": "/drafts/a"}))
    assert decision.warnings == ("command line: the draft /drafts/a is not used: the method ngram takes no draft",)
    assert "model" not in decision.speculation.config


def test_a_configuration_that_names_nothing_is_an_error_while_the_toggle_is_off() -> None:
    with pytest.raises(ConfigurationError, match="names neither a method nor a draft"):
        decided(request({"num_speculative_tokens": 3}))
    with pytest.raises(ConfigurationError, match="names neither"):
        decided(request({"num_speculative_tokens": 3}, None, enabled=True))
    with pytest.raises(ConfigurationError) as caught:
        decided(request({"num_speculative_tokens": 2}, Layer("NIM_SPECDEC_ARGS", None), enabled=True))
    assert caught.value.what == (
        "command line: the speculative config names neither a method nor a draft, and NIM_SPECDEC_ARGS switches "
        "speculation off"
    )
    assert caught.value.todo == "Name a method, or take the switch out of NIM_SPECDEC_ARGS"


# Whatever was decided -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [request(), request(enabled=True), request({"method": "ngram"}, policy="fallback")])
def test_a_target_that_cannot_be_loaded_is_refused_whatever_speculates(asked: Request) -> None:
    for form, words in (("gguf", "holds GGUF files only"), ("", "holds no weights")):
        decision = decided(asked, target(form=form))
        assert [(check.name, check.error.code) for check in decision.checks if check.error] == [("target-weights", 8)]
        assert words in errors(decision)[0].what
    flags = {"--load-format": ("dummy",)}
    assert errors(decided(asked._replace(flags=flags), target(form=""))) == []
    flags = {"--load-format": ("gguf",)}
    assert [error.code for error in errors(decided(asked._replace(flags=flags)))] == [8]


def test_pickled_weights_are_said() -> None:
    said = "the weights of {} are pickles, which can run code when they are read: prefer safetensors"
    assert decided(request(), target(form="pickle")).warnings == (said.format(TARGET),)
    draft = checkpoint(EAGLE3, DRAFT, form="pickle")
    asked = request({"method": "eagle3", "model": DRAFT})
    assert decided(asked, drafts={DRAFT: draft}).warnings == (said.format(DRAFT),)
    assert decided(request({"method": "ngram"}), target(), {DRAFT: draft}).warnings == ()


METRICS = {"--per-request-spec-decode-metrics": ("summary",)}


@pytest.mark.parametrize(
    ("asked", "drafts", "dropped"),
    [
        (request(flags=METRICS), {}, True),
        (request(toggle="NIM_SPECDEC_ENABLE", flags=METRICS), {}, True),
        (request(None, enabled=True, flags=METRICS), {}, True),
        (request({"method": "eagle3", "model": DRAFT}, policy="fallback", flags=METRICS), {}, True),
        (request({"method": "ngram"}, flags=METRICS), {}, False),
        (request(enabled=True, flags=METRICS), {}, False),
        (request({"method": "eagle3", "model": DRAFT}, flags=METRICS), {}, False),  # does not start at all
        (request(flags={"--per-request-spec-decode-metrics": ("none",)}), {}, False),
    ],
)
def test_a_flag_that_needs_speculation_is_left_out_without(
    asked: Request, drafts: dict[str, Checkpoint | LauncherError], dropped: bool
) -> None:
    decision = decided(asked, target(), drafts)
    assert decision.dropped == (("--per-request-spec-decode-metrics",) if dropped else ())
    said = "--per-request-spec-decode-metrics is left out: vLLM takes it only together with speculation, which is off"
    assert (said in decision.warnings) is dropped


# Policy ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [NotFoundError("x"), DeniedError("x"), NetworkError("x"), IntegrityError("x"), IncompatibleError("x")],
)
def test_fallback_starts_without_speculation_where_the_draft_fails(error: LauncherError) -> None:
    decision = decided(request({"method": "eagle3", "model": DRAFT}, policy="fallback"), drafts={DRAFT: error})
    assert errors(decision) == []
    assert decision.speculation.enabled is False
    assert decision.speculation.reason == "x (NIM_SPECDEC_POLICY=fallback)"
    assert decision.warnings == ("SPECULATION IS OFF: x; NIM_SPECDEC_POLICY=fallback starts the server without it",)


def test_fallback_covers_the_method_and_the_device() -> None:
    for said, on in (
        ({"method": "mtp"}, target(DEEPSEEK)),
        ({"method": "dspark"}, checkpoint(V4, heads=(DSPARK_HEAD,))),
    ):
        decision = decided(request(said, policy="fallback"), on)
        assert (decision.speculation.enabled, errors(decision)) == (False, [])
        assert steps(decision) == [(said["method"], False)]


def test_fallback_never_covers_a_mistake_in_the_settings_or_a_full_disk() -> None:
    with pytest.raises(ConfigurationError):
        decided(request({"method": "magic"}, policy="fallback"))
    with pytest.raises(ConfigurationError):
        decided(request({"method": "eagle3", "model": "nothing"}, policy="fallback"))
    full = decided(request({"method": "eagle3", "model": DRAFT}, policy="fallback"), drafts={DRAFT: NoSpaceError("x")})
    assert [error.code for error in errors(full)] == [6]


def test_required_fails() -> None:
    decision = decided(request({"method": "mtp"}), target(DEEPSEEK))
    assert [error.code for error in errors(decision)] == [8]
    assert decision.speculation.method == "mtp"


def test_a_good_decision_is_the_same_under_both_policies() -> None:
    for policy in ("required", "fallback"):
        assert decided(request(enabled=True, policy=policy), mtp_target()).speculation.method == "mtp"


def test_the_head_of_the_fixture_is_there() -> None:
    assert mtp_target().weights.head("mtp") == MTP_HEAD
