"""Every check that can be made before exec: head and draft against the target, and what this vLLM refuses."""

from collections.abc import Iterator
from typing import NamedTuple

from launcher.checkpoint import Checkpoint
from launcher.errors import LauncherError
from launcher.speculation import fit as fits
from launcher.speculation import heads, kinds, refusals
from launcher.speculation.case import Case
from launcher.speculation.methods import takes_draft, uses_head
from launcher.speculation.rows import Row, failed, known, passed
from launcher.speculation.values import Check
from launcher.vllm.tables import EngineTable


class Examination(NamedTuple):
    """What examining one method gave.  ``unknown`` refused nothing."""

    checks: tuple[Check, ...]
    unknown: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def errors(self) -> tuple[LauncherError, ...]:
        return tuple(check.error for check in self.checks if check.error is not None)


def examine(case: Case) -> Examination:
    """Make every check that applies to ``case``."""
    rows = [*heads.head(case), *_draft(case), _tensor_parallel(case), *_engine(case)]
    unknown = [row for row in rows if isinstance(row, str)]
    if case.machine.device is None:
        unknown.append(f"whether this machine can run {case.method}: nothing says what its device is")
    return Examination(tuple(row for row in rows if isinstance(row, Check)), tuple(unknown), refusals.advice(case))


def fit(method: str, target: Checkpoint, draft: Checkpoint, table: EngineTable) -> tuple[Check, ...]:
    """Whether ``draft`` fits ``target`` under ``method``, by their files alone."""
    return tuple(row for row in fits.rows(method, target, draft, table) if isinstance(row, Check))


def _draft(case: Case) -> Iterator[Row]:
    draft = case.draft
    if draft is None:
        return
    if not case.loads_nothing:
        yield _weights(draft)
    own = case.method == "draft_model" and bool(case.config.get("use_heterogeneous_vocab"))
    yield from fits.rows(case.method, case.target, draft, case.table, own_vocabulary=own)
    if case.method not in ("dflash", "dspark") and case.config.get("parallel_drafting"):
        yield fits.mask_token(draft)
    yield _custom_code(case, draft)
    yield from _length(case, draft)


def _weights(draft: Checkpoint) -> Check:
    if not draft.weights.form:
        return failed(
            "draft-weights",
            f"the draft {draft.place} holds no weights",
            "Put the draft's weights beside its config.json",
        )
    return passed("draft-weights", f"{draft.weights.files} files of {draft.weights.form}")


def _custom_code(case: Case, draft: Checkpoint) -> Check | None:
    """A draft's own code runs only when somebody named the draft and custom code is allowed."""
    if not draft.custom_code:
        return None
    trusted = case.request.trust_custom_code or case.on("--trust-remote-code")
    if not case.named and trusted:
        return failed(
            "custom-code",
            f"the draft {draft.place} carries custom code, and nobody named it",
            "Name it as NIM_DRAFT_MODEL_PATH to have its code run",
        )
    if known(kinds.draft_architecture(case.method, draft.config), case.table):
        return passed("custom-code", "vLLM has a class of its own for the draft")
    if trusted:
        return passed("custom-code", "allowed, and the draft was named")
    return failed(
        "custom-code",
        f"the draft {draft.place} needs custom code, which is not allowed",
        "Set NIM_TRUST_CUSTOM_CODE=1 if you trust it",
    )


def _tensor_parallel(case: Case) -> Check | None:
    own = case.config.get("draft_tensor_parallel_size")
    if own is None or not (takes_draft(case.method) or uses_head(case.method)):
        return None
    size = case.number("--tensor-parallel-size") or 1
    if own in (1, size):
        return passed("draft-tensor-parallel", f"{own}, with {size} for the target")
    allowed = "1" if size == 1 else f"1 or {size}"
    return failed(
        "draft-tensor-parallel",
        f"draft_tensor_parallel_size is {own}, but the target's tensor parallel size is {size}",
        f"Set draft_tensor_parallel_size to {allowed}",
    )


def _length(case: Case, draft: Checkpoint) -> Iterator[Row]:
    """The speculative max_model_len against what target and draft can do."""
    own = case.config.get("max_model_len")
    if own is None:
        return
    target_length = case.number("--max-model-len") or case.target.config.max_position_embeddings
    # A draft that scales its positions, or shares the target's, can go beyond the number in its config.json.
    scaled = any(kinds.fact(draft.config, key) is not None for key in ("rope_scaling", "rope_parameters"))
    alone = case.method == "draft_model" and not scaled
    draft_length = draft.config.max_position_embeddings if alone else None
    for who, place, most in (("target", case.target.place, target_length), ("draft", draft.place, draft_length)):
        if most is not None and own > most:
            yield failed(
                f"{who}-length",
                f"the speculative max_model_len is {own}, but the {who} {place} goes to {most}",
                f"Set max_model_len in the speculative config to {most} or less",
            )


def _engine(case: Case) -> Iterator[Row]:
    errors = refusals.broken(case)
    for error in errors:
        yield Check("engine", error, error.what)
    if not errors:
        yield passed("engine", f"vLLM {case.table.version} refuses nothing that is set together with {case.method}")
