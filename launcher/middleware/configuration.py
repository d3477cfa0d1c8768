"""What the launcher tells the middleware: one JSON object in one variable, without a secret.

The launcher has checked all of it before, so that reading it here is plain; what is missing has a default, and what is
unknown is left alone: a launcher and a middleware of different versions may meet in an upgraded environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from launcher.typing import Any, NamedTuple

VARIABLE = "LAUNCHER_MIDDLEWARE"
LONGEST = 32_000  # bytes of the variable; whatever could be larger is named by its path


class Model(NamedTuple):
    """A model that is served, or that drafts for it."""

    role: str  # "target" or "draft"
    name: str  # the served name; of a draft the last part of its source
    source: str  # as the user named it, without credentials
    revision: str | None = None
    folder: str | None = None  # its files
    manifest: str | None = None  # the launcher's record of its files and their digests
    bytes: int = 0
    proof: str = ""  # what says that it is complete


class Speculation(NamedTuple):
    """What the launcher decided.  ``fallback``: why the server runs without what was asked for, or ""."""

    enabled: bool = False
    method: str | None = None
    num_speculative_tokens: int | None = None
    reason: str = ""
    considered: tuple[Mapping[str, Any], ...] = ()
    fallback: str = ""


class Configuration(NamedTuple):
    launcher: str = ""  # version
    engine: str = ""  # version
    models: tuple[Model, ...] = ()  # the target first
    profile: Mapping[str, Any] | None = None
    speculation: Speculation = Speculation()
    repository_override: str = ""

    def document(self) -> dict[str, Any]:
        models = [model._asdict() for model in self.models]
        return {**self._asdict(), "models": models, "speculation": self.speculation._asdict()}


def to_json(document: Mapping[str, Any]) -> str:
    """Canonical: the same document is the same text."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Configuration:
    """Raises ValueError for what no launcher wrote."""
    try:
        document = json.loads(text)
        spoken = Speculation(**_known(Speculation, document.get("speculation", {})))
        return Configuration(**_known(Configuration, document))._replace(
            models=tuple(Model(**_known(Model, row)) for row in document.get("models", ())),
            speculation=spoken._replace(considered=tuple(spoken.considered)),
        )
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from None


def _known(kind: type[tuple[Any, ...]], document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in kind._fields if name in document}  # type: ignore[attr-defined]
