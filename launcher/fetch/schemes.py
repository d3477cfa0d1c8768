"""From a source to the remote that serves it; a scheme's own code, and its SDK, is loaded only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from launcher.errors import ConfigurationError
from launcher.fetch.override import mirror
from launcher.fetch.remote import Remote
from launcher.sources import REMOTE_SCHEMES, ModelSource


def open_remote(source: ModelSource, environ: Mapping[str, str], override: str | None = None) -> Remote:
    """The remote behind ``source``.

    ``environ`` holds the credentials too; ``override`` is a mirror to use instead.  Raises ConfigurationError for what
    cannot be used, and what the scheme raises when credentials are missing or refused.
    """
    if override is not None:
        from launcher.fetch.mirror import HttpMirror

        place = mirror(source, override)
        if place.scheme in ("http", "https"):
            return HttpMirror(source, place.text, environ)
        source = place
    if source.scheme not in REMOTE_SCHEMES:
        raise ConfigurationError(f"{source.text} is not fetched: it is on this machine")
    try:
        module = import_module(f"launcher.fetch.{source.scheme}")
        remote: Remote = module.open_remote(source, environ)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigurationError(
            f"{source.scheme}:// sources need the Python package {package}, which is missing",
            "Install the launcher with all its dependencies",
        ) from None
    return remote
