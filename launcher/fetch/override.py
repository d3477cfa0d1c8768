"""NIM_REPOSITORY_OVERRIDE: where a mirror keeps what a source names (pure)."""

from __future__ import annotations

from launcher.errors import ConfigurationError
from launcher.sources import ModelSource, parse_source

VARIABLE = "NIM_REPOSITORY_OVERRIDE"
LATEST = "latest"  # the revision of a source that names none
MANIFEST = "manifest.json"  # of a mirror that cannot be listed


def mirror(source: ModelSource, override: str) -> ModelSource:
    """The place of ``source`` on the mirror: ``P/SCHEME/NAME/REV-or-latest``.

    For http and https, which are no schemes of a model source, ``text`` is the URL.  Raises ConfigurationError for a
    mirror that is neither.
    """
    scheme, separator, rest = override.partition("://")
    if "@" in rest.partition("/")[0] or ("@" in rest and ":" in rest.partition("@")[0]):
        raise ConfigurationError(
            f"{VARIABLE} holds a user or password", "Leave it out: the mirror must be open to this machine without"
        )
    below = f"{source.scheme}/{source.name}/{source.revision or LATEST}"
    whole = f"{override.rstrip('/')}/{below}"
    if separator and rest.strip("/"):
        if scheme in ("http", "https") and _is_web_address(override):
            return ModelSource(scheme, below, None, whole)
        if scheme in ("s3", "gs"):
            return parse_source(whole, VARIABLE)
    raise ConfigurationError(
        f"{VARIABLE}: {override!r} cannot be a mirror",
        "Give https://host/path, s3://bucket/prefix or gs://bucket/prefix",
    )


def _is_web_address(url: str) -> bool:
    from launcher.fetch.urls import is_web_address  # lazy: most starts have no mirror

    return is_web_address(url)


def stored(source: ModelSource, override: str | None) -> ModelSource:
    """The source under which the cache keeps what ``source`` names.

    A mirror that is an object store is a source of its own: its files have other identities.  One with a manifest has
    the original's.
    """
    if override is None:
        return source
    place = mirror(source, override)
    return place if place.scheme in ("s3", "gs") else source
