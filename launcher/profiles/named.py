"""NIM_MODEL_PROFILE: an id, a description, or both as a list of profiles prints them (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.errors import HardwareError, shortened
from launcher.profiles.generic import from_description
from launcher.profiles.values import Profile
from launcher.settings.hints import nearest

VARIABLE = "NIM_MODEL_PROFILE"
_DIGITS = frozenset("0123456789abcdef")
_LIST = "See them with 'launcher list-model-profiles'"
_ID = 64


def find(text: str, origin: str, profiles: Sequence[Profile], own: Sequence[Profile], precision: str) -> Profile:
    """The profile that ``text`` names, among all ``profiles``; ``own`` are those of the model to serve.

    A description may leave out the model that it ends with where that is the one to serve, and may be that of a generic
    profile (in the checkpoint's ``precision``).  Raises HardwareError (exit code 9) naming the nearest.
    """
    words = text.replace("(", " ").replace(")", " ").split("[")[0].split()
    words = [word for word in words if word != "-"]
    ids = [word for word in words if len(word) == _ID and _DIGITS.issuperset(word.lower())]
    rest = [word for word in words if word not in ids]
    if len(ids) > 1 or len(rest) > 1 or not words:
        raise HardwareError(f"{origin}: {shortened(text)!r} names no profile", f"Give one id or description. {_LIST}")
    by_id = _by_id(ids[0].lower(), origin, profiles, own) if ids else None
    if not rest:
        assert by_id is not None
        return by_id
    if by_id is not None:
        if rest[0] not in (by_id.description, _without_model(by_id)):
            raise HardwareError(
                f"{origin}: the id {by_id.id[:12]}… is that of {by_id.description}, not of {rest[0]}", _LIST
            )
        return by_id
    return _by_description(rest[0], origin, profiles, own, precision)


def _by_id(wanted: str, origin: str, profiles: Sequence[Profile], own: Sequence[Profile]) -> Profile:
    found = next((profile for profile in (*own, *profiles) if profile.id == wanted), None)
    if found is None:
        near = own[0] if own else None
        todo = f"The model's own are {near.id} ({near.description}) and so on. {_LIST}" if near else _LIST
        raise HardwareError(f"{origin}: no profile has the id {wanted}", todo)
    return found


def _by_description(
    word: str, origin: str, profiles: Sequence[Profile], own: Sequence[Profile], precision: str
) -> Profile:
    found = next((profile for profile in own if word in (profile.description, _without_model(profile))), None)
    found = found or next((profile for profile in profiles if word == profile.description), None)
    found = found or from_description(word, precision)
    if found is not None:
        return found
    other = from_description("-".join([*word.split("-")[:1], precision, *word.split("-")[2:]]), precision)
    if other is not None:
        todo = f"The checkpoint is {precision}: its own generic profile is {other.description}. {_LIST}"
        raise HardwareError(f"{origin}: no profile of this model is called {shortened(word)}", todo)
    names = [profile.description for profile in (*own, *profiles)] + [_without_model(profile) for profile in own]
    near = nearest(word, names)
    raise HardwareError(
        f"{origin}: no profile is called {shortened(word)}", f"The nearest is {near}. {_LIST}" if near else _LIST
    )


def _without_model(profile: Profile) -> str:
    return profile.description.removesuffix(f"-{profile.model.name}")
