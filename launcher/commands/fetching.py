"""Bringing what a plan still lacks into the cache, target and draft at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from launcher import logs
from launcher.commands.assembly import Launch, Prepared, assemble
from launcher.commands.models import Gathered, Listed, fetching_options
from launcher.errors import LauncherError
from launcher.speculation import select
from launcher.speculation.values import Decision

TARGET, DRAFT = "target", "draft"


Observer = Callable[[Mapping[str, int], Mapping[str, int]], None]


def fetched(prepared: Prepared, observer: Observer | None = None) -> Prepared:
    """The same launch with every model at its place; ``observer`` as in `launcher.fetch.progress.Progress`.

    Raises the LauncherError of a source that cannot be fetched.  A draft that cannot costs the speculation alone, where
    the policy says so.
    """
    launch = prepared.launch
    named = {label: model for label, model in ((TARGET, launch.target), (DRAFT, launch.draft)) if model is not None}
    remote = {label: model for label, model in named.items() if model.described is not None}
    if not remote:
        return prepared
    try:
        brought = _bring(remote, launch, observer)
    except _DraftFailed as failed:
        decision = _without_draft(launch, failed.error)
        if decision is None:
            raise failed.error from None
        logs.warning(decision.warnings[-1])
        return fetched(assemble(launch._replace(decision=decision, draft=None)), observer)
    return assemble(launch._replace(target=brought.get(TARGET, launch.target), draft=brought.get(DRAFT, launch.draft)))


def _without_draft(launch: Launch, error: LauncherError) -> Decision | None:
    """The decision once the draft cannot be had; None where that must stop the start."""
    reference = launch.decision.speculation.draft
    if reference is None or reference.named:
        return select.without_draft(launch.decision, launch.request, error)
    # Nobody named it: it is one candidate fewer.
    facts = {**launch.drafts, reference.source: error}
    table, target = launch.intake.table, launch.target.checkpoint
    again = select.decide(launch.request, target, facts, table, launch.machine)
    lost = f"the draft {reference.source} cannot be had: {error.what}"
    return again._replace(warnings=(*again.warnings, lost))


class _DraftFailed(Exception):
    """The draft, and the draft alone, cannot be fetched."""

    def __init__(self, error: LauncherError) -> None:
        super().__init__(str(error))
        self.error = error


def _bring(remote: dict[str, Gathered], launch: Launch, observer: Observer | None) -> dict[str, Gathered]:
    from launcher.fetch.bring import bring  # lazy: only for models that come through the cache
    from launcher.fetch.progress import Progress

    gc.enable()  # a download takes longer than the start that it was switched off for
    progress = Progress(jsonl=launch.intake.settings.jsonl, observer=observer)
    described = [model.described for model in remote.values() if model.described is not None]
    try:
        complete = bring(described, tuple(remote), fetching_options(launch.intake), progress)
    except LauncherError as error:
        to_blame = remote.get(progress.blamed)
        named = error.named_by(to_blame.origin) if to_blame is not None else error
        if progress.blamed == DRAFT:
            raise _DraftFailed(named) from None
        raise named from None
    finally:
        progress.stop()
    return {
        label: model._replace(folder=now.folder, listed=Listed(now.reader, now.reader.listing()), described=now)
        for (label, model), now in zip(remote.items(), complete, strict=True)
    }
