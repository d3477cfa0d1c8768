"""The facts of target and drafts, wherever their files are: a folder, a complete snapshot in the cache, or a remote
source that is only listed and read a little of.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from launcher import logs, places
from launcher.arguments.merge import effective, level, merge
from launcher.checkpoint import Checkpoint
from launcher.commands.intake import COMMAND_LINE, ENGINE_CONFIG, PASSTHROUGH, Intake, Warnings
from launcher.errors import ConfigurationError, LauncherError
from launcher.fetch.local import LocalFolder
from launcher.gather import SubFolder, gather_checkpoint, gather_draft
from launcher.sources import Entry, ModelSource, Patience, Source, parse_source
from launcher.speculation.values import DraftReference
from launcher.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launcher.fetch.describe import Described
    from launcher.fetch.options import FetchOptions

LOAD_FORMAT = "--load-format"


class Listed(NamedTuple):
    """A source whose listing was already taken: every file is looked at once a start."""

    source: Source
    entries: tuple[Entry, ...]

    def listing(self) -> tuple[Entry, ...]:
        return self.entries

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.source.read(path, offset, length)


class Gathered(NamedTuple):
    """A model, as gathered."""

    source: ModelSource
    origin: str  # the setting that named it
    folder: str  # where its files lie, or will lie once they are fetched
    listed: Listed
    checkpoint: Checkpoint
    patience: Patience  # with the brief questions of this start
    described: Described | None = None  # of a source that is fetched into the cache

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.listed.entries


def gather_target(intake: Intake, warnings: Warnings) -> Gathered:
    """The model to serve.  Raises the LauncherError that stops the start, naming the setting."""
    source, origin, _ = intake.model
    patience = Patience()
    try:
        folder, listed, described = _opened(source, intake, warnings, patience)
        checkpoint = _told(lambda: gather_checkpoint(listed, folder, intake.memory), described)
    except LauncherError as error:
        raise error.named_by(origin) from None
    return Gathered(source, origin, folder, listed, checkpoint, patience, described)


def gather_reference(intake: Intake, reference: DraftReference, target: Gathered, warnings: Warnings) -> Gathered:
    """The draft that a reference means; one inside a target that is still to be fetched is read there."""
    source = parse_source(reference.source, reference.origin)
    inside = source.name.removeprefix(f"{target.folder}/")
    try:
        if source.is_local and inside != source.name and target.described is not None:
            below = SubFolder(target.listed, inside)
            listed = Listed(below, below.listing())
            checkpoint = gather_draft(listed, source.name, None)
            return Gathered(source, reference.origin, source.name, listed, checkpoint, target.patience)
        brief = not reference.named
        folder, listed, described = _opened(source, intake, warnings, target.patience, brief=brief)
        checkpoint = _told(lambda: gather_draft(listed, folder, intake.memory), described)
        return Gathered(source, reference.origin, folder, listed, checkpoint, target.patience, described)
    except LauncherError as error:
        raise error.named_by(reference.origin) from None


def look_at_named_draft(intake: Intake) -> None:
    """Look for the draft although the target failed, so that both are reported."""
    draft = intake.settings.draft
    source = draft and parse_source(draft.value, draft.origin)
    if draft is not None and source is not None and source.is_local:
        try:
            LocalFolder(source.name).listing()
        except LauncherError as error:
            raise error.named_by(draft.origin) from None


def fetching_options(intake: Intake) -> FetchOptions:
    """How to fetch, from the variables and from what the arguments say of credentials and formats."""
    from launcher.fetch.options import fetch_options, for_load_format  # lazy: local models need none of it

    said = [
        (COMMAND_LINE, intake.command_line),
        (PASSTHROUGH, intake.passthrough),
        (ENGINE_CONFIG, intake.engine_config),
    ]
    parts = [level(rank, origin, parsed) for rank, (origin, parsed) in enumerate(said, 1) if parsed is not None]
    secrets = {name: value for _, parsed in reversed(said) if parsed is not None for name, value in parsed.secrets}
    options = fetch_options(intake.settings, {**intake.environ, **secrets}, intake.places.cache)
    return for_load_format(options, next(iter(effective(merge(parts)).get(LOAD_FORMAT, ())), None))


def _opened(
    source: ModelSource, intake: Intake, warnings: Warnings, patience: Patience, *, brief: bool = False
) -> tuple[str, Listed, Described | None]:
    if source.is_local:
        _protect(source.name, intake.places)
        local = LocalFolder(source.name)
        return source.name, Listed(local, local.listing()), None
    from launcher.fetch.describe import describe  # lazy: local models need none of it

    described = describe(source, fetching_options(intake), patience=patience, brief=brief)
    for note in described.notes:
        logs.info(note)
    warnings.add(described.warnings)
    return described.folder, Listed(described.reader, described.reader.listing()), described


def _told(gather: Callable[[], Checkpoint], described: Described | None) -> Checkpoint:
    """What ``gather`` finds; its errors speak of the source as the user does, not of our folder for it."""
    try:
        return gather()
    except LauncherError as error:
        if described is None:
            raise
        from launcher.fetch.wording import of_source  # lazy: something is wrong

        raise of_source(error, described) from None


def _protect(folder: str, found: places.Places) -> None:
    """Nothing is ever written into a model's folder, by whatever road a link leads there."""
    real = os.path.realpath(folder)
    for variable, ours in (("NIM_WORKSPACE", found.workspace), ("NIM_CACHE_PATH", found.cache)):
        if f"{os.path.realpath(ours)}/".startswith(f"{real}/"):
            raise ConfigurationError(
                f"{ours} lies inside the model folder {folder}, which is never written to",
                f"Set {variable} to a folder outside",
            )
