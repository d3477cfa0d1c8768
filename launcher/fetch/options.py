"""How a user wants models to be fetched."""

from __future__ import annotations

import os
from collections.abc import Mapping

from launcher.cache.layout import HUB
from launcher.errors import gathered
from launcher.fetch.duplicates import Wishes
from launcher.settings import scalars
from launcher.settings.reading import Reading
from launcher.settings.values import Settings
from launcher.typing import NamedTuple

LOCK_LIMIT = 3600  # seconds
_MISTRAL_FORMAT = "mistral"


class FetchOptions(NamedTuple):
    """Everything that decides how a source gets into the cache.  Folders are absolute."""

    cache: str
    hubs: tuple[str, ...]  # hub caches of other tools, which are only read
    environ: Mapping[str, str]  # with the credentials that came from files filled in
    wishes: Wishes = Wishes()
    refresh: str = "auto"  # "auto", "never" or "required"
    offline: str = ""  # the variable that forbids the network, if one does
    digests: bool = True  # False: sizes are enough
    connections: int | None = None
    lock_limit: float = LOCK_LIMIT
    override: str | None = None  # a mirror to fetch from


def fetch_options(settings: Settings, environ: Mapping[str, str], cache: str) -> FetchOptions:
    """The options that the environment gives.  Raises the gathered ConfigurationErrors of what cannot be read."""
    reading = Reading(environ)
    include = reading.read("NIM_FETCH_INCLUDE", scalars.names)
    exclude = reading.read("NIM_FETCH_EXCLUDE", scalars.names)
    connections = reading.read("NIM_FETCH_CONNECTIONS", lambda text: scalars.whole(text, 1))
    limit = reading.read("NIM_LOCK_TIMEOUT", lambda text: scalars.whole(text, 0))
    override = reading.given("NIM_REPOSITORY_OVERRIDE")
    options = FetchOptions(
        cache=cache,
        hubs=_hubs(reading, cache),
        environ={**environ, **{name: secret.reveal() for name, secret in settings.secrets}},
        wishes=Wishes(include.value if include else (), exclude.value if exclude else ()),
        refresh=settings.refresh,
        offline=_offline(reading, settings),
        digests=reading.choice("NIM_FETCH_VERIFY") == "digest",
        connections=connections.value if connections else None,
        lock_limit=limit.value if limit else LOCK_LIMIT,
        override=override.value if override else None,
    )
    if reading.problems:
        raise gathered(reading.problems)
    return options


def for_load_format(options: FetchOptions, load_format: str | None) -> FetchOptions:
    """The options for a model that vLLM is told to load in a format of its own: Mistral's files are kept then."""
    return options._replace(wishes=options.wishes._replace(mistral=load_format == _MISTRAL_FORMAT))


def _offline(reading: Reading, settings: Settings) -> str:
    if settings.disable_download:
        return "NIM_DISABLE_MODEL_DOWNLOAD"
    if settings.offline:
        return "HF_HUB_OFFLINE" if reading.is_set("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
    return ""


def _hubs(reading: Reading, cache: str) -> tuple[str, ...]:
    """Where Hugging Face's own tools may have put models; some people name the hub's cache itself in HF_HOME."""
    cache_given = reading.given("HF_HUB_CACHE")
    home = reading.given("HF_HOME")
    named = [*([cache_given.value] if cache_given else ()), *([f"{home.value}/hub", home.value] if home else ())]
    absolute = [os.path.abspath(os.path.expanduser(path)) for path in named]
    return tuple(path for path in dict.fromkeys(absolute) if path != f"{cache}/{HUB}")
