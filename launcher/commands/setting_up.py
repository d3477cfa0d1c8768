"""What the commands that deal with the cache have in common: settings, log, places."""

from __future__ import annotations

from collections.abc import Mapping

from launcher import logs, places
from launcher.errors import ConfigurationError
from launcher.fetch.options import FetchOptions, fetch_options
from launcher.settings.parse import early_log_setup, parse_settings
from launcher.settings.values import Given, Settings
from launcher.sources import ModelSource, parse_source
from launcher.typing import NamedTuple


class SetUp(NamedTuple):
    settings: Settings
    options: FetchOptions


def set_up(environ: Mapping[str, str]) -> SetUp:
    """Read the environment and start the log.  Raises LauncherError for what cannot be read."""
    logs.configure(*early_log_setup(environ))
    settings = parse_settings(environ, _read_text)
    logs.configure(*settings.log_setup())
    for note in settings.notes:
        logs.info(note)
    for warning in settings.warnings:
        logs.warning(warning)
    wish = settings.cache_path
    if wish is not None and not wish.value.startswith("/"):
        raise ConfigurationError(f"{wish.origin}: {wish.value!r} is a relative path", "Give an absolute path")
    found = places.find_places(environ, wish and (wish.value.rstrip("/") or "/"), None)
    if wish is None:
        for note in found.notes[:1]:
            logs.info(note)
    return SetUp(settings, fetch_options(settings, environ, found.cache))


def named_source(word: str | None, flag: str, variable: Given[str] | None) -> ModelSource | None:
    """The source that a flag names, else the one that a variable does."""
    if word is not None:
        return parse_source(word, flag)
    return parse_source(variable.value, variable.origin) if variable else None


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
