"""Which method speculates, with which draft, and why (pure).

`candidates` says what must be read before that can be decided; `decide` decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError, IncompatibleError, LauncherError
from launcher.machine import Machine
from launcher.speculation import check, draft, kinds, layers
from launcher.speculation.case import Case
from launcher.speculation.complete import DEFAULT
from launcher.speculation.families import mtp_family
from launcher.speculation.intent import Intent, intent, unused
from launcher.speculation.known import (
    Draft,
    Drafts,
    Known,
    case_of,
    default_of,
    examined,
    holds_head,
    kind_of,
    own_folder,
    pick,
    read,
    unfit_folder,
)
from launcher.speculation.methods import takes_draft
from launcher.speculation.rows import counted
from launcher.speculation.values import Check, Decision, DraftReference, Request, Speculation, Step
from launcher.vllm.tables import EngineTable

AUTOMATIC = "automatic choice"
# The codes that the policy "fallback" turns into a start without speculation.
FORGIVABLE = frozenset({3, 4, 5, 7, 8, 9})
_HEADS = ("mtp", "dspark", "dflash")
# A flag that vLLM refuses where nothing speculates, unless its value is "none".
_METRICS = "--per-request-spec-decode-metrics"


def candidates(
    request: Request, target: Checkpoint, table: EngineTable, machine: Machine
) -> tuple[DraftReference, ...]:
    """The drafts whose files must be read before `decide`: the one that somebody named, or those at hand.

    Where the automatic choice takes a head of the checkpoint, none: nothing is asked of a draft that is not needed.
    Raises ConfigurationError as `decide` does, so that a mistake in the settings shows before any draft is read.
    """
    effective = layers.merge(request.layers)
    said, _ = layers.validated(effective, table)
    meant = intent(effective, said, request, target)
    known = Known(request, target, {}, table, machine, said, effective.origins)
    return () if meant.automatic and meant.references and _has_usable_head(known) else meant.references


def decide(request: Request, target: Checkpoint, drafts: Drafts, table: EngineTable, machine: Machine) -> Decision:
    """Choose the method and make every check.

    ``drafts`` maps the source of each candidate to what was read there, or to why it could not be.  Raises
    ConfigurationError (exit code 2) only; whatever else is wrong with the draft or the method is a failing check of the
    Decision, which the policy "fallback" turns into a start without speculation.
    """
    effective = layers.merge(request.layers)
    said, notes = layers.validated(effective, table)
    meant = intent(effective, said, request, target)
    known = Known(request, target, drafts, table, machine, said, effective.origins)
    if meant.off:
        decision = _off(meant.off)
    elif meant.method is not None:
        decision = _named(known, meant, meant.method)
    elif meant.automatic:
        decision = _automatic(known, meant)
    else:
        decision = _by_draft(known, meant)
    warnings = (*effective.warnings, *notes, *_toggle(request, effective), *meant.warnings, *decision.warnings)
    return _launched(_forgiven(decision._replace(warnings=warnings), request), known)


def _launched(decision: Decision, known: Known) -> Decision:
    """``decision`` with what holds whatever was decided: of the target, of pickled weights, of flags to drop."""
    flags = known.request.flags
    formats = flags.get("--load-format", ())
    unloadable = check.target(known.target, formats[-1] if formats else None, known.table.version)
    checks = (*decision.checks, unloadable) if unloadable is not None else decision.checks
    chosen = decision.speculation
    used = (known.target, known.drafts.get(chosen.draft.source) if chosen.enabled and chosen.draft else None)
    warnings = [
        f"the weights of {held.place} are pickles, which can run code when they are read: prefer safetensors"
        for held in used
        if isinstance(held, Checkpoint) and held.weights.form == "pickle"
    ]
    starts = all(made.error is None for made in checks)
    given = (flags.get(_METRICS) or ("none",))[-1] != "none"
    dropped = (_METRICS,) if given and starts and not chosen.enabled else ()
    warnings += [f"{flag} is left out: vLLM takes it only together with speculation, which is off" for flag in dropped]
    return decision._replace(checks=checks, warnings=(*decision.warnings, *warnings), dropped=dropped)


def without_draft(decision: Decision, request: Request, error: LauncherError) -> Decision | None:
    """The start without speculation after its draft could not be fetched; None where that must stop the start."""
    failed = decision._replace(checks=(*decision.checks, Check("draft", error, error.what)))
    forgiven = _forgiven(failed, request)
    return None if forgiven is failed else forgiven


def _toggle(request: Request, effective: layers.Effective) -> Iterator[str]:
    """A toggle set to off does not reach what somebody configured outright."""
    if effective.config and not request.enabled and request.enabled_origin is not None:
        origin = effective.origins.get("method") or next(iter(effective.origins.values()))
        yield (
            f"{request.enabled_origin} is off, but {origin} configures speculation, which holds all the same; "
            f"{layers.SWITCH_OFF} switches it off"
        )


# The three ways to a method ------------------------------------------------------------------------------------------


def _named(known: Known, meant: Intent, method: str) -> Decision:
    """Somebody named the method."""
    origin = known.origins["method"]
    found = None
    if meant.references:
        own = meant.references[0].origin == draft.TARGET
        found = own_folder(known, meant, method) if own else pick(known, meant.references)
    if meant.spare and found is not None and not holds_head(found):
        found = None
        meant = meant._replace(warnings=unused("the method mtp uses the target's own head"))
    if found is None and takes_draft(method):
        raise ConfigurationError(
            f"{origin}: the method {method} needs a draft, and none is named",
            f"Set {draft.VARIABLE} to the draft's folder or source",
        )
    reason = f"{origin} names {method}" + (f", with the draft {found.place}" if found else "")
    return _settled(known, meant, method, found, reason)


def _by_draft(known: Known, meant: Intent) -> Decision:
    """Somebody named a draft and no method: the draft's own kind decides."""
    found = pick(known, meant.references)
    if found.checkpoint is None:
        return _unreadable(found)
    kind = kinds.draft_kind(found.checkpoint)
    place = found.checkpoint.place
    if kind is None:
        return _unusable(found, check.kindless(found.checkpoint, known.table))
    if kind == "draft_model" and holds_head(found) and mtp_family(found.checkpoint.config, known.table) is not None:
        kind = "mtp"  # vLLM would run it by its head alone
    if kind not in known.table.methods:
        problem = IncompatibleError(
            f"the draft {place} is made for {kind}, which vLLM {known.table.version} does not have",
            "Use another draft, or a vLLM that has this method",
        )
        return _unusable(found, Check("draft-kind", problem, problem.what))
    reason = f"{found.reference.origin} names the draft {place}, which is made for {kind}"
    return _settled(known, meant, kind, found, reason, by_draft=True)


