"""The profiles of this start: built in, of the user's own folder, and those of an image's own manifest.

Where nobody names a model, a profile that somebody named does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launcher import logs
from launcher.errors import ConfigurationError, LauncherError
from launcher.profiles import compiled
from launcher.profiles.compiled import Store
from launcher.settings.values import Given, Settings
from launcher.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launcher.offered import Offered
    from launcher.profiles.values import Profile

    Find = Callable[[str, str, Sequence[Profile], Sequence[Profile], str], Profile]

PROFILE = "NIM_MODEL_PROFILE"


def stores(settings: Settings) -> tuple[Store, ...]:
    """The profiles there are, the user's own first.  Raises LauncherError for a folder that cannot be used."""
    built_in = compiled.load()
    if built_in is None:
        logs.debug(f"{compiled.FILE} is missing: only generic profiles are known (make setup writes it)")
    own = own_store(settings.profiles_path) if settings.profiles_path else None
    return tuple(store for store in (own, built_in) if store is not None)


def own_store(path: Given[str]) -> Store:
    """The profiles of the user's folder.  Raises LauncherError, naming the variable or the file and line."""
    if not path.value.startswith("/"):
        raise ConfigurationError(f"{path.origin}: {path.value!r} is a relative path", "Give an absolute path")
    from launcher.profiles import compile as compiling  # lazy: needs the schema and YAML

    try:
        files = compiling.files_in(path.value)
    except LauncherError as error:
        raise error.named_by(path.origin) from None
    if not files:
        logs.warning(f"{path.origin}: {path.value} holds no profile (*.yaml)")
    return compiled.from_text(compiling.text_of(compiling.compiled(path.value)))


class Implied(NamedTuple):
    """A model that a profile implies.  ``offered``: the profile of the image's manifest, at ``path``."""

    source: str
    origin: str
    offered: Offered | None = None
    path: str = ""


def implied_model(settings: Settings, paths: Sequence[str] | None = None) -> Implied | None:
    """The model where none is named: of the image's own manifest, else of NIM_MODEL_PROFILE; None without either.

    Raises HardwareError (exit code 9) when the profile that is named does not exist.
    """
    from launcher import nim_manifest  # lazy: a model is named as a rule

    wish = settings.profile
    path = nim_manifest.present(nim_manifest.PATHS if paths is None else paths)
    if path is not None:
        offered = nim_manifest.read(path)
        if any(one.files for one in offered) and (wish is None or _offers(offered, wish.value)):
            one = nim_manifest.wanted(offered, wish.value if wish else None, wish.origin if wish else PROFILE, path)
            return Implied(nim_manifest.source_of(one, path), path, one, path)
    if wish is None:
        return None
    from launcher.profiles import named  # lazy: a model is named as a rule

    profiles = tuple(profile for store in stores(settings) for profile in store.all())
    return Implied(named.find(wish.value, wish.origin, profiles, (), "").sources[0], wish.origin)


def _offers(offered: Sequence[Offered], wish: str) -> bool:
    words = wish.replace("(", " ").replace(")", " ").split()
    return any(one.id in words or one.description in words for one in offered)


class Meant(NamedTuple):
    """What a profile on a command line stands for.  ``draft``: the published one, where no head makes it needless."""

    source: str
    origin: str
    draft: str | None = None


def meant(words: Sequence[str], settings: Settings, paths: Sequence[str] | None = None) -> tuple[Meant, ...]:
    """The sources of profiles by id or description; without words, of every profile that the image's manifest offers.

    Raises HardwareError (exit code 9) for a profile that does not exist.
    """
    from launcher import nim_manifest

    path = nim_manifest.present(nim_manifest.PATHS if paths is None else paths)
    offered = [one for one in nim_manifest.read(path) if one.files] if path else []
    if not words:
        implied = implied_model(settings, ()) if settings.profile and not offered else None
        found = [Meant(implied.source, implied.origin)] if implied else []
        return (*found, *(Meant(nim_manifest.source_of(one, path or ""), path or "") for one in offered))
    from launcher.profiles import named  # lazy: few words are profiles

    profiles = tuple(profile for store in stores(settings) for profile in store.all())
    return tuple(_meant(word, offered, path or "", profiles, named.find) for word in words)


def _meant(word: str, offered: Sequence[Offered], path: str, profiles: Sequence[Profile], find: Find) -> Meant:
    from launcher import nim_manifest

    own = next((one for one in offered if word in (one.id, one.description)), None)
    if own is not None:
        return Meant(nim_manifest.source_of(own, path), path)
    profile = find(word, "--profiles", profiles, (), "")
    draft = profile.model.draft if profile.model.head is None else None
    return Meant(profile.sources[0], f"the profile {profile.description}", draft.draft if draft else None)
