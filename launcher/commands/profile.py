"""Which profile a start has: the compiled profiles, the user's own folder, and who the model is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from launcher.arguments.merge import Level
from launcher.arguments.values import Parsed
from launcher.commands.models import Gathered
from launcher.layout import OWN_PREFIX
from launcher.machine import Machine
from launcher.profiles import identity
from launcher.profiles.choose import Choice, Question, choose
from launcher.profiles.compiled import Store
from launcher.profiles.identity import Identity
from launcher.profiles.values import BUILT_IN, GENERIC
from launcher.settings.values import Settings
from launcher.sources import ModelSource
from launcher.speculation.values import Decision, Published, Request
from launcher.typing import TYPE_CHECKING, Any
from launcher.vllm.tables import EngineTable

if TYPE_CHECKING:
    from launcher.offered import Offered

STORE_MANIFEST = f"{OWN_PREFIX}manifest.json"  # what create-model-store leaves in a folder
_TP, _PP, _DP = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"


def picked(
    settings: Settings,
    target: Gathered,
    machine: Machine,
    levels: Sequence[Level],
    known: Sequence[Store],
    offered: Offered | None = None,
) -> Choice:
    """The profile of this start.  ``levels``: the arguments above the profile, highest first; ``offered``: the one of
    the image's own manifest that named the model.

    Raises HardwareError when NIM_MODEL_PROFILE names none.
    """
    wish = settings.profile if offered is None else None  # the manifest has answered it
    stages, ranks = _number(levels, _PP) or 1, _number(levels, _DP) or 1
    question = Question(
        place=target.source.text if target.described else target.checkpoint.place,
        source=canonical(target.source),
        identities=identities(target),
        config=target.checkpoint.config,
        machine=machine,
        wish=(wish.value, wish.origin) if wish else None,
        tp=_number(levels, _TP),
        pp=stages,
        groups=stages * ranks,
    )
    choice = choose(question, known)
    if (_number(levels, "--nnodes") or 1) > 1:
        choice = among_nodes(choice)
    return choice if offered is None else _as_offered(choice, offered, target.origin)


def _as_offered(choice: Choice, offered: Offered, path: str) -> Choice:
    """The choice under the name that the image's manifest gives it, with the sizes that it states."""
    sizes = {"tensor_parallel_size": _tag(offered, "tp"), "pipeline_parallel_size": _tag(offered, "pp")}
    runtime = {**choice.runtime, **{key: size for key, size in sizes.items() if size > 1}}
    profile = choice.profile._replace(id=offered.id, description=offered.description)
    return choice._replace(profile=profile, reason=f"{path} offers it", runtime=runtime, derived_tp=None)


def _tag(offered: Offered, name: str) -> int:
    text = offered.tags.get(name, "1")
    return int(text) if text.isascii() and text.isdecimal() else 1


def among_nodes(choice: Choice) -> Choice:
    """The choice where several nodes serve one model: what they share is settled with the others' GPUs in mind."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    runtime = {key: value for key, value in choice.runtime.items() if key not in sizes}
    return choice._replace(runtime=runtime, derived_tp=None)


def canonical(source: ModelSource) -> str:
    """A source without its revision, as profiles name it; a folder by its path."""
    return source.name if source.is_local else f"{source.scheme}://{source.name}"


def identities(target: Gathered) -> tuple[Identity, ...]:
    """What a folder says of itself, best first."""
    if target.described is not None:
        return ()
    folder = target.source.name
    found = identity.of_path(folder) or identity.of_path(os.path.realpath(folder))
    if found is not None:
        return (found,)
    names = {entry.path for entry in target.entries}
    said = _of_store(folder) if STORE_MANIFEST in names else ()
    return said or (of_card(f"{folder}/{identity.CARD}") if identity.CARD in names else ())


def _of_store(folder: str) -> tuple[Identity, ...]:
    """A folder that create-model-store wrote names the source that it was made from."""
    from launcher.cache import manifest  # lazy: few folders are stores

    found = manifest.read(f"{folder}/{STORE_MANIFEST}")
    if not isinstance(found, manifest.Manifest) or found.source.startswith("local://"):
        return ()
    return (Identity(found.source, "the manifest in it"),)


def of_card(path: str) -> tuple[Identity, ...]:
    """What the model card at ``path`` says of the model; nothing where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return identity.of_card(stream.read(identity.CARD_BYTES))
    except OSError:
        return ()


def _number(levels: Sequence[Level], flag: str) -> int | None:
    """The size that somebody said, if it is one; anything else is for the argument checks."""
    said = next((a.values for part in levels for a in reversed(part.arguments) if a.flag == flag), ())
    return int(said[0]) if said and said[0].isascii() and said[0].isdecimal() and int(said[0]) > 0 else None


def origin(choice: Choice) -> str:
    """What `plan` says of arguments that the profile sets."""
    return f"profile {choice.profile.description}"


def arguments_of(choice: Choice, table: EngineTable) -> tuple[Parsed | None, tuple[str, ...]]:
    """What the profile sets, and a warning for the keys that this vLLM lacks.

    What a user wrote is left as it is: there, a key that does not exist is an error (ConfigurationError).
    """
    if not choice.runtime:
        return None, ()
    from launcher.arguments.runtime import from_runtime_config  # lazy: few profiles set anything

    built_in = choice.profile.model.origin in (BUILT_IN, GENERIC)
    kept = {
        key: value
        for key, value in choice.runtime.items()
        if not built_in or table.flag(f"--{key.partition('.')[0]}") is not None
    }
    lacking = sorted(set(choice.runtime) - set(kept))
    what = f"the profile sets {', '.join(lacking)}, which vLLM {table.version} does not have: left out"
    return from_runtime_config(kept, table, origin(choice)), (what,) if lacking else ()


def unread(machine: Machine) -> Iterator[str]:
    """What could not be known of the machine."""
    if machine.unread:
        yield f"which GPUs there are: {machine.unread}"


def unpinned(request: Request, decision: Decision, draft: Gathered | None) -> Iterator[str]:
    """A published draft that follows its branch can change from one start to the next."""
    way, chosen = request.published_draft, decision.speculation.draft
    if way is None or way.pinned or chosen is None or chosen.source != way.draft or not decision.speculation.enabled:
        return
    now = draft.described.revision if draft is not None and draft.described is not None else None
    pin = f"NIM_DRAFT_MODEL_PATH={way.draft}:{now or 'COMMIT'}"
    yield f"the profile's draft {way.draft} is published without a pinned revision and can change: {pin} pins it"


def published(choice: Choice) -> tuple[Published, ...]:
    """What the profile knows of speculation, as `launcher.speculation` takes it."""
    return tuple(
        [Published(way.method, _config(way.tokens, way.settings), way.draft, way.pinned) for way in choice.ways]
    )


def _config(tokens: int | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**({} if tokens is None else {"num_speculative_tokens": tokens}), **settings}