def _automatic(known: Known, meant: Intent) -> Decision:
    """Nobody named anything: a head in the checkpoint, else an EAGLE3 draft at hand, else n-gram."""
    steps: list[Step] = []
    for offer in _offers(known, meant):
        if isinstance(offer, Step):
            steps.append(offer)
            continue
        method, found, reason = offer
        try:
            case, seen = examined(known, method, found, automatic=True)
        except ConfigurationError as untold:
            steps.append(Step(method, False, untold.what))
            continue
        if seen.errors:
            steps.append(Step(method, False, seen.errors[0].what))
            continue
        steps.append(Step(method, True, reason))
        chosen = _speculation(known, case, found, reason, tuple(steps), AUTOMATIC)
        return Decision(chosen, seen.checks, seen.warnings, seen.unknown)
    reason = "no method can run here: " + "; ".join(f"{step.method}: {step.reason}" for step in steps)
    return _off(reason, tuple(steps))


def _has_usable_head(known: Known) -> bool:
    """Whether a head in the checkpoint will be taken, whatever drafts there are."""
    for kind in _HEADS:
        for offer in _head(known, kind):
            if isinstance(offer, Step):
                continue
            try:
                _, seen = examined(known, offer[0], None, automatic=True)
            except ConfigurationError:
                continue
            if not seen.errors:
                return True
    return False


# What the automatic choice may take ----------------------------------------------------------------------------------

Offer = tuple[str, Draft | None, str]


def _offers(known: Known, meant: Intent) -> Iterator[Step | Offer]:
    """Methods in the order of preference: an offer to examine, or a step that is rejected without."""
    for kind in _HEADS:
        yield from _head(known, kind)
    yield from _drafts(known, meant)
    yield (
        "ngram",
        None,
        "needs no draft; it can cost time under load: compare with NIM_SPECDEC_ENABLE=0 on your own traffic",
    )


def _head(known: Known, kind: str) -> Iterator[Step | Offer]:
    """A head in the checkpoint.  Only tensors prove one: the config alone is no proof, its silence no disproof."""
    target = known.target
    head = target.weights.head(kind)
    if head is not None and kind == "dflash":
        why = f"{target.place} holds a DFlash head, but vLLM takes a DFlash draft only from a folder of its own"
        yield Step(kind, False, why)
    elif head is not None:
        name = "an MTP" if kind == "mtp" else "a DSpark"
        tensors = counted(head.tensors, "tensor")
        yield kind, None, f"{target.place} holds {name} head: {tensors}, such as {head.example}"
    elif kind == "mtp":
        errors = check.examine(case_of(known, kind, None)).errors
        unproven = f"nothing proves that {target.place} holds a head: its tensors are not listed"
        yield Step(kind, False, errors[0].what if errors else unproven)


