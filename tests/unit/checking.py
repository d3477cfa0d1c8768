"""Checks of a target and a draft, by name."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.checkpoint import Tensor
from launcher.errors import LauncherError
from launcher.speculation.values import Check
from tests.unit.checkpoints import (
    DEEPSEEK,
    LLAMA,
)

CONFIGURATIONS = json.loads((Path(__file__).parent / "data" / "configurations.json").read_text())
LAYERS = LLAMA | {"num_hidden_layers": 4}
NEXTN_2 = DEEPSEEK | {"num_nextn_predict_layers": 2}
MISTRAL = {"dim": 128, "n_layers": 8, "n_heads": 4, "vocab_size": 512, "max_seq_len": 2048}
LARGE_3 = MISTRAL | {"moe": {"num_experts": 4, "num_shared_experts": 1}}
EAGLE_LINEAR = Tensor("eagle_linear.weight", "BF16", (128, 256))
NESTED = "eagle_aux_hidden_state_layer_ids"
D2T = Tensor("d2t", "I64", (256,))


def errors(checks: tuple[Check, ...]) -> dict[str, LauncherError]:
    return {check.name: check.error for check in checks if check.error is not None}


def passed(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in checks if check.error is None]
