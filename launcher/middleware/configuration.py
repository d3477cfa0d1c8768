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


class Capture(NamedTuple):
    """Which requests are recorded, and where."""

    path: str = "/captures/requests.jsonl"
    format: str = "mooncake_payload"  # or "raw_payload"
    endpoint_pattern: str = "^/v1/chat/completions$"  # a regular expression, searched in the request's path
    max_bytes: int = 1 << 30  # of one file; a full one is put aside
    max_files: int = 4  # of each endpoint, the one being written included; the oldest goes
    sample: float = 1.0  # the share of requests that is recorded


class Cors(NamedTuple):
    """What vLLM has no flag for."""

    expose_headers: tuple[str, ...] = ()
    max_age: int | None = None  # seconds


class Configuration(NamedTuple):
    launcher: str = ""  # version
    engine: str = ""  # version
    models: tuple[Model, ...] = ()  # the target first
    profile: Mapping[str, Any] | None = None
    speculation: Speculation = Speculation()
    repository_override: str = ""
    min_acceptance: float | None = None  # accepted per drafted token, below which the watch warns
    capture: Capture | None = None
    cors: Cors = Cors()
    warmup: bool = False  # one request before the server listens

    def document(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "models": [model._asdict() for model in self.models],
            "speculation": self.speculation._asdict(),
            "capture": self.capture and self.capture._asdict(),
            "cors": self.cors._asdict(),
        }


def to_json(document: Mapping[str, Any]) -> str:
    """Canonical: the same document is the same text."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Configuration:
    """Raises ValueError for what no launcher wrote."""
    try:
        document = json.loads(text)
        spoken = Speculation(**_known(Speculation, document.get("speculation", {})))
        cors = Cors(**_known(Cors, document.get("cors", {})))
        capture = document.get("capture")
        return Configuration(**_known(Configuration, document))._replace(
            models=tuple(Model(**_known(Model, row)) for row in document.get("models", ())),
            speculation=spoken._replace(considered=tuple(spoken.considered)),
            capture=None if capture is None else Capture(**_known(Capture, capture)),
            cors=cors._replace(expose_headers=tuple(cors.expose_headers)),
        )
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from None


def _known(kind: type[tuple[Any, ...]], document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in kind._fields if name in document}  # type: ignore[attr-defined]
