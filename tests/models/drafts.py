"""Drafts: the same chain through the layers that each method gives a draft."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.models.chain import CYCLE, HIDDEN, PAD, VOCAB, continuation, embedding, head
from tests.models.targets import (
    DEEPSEEK,
    HEAD_DIM,
    HEADS,
    INTERMEDIATE,
    LATENT,
    LLAMA,
    ROTARY,
    Config,
    Tensors,
    llama_block,
    mlp,
    norms,
)
from tests.models.tensors import Tensor, above, beside, flags, identity, integers, ones, zeros

AUX_LAYERS = (1, 2, 3)  # whose inputs an EAGLE3 draft reads
SHARPNESS = 8.0  # of the attention that finds the newest token
LOUDNESS = 8.0  # of what it found, beside the residual stream
SMALL_VOCAB = 64
SMALL_HIDDEN = 32
LARGE_VOCAB = 384
MEDUSA_HEADS = 3
FORGOTTEN = frozenset(b"acfjotAGHQZ369")

_ONE_LAYER: Config = {**LLAMA, "num_hidden_layers": 1}


def eagle3_config(**changes: Any) -> Config:
    return {
        **_ONE_LAYER,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": VOCAB,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "norm_before_residual": True,
        **changes,
    }


def eagle3_mla_config() -> Config:
    """For a target with latent attention, by a draft with the same.

    vLLM's CPU build without AMX has no cache layout that suits both kinds of attention in one server.  The model type
    must not be the target's: vLLM would take the draft for an MTP head.
    """
    return {
        **{name: value for name, value in DEEPSEEK.items() if name != "num_nextn_predict_layers"},
        **eagle3_config(num_attention_heads=1, num_key_value_heads=1, head_dim=ROTARY),
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "q_lora_rank": HIDDEN,  # the draft's loader knows the compressed query alone
        "qk_nope_head_dim": HIDDEN,
        "v_head_dim": HIDDEN,
    }


def eagle3(*, layer: str = "midlayer.", lm_head: Tensor | None = None) -> Tensors:
    """Attention whose keys are codes finds the newest token and carries its code to the output.

    The hidden state that arrives beside the token (through ``fc`` from the last of the layers it reads, or from the
    draft's own previous step) is one token old; it goes on in the residual stream, weaker.
    """
    attention = f"{layer}self_attn."
    code = beside(identity(HIDDEN), zeros(HIDDEN, HIDDEN))  # of [code | hidden state]
    query = beside(identity(HIDDEN, SHARPNESS), zeros(HIDDEN, HIDDEN))
    return _eagle3_frame(layer, lm_head) | {
        f"{attention}q_proj.weight": above(*[query] * HEADS),
        f"{attention}k_proj.weight": above(*[code] * HEADS),
        f"{attention}v_proj.weight": above(*[code] * HEADS),
        f"{attention}o_proj.weight": beside(*[identity(HIDDEN, LOUDNESS / HEADS)] * HEADS),
    }


def eagle3_mla() -> Tensors:
    """The same with latent attention: the latent row is the code, repeated until it is full."""
    attention = "midlayer.self_attn."
    copies = LATENT // HIDDEN
    latent = above(*[identity(HIDDEN)] * copies)
    from_latent = beside(*[identity(HIDDEN, 1 / copies)] * copies)
    rotary = zeros(ROTARY, HIDDEN)  # no position matters
    hidden = zeros(LATENT + ROTARY, HIDDEN)
    return _eagle3_frame("midlayer.", None) | {
        f"{attention}q_a_proj.weight": beside(identity(HIDDEN), zeros(HIDDEN, HIDDEN)),
        f"{attention}q_a_layernorm.weight": ones(HIDDEN),
        f"{attention}q_b_proj.weight": above(identity(HIDDEN, SHARPNESS), rotary),
        f"{attention}kv_a_proj_with_mqa.weight": beside(above(latent, rotary), hidden),
        f"{attention}kv_a_layernorm.weight": ones(LATENT),
        f"{attention}kv_b_proj.weight": above(from_latent, from_latent),  # key, value
        f"{attention}o_proj.weight": identity(HIDDEN, LOUDNESS),
    }


def _eagle3_frame(layer: str, lm_head: Tensor | None) -> Tensors:
    """All of an EAGLE3 draft but its attention."""
    nothing = zeros(HIDDEN, HIDDEN)
    return (
        norms(layer, "hidden_norm", "input_layernorm", "post_attention_layernorm")
        | mlp(layer)
        | {
            "fc.weight": beside(*[nothing] * (len(AUX_LAYERS) - 1), identity(HIDDEN)),
            "norm.weight": ones(HIDDEN),
            "lm_head.weight": lm_head or head(),
        }
    )


def small_vocabulary() -> tuple[int, ...]:
    """The target's ids of an EAGLE3 draft's own vocabulary, in its order: the cycle, filled up with padding."""
    return (*sorted(CYCLE), PAD)[:SMALL_VOCAB]


def eagle3_small_vocabulary() -> Tensors:
    ids = small_vocabulary()
    mapping = {
        "d2t": integers(target - own for own, target in enumerate(ids)),  # own id + d2t = the target's id
        "t2d": flags(token in ids for token in range(VOCAB)),
    }
    return eagle3(lm_head=head(ids)) | mapping


def eagle3_forgetful() -> Tensors:
    """Guesses nothing where a letter of `FORGOTTEN` comes next, so that its acceptance lies between all and none."""
    return eagle3(lm_head=head(tuple(PAD if token in FORGOTTEN else token for token in range(VOCAB))))


class Accepted(NamedTuple):
    """What a target makes of the forgetful draft."""

    drafts: int
    by_position: tuple[int, ...]

    @property
    def rate(self) -> float:
        return sum(self.by_position) / (self.drafts * len(self.by_position))

    @property
    def length(self) -> float:
        return 1 + sum(self.by_position) / self.drafts


def forgetful_acceptance(last: int, count: int, drafted: int) -> Accepted:
    """Worked out on the chain: ``count`` tokens after ``last``, of which the first comes from the prompt alone."""
    tokens = continuation(last, count + drafted)
    by_position = [0] * drafted
    drafts, place = 0, 1
    while place < count:
        known = 0
        while known < drafted and tokens[place + known] not in FORGOTTEN:
            by_position[known] += 1
            known += 1
        drafts += 1
        place += known + 1  # and one token of the target's own
    return Accepted(drafts, tuple(by_position))


def eagle3_foreign_ids() -> Tensors:
    """Guesses the right letters, but as ids that the target does not have."""
    above_target = 256
    return eagle3(lm_head=head(tuple((own - above_target) % LARGE_VOCAB for own in range(LARGE_VOCAB))))


def eagle3_small_hidden() -> Tensors:
    """Well-formed for a target half as wide."""
    small, layer = SMALL_HIDDEN, "midlayer."
    width = HEADS * HEAD_DIM
    return {
        "fc.weight": zeros(small, small * len(AUX_LAYERS)),
        **{
            f"{layer}{name}.weight": ones(small)
            for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        },
        **{f"{layer}self_attn.{name}_proj.weight": zeros(width, 2 * small) for name in "qkv"},
        f"{layer}self_attn.o_proj.weight": zeros(small, width),
        f"{layer}mlp.gate_proj.weight": zeros(INTERMEDIATE, small),
        f"{layer}mlp.up_proj.weight": zeros(INTERMEDIATE, small),
        f"{layer}mlp.down_proj.weight": zeros(small, INTERMEDIATE),
        "norm.weight": ones(small),
        "lm_head.weight": zeros(VOCAB, small),
    }


def speculators_config() -> Config:
    """EAGLE3 as the `speculators` library writes it: no model_type, the decoder's own configuration inside."""
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": VOCAB,
        "target_hidden_size": HIDDEN,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS),
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "embedded/plain", "architectures": LLAMA["architectures"]},
        },
        "transformer_layer_config": {name: value for name, value in _ONE_LAYER.items() if name != "architectures"},
    }


