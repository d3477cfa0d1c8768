"""Drafts that guess a whole block at once: DFlash, and DSpark, which is the same with a correction between places.

A block is the newest token, then masked places.  Every place looks back: head number n at the place n before it, where
it finds a code (of the newest token, or of an older one, whose hidden state the target hands over) and advances it by
n - 1.  What a head finds at another mask is nothing.  So the first mask holds the code of the newest token, the second
that of its successor, and the target's own lm_head turns codes into the tokens that follow.

Looking back is a matter of rotary phase alone: keys are the same everywhere, and a query is turned back by n places.
"""

from __future__ import annotations

from math import cos, sin

from tests.models.chain import HIDDEN, PAD, VOCAB, advance
from tests.models.drafts import AUX_LAYERS, LOUDNESS
from tests.models.targets import HEAD_DIM, HEADS, LLAMA, Config, Tensors, mlp, norms
from tests.models.tensors import Tensor, above, beside, filled, identity, matrix, ones, zeros

BLOCK_SIZE = HEADS + 1  # the known token, and one more place for every distance that a head looks back
ROTARY_BASE = 3.0  # low: the phases of neighbouring places must differ in most dimensions
SHARPNESS = 32.0
TARGET_LAYERS = [layer - 1 for layer in AUX_LAYERS]  # counts a layer's output, where EAGLE3 counts its input
MARKOV_RANK = 16


def _config(architecture: str) -> Config:
    return {
        **LLAMA,
        "architectures": [architecture],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "rope_theta": ROTARY_BASE,
        "attention_bias": False,
        "block_size": BLOCK_SIZE,
    }


def dflash_config(*, causal: bool) -> Config:
    own = {"mask_token_id": PAD, "target_layer_ids": TARGET_LAYERS}
    return {
        **_config("DFlashDraftModel"),
        "num_target_layers": LLAMA["num_hidden_layers"],
        "dflash_config": own | {"causal": True} if causal else own,
    }


def dspark_config() -> Config:
    return {
        **_config("Qwen3DSparkModel"),
        "markov_head_type": "vanilla",
        "markov_rank": MARKOV_RANK,
        "mask_token_id": PAD,
        "target_layer_ids": TARGET_LAYERS,
    }


def _constant(vector: list[float]) -> Tensor:
    """A projection to ``vector`` whatever the token: the first entry of every code is 1."""
    return matrix([[value] + [0.0] * (HIDDEN - 1) for value in vector])


def _phases(places: int) -> list[float]:
    """A query that matches the constant key ``places`` before it."""
    angles = [places * ROTARY_BASE ** (-2 * number / HEAD_DIM) for number in range(HEAD_DIM // 2)]
    return [cos(angle) for angle in angles] + [-sin(angle) for angle in angles]


def dflash() -> Tensors:
    layer, attention = "layers.0.", "layers.0.self_attn."
    distances = range(1, HEADS + 1)
    nothing = zeros(HIDDEN, HIDDEN)
    return (
        norms(layer, "input_layernorm", "post_attention_layernorm")
        | mlp(layer)
        | {
            f"{attention}q_proj.weight": above(*[_constant(_phases(places)) for places in distances]),
            f"{attention}k_proj.weight": above(*[_constant(_phases(0))] * HEADS),
            f"{attention}v_proj.weight": above(*[advance(places - 1) for places in distances]),
            f"{attention}o_proj.weight": beside(*[identity(HIDDEN, LOUDNESS)] * HEADS),
            f"{attention}q_norm.weight": filled(SHARPNESS, HEAD_DIM),
            f"{attention}k_norm.weight": ones(HEAD_DIM),
            "fc.weight": beside(*[nothing] * (len(AUX_LAYERS) - 1), identity(HIDDEN)),
            "hidden_norm.weight": ones(HIDDEN),
            "norm.weight": ones(HIDDEN),
        }
    )


def dspark() -> Tensors:
    """No correction: every place is right by itself."""
    return dflash() | {f"markov_head.markov_w{number}.weight": zeros(VOCAB, MARKOV_RANK) for number in (1, 2)}
