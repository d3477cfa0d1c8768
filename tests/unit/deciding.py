"""A decision made from a request, for the tests of which method is chosen."""

from __future__ import annotations

from launcher.checkpoint import Checkpoint
from launcher.errors import (
    LauncherError,
)
from launcher.machine import Machine
from launcher.speculation.select import decide
from launcher.speculation.values import Decision, Request
from launcher.vllm.tables import EngineTable
from tests.unit.checkpoints import (
    CPU,
    LLAMA,
    PINNED,
    TARGET,
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
