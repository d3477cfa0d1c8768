"""What a decision rests on: the request, the target, and each draft with what is known of its files (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError, LauncherError, NotFoundError
from launcher.machine import Machine
from launcher.speculation import check, draft, kinds
from launcher.speculation.case import Case
from launcher.speculation.complete import complete
from launcher.speculation.families import mtp_family
from launcher.speculation.intent import Intent
from launcher.speculation.values import DraftReference, Request
from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import EngineTable

Drafts = Mapping[str, Checkpoint | LauncherError]


class Known(NamedTuple):
    """Everything a decision rests on.  ``said`` is the merged configuration, typed; ``origins`` its provenance."""

    request: Request
    target: Checkpoint
    drafts: Drafts
    table: EngineTable
    machine: Machine
    said: Mapping[str, Any]
    origins: Mapping[str, str]


class Draft(NamedTuple):
    """A reference with what is known of its files; ``error`` when they cannot be read."""

    reference: DraftReference
    checkpoint: Checkpoint | None
    error: LauncherError | None

    @property
    def place(self) -> str:
        """Where its files are: a folder may have led to its only child."""
        return self.checkpoint.place if self.checkpoint is not None else self.reference.source


def read(known: Known, reference: DraftReference) -> Draft:
    """What is known of a draft, or why nothing is."""
    facts = known.drafts.get(reference.source)
    if facts is None:
        missing = NotFoundError(f"nothing was read of the draft {reference.source}", "Check that it can be reached")
        return Draft(reference, None, missing)
    if isinstance(facts, LauncherError):
        return Draft(reference, None, _reminded(facts, reference.note) if reference.note else facts)
    return Draft(reference, facts, None)


def _reminded(error: LauncherError, note: str) -> LauncherError:
    """``error`` with what else the reference might have meant, said first."""
    instead = f", or {error.todo[:1].lower()}{error.todo[1:]}" if error.todo else ""
    return type(error)(f"{note}; {error.what}", f"Name one of its drafts{instead}")


def pick(known: Known, references: tuple[DraftReference, ...]) -> Draft:
    """The first of ``references`` that exists; failing that, the first with what is wrong with it."""
    drafts = [read(known, reference) for reference in references]
    for found in drafts:
        if not isinstance(found.error, NotFoundError):
            return found
    return drafts[0]


def kind_of(found: Draft) -> str | None:
    """The method that a draft is made for, by its own files; None for what is none, or cannot be read."""
    return kinds.draft_kind(found.checkpoint) if found.checkpoint is not None else None


def unfit_folder(found: Draft) -> str:
    """Why a folder of the target is not taken as an EAGLE3 draft."""
    source = found.reference.source
    if found.error is not None:
        return f"{source} cannot be read: {found.error.what}"
    kind = kind_of(found)
    if kind in (None, "draft_model"):
        return f"{source} is no draft for eagle3"
    return f"{source} is made for {kind}: name it as {draft.VARIABLE} to use it"


def holds_head(found: Draft) -> bool:
    """Whether a draft brings an MTP head: a whole checkpoint that kept it, or one that was published alone."""
    if found.checkpoint is None:
        return False
    family = mtp_family(found.checkpoint.config)
    return family is not None and (family.standalone or found.checkpoint.weights.head("mtp") is not None)


def own_folder(known: Known, meant: Intent, method: str) -> Draft | None:
    """The one draft at hand that is made for a named method; None when there is none."""
    drafts = [read(known, reference) for reference in meant.references]
    made = [found for found in drafts if kind_of(found) == method]
    if len(made) > 1:
        names = ", ".join(found.reference.source for found in made)
        raise ConfigurationError(
            f"{known.origins['method']}: several drafts for {method} are at hand: {names}",
            f"Name one of them as {draft.VARIABLE}",
        )
    return made[0] if made else None


def case_of(known: Known, method: str, found: Draft | None, *, automatic: bool = False) -> Case:
    """``method`` with its configuration complete.  Raises ConfigurationError when its token count must be given."""
    checkpoint = found.checkpoint if found else None
    said = {**default_of(known, method, found), **known.said}
    config = complete(method, said, known.target, checkpoint, automatic=automatic)
    return _uncounted(known, method, found)._replace(config=config)


def examined(
    known: Known, method: str, found: Draft | None, *, automatic: bool = False
) -> tuple[Case, check.Examination]:
    """``method`` with every check made.

    A draft of another kind has no token count to offer, so what is wrong with the files comes before its absence;
    raises ConfigurationError as `case_of` does when nothing else is wrong.
    """
    try:
        case = case_of(known, method, found, automatic=automatic)
    except ConfigurationError:
        case = _uncounted(known, method, found)
        wrong = check.files(case)
        if not wrong:
            raise
        return case, check.Examination(wrong, (), ())
    return case, check.examine(case)


def default_of(known: Known, method: str, found: Draft | None) -> Mapping[str, Any]:
    """What the profile says of this method with this draft: below everything that anybody said, above our defaults."""
    way = known.request.way(method, found.reference.source if found else None)
    if way is None:
        return {}
    return {key: value for key, value in way.config.items() if known.table.field(key) is not None}


def _uncounted(known: Known, method: str, found: Draft | None) -> Case:
    """``method`` with what was said of it, be there a token count or not."""
    checkpoint, named = (found.checkpoint, found.reference.named) if found else (None, True)
    config = {"method": method, **{key: value for key, value in known.said.items() if key not in ("method", "model")}}
    return Case(method, config, known.target, checkpoint, named, known.request, known.table, known.machine)
