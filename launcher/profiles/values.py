"""The values of a profile.  Sizes are in gigabytes (10^9 bytes), as model and GPU makers count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.typing import Any, NamedTuple

BUILT_IN = "built-in"
GENERIC = "generic"
# Smallest compute capability of each precision where a profile states none.  FP8 and the 4-bit formats load on older
# GPUs through weight-only kernels, so that these are what the format is made for, not what can start at all.
CAPABILITY = {"fp8": (8, 9), "nvfp4": (10, 0), "fp4": (10, 0)}
OLDEST = (8, 0)


class Way(NamedTuple):
    """One way to speculate that was published for a model: a head of its own, or a ``draft`` (a source)."""

    method: str
    tokens: int | None  # None: the method's own default
    settings: Mapping[str, Any]  # further keys of the speculative configuration
    draft: str | None = None  # with its revision, where one is pinned
    pinned: bool = True


class Model(NamedTuple):
    """What is known of a model in whatever precision."""

    name: str  # "qwen3.5-27b"
    family: str
    origin: str  # BUILT_IN, or the file that it came from
    architectures: tuple[str, ...]  # empty where nothing is known
    sizes: Mapping[str, int]  # keys of the language model's configuration; a hint and a check, never an identity
    head: Way | None
    draft: Way | None
    note: str


class Profile(NamedTuple):
    """A model in one precision on so many GPUs."""

    id: str  # SHA-256 of its content
    description: str  # "vllm-fp8-tp2-pp1-qwen3.5-27b"
    model: Model
    sources: tuple[str, ...]  # canonical: "hf://Qwen/Qwen3.5-27B-FP8"
    precision: str
    tp: int
    pp: int
    weights: float | None  # GB a GPU for the weights alone
    memory: float | None  # GB a GPU from which it serves well
    capability: tuple[int, int]
    runtime: Mapping[str, Any]  # runtime-config keys

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def is_generic(self) -> bool:
        return self.model.origin == GENERIC


def describe(precision: str, tp: int, pp: int, model: str = "") -> str:
    """The description of a profile: generated from its tags, and unique among those of one origin."""
    return f"vllm-{precision}-tp{tp}-pp{pp}" + (f"-{model}" if model else "")


def canonical_source(text: str) -> str:
    """The key of a source: hub names differ in more than case."""
    return text.lower()


def from_document(document: Mapping[str, Any]) -> tuple[Profile, ...]:
    """The profiles of one compiled model (`launcher.profiles.compile`)."""
    model = Model(
        document["model"],
        document["family"],
        document["origin"],
        tuple(document["architectures"]),
        document["sizes"],
        _way(document["head"]),
        _way(document["draft"]),
        document["note"],
    )
    return tuple([_profile(model, entry) for entry in document["profiles"]])


def _profile(model: Model, entry: Mapping[str, Any]) -> Profile:
    major, minor = entry["capability"]
    return Profile(
        entry["id"],
        entry["description"],
        model,
        tuple(entry["sources"]),
        entry["precision"],
        entry["tp"],
        entry["pp"],
        entry["weights"],
        entry["memory"],
        (major, minor),
        entry["runtime"],
    )


def _way(entry: Mapping[str, Any] | None) -> Way | None:
    if entry is None:
        return None
    source, revision = entry.get("source"), entry.get("revision")
    draft = f"{source}:{revision}" if source and revision else source
    return Way(
        entry["method"],
        entry["tokens"],
        entry["settings"],
        draft,
        pinned=bool(revision) or source is None or source.startswith("/"),
    )


def canonical(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """The one text of a content: what its id is the SHA-256 of."""
    import json

    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def identify(content: Mapping[str, Any]) -> str:
    """The id of a profile with this content."""
    from hashlib import sha256

    return sha256(canonical(content).encode("ascii")).hexdigest()
