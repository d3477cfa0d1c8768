"""Gathering: the facts of a model folder, remembered or read (`launcher.facts`)."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.cache.remembered import Remembered
from launcher.checkpoint import ADAPTER_CONFIG, ADAPTER_HINT, CONFIG, MISTRAL_CONFIG, Checkpoint, model_folders
from launcher.errors import ConfigurationError, NotFoundError
from launcher.sources import Entry, Source
from launcher.typing import NamedTuple


class SubFolder(NamedTuple):
    """A folder of a source, as a source."""

    source: Source
    folder: str

    def listing(self) -> tuple[Entry, ...]:
        return tuple(_below(self.source.listing(), self.folder))

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.source.read(f"{self.folder}/{path}", offset, length)


def gather_checkpoint(source: Source, place: str, memory: Remembered | None = None) -> Checkpoint:
    """The facts of the target at ``place``, its runtime_config.json included.

    Raises NotFoundError without a config.json, IntegrityError for files that are not what they claim to be, and
    ConfigurationError for an unreadable runtime_config.json.
    """
    listing = source.listing()
    if not _has_config(listing):
        raise _no_config(place, listing)
    return _gather(source, place, listing, memory, target=True)


def gather_draft(source: Source, place: str, memory: Remembered | None = None) -> Checkpoint:
    """The facts of a draft.  Its ``place`` is that of the only child with a config.json where the folder has none.

    Raises as `gather_checkpoint` does, and ConfigurationError where several children could be meant.
    """
    listing = source.listing()
    child = draft_folder(listing, place)
    if child:
        source, place, listing = SubFolder(source, child), f"{place.rstrip('/')}/{child}", _below(listing, child)
    return _gather(source, place, listing, memory, target=False)


def draft_folder(listing: Sequence[Entry], place: str) -> str:
    """Which folder of a draft's listing is the draft: "" for itself, or the only child with a config.json."""
    if _has_config(listing):
        return ""
    children = [folder for folder in model_folders(listing) if "/" not in folder]
    if len(children) > 1:
        raise ConfigurationError(
            f"{place} has no {CONFIG} of its own and holds several drafts: {', '.join(children)}",
            f"Name one of them, such as {place.rstrip('/')}/{children[0]}",
        )
    if not children:
        raise _no_config(place, listing)
    return children[0]


def _below(listing: Sequence[Entry], folder: str) -> tuple[Entry, ...]:
    start = folder + "/"
    return tuple(entry._replace(path=entry.path[len(start) :]) for entry in listing if entry.path.startswith(start))


def _has_config(listing: Sequence[Entry]) -> bool:
    return any(entry.path in (CONFIG, MISTRAL_CONFIG) for entry in listing)


def _no_config(place: str, listing: Sequence[Entry]) -> NotFoundError:
    folders = model_folders(listing)
    if folders:
        more = f" and {len(folders) - 3} more" if len(folders) > 3 else ""
        return NotFoundError(
            f"{place} has no {CONFIG}, but these of its folders have one: {', '.join(folders[:3])}{more}",
            f"Give the model's own folder, such as {place.rstrip('/')}/{folders[0]}",
        )
    if not listing:
        return NotFoundError(f"{place} is empty", "Is the volume mounted? Check the path and the mount")
    if any(entry.path == ADAPTER_CONFIG for entry in listing):
        return NotFoundError(f"{place} is a LoRA adapter, not a model: it has no {CONFIG}", ADAPTER_HINT)
    return NotFoundError(f"{place} has no {CONFIG}: it is no model folder", "Give the folder that holds config.json")


def _gather(
    source: Source, place: str, listing: Sequence[Entry], memory: Remembered | None, *, target: bool
) -> Checkpoint:
    local = all(entry.inode for entry in listing)
    memory = memory if local else None  # without inode and time nothing says that a file is still the same
    key = place if target else f"{place} as a draft"
    known = None if memory is None else memory.recall(key, listing)
    if known is not None:
        return known
    from launcher.facts import read_facts  # lazy: a warm start remembers them

    checkpoint = read_facts(source, place, listing, local=local, target=target)
    if memory is not None:
        memory.keep(checkpoint, key, listing)
    return checkpoint
