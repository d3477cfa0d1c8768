"""Which draft: named, at hand, missing, unreadable."""

from __future__ import annotations

import pytest

from launcher.checkpoint import Checkpoint, Tensor
from launcher.errors import (
    ConfigurationError,
    DeniedError,
    IntegrityError,
    LauncherError,
    NetworkError,
    NoSpaceError,
    NotFoundError,
)
from launcher.speculation.select import candidates
from launcher.speculation.values import DraftReference
from tests.unit.checkpoints import (
    CPU,
    DEEPSEEK,
    DFLASH,
    DRAFT,
    DSPARK,
    EAGLE,
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
from tests.unit.deciding import INSIDE, decided, errors, steps

# Drafts ---------------------------------------------------------------------------------------------------------------


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
