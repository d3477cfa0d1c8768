"""Which profile a model gets, and why (pure).

The user's choice, the exact source, what the folder says of itself, the family (what may speculate, never a draft),
else the generic profile: a model that nothing is known of is served all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from launcher.checkpoint import Config
from launcher.errors import HardwareError
from launcher.machine import Machine
from launcher.profiles import fits
from launcher.profiles.compiled import Store
from launcher.profiles.generic import generic
from launcher.profiles.identity import Identity, precision_of
from launcher.profiles.values import BUILT_IN, Profile, Way
from launcher.typing import Any, NamedTuple

_NAME_IT = "name it as NIM_DRAFT_MODEL_PATH to use it all the same"


class Question(NamedTuple):
    """All that the choice rests on."""

    place: str  # the model, for messages
    source: str | None  # of a remote model, without revision: "hf://org/model"
    identities: tuple[Identity, ...]  # what a folder says of itself, best first
    config: Config
    machine: Machine
    wish: tuple[str, str] | None = None  # NIM_MODEL_PROFILE, and its origin
    tp: int | None = None  # said by the user
    pp: int = 1
    groups: int = 1  # how many times the GPUs are divided before layers are shared: stages, data-parallel ranks


class Choice(NamedTuple):
    """The profile.  ``ways`` are those to speculate that were published for this very model, in its own order."""

    profile: Profile
    reason: str
    ways: tuple[Way, ...] = ()
    note: str = ""  # why a published draft is no candidate
    runtime: Mapping[str, Any] = {}  # runtime-config keys that the profile sets
    derived_tp: int | None = None  # what the GPUs suggest where neither user nor profile says
    warnings: tuple[str, ...] = ()


class _Known(NamedTuple):
    """A model that was recognised."""

    profiles: tuple[Profile, ...]
    reason: str
    certain: bool  # by its exact source: what its files say beside is no doubt of it


def choose(question: Question, stores: Sequence[Store]) -> Choice:
    """The profile for a model.  ``stores``: the user's own first.  Raises HardwareError for a wish that cannot be."""
    known = next(_recognised(question, stores), None)
    if question.wish is not None:
        return _wished(question, stores, known)
    if known is None:
        return _generic(question, stores)
    return _of(question, known, *_best(question, known.profiles))


def _recognised(question: Question, stores: Sequence[Store]) -> Iterator[_Known]:
    said = [Identity(question.source, "", False)] if question.source else []
    for identity in (*said, *(one for one in question.identities if not one.derived)):
        for store in stores:
            profiles = store.of_source(identity.source)
            if not profiles:
                continue
            own = tuple(p for p in profiles if identity.source.lower() in map(str.lower, p.sources))
            where = "" if profiles[0].model.origin == BUILT_IN else f" ({profiles[0].model.origin})"
            if not identity.how:
                yield _Known(own, f"made for {identity.source}{where}", True)
            else:
                who = identity.source.partition("://")[2]
                yield _Known(own, f"{question.place} is {who}, says {identity.how}{where}", False)


