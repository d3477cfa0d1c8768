"""Draft references: which folder or source the word after ``"model"`` means (pure: what exists comes in as values)."""

from __future__ import annotations

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError
from launcher.settings.hints import nearest
from launcher.sources import ModelSource, parse_source
from launcher.speculation.values import DraftReference, Request
from launcher.typing import NamedTuple

VARIABLE = "NIM_DRAFT_MODEL_PATH"
# Origins of drafts that nobody named.
TARGET = "target"
PROFILE = "profile"
# Where a hosted service mounts the target; configurations written for it are taken along with their paths.
MOUNT = "/tmp/model/"
SPECULATOR = "speculator"

_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


class Resolved(NamedTuple):
    """What a reference may mean, best first: the first whose files exist is meant.

    ``unused`` says why NIM_DRAFT_MODEL_PATH has no part in it; empty when it has, or is not set.
    """

    references: tuple[DraftReference, ...]
    unused: str = ""


def resolve(text: object, origin: str, request: Request, target: Checkpoint, revision: object = None) -> Resolved:
    """The meaning of a draft reference that ``origin`` gave.

    ``revision`` is the speculative key of that name: it pins a hub repository that is named without one.  Raises
    ConfigurationError for a reference that can mean nothing.
    """
    if not isinstance(text, str) or not text.isprintable():
        raise ConfigurationError(f"{origin}: model is {text!r}", "Give a path, a source or a bare name")
    if is_bare(text):
        return Resolved((_bare(text, origin, request, target),))
    if "://" in text or text.startswith("/"):
        references = _explicit(text, origin, target, revision)
    else:
        references = (_relative(text, origin, target, revision),)
    beaten = request.draft is not None and request.draft.strip() not in ("", references[0].source)
    return Resolved(references, f"{origin} names the draft {text} itself" if beaten else "")


def is_bare(text: str) -> bool:
    """Whether a reference is a name for a sub-directory of the workspace."""
    return text not in ("", ".", "..") and _NAME_CHARACTERS.issuperset(text)


def from_variable(request: Request) -> DraftReference | None:
    """The draft of NIM_DRAFT_MODEL_PATH, or None.  Raises ConfigurationError when it is no source."""
    if request.draft is None or not request.draft.strip():
        return None
    return _reference(parse_source(request.draft.strip(), VARIABLE), VARIABLE, named=True)


def from_profile(request: Request) -> DraftReference | None:
    """The draft that the profile publishes for this model, or None."""
    published = request.published_draft
    if published is None or published.draft is None:
        return None
    return _reference(parse_source(published.draft, PROFILE), PROFILE, named=False)


def from_folders(target: Checkpoint) -> tuple[DraftReference, ...]:
    """Every sub-folder of the target that may be a draft."""
    return tuple(_inside(target, folder, TARGET, named=False) for folder in target.drafts)


def folder_in(target: Checkpoint, relative: str, origin: str) -> str | None:
    """The draft folder that ``relative`` names inside the target: itself, or its only child when it has no config.json.

    None when there is neither.  Raises ConfigurationError when several children could be meant.
    """
    if relative in target.drafts:
        return relative
    children = [folder for folder in target.drafts if folder.rpartition("/")[0] == relative]
    if len(children) > 1:
        raise ConfigurationError(
            f"{origin}: {target.place}/{relative} has no config.json and holds several drafts: {', '.join(children)}",
            f"Name one of them, such as {children[0]}",
        )
    return children[0] if children else None


def _bare(name: str, origin: str, request: Request, target: Checkpoint) -> DraftReference:
    given = from_variable(request)
    if given is not None:
        return given._replace(name=name)
    for relative in (name, f"{SPECULATOR}/{name}"):
        folder = folder_in(target, relative, origin)
        if folder is not None:
            return _inside(target, folder, origin, named=True)._replace(name=name)
    published = from_profile(request)
    if published is not None:
        return published._replace(name=name, named=True)
    near = nearest(name, [folder.rpartition("/")[2] for folder in target.drafts])
    raise ConfigurationError(
        f"{origin}: the draft {name!r} names nothing: {VARIABLE} is not set, and {target.place} has no draft folder "
        f"{name} or {SPECULATOR}/{name}{_drafts_of(target)}",
        f"The nearest folder is {near}" if near else f"Set {VARIABLE} to the draft's folder or source",
    )


def _explicit(text: str, origin: str, target: Checkpoint, revision: object) -> tuple[DraftReference, ...]:
    source = _pinned(parse_source(text, origin), revision)
    first = _reference(source, origin, named=True)._replace(as_is=source.is_local)
    rest = first.source.removeprefix(MOUNT)
    if rest == first.source:
        return (first,)
    folder = folder_in(target, rest, origin)
    if folder is None:
        has = _drafts_of(target)
        return (first._replace(note=f"{target.place} has no folder {rest}{has}" if has else ""),)
    mounted = _inside(target, folder, origin, named=True)
    return (first,) if mounted.source == first.source else (first, mounted)


def _relative(text: str, origin: str, target: Checkpoint, revision: object) -> DraftReference:
    path = text.removeprefix("./").rstrip("/")
    parts = path.split("/")
    if all(part not in ("", ".", "..") for part in parts):
        folder = folder_in(target, path, origin)
        if folder is not None:
            return _inside(target, folder, origin, named=True)._replace(name=_name(path))
        if len(parts) == 2 and path == text and all(is_bare(part) for part in parts):
            repository = _reference(_pinned(parse_source(f"hf://{text}", origin), revision), origin, named=True)
            has = _drafts_of(target)
            note = f"{target.place} has no folder {text}{has}, so a repository is meant" if has else ""
            return repository._replace(note=note)
    raise ConfigurationError(
        f"{origin}: the draft {text!r} is neither a folder inside {target.place}{_drafts_of(target)} nor a repository "
        "org/name",
        "Give an absolute path, a source such as hf://org/name, or a folder of the target",
    )


def _drafts_of(target: Checkpoint) -> str:
    """The drafts that lie in the target, as an insertion; nothing when there are none."""
    return f" (its drafts are {', '.join(target.drafts)})" if target.drafts else ""


def _pinned(source: ModelSource, revision: object) -> ModelSource:
    if source.scheme != "hf" or source.revision is not None or not isinstance(revision, str) or not revision:
        return source
    return source._replace(revision=revision, text=f"{source.text}:{revision}")


def _reference(source: ModelSource, origin: str, *, named: bool) -> DraftReference:
    return DraftReference(_name(source.name), source.name if source.is_local else source.text, origin, named)


def _inside(target: Checkpoint, folder: str, origin: str, *, named: bool) -> DraftReference:
    return DraftReference(_name(folder), f"{target.place.rstrip('/')}/{folder}", origin, named)


def _name(path: str) -> str:
    """A name for the workspace sub-directory: the last path part, in the characters that a bare name has."""
    last = path.rstrip("/").rpartition("/")[2]
    name = "".join(character if character in _NAME_CHARACTERS else "-" for character in last)
    return name if is_bare(name) else "draft"