def _drafts(known: Known, meant: Intent) -> Iterator[Step | Offer]:
    """One EAGLE3 draft in a folder of the target, else the draft that the profile publishes, of whatever kind."""
    at_hand = [read(known, reference) for reference in meant.references]
    folders = [found for found in at_hand if found.reference.origin == draft.TARGET]
    fitting = [found for found in folders if kind_of(found) == "eagle3"]
    others = [found for found in folders if found not in fitting]
    if len(fitting) > 1:
        names = ", ".join(found.reference.source for found in fitting)
        yield Step("eagle3", False, f"several drafts are at hand ({names}): name one as {draft.VARIABLE}")
        return
    for found in fitting:
        yield "eagle3", found, f"an EAGLE3 draft that fits is at hand: {found.reference.source}"
    way = known.request.published_draft
    if not fitting and (way is None or way.method != "eagle3"):
        seen = "".join(f"; {unfit_folder(found)}" for found in others)
        why = f"; {known.request.no_published}" if known.request.no_published else ""
        yield Step("eagle3", False, f"no EAGLE3 draft is at hand{seen}{why}")
    if way is not None:
        found = next(found for found in at_hand if found.reference.origin == draft.PROFILE)
        yield _published(found, way.method)


def _published(found: Draft, method: str) -> Step | Offer:
    source = found.reference.source
    kind = "mtp" if method == "mtp" and holds_head(found) else kind_of(found)
    if found.error is not None:
        return Step(method, False, f"the published draft cannot be had: {found.error.what}")
    if kind != method:
        return Step(method, False, f"the draft {source} is made for {kind or 'no known method'}")
    return method, found, f"{source} was published as the {method} draft of this model"


# Decisions -----------------------------------------------------------------------------------------------------------


def _settled(
    known: Known, meant: Intent, method: str, found: Draft | None, reason: str, *, by_draft: bool = False
) -> Decision:
    """A method that somebody named, or (``by_draft``) that a named draft decided: whatever fails now is an error."""
    if found is not None and found.checkpoint is None:
        return _unreadable(found)
    case, seen = examined(known, method, found)
    decided_by = found.reference.origin if found and by_draft else known.origins.get("method", AUTOMATIC)
    step = Step(method, not seen.errors, seen.errors[0].what if seen.errors else reason)
    considered = (step,) if by_draft else ()
    chosen = _speculation(known, case, found, reason, considered, decided_by)
    spared = meant.warnings if meant.spare else ()
    return Decision(chosen, seen.checks, (*spared, *_moved(meant, found), *seen.warnings), seen.unknown)


def _speculation(
    known: Known, case: Case, found: Draft | None, reason: str, considered: tuple[Step, ...], decided_by: str
) -> Speculation:
    reference = found.reference if found else None
    default = default_of(known, case.method, found)
    below = {key: draft.PROFILE if key in default else DEFAULT for key in case.config}
    origins = {key: known.origins.get(key, below[key]) for key in case.config} | {"method": decided_by}
    tokens = case.config.get("num_speculative_tokens")
    return Speculation(True, case.method, tokens, reference, case.config, reason, considered, origins)


def _moved(meant: Intent, found: Draft | None) -> tuple[str, ...]:
    if found is None or not found.reference.named or found.reference.source == meant.references[0].source:
        return ()
    first = meant.references[0].source
    return (f"{first} does not exist here; {found.reference.source} of the target is used",)


def _unreadable(found: Draft) -> Decision:
    assert found.error is not None
    return _unusable(found, Check("draft", found.error, found.error.what))


def _unusable(found: Draft, failed: Check) -> Decision:
    return Decision(Speculation(False, None, None, found.reference, {}, failed.message, (), {}), (failed,), ())


def _off(reason: str, considered: tuple[Step, ...] = ()) -> Decision:
    return Decision(Speculation(False, None, None, None, {}, reason, considered, {}), (), ())


def _forgiven(decision: Decision, request: Request) -> Decision:
    """With the policy "fallback", a start without speculation in place of a failing draft or method."""
    errors = [made.error for made in decision.checks if made.error is not None]
    if request.policy != "fallback" or not errors or any(error.code not in FORGIVABLE for error in errors):
        return decision
    what = "; ".join(error.what for error in errors)
    method = decision.speculation.method or "draft"
    before = [step for step in decision.speculation.considered if step.method != method]
    off = _off(f"{what} (NIM_SPECDEC_POLICY=fallback)", (*before, Step(method, False, what)))
    loud = f"SPECULATION IS OFF: {what}; NIM_SPECDEC_POLICY=fallback starts the server without it"
    passed = tuple(made for made in decision.checks if made.error is None)
    return off._replace(
        speculation=off.speculation._replace(forgiven=what),
        checks=passed,
        warnings=(*decision.warnings, loud),
        unknown=decision.unknown,
    )
