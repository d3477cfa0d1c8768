"""The decision: which method, which draft, how many tokens, and the reason for it."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.checkpoint import Checkpoint, Tensor
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
from launcher.speculation.select import candidates, decide
from launcher.speculation.values import Decision, DraftReference, Layer, Request
from launcher.vllm import tables
from launcher.vllm.tables import EngineTable
from tests.unit.checkpoints import (
    ANY,
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

INSIDE = f"{TARGET}/speculator/a"
V4_SILENT = LLAMA | {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "num_nextn_predict_layers": 1,
}
V4 = LLAMA | {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "num_nextn_predict_layers": 1,
    "dspark_block_size": 5,
}


def decided(
    asked: Request,
    on: Checkpoint | None = None,
    drafts: dict[str, Checkpoint | LauncherError] | None = None,
    table: EngineTable = PINNED,
    machine: Machine = CPU,
) -> Decision:
    return decide(asked, target() if on is None else on, drafts or {}, table, machine)


def errors(decision: Decision) -> list[LauncherError]:
    return [check.error for check in decision.checks if check.error is not None]


def steps(decision: Decision) -> list[tuple[str, bool]]:
    return [(step.method, step.accepted) for step in decision.speculation.considered]


# Off -----------------------------------------------------------------------------------------------------------------


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


# A named method ------------------------------------------------------------------------------------------------------


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


# Drafts --------------------------------------------------------------------------------------------------------------


def test_the_variable_fills_every_configuration_that_takes_a_draft() -> None:
    for said in ({"method": "eagle3"}, {"method": "eagle3", "model": "eagle3_draft"}):
        decision = decided(request(said, draft=DRAFT), drafts={DRAFT: eagle3()})
        name = said.get("model", "draft")
        assert decision.speculation.draft == DraftReference(name, DRAFT, "NIM_DRAFT_MODEL_PATH", True)
        assert errors(decision) == []
        assert decision.warnings == ()


def test_the_nim_guide_command() -> None:
    said = {"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}
    asked = request(said, draft="/models/draft")
    assert candidates(asked, target(), PINNED, CPU) == (
        DraftReference("eagle3_draft", "/models/draft", "NIM_DRAFT_MODEL_PATH", True),
    )
    chosen = decided(asked, drafts={"/models/draft": eagle3()}).speculation
    assert chosen.config == {"method": "eagle3", "num_speculative_tokens": 3}
    assert chosen.origins == {"method": "command line", "num_speculative_tokens": "command line"}


def test_a_named_draft_without_a_method_decides_by_its_own_kind() -> None:
    drafts: list[tuple[Checkpoint, str]] = [
        (eagle3(), "eagle3"),
        (checkpoint(DFLASH, DRAFT, tensors=(fc(384),)), "dflash"),
        (checkpoint(DSPARK, DRAFT, tensors=(fc(384),)), "dspark"),
        (checkpoint(EAGLE, DRAFT, tensors=(fc(256),)), "eagle"),
        (checkpoint(LLAMA, DRAFT), "draft_model"),
    ]
    for draft, method in drafts:
        for asked in (request(enabled=True, draft=DRAFT), request({"model": DRAFT})):
            decision = decided(asked, target(), {DRAFT: draft}, machine=GPU)
            assert errors(decision) == []
            assert decision.speculation.method == method
            assert f"names the draft {DRAFT}, which is made for {method}" in decision.speculation.reason
            assert steps(decision) == [(method, True)]


def test_a_named_draft_decides_even_when_the_target_has_a_head() -> None:
    on = mtp_target(DEEPSEEK | {"num_hidden_layers": 8})
    decision = decided(
        request(enabled=True, draft=DRAFT), on, {DRAFT: eagle3(eagle_aux_hidden_state_layer_ids=[1, 2, 3])}
    )
    assert errors(decision) == []
    assert decision.speculation.method == "eagle3"
    assert decision.speculation.origins["method"] == "NIM_DRAFT_MODEL_PATH"


def test_a_parallel_draft_gets_its_switch() -> None:
    parallel = eagle3(architectures=["PeagleLlamaForCausalLM"], pard_token=7)
    config = decided(request({"method": "eagle3", "model": DRAFT}), drafts={DRAFT: parallel}).speculation.config
    assert config["parallel_drafting"] is True
    said = {"method": "eagle3", "model": DRAFT, "parallel_drafting": False}
    assert decided(request(said), drafts={DRAFT: parallel}).speculation.config["parallel_drafting"] is False


@pytest.mark.parametrize(
    ("draft", "what"),
    [
        (checkpoint({}, DRAFT), f"the config.json of the draft {DRAFT} does not tell its method"),
        (
            checkpoint(DFLASH | {"architectures": ["DominoDraftModel"]}, DRAFT),
            f"the draft {DRAFT} is made for domino, which vLLM 0.32.0 does not have",
        ),
    ],
)
def test_a_named_draft_of_no_usable_kind(draft: Checkpoint, what: str) -> None:
    decision = decided(request(enabled=True, draft=DRAFT), drafts={DRAFT: draft})
    assert [(error.code, error.what) for error in errors(decision)] == [(8, what)]
    assert decision.speculation.enabled is False


@pytest.mark.parametrize(
    "error", [NotFoundError("x"), DeniedError("x"), NetworkError("x"), IntegrityError("x"), NoSpaceError("x")]
)
def test_a_named_draft_that_cannot_be_read_is_an_error(error: LauncherError) -> None:
    for asked in (request({"method": "eagle3", "model": DRAFT}), request(enabled=True, draft=DRAFT)):
        assert errors(decided(asked, drafts={DRAFT: error})) == [error]


def test_an_absolute_path_beats_the_variable_with_one_warning() -> None:
    decision = decided(request({"method": "eagle3", "model": DRAFT}, draft="/mnt/x"), drafts={DRAFT: eagle3()})
    assert decision.warnings == (f"NIM_DRAFT_MODEL_PATH is not used: command line names the draft {DRAFT} itself",)
    assert decision.speculation.draft is not None
    assert decision.speculation.draft.as_is is True


def test_a_mounted_path_that_does_not_exist_here_means_the_targets_folder() -> None:
    said = {"method": "eagle3", "model": "/tmp/model/speculator/a"}
    on = target(drafts=("speculator/a",))
    missing = NotFoundError("the folder /tmp/model/speculator/a does not exist")
    decision = decided(request(said), on, {"/tmp/model/speculator/a": missing, INSIDE: eagle3(INSIDE)})
    assert errors(decision) == []
    assert decision.speculation.draft == DraftReference("a", INSIDE, "command line", True)
    assert decision.warnings == (f"/tmp/model/speculator/a does not exist here; {INSIDE} of the target is used",)
    here = decided(request(said), on, {"/tmp/model/speculator/a": eagle3(), INSIDE: eagle3(INSIDE)})
    assert here.speculation.draft is not None
    assert (here.speculation.draft.source, here.warnings) == ("/tmp/model/speculator/a", ())
    denied = decided(request(said), on, {"/tmp/model/speculator/a": DeniedError("no"), INSIDE: eagle3(INSIDE)})
    assert [error.code for error in errors(denied)] == [4]


def test_a_method_without_a_draft_takes_the_one_folder_made_for_it() -> None:
    on = target(drafts=("1_Pooling", "speculator/a", "speculator/b"))
    drafts: dict[str, Checkpoint | LauncherError] = {
        f"{TARGET}/1_Pooling": checkpoint({}, f"{TARGET}/1_Pooling", form=""),
        INSIDE: eagle3(INSIDE),
        f"{TARGET}/speculator/b": checkpoint(DFLASH, f"{TARGET}/speculator/b"),
    }
    decision = decided(request({"method": "eagle3"}), on, drafts)
    assert decision.speculation.draft == DraftReference("a", INSIDE, "target", False)
    drafts[f"{TARGET}/speculator/b"] = eagle3(f"{TARGET}/speculator/b")
    with pytest.raises(ConfigurationError, match=f"several drafts for eagle3 are at hand: {INSIDE}, {TARGET}/specul"):
        decided(request({"method": "eagle3"}), on, drafts)
    with pytest.raises(ConfigurationError, match="the method eagle needs a draft, and none is named"):
        decided(request({"method": "eagle"}), on, drafts)


def test_mtp_takes_a_draft_where_the_family_publishes_its_heads_apart() -> None:
    gemma = LLAMA | {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}
    head = checkpoint(
        LLAMA | {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant"}, DRAFT
    )
    for asked in (request({"method": "mtp"}, draft=DRAFT), request(enabled=True, draft=DRAFT)):
        decision = decided(asked, target(gemma), {DRAFT: head})
        assert errors(decision) == []
        assert (decision.speculation.method, decision.speculation.tokens) == ("mtp", 1)
        assert decision.speculation.draft is not None


QWEN3_5 = LLAMA | {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "mtp_num_hidden_layers": 1,
}
QWEN3_5_HEAD = MTP_HEAD._replace(example="mtp.fc.weight")


def test_a_head_that_the_user_names_serves_a_target_that_lost_its_own() -> None:
    whole = checkpoint(QWEN3_5, DRAFT, heads=(QWEN3_5_HEAD,))
    for asked in (
        request({"method": "mtp"}, draft=DRAFT),
        request({"method": "mtp", "model": "head"}, draft=DRAFT),
        request(enabled=True, draft=DRAFT),
        request({"model": DRAFT}),
    ):
        decision = decided(asked, target(QWEN3_5), {DRAFT: whole}, machine=GPU)
        assert errors(decision) == []
        assert (decision.speculation.method, decision.speculation.tokens) == ("mtp", 1)
        assert decision.speculation.draft is not None
        assert decision.speculation.draft.source == DRAFT
        assert decision.warnings == ()


def test_a_head_that_the_user_names_comes_before_the_targets_own() -> None:
    whole = checkpoint(QWEN3_5, DRAFT, heads=(QWEN3_5_HEAD,))
    on = checkpoint(QWEN3_5, heads=(QWEN3_5_HEAD,))
    for asked in (request({"method": "mtp"}, draft=DRAFT), request(enabled=True, draft=DRAFT)):
        decision = decided(asked, on, {DRAFT: whole}, machine=GPU)
        assert decision.speculation.draft is not None
        assert (decision.speculation.method, errors(decision), decision.warnings) == ("mtp", [], ())


def test_a_whole_checkpoint_of_another_size_is_refused_by_its_size() -> None:
    other = checkpoint(QWEN3_5 | {"hidden_size": 64}, DRAFT, heads=(QWEN3_5_HEAD,))
    decision = decided(request(enabled=True, draft=DRAFT), target(QWEN3_5), {DRAFT: other}, machine=GPU)
    assert decision.speculation.method == "mtp"
    assert [check.name for check in decision.checks if check.error] == ["hidden-size"]


def test_a_mistral_eagle_draft_is_known_by_its_tensors() -> None:
    params = {"dim": 128, "n_layers": 8, "n_heads": 4, "vocab_size": 512, "moe": {"num_shared_experts": 1}}
    joins = Tensor("eagle_linear.weight", "BF16", (128, 256))
    draft = checkpoint(params | {"n_layers": 2}, DRAFT, tensors=(joins,), mistral=True)
    flags = {"--config-format": ("mistral",), "--load-format": ("mistral",)}
    for asked in (request(enabled=True, draft=DRAFT), request({"method": "eagle", "model": DRAFT}, flags=flags)):
        decision = decided(asked, target(params, mistral=True), {DRAFT: draft}, machine=GPU)
        assert errors(decision) == []
        assert (decision.speculation.method, decision.speculation.tokens) == ("eagle", 3)


@pytest.mark.parametrize(
    ("draft", "what"),
    [
        (
            checkpoint({"speculators_config": {"algorithm": "mtp"}, "speculators_model_type": "mtp"}, DRAFT),
            f"vLLM 0.32.0 does not read speculators drafts of the type mtp ({DRAFT})",
        ),
        (checkpoint({}, DRAFT, lora=True), f"the draft {DRAFT} is a LoRA adapter, not a model"),
        (checkpoint(LLAMA, DRAFT, lora=True), f"the draft {DRAFT} is a LoRA adapter, not a model"),
    ],
)
def test_a_draft_that_is_something_else_is_named(draft: Checkpoint, what: str) -> None:
    decision = decided(request(enabled=True, draft=DRAFT), drafts={DRAFT: draft})
    assert [(error.code, error.what) for error in errors(decision)] == [(8, what)]


def test_what_the_words_might_have_meant_is_said_first() -> None:
    said = {"method": "eagle3", "model": "speculator/c"}
    on = target(drafts=("speculator/a", "speculator/b"))
    unbuilt = ConfigurationError("command line: hf:// sources cannot be fetched", "Download it")
    decision = decided(request(said), on, {"hf://speculator/c": unbuilt})
    assert [(error.code, error.what) for error in errors(decision)] == [
        (
            2,
            f"{TARGET} has no folder speculator/c (its drafts are speculator/a, speculator/b), so a repository is "
            "meant; command line: hf:// sources cannot be fetched",
        )
    ]
    assert errors(decision)[0].todo == "Name one of its drafts, or download it"


def test_the_only_child_of_a_draft_folder_is_named() -> None:
    inner = eagle3(f"{DRAFT}/v1")
    assert f"{DRAFT}/v1" in decided(request(enabled=True, draft=DRAFT), drafts={DRAFT: inner}).speculation.reason
    named = decided(request({"method": "eagle3", "model": DRAFT}), drafts={DRAFT: inner}).speculation
    assert named.reason == f"command line names eagle3, with the draft {DRAFT}/v1"


def test_a_named_draft_that_does_not_fit_is_no_accepted_step() -> None:
    wide = eagle3(hidden_size=64)
    required = decided(request(enabled=True, draft=DRAFT), drafts={DRAFT: wide})
    assert steps(required) == [("eagle3", False)]
    assert required.speculation.considered[0].reason == errors(required)[0].what
    fallen = decided(request(enabled=True, draft=DRAFT, policy="fallback"), drafts={DRAFT: wide})
    assert steps(fallen) == [("eagle3", False)]


def test_drafts_that_were_not_read_are_an_error_only_where_they_are_named() -> None:
    assert [error.code for error in errors(decided(request({"method": "eagle3", "model": DRAFT})))] == [3]
    automatic = decided(request(enabled=True), target(drafts=("a",)))
    assert automatic.speculation.method == "ngram"


# The automatic choice ------------------------------------------------------------------------------------------------


def test_a_head_comes_first() -> None:
    decision = decided(request(enabled=True), mtp_target(drafts=("speculator/a",)), {INSIDE: eagle3(INSIDE)})
    chosen = decision.speculation
    assert (chosen.method, chosen.tokens, chosen.draft) == ("mtp", 1, None)
    assert chosen.config == {"method": "mtp", "num_speculative_tokens": 1}
    assert steps(decision) == [("mtp", True)]
    assert chosen.reason == f"{TARGET} holds an MTP head: 12 tensors, such as model.layers.5.embed_tokens.weight"
    assert chosen.origins == {"method": "automatic choice", "num_speculative_tokens": "default"}


def test_the_config_alone_is_no_proof_of_a_head_and_its_silence_no_disproof() -> None:
    stripped = decided(request(enabled=True), target(DEEPSEEK))
    assert steps(stripped) == [("mtp", False), ("eagle3", False), ("ngram", True)]
    assert stripped.speculation.considered[0].reason == (
        f"{TARGET} has 0 tensors of an MTP head, although its config.json claims 1 (deepseek_mtp)"
    )
    assert errors(stripped) == []
    silent = {key: value for key, value in DEEPSEEK.items() if key != "num_nextn_predict_layers"}
    assert decided(request(enabled=True), mtp_target(silent)).speculation.method == "mtp"
    zero = decided(request(enabled=True), mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 0}))
    assert steps(zero)[0] == ("mtp", False)
    listed = decided(request(enabled=True), target(DEEPSEEK, form="pickle"))
    assert listed.speculation.considered[0].reason == (
        f"nothing proves that {TARGET} holds a head: its tensors are not listed"
    )


def test_a_head_that_this_vllm_cannot_run_is_a_rejected_step() -> None:
    unknown = mtp_target(LLAMA | {"architectures": ["NewForCausalLM"], "model_type": "new"})
    decision = decided(request(enabled=True), unknown)
    assert decision.speculation.method == "ngram"
    assert "no family with an MTP head that vLLM 0.32.0 runs" in decision.speculation.considered[0].reason
    step5 = mtp_target(LLAMA | {"architectures": ["Step5ForCausalLM"], "model_type": "step5"})
    assert decided(request(enabled=True), step5, machine=GPU).speculation.method == "ngram"
    assert decided(request(enabled=True), step5, table=tables.load("0.33.0"), machine=GPU).speculation.method == "mtp"


def test_a_bundled_dspark_head_is_named_as_such_where_it_can_run() -> None:
    on = checkpoint(V4, heads=(DSPARK_HEAD,))
    decision = decided(request(enabled=True), on, machine=GPU)
    assert decision.speculation.config == {"method": "dspark", "num_speculative_tokens": 5}
    assert decision.speculation.draft is None
    assert steps(decision) == [("mtp", False), ("dspark", True)]
    assert decision.speculation.reason == f"{TARGET} holds a DSpark head: 9 tensors, such as mtp.0.main_proj.weight"
    on_cpu = decided(request(enabled=True), on)
    assert on_cpu.speculation.method == "ngram"
    assert ("dspark", "the method dspark does not run on a CPU") in [
        (step.method, step.reason) for step in on_cpu.speculation.considered
    ]
    anywhere = decided(request(enabled=True), on, machine=ANY)
    assert anywhere.speculation.method == "dspark"
    assert anywhere.unknown == ("whether this machine can run dspark: nothing says what its device is",)


def test_a_bundled_dflash_head_is_named_as_what_vllm_cannot_run() -> None:
    on = target(heads=(DSPARK_HEAD._replace(kind="dflash"),))
    decision = decided(request(enabled=True), on, machine=GPU)
    assert steps(decision) == [("mtp", False), ("dflash", False), ("eagle3", False), ("ngram", True)]
    assert "takes a DFlash draft only from a folder of its own" in decision.speculation.considered[1].reason


def test_one_eagle3_folder_that_fits_is_taken() -> None:
    on = target(drafts=("1_Pooling", "speculator/a"))
    pooling = f"{TARGET}/1_Pooling"
    assert [reference.source for reference in candidates(request(enabled=True), on, PINNED, CPU)] == [pooling, INSIDE]
    drafts: dict[str, Checkpoint | LauncherError] = {pooling: IntegrityError("broken"), INSIDE: eagle3(INSIDE)}
    decision = decided(request(enabled=True), on, drafts)
    chosen = decision.speculation
    assert (chosen.method, chosen.tokens) == ("eagle3", 3)
    assert chosen.draft == DraftReference("a", INSIDE, "target", False)
    assert chosen.reason == f"an EAGLE3 draft that fits is at hand: {INSIDE}"
    assert steps(decision) == [("mtp", False), ("eagle3", True)]


def test_of_several_eagle3_folders_none_is_taken() -> None:
    other = f"{TARGET}/speculator/b"
    on = target(drafts=("speculator/a", "speculator/b"))
    decision = decided(request(enabled=True), on, {INSIDE: eagle3(INSIDE), other: eagle3(other)})
    assert decision.speculation.method == "ngram"
    assert decision.speculation.considered[1].reason == (
        f"several drafts are at hand ({INSIDE}, {other}): name one as NIM_DRAFT_MODEL_PATH"
    )


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        (eagle3(INSIDE, hidden_size=64), f"the hidden size of the draft {INSIDE} is 64, that of the target {TARGET}"),
        (eagle3(INSIDE, vocab_size=1024, draft_vocab_size=1024), f"the vocabulary of the draft {INSIDE} is 1024"),
        (checkpoint(DFLASH, INSIDE), f"no EAGLE3 draft is at hand; {INSIDE} is made for dflash: name it as NIM_DRAFT"),
        (checkpoint(LLAMA, INSIDE), f"no EAGLE3 draft is at hand; {INSIDE} is no draft for eagle3"),
        (IntegrityError("it is broken"), f"no EAGLE3 draft is at hand; {INSIDE} cannot be read: it is broken"),
    ],
)
def test_a_folder_that_does_not_fit_is_a_rejected_step(draft: Checkpoint | LauncherError, reason: str) -> None:
    decision = decided(request(enabled=True), target(drafts=("speculator/a",)), {INSIDE: draft})
    assert steps(decision) == [("mtp", False), ("eagle3", False), ("ngram", True)]
    assert decision.speculation.considered[1].reason.startswith(reason)
    assert errors(decision) == []


def test_eagle3_needs_a_target_class_that_supports_it() -> None:
    mimo = LLAMA | {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2"}
    decision = decided(request(enabled=True), target(mimo, drafts=("speculator/a",)), {INSIDE: eagle3(INSIDE)})
    assert decision.speculation.method == "ngram"
    assert "MiMoForCausalLM" in decision.speculation.considered[1].reason


def test_the_profiles_draft_comes_after_the_folders() -> None:
    asked = request(enabled=True, profile_draft="hf://nvidia/draft")
    reference = DraftReference("draft", "hf://nvidia/draft", "profile", False)
    assert candidates(asked, target(), PINNED, CPU) == (reference,)
    assert decided(asked, drafts={"hf://nvidia/draft": eagle3()}).speculation.draft == reference
    for error in (DeniedError("gated"), NetworkError("down"), NotFoundError("gone")):
        rejected = decided(asked, drafts={"hf://nvidia/draft": error})
        assert (rejected.speculation.method, errors(rejected)) == ("ngram", [])
        assert rejected.speculation.considered[1].reason == f"the published draft cannot be had: {error.what}"


def test_ngram_is_the_last_resort_with_its_own_window() -> None:
    chosen = decided(request(enabled=True)).speculation
    assert chosen.config == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 1,
    }
    assert "can cost time under load" in chosen.reason
    assert "NIM_SPECDEC_ENABLE=0" in chosen.reason


@pytest.mark.parametrize(
    ("said", "most", "least"),
    [
        ({"prompt_lookup_max": 8}, 8, 1),
        ({"prompt_lookup_min": 2}, 4, 2),
        ({"prompt_lookup_min": 6}, 6, 6),
    ],
)
def test_the_automatic_window_keeps_what_was_given(said: dict[str, Any], most: int, least: int) -> None:
    config = decided(request(said, enabled=True)).speculation.config
    assert (config["prompt_lookup_max"], config["prompt_lookup_min"]) == (most, least)


def test_settings_without_a_method_shape_the_automatic_choice() -> None:
    assert decided(request({"num_speculative_tokens": 2}, enabled=True), mtp_target()).speculation.tokens == 2
    deep = mtp_target(DEEPSEEK | {"num_nextn_predict_layers": 2})
    uneven = decided(request({"num_speculative_tokens": 3}, enabled=True), deep)
    assert steps(uneven)[0] == ("mtp", False)
    assert "3, no multiple of the 2 MTP layers" in uneven.speculation.considered[0].reason


def test_when_nothing_can_run_the_server_starts_without() -> None:
    decision = decided(request(enabled=True, flags={"--async-scheduling": ()}))
    assert decision.speculation.enabled is False
    assert steps(decision) == [("mtp", False), ("eagle3", False), ("ngram", False)]
    assert "--async-scheduling cannot be combined with the method ngram" in decision.speculation.reason
    assert errors(decision) == []


def test_a_head_of_one_tensor_is_no_plural() -> None:
    one = checkpoint(DEEPSEEK, heads=(MTP_HEAD._replace(tensors=1),))
    assert "MTP head: 1 tensor, such as" in decided(request(enabled=True), one).speculation.reason


# Whatever was decided ------------------------------------------------------------------------------------------------


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


# Policy --------------------------------------------------------------------------------------------------------------


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