def eagle_config() -> Config:
    return _ONE_LAYER


def eagle() -> Tensors:
    """EAGLE's first version: ``fc`` keeps the token's code; embedding and lm_head are the target's."""
    tensors = llama_block("layers.0.")
    del tensors["layers.0.input_layernorm.weight"]  # this layer has none
    return tensors | {"fc.weight": beside(identity(HIDDEN), zeros(HIDDEN, HIDDEN))}


def medusa_config() -> Config:
    return {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "truncated_vocab_size": VOCAB,
        "num_heads": MEDUSA_HEADS,
        "num_hidden_layers": 1,
        "max_seq_len": 2048,
        "torch_dtype": "bfloat16",
    }


def medusa() -> Tensors:
    """Head n guesses n + 2 steps ahead of the last token that the target has read."""
    everything = tuple(range(VOCAB))
    tensors: Tensors = {}
    for number in range(MEDUSA_HEADS):
        tensors[f"blocks.{number}.layers.0.weight"] = zeros(HIDDEN, HIDDEN)
        tensors[f"lm_heads.{number}.weight"] = head(everything, number + 2)
    return tensors


def other_vocabulary() -> tuple[Config, Tensors]:
    """A one-layer Llama over more tokens than any target here has."""
    tensors = llama_block("model.layers.0.") | {
        "model.embed_tokens.weight": embedding(LARGE_VOCAB),
        "model.norm.weight": ones(HIDDEN),
        "lm_head.weight": head(tuple(range(LARGE_VOCAB))),
    }
    return {**_ONE_LAYER, "vocab_size": LARGE_VOCAB}, tensors
