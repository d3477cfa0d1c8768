"""What vLLM demands of a DSpark draft for Qwen3-Omni."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.speculation import omni
from launcher.speculation.check import examine
from launcher.speculation.values import Check
from tests.unit.checkpoints import DRAFT, DSPARK, LLAMA, TARGET, case, checkpoint, fc, target

TEXT = LLAMA | {"num_key_value_heads": 2, "head_dim": 32}
OMNI = target(
    {
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "model_type": "qwen3_omni_moe",
        "thinker_config": {"text_config": TEXT},
    }
)
FITTING = DSPARK | {
    "architectures": ["Qwen3OmniDSparkModel"],
    "target_hidden_size": 128,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "use_aux_hidden_state": True,
    "markov_head_type": "vanilla",
}


def error_of(document: dict[str, Any], tokens: int | None = 7) -> str:
    found = omni.row(OMNI, checkpoint(document, DRAFT), tokens)
    assert isinstance(found, Check)
    assert found.error is None or found.error.code == 8
    return "" if found.error is None else found.error.what


def test_a_draft_that_meets_every_demand() -> None:
    assert error_of(FITTING) == ""
    assert error_of(FITTING, None) == ""
    seen = examine(case("dspark", tokens=7, on=OMNI, draft=checkpoint(FITTING, DRAFT, tensors=(fc(384),))))
    assert seen.errors == ()
    assert "omni-draft" in [check.name for check in seen.checks]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["Qwen3DSparkModel"]}, "its architecture is Qwen3DSparkModel, not Qwen3OmniDSparkModel"),
        ({"block_size": 8}, "num_speculative_tokens is 7, but must be its block size, which is 8"),
        ({"target_hidden_size": None}, "its target_hidden_size is not stated, that of the target is 128"),
        ({"hidden_size": 64}, "its hidden_size is 64, that of the target is 128"),
        ({"num_attention_heads": 8}, "its num_attention_heads is 8, that of the target is 4"),
        ({"num_key_value_heads": 1}, "its num_key_value_heads is 1, that of the target is 2"),
        ({"head_dim": 16}, "its head_dim is 16, that of the target is 32"),
        ({"target_layer_ids": [4, 1]}, "its target_layer_ids [4, 1] must rise, and name layers from 0 to 7"),
        ({"target_layer_ids": [1, 8]}, "its target_layer_ids [1, 8] must rise, and name layers from 0 to 7"),
        ({"use_aux_hidden_state": False}, "its use_aux_hidden_state is not true"),
        ({"markov_rank": 0}, "its markov_rank is 0, and must be above 0"),
        ({"markov_head_type": "gated"}, "its markov_head_type is gated, and must be vanilla"),
        ({"sample_from_anchor": False}, "it does not sample from its anchor"),
        ({"dspark_bonus_anchor": True}, "it does not sample from its anchor"),
        ({"draft_vocab_size": 1024}, "it predicts 1024 tokens, and the target knows 512"),
        ({"rope_scaling": {"mrope_section": [1, 2, 3]}}, "its positions have several dimensions"),
    ],
)
def test_a_draft_that_does_not(changes: dict[str, Any], words: str) -> None:
    what = error_of(FITTING | changes)
    assert what.startswith(f"vLLM refuses the draft {DRAFT} for Qwen3-Omni ({TARGET}): {words}")


def test_other_targets_demand_nothing_of_the_kind() -> None:
    assert omni.row(target(), checkpoint(DSPARK, DRAFT), 7) is None
