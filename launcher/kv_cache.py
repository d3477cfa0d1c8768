"""What a context takes of a GPU: the layers that keep a KV cache, by the configuration of the model (pure)."""

from __future__ import annotations

from launcher.checkpoint import Config
from launcher.typing import NamedTuple

UTILIZATION = 0.92  # vLLM's own share of the GPU where nobody sets one, since 0.30
FULLEST = 0.97  # the largest share that is advised
BLOCK = 16  # tokens that are allocated together, at least
_SHORTEST = 1024  # tokens: a shorter context is no advice
_WIDTH = 2  # bytes of a number in the cache, where nothing else is known
# Layers that keep a cache, and those that keep a state of fixed size instead.
_ATTENDING = ("full_attention", "sliding_attention", "chunked_attention", "attention", "*")
_STATEFUL = ("linear_attention", "mamba", "mamba2", "conv", "recurrent", "M")


class Layers(NamedTuple):
    """Layers of one kind on one rank.  ``window``: the tokens that they keep at most."""

    layers: int
    bytes: int  # per token and layer
    window: int | None = None

    def cache(self, tokens: int) -> int:
        kept = tokens if self.window is None else min(tokens, self.window)
        return self.layers * self.bytes * (-(-kept // BLOCK) * BLOCK)


class Span(NamedTuple):
    """What a GPU holds by the length of the context: weights, and the KV cache of one request."""

    weights: int  # bytes
    layers: tuple[Layers, ...]
    tokens: int  # the longest context

    def needs(self, tokens: int) -> int:
        """Bytes that a GPU must have for a context of so many tokens, where vLLM takes its usual share of them."""
        return int((self.weights + sum(part.cache(tokens) for part in self.layers)) / UTILIZATION) + 1

    def longest(self, memory: int) -> int | None:
        """The longest context, in whole thousands of 1024, that a GPU with so many bytes serves."""
        return fitting(self.layers, int(memory * UTILIZATION) - self.weights - 1, self.tokens)


def span(config: Config, tensor: int, pipeline: int, weights: int) -> Span | None:
    """The span of a model with ``weights`` bytes on each GPU; None where ``config`` does not tell a token's bytes."""
    rate = per_layer(config, tensor, _WIDTH) if _tells_the_cache(config) else None
    depth, tokens = config.num_hidden_layers, config.max_position_embeddings
    if rate is None or depth is None or tokens is None:
        return None
    layers, _ = kinds(config, depth, rate, pipeline)
    return Span(weights, layers, tokens)


def _tells_the_cache(config: Config) -> bool:
    return "num_key_value_heads" in config.text or "kv_lora_rank" in config.text


def kinds(config: Config, depth: int, rate: int, pipeline: int) -> tuple[tuple[Layers, ...], int]:
    """The attention layers of one stage by kind, and how many layers of the model keep a state instead."""
    pattern = _pattern(config, depth)
    window = config.text.get("sliding_window")
    window = window if isinstance(window, int) and config.text.get("use_sliding_window") is not False else None
    if "layer_types" in config.text:
        slid = pattern.count("sliding_attention") if window else 0
    else:  # a window without a pattern is every layer's, where the family has no switch for it
        slid = len(pattern) if window and "use_sliding_window" not in config.text else 0
    full = sum(kind in _ATTENDING for kind in pattern) - slid
    parts = (Layers(-(-full // pipeline), rate), Layers(-(-slid // pipeline), rate, window))
    return tuple(part for part in parts if part.layers > 0), sum(kind in _STATEFUL for kind in pattern)


def _pattern(config: Config, depth: int) -> list[str]:
    """The kind of each layer, in the words of the family's own config.json."""
    text = config.text
    stated = text.get("layer_types") or text.get("layers_block_type") or text.get("hybrid_override_pattern")
    if isinstance(stated, list | str):
        return [str(kind) for kind in stated][:depth]
    interval = text.get("full_attention_interval")
    if isinstance(interval, int) and interval > 0:
        return ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(depth)]
    return ["full_attention"] * depth


def per_layer(config: Config, tensor: int, width: int) -> int | None:
    """Bytes that a layer keeps of a token on one rank: the latent row, or key and value of each of its heads."""
    text = config.text
    latent, rotary = text.get("kv_lora_rank"), text.get("qk_rope_head_dim")
    if isinstance(latent, int) and isinstance(rotary, int):
        return (latent + rotary) * width
    heads = config.num_attention_heads
    shared = text.get("num_key_value_heads") or (1 if text.get("multi_query") is True else heads)
    size = text.get("head_dim") or (config.hidden_size // heads if heads and config.hidden_size else None)
    if not isinstance(shared, int) or not isinstance(size, int):
        return None
    return 2 * max(1, shared // tensor) * size * width


def fitting(layers: tuple[Layers, ...], room: int, tokens: int) -> int | None:
    """The longest context, in whole thousands of 1024, whose cache fits into ``room``; None where it is none of use."""
    best = None
    low, high = 1, tokens // _SHORTEST
    while low <= high:
        middle = (low + high) // 2
        if sum(part.cache(middle * _SHORTEST) for part in layers) <= room:
            best, low = middle * _SHORTEST, middle + 1
        else:
            high = middle - 1
    return best
