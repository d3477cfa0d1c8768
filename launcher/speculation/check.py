"""Every check that can be made before exec: head and draft against the target, and what this vLLM refuses."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checkpoint import ADAPTER_HINT, Checkpoint
from launcher.errors import LauncherError
from launcher.speculation import heads, kinds, refusals
from launcher.speculation.case import Case
from launcher.speculation.methods import takes_draft, uses_head
from launcher.speculation.rows import Row, counted, failed, known, passed
from launcher.speculation.values import Check
from launcher.typing import NamedTuple
from launcher.vllm.tables import EngineTable

_LOADED = ("safetensors", "pickle")  # the forms of weights that vLLM loads
# Load formats that need no weights in the target's folder.
_FROM_ELSEWHERE = ("dummy", "tensorizer", "modelexpress", "ipc_cache")


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
    warnings = (*refusals.advice(case), *_draft_advice(case))
    return Examination(tuple(row for row in rows if isinstance(row, Check)), tuple(unknown), warnings)


def files(case: Case) -> tuple[Check, ...]:
    """The failing checks of head and draft, for a ``case`` of which only the token count is not known."""
    rows = (*heads.head(case), *_draft(case))
    return tuple(row for row in rows if isinstance(row, Check) and row.error is not None)


def fit(
    method: str, target: Checkpoint, draft: Checkpoint, table: EngineTable, runner: int | None = None
) -> tuple[Check, ...]:
    """Whether ``draft`` fits ``target`` under ``method``, by their files alone; ``runner`` is vLLM's, where known."""
    from launcher.speculation import fit as fits  # lazy: most starts have no draft

    return tuple(row for row in fits.rows(method, target, draft, table, runner=runner) if isinstance(row, Check))


def kindless(draft: Checkpoint, table: EngineTable) -> Check:
    """Why nothing is known of the method that a draft was made for."""
    if draft.lora:
        return failed("draft-kind", f"the draft {draft.place} is a LoRA adapter, not a model", ADAPTER_HINT)
    if kinds.is_speculators(draft.config):
        algorithm = draft.config.document.get("speculators_model_type")
        return failed(
            "draft-kind",
            f"vLLM {table.version} does not read speculators drafts of the type {algorithm} ({draft.place})",
            "Use a draft in another format",
        )
    return failed(
        "draft-kind", f"the config.json of the draft {draft.place} does not tell its method", "Name the method"
    )


def target(held: Checkpoint, load_format: str | None, version: str) -> Check | None:
    """What keeps vLLM from loading the target itself, whatever speculates; nothing when nothing does."""
    form = held.weights.form
    if load_format == "gguf":
        return failed(
            "target-weights",
            f"--load-format gguf: vLLM {version} does not load GGUF files",
            "Leave --load-format out, and use a checkpoint in safetensors",
        )
    if form in _LOADED or load_format in _FROM_ELSEWHERE:
        return None
    found = "holds GGUF files only, which vLLM does not load" if form == "gguf" else "holds no weights"
    return failed("target-weights", f"{held.place} {found}", "Use a checkpoint whose weights are in safetensors")


def _draft_advice(case: Case) -> tuple[str, ...]:
    if case.draft is None:
        return ()
    from launcher.speculation import fit as fits  # lazy: most starts have no draft

    return tuple(fits.advice(case.method, case.target, case.draft, case.runner))


def _draft(case: Case) -> Iterator[Row]:
    draft = case.draft
    if draft is None:
        return
    from launcher.speculation import fit as fits  # lazy: most starts have no draft

    if not case.loads_nothing:
        yield _weights(draft)
    own = case.method == "draft_model" and bool(case.config.get("use_heterogeneous_vocab"))
    yield from fits.rows(case.method, case.target, draft, case.table, own_vocabulary=own, runner=case.runner)
    if case.method == "dspark":
        from launcher.speculation import omni  # lazy: one family of targets

        yield omni.row(case.target, draft, case.config.get("num_speculative_tokens"))
    if case.method not in ("dflash", "dspark") and case.config.get("parallel_drafting"):
        yield fits.mask_token(draft)
    yield _custom_code(case, draft)
    yield from _length(case, draft)


def _weights(draft: Checkpoint) -> Check:
    if draft.weights.form not in _LOADED:
        found = "GGUF files only, which vLLM does not load" if draft.weights.form else "no weights"
        return failed(
            "draft-weights",
            f"the draft {draft.place} holds {found}",
            "Put the draft's weights beside its config.json, in safetensors",
        )
    return passed("draft-weights", f"{counted(draft.weights.files, 'file')} of {draft.weights.form}")


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
    # A draft model of model runner V1 is run in the target's own groups.
    same = case.method == "draft_model" and (case.version < (0, 31) or case.runner == 1)
    if own == size or (own == 1 and not same):
        return passed("draft-tensor-parallel", f"{own}, with {size} for the target")
    allowed = f"{size}" if same or size == 1 else f"1 or {size}"
    why = f", and {case.method} runs with that size only on this model runner" if same else ""
    return failed(
        "draft-tensor-parallel",
        f"draft_tensor_parallel_size is {own}, but the target's tensor parallel size is {size}{why}",
        f"Set draft_tensor_parallel_size to {allowed}, or leave it out",
    )


def _length(case: Case, draft: Checkpoint) -> Iterator[Row]:
    """The speculative max_model_len against what target and draft can do."""
    own = case.config.get("max_model_len")
    if own is None:
        return
    # A model that scales its positions can go beyond the number in its config.json, and one that is overridden too.
    stated = not kinds.scales_positions(case.target.config) and "--hf-overrides" not in case.request.flags
    target_length = case.number("--max-model-len") or (case.target.config.max_position_embeddings if stated else None)
    # Other drafts share the target's positions.
    alone = case.method == "draft_model" and not kinds.scales_positions(draft.config)
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
