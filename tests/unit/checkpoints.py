"""Checkpoints as values, without files: the shapes that speculation decides on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.checkpoint import Checkpoint, Head, Tensor, Weights, read_config
from launcher.machine import Machine
from launcher.speculation.case import Case
from launcher.speculation.values import Layer, Published, Request
from launcher.vllm import tables

TARGET = "/models/target"
DRAFT = "/models/draft"
CPU, GPU, ANY = Machine("cpu"), Machine("cuda"), Machine(None)
PINNED = tables.load("0.32.0")

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "vocab_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
DEEPSEEK = LLAMA | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 5,
}
EAGLE3 = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 512}
EAGLE = LLAMA | {"num_hidden_layers": 1}
DFLASH = LLAMA | {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 4, 6]},
}
DSPARK = DFLASH | {
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 7,
    "markov_rank": 8,
    "target_layer_ids": [1, 4, 6],
    "mask_token_id": 3,
    "dflash_config": {},
}

MTP_HEAD = Head("mtp", 12, "model.layers.5.embed_tokens.weight", "BF16")
DSPARK_HEAD = Head("dspark", 9, "mtp.0.main_proj.weight", "BF16")


def fc(width: int, hidden: int = 128) -> Tensor:
    return Tensor("fc.weight", "BF16", (hidden, width))


def checkpoint(
    document: dict[str, Any],
    place: str = TARGET,
    *,
    heads: tuple[Head, ...] = (),
    tensors: tuple[Tensor, ...] = (),
    form: str = "safetensors",
    drafts: tuple[str, ...] = (),
    custom_code: bool = False,
    unlisted: str = "",
    lora: bool = False,
    mistral: bool = False,
) -> Checkpoint:
    weights = Weights(form, 1000 if form else 0, 1 if form else 0, heads, tensors, unlisted)
    return Checkpoint(place, read_config(document), weights, drafts, custom_code, lora, mistral=mistral)


def target(document: dict[str, Any] | None = None, **parts: Any) -> Checkpoint:
    return checkpoint(LLAMA if document is None else document, **parts)


def eagle3(place: str = DRAFT, **changes: Any) -> Checkpoint:
    """A draft that fits `target`, unless ``changes`` to its config say otherwise."""
    return checkpoint(EAGLE3 | changes, place, tensors=(fc(384),))


def mtp_target(document: dict[str, Any] | None = None, **parts: Any) -> Checkpoint:
    return checkpoint(DEEPSEEK if document is None else document, heads=(MTP_HEAD,), **parts)


def request(
    *configs: object,
    enabled: bool = False,
    toggle: str | None = None,
    draft: str | None = None,
    policy: str = "required",
    flags: Mapping[str, tuple[str, ...]] | None = None,
    trust: bool = False,
    profile_draft: str | None = None,
    runner: int | None = None,
) -> Request:
    """What a user said; ``configs`` are layers, highest first, or bare configs from the command line."""
    layers = tuple(
        config if isinstance(config, Layer) else Layer("command line", config)  # type: ignore[arg-type]
        for config in configs
    )
    origin = toggle or ("NIM_SPECDEC_ENABLE" if enabled else None)
    published = () if profile_draft is None else (Published("eagle3", {}, profile_draft),)
    return Request(layers, enabled, origin, draft, policy, flags or {}, trust, published=published, model_runner=runner)


def case(
    method: str,
    *,
    tokens: int = 3,
    config: dict[str, Any] | None = None,
    on: Checkpoint | None = None,
    draft: Checkpoint | None = None,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    version: str = "0.32.0",
    machine: Machine = GPU,
    runner: int | None = None,
    named: bool = True,
    trust: bool = False,
) -> Case:
    return Case(
        method=method,
        config={"method": method, "num_speculative_tokens": tokens} | (config or {}),
        target=target() if on is None else on,
        draft=draft,
        named=named,
        request=request(flags=flags, runner=runner, trust=trust),
        table=tables.load(version),
        machine=machine,
    )
