"""How a check is written down: what passed, what failed, and what a number would be needed for."""

from __future__ import annotations

from launcher.checkpoint import Checkpoint
from launcher.errors import IncompatibleError
from launcher.speculation.values import Check
from launcher.vllm.tables import EngineTable

# A check, a text when something it needs is not known, or nothing when it does not apply.
Row = Check | str | None


def passed(name: str, message: str) -> Check:
    return Check(name, None, message)


def failed(name: str, what: str, todo: str) -> Check:
    return Check(name, IncompatibleError(what, todo), what)


def counted(number: int, noun: str) -> str:
    """ "1 tensor", "12 tensors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def equal(name: str, what: str, ours: int | None, theirs: int | None, draft: Checkpoint, target: Checkpoint) -> Row:
    """Whether a number of the draft is the target's; both are named."""
    if ours is None or theirs is None:
        silent = draft.place if ours is None else target.place
        return f"whether the {what} of draft and target is the same: the config.json of {silent} does not say"
    if ours == theirs:
        return passed(name, f"{ours} in draft and target")
    return failed(
        name,
        f"the {what} of the draft {draft.place} is {ours}, that of the target {target.place} is {theirs}",
        "Use a draft that was made for this target",
    )


def known(architecture: str, table: EngineTable) -> bool:
    """Whether this vLLM has a class of that name; a newer one than its table may."""
    return architecture in table.architectures or not table.exact