def _best(question: Question, profiles: Sequence[Profile]) -> tuple[Profile, bool]:
    """The profile that suits the machine best, and whether it can run here: the most GPUs that share it evenly."""
    even = [p for p in profiles if fits.is_even(question.config, p.tp)] or list(profiles)
    even = [p for p in even if question.tp is None or p.tp == question.tp] or even
    blind = question.machine.device != "cpu" and not question.machine.gpus
    if blind or question.machine.device == "cpu":
        return min(even, key=lambda p: p.gpus), blind or min(p.gpus for p in even) == 1
    for verdict in (fits.RUNS, fits.LOW_MEMORY):
        able = [p for p in even if fits.examine(p, question.machine).verdict == verdict]
        able = [p for p in able if p.gpus * question.groups // question.pp <= len(question.machine.gpus)] or able
        if able:
            return max(able, key=lambda p: p.gpus), True
    shared = [p for p in even if p.gpus <= len(fits.first_of_kind(question.machine.gpus))]
    return (max(shared, key=lambda p: p.gpus) if shared else min(even, key=lambda p: p.gpus)), False


def _of(question: Question, known: _Known, profile: Profile, able: bool) -> Choice:
    fit = fits.examine(profile, question.machine)
    # Too little memory is no warning here: the plan measures it on the files themselves.
    warnings = [_unfit(profile, fit)] if fit.verdict == fits.DOES_NOT else []
    ways, note = _ways(question, known, profile)
    runtime = {**profile.runtime, **(_parallel(profile) if able else {})}
    derived = None if able and (profile.gpus > 1 or len(known.profiles) > 1) else _derived(question)
    return Choice(
        profile, _reason(question, known.reason, profile, able), ways, note, runtime, derived, tuple(warnings)
    )


def _reason(question: Question, reason: str, profile: Profile, able: bool) -> str:
    gpus = len(question.machine.gpus)
    if not able or question.machine.device == "cpu" or gpus <= 1 or question.tp is not None:
        return reason
    return f"{reason}; {profile.gpus} of {gpus} GPUs"


def _unfit(profile: Profile, fit: fits.Fit) -> str:
    instead = f": {fit.instead[:1].lower()}{fit.instead[1:]}" if fit.instead else ""
    return f"the profile {profile.description} does not fit this machine: it {fit.why}{instead}"


def _parallel(profile: Profile) -> dict[str, int]:
    sizes = {"tensor_parallel_size": profile.tp, "pipeline_parallel_size": profile.pp}
    return {key: size for key, size in sizes.items() if size > 1}


def _wished(question: Question, stores: Sequence[Store], known: _Known | None) -> Choice:
    assert question.wish is not None
    text, origin = question.wish
    from launcher.profiles import named  # lazy: few starts name one

    everything = tuple(profile for store in stores for profile in store.all())
    own = known.profiles if known else ()
    model = own[0].model if own else None
    siblings = tuple(p for p in everything if model is not None and p.model == model)
    profile = named.find(text, origin, everything, (*own, *siblings), precision_of(question.config))
    fit = fits.examine(profile, question.machine)
    if fit.verdict == fits.DOES_NOT and _too_few(question, profile):
        raise HardwareError(
            f"{origin}: the profile {profile.description} {fit.why}", fit.instead or "Name a smaller one"
        )
    reason = f"{origin} names it"
    if profile.is_generic:
        runtime = {"tensor_parallel_size": profile.tp, "pipeline_parallel_size": profile.pp}
        return Choice(profile, reason, note=_family_note(question, stores), runtime=runtime)
    foreign = model is not None and profile.model.name != model.name
    certain = known is not None and known.certain and not foreign
    choice = _of(question, _Known((profile,), reason, certain), profile, True)
    if known is not None and known.certain and not foreign and profile not in own:
        made = f"{origin} names a profile for {profile.sources[0]}, and {question.place} is served"
        choice = choice._replace(warnings=(*choice.warnings, made))
    has = precision_of(question.config)
    if not foreign and has not in ("mixed", profile.precision) and not (known is not None and known.certain):
        made = f"{origin} names a profile for {profile.precision}, and {question.place} is {has}"
        choice = choice._replace(warnings=(*choice.warnings, made))
    if foreign:
        assert model is not None
        about = f"{origin} names a profile of {profile.model.name}, and {question.place} is {model.name}"
        return choice._replace(ways=(), note=about, warnings=(*choice.warnings, about), derived_tp=None)
    return choice._replace(derived_tp=None)


def _too_few(question: Question, profile: Profile) -> bool:
    if question.machine.device == "cpu":
        return profile.gpus > 1
    return bool(question.machine.gpus) and profile.gpus > len(fits.first_of_kind(question.machine.gpus))


# Nothing is made for it ----------------------------------------------------------------------------------------------


def _generic(question: Question, stores: Sequence[Store]) -> Choice:
    derived = _derived(question)
    ids = stores[-1].generic if stores else None
    profile = generic(precision_of(question.config), question.tp or derived or 1, question.pp, ids)
    family = ", ".join(sorted({profiles[0].model.name for profiles in _siblings(question, stores)}))
    reason = "no profile is made for this model"
    if family:
        reason += f"; its class and sizes are those of {family}"
    if derived is not None and len(question.machine.gpus) > 1:
        reason += f"; {derived} of {len(question.machine.gpus)} GPUs share each layer"
    return Choice(profile, reason, note=_family_note(question, stores), derived_tp=derived)


def _siblings(question: Question, stores: Sequence[Store]) -> tuple[tuple[Profile, ...], ...]:
    config = question.config
    sizes = (config.hidden_size, config.num_hidden_layers, config.vocab_size)
    key = None if None in sizes or not config.architecture else " ".join([config.architecture, *map(str, sizes)])
    return tuple(profiles for store in stores for profiles in store.of_shape(key))


def _family_note(question: Question, stores: Sequence[Store]) -> str:
    """Which published drafts are near, and why none of them is taken."""
    for identity in question.identities:
        found = [store.of_source(identity.source) for store in stores] if identity.derived else []
        draft = next((profiles[0].model.draft for profiles in found if profiles), None)
        if draft is not None:
            return f"{identity.how}, whose published draft {draft.draft} was not made for it: {_NAME_IT}"
    drafts = [p[0].model.draft.draft for p in _siblings(question, stores) if p[0].model.draft is not None]
    if not drafts:
        return ""
    many = f"{drafts[0]}" + (f" and {len(drafts) - 1} more" if len(drafts) > 1 else "")
    return (
        f"nothing says that {question.place} is the model that {many} was published for, though class and sizes are "
        f"the same: {_NAME_IT}"
    )


def _derived(question: Question) -> int | None:
    """Tensor parallelism from the GPUs and the attention heads; None where the user said it, or nothing is to share."""
    if question.tp is not None or question.machine.device == "cpu" or not question.machine.gpus:
        return None
    available = len(fits.first_of_kind(question.machine.gpus)) // max(question.groups, 1)
    return fits.shares(available, question.config)


# What was published for it -------------------------------------------------------------------------------------------


def _ways(question: Question, known: _Known, profile: Profile) -> tuple[tuple[Way, ...], str]:
    """The published ways to speculate, less a draft that was made for something else; and why that is."""
    model = profile.model
    ways = tuple(way for way in (model.head, model.draft) if way is not None)
    different = next(_differences(question, known, profile), None)
    if different is None:
        return ways, ""
    if model.draft is None:
        return ways, ""
    note = (
        f"{question.place} differs from {model.name}: {different}; its published draft {model.draft.draft} may not fit"
    )
    return tuple(way for way in ways if way.draft is None), f"{note}: {_NAME_IT}"


def _differences(question: Question, known: _Known, profile: Profile) -> Iterator[str]:
    model, config = profile.model, question.config
    if model.architectures and config.architecture and config.architecture not in model.architectures:
        yield f"its class is {config.architecture}, not {' or '.join(model.architectures)}"
    has = {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "vocab_size": config.vocab_size,
        "num_attention_heads": config.num_attention_heads,
    }
    for name, size in model.sizes.items():
        if has.get(name) not in (None, size):
            yield f"{name} is {has[name]}, not {size}"
    precision = precision_of(config)
    if not known.certain and precision not in ("mixed", *(other.precision for other in known.profiles)):
        yield f"it is {precision}, not {' or '.join(sorted({p.precision for p in known.profiles}))}"
