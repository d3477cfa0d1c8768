"""The schema of a profile file, as types.  docs/profiles.md explains each key; editors get it as JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Precision = Literal["bf16", "fp16", "fp8", "int8", "int4", "nvfp4", "mxfp4", "mxfp8"]
HeadMethod = Literal["mtp", "dspark"]
DraftMethod = Literal["eagle3", "eagle", "mtp", "dflash", "dspark", "draft_model"]
Count = Annotated[int, msgspec.Meta(ge=1)]
Gigabytes = Annotated[float, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Day = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Url = Annotated[str, msgspec.Meta(pattern=r"^https://\S+$")]
Source = Annotated[str, msgspec.Meta(pattern=r"^((hf|modelscope|ngc|s3|gs):/)?/\S+$")]
Revision = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}$")]
Version = Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+$")]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """No key but those of the schema."""


class Acceptance(Strict, frozen=True):
    """A published measurement: mean accepted length, the verified token included."""

    length: Annotated[float, msgspec.Meta(ge=1)]
    tokens: Count
    data: str
    url: Url
    date: Day
    engine: str | None = None


class Evidence(Strict, frozen=True):
    """Where a default comes from.  ``date``: of the page, or of the copy that was read."""

    url: Url
    date: Day


class Head(Strict, frozen=True):
    """A head in the checkpoint itself.  Whether its tensors are there is looked up at each start."""

    method: HeadMethod
    evidence: Evidence
    tokens: Count | None = None
    settings: dict[str, Any] = {}
    acceptance: tuple[Acceptance, ...] = ()


class Draft(Strict, frozen=True):
    """A draft that was published for this very model.  ``revision: null`` says that nobody pinned it."""

    source: Source
    revision: Revision | None
    licence: str | None
    method: DraftMethod
    evidence: Evidence
    tokens: Count | None = None
    settings: dict[str, Any] = {}
    acceptance: tuple[Acceptance, ...] = ()
    note: str = ""


class Speculation(Strict, frozen=True):
    """The speculative default: a head first, then a draft."""

    head: Head | None = None
    draft: Draft | None = None


class Variant(Strict, frozen=True):
    """The model in one precision.  ``memory_gb`` and ``weights_gb`` count all GPUs together."""

    precision: Precision
    sources: Annotated[tuple[Source, ...], msgspec.Meta(min_length=1)]
    tensor_parallel: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1)] = (1,)
    pipeline_parallel: Count = 1
    weights_gb: Gigabytes | None = None
    memory_gb: Gigabytes | None = None
    capability: Version | None = None
    runtime: dict[str, Any] = {}


class Sizes(Strict, frozen=True):
    """Sizes of the language model, as its configuration states them.

    The first four are also a check of who a model is.  The others tell what its context takes, and are left out where
    they would not tell all of it (windows by layer, sparse attention with an index of its own).
    """

    hidden_size: Count | None = None
    num_hidden_layers: Count | None = None
    vocab_size: Count | None = None
    num_attention_heads: Count | None = None
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    kv_lora_rank: Count | None = None
    qk_rope_head_dim: Count | None = None
    full_attention_interval: Count | None = None
    max_position_embeddings: Count | None = None


class Model(Strict, frozen=True):
    """A model, whatever its precision."""

    name: Name
    variants: Annotated[tuple[Variant, ...], msgspec.Meta(min_length=1)]
    architectures: tuple[str, ...] = ()
    sizes: Sizes = Sizes()
    speculation: Speculation = Speculation()
    runtime: dict[str, Any] = {}
    note: str = ""


class Document(Strict, frozen=True):
    """A file: one family of models."""

    schema: Literal[1]
    family: Name
    models: Annotated[tuple[Model, ...], msgspec.Meta(min_length=1)]


def json_schema() -> dict[str, Any]:
    """The schema for editors."""
    return msgspec.json.schema(Document)
