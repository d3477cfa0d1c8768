"""The names under which vLLM serves a model (pure)."""

from __future__ import annotations

from launcher.sources import ModelSource

_CACHED = "models--"  # how a Hugging Face cache names a repository's folder


def served_names(source: ModelSource, given: str | None) -> tuple[str, ...]:
    """The names to serve ``source`` under; the first is the one that metrics carry.

    ``given`` is the user's comma-separated list; without one the name comes from the source.
    """
    names = tuple(dict.fromkeys(name.strip() for name in (given or "").split(",") if name.strip()))
    return names or (derived_name(source),)


def derived_name(source: ModelSource) -> str:
    """A local folder's base name (``org/name`` in a Hugging Face cache), else the name without scheme and revision."""
    name = _folder_name(source.name) if source.is_local else source.name
    return name.replace(":", "-")


def _folder_name(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[-2] == "snapshots" and parts[-3].startswith(_CACHED):
        return parts[-3][len(_CACHED) :].replace("--", "/", 1)
    return parts[-1] if parts else path
