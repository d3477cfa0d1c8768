"""Target models: blocks that add nothing, so the chain of `tests.models.chain` is all they say."""

from __future__ import annotations

from typing import Any

from tests.models.chain import BOS, EOS, HIDDEN, PAD, VOCAB, embedding, head
from tests.models.tensors import Tensor, beside, identity, ones, zeros

LAYERS = 5  # EAGLE3 reads three hidden states, and DeepSeek-V3 has none to give before its first layer
HEADS = 2
HEAD_DIM = 64  # each head sees a whole code: half of one would not tell all states apart
INTERMEDIATE = 64
LATENT, ROTARY, PLAIN = 512, 64, 16  # MLA: engines accept a cache row of 512 + 64 only; the rest may be small

Config = dict[str, Any]
Tensors = dict[str, Tensor]

COMMON: Config = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "torch_dtype": "bfloat16",
}
LLAMA: Config = {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD_DIM}
DEEPSEEK: Config = {
    **COMMON,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_nextn_predict_layers": 1,
    "q_lora_rank": None,
    "kv_lora_rank": LATENT,
    "qk_nope_head_dim": PLAIN,
    "qk_rope_head_dim": ROTARY,
    "v_head_dim": PLAIN,
    "first_k_dense_replace": LAYERS + 1,  # no layer is sparse, the head's included
    "moe_layer_freq": 1,
    "moe_intermediate_size": INTERMEDIATE,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
}
# transformers has no `mimo`; vLLM goes by the architecture alone.
MIMO: Config = {
    **COMMON,
    "architectures": ["MiMoForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": HIDDEN,
    "head_dim": HEAD_DIM,
    "num_nextn_predict_layers": 1,
    "use_sliding_window": False,
}
# Quantised in name: every layer is exempt, so the weights stay as they are, but vLLM no longer insists on having them.
EXEMPT_QUANTIZATION: Config = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["re:.*"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}


def mlp(prefix: str) -> Tensors:
    return {
        f"{prefix}mlp.gate_proj.weight": zeros(INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.up_proj.weight": zeros(INTERMEDIATE, HIDDEN),
        f"{prefix}mlp.down_proj.weight": zeros(HIDDEN, INTERMEDIATE),
    }


def norms(prefix: str, *names: str) -> Tensors:
    return {f"{prefix}{name}.weight": ones(HIDDEN) for name in names}


def llama_block(prefix: str, *, bias: bool = False) -> Tensors:
    """A decoder block of the Llama shape that adds nothing to the residual stream."""
    width = HEADS * HEAD_DIM
    tensors = norms(prefix, "input_layernorm", "post_attention_layernorm") | mlp(prefix)
    tensors[f"{prefix}self_attn.o_proj.weight"] = zeros(HIDDEN, width)
    for name in ("q_proj", "k_proj", "v_proj"):
        tensors[f"{prefix}self_attn.{name}.weight"] = zeros(width, HIDDEN)
        if bias:
            tensors[f"{prefix}self_attn.{name}.bias"] = zeros(width)
    return tensors


def deepseek_block(prefix: str) -> Tensors:
    """The same with multi-head latent attention."""
    attention = f"{prefix}self_attn."
    return (
        norms(prefix, "input_layernorm", "post_attention_layernorm")
        | mlp(prefix)
        | {
            f"{attention}q_proj.weight": zeros(HEADS * (PLAIN + ROTARY), HIDDEN),
            f"{attention}kv_a_proj_with_mqa.weight": zeros(LATENT + ROTARY, HIDDEN),
            f"{attention}kv_a_layernorm.weight": ones(LATENT),
            f"{attention}kv_b_proj.weight": zeros(HEADS * (PLAIN + PLAIN), LATENT),
            f"{attention}o_proj.weight": zeros(HIDDEN, HEADS * PLAIN),
        }
    )


def ends() -> Tensors:
    """What stands before and after the blocks."""
    return {"model.embed_tokens.weight": embedding(), "model.norm.weight": ones(HIDDEN), "lm_head.weight": head()}


def llama(layers: int = LAYERS) -> Tensors:
    tensors = ends()
    for layer in range(layers):
        tensors |= llama_block(f"model.layers.{layer}.")
    return tensors


def deepseek() -> Tensors:
    """The target without its head."""
    tensors = ends()
    for layer in range(LAYERS):
        tensors |= deepseek_block(f"model.layers.{layer}.")
    return tensors


def deepseek_head() -> Tensors:
    """The layer after the last: it hands the embedding of the newest token straight to a copy of lm_head."""
    prefix = f"model.layers.{LAYERS}."
    return (
        deepseek_block(prefix)
        | norms(prefix, "enorm", "hnorm", "shared_head.norm")
        | {
            f"{prefix}embed_tokens.weight": embedding(),
            f"{prefix}eh_proj.weight": beside(identity(HIDDEN), zeros(HIDDEN, HIDDEN)),  # [embedding | hidden state]
            f"{prefix}shared_head.head.weight": head(),
        }
    )


def mimo() -> Tensors:
    tensors = ends()
    for layer in range(LAYERS):
        tensors |= llama_block(f"model.layers.{layer}.", bias=True)
    return tensors


def mimo_head() -> Tensors:
    prefix = "model.mtp_layers.0."
    return (
        llama_block(prefix, bias=True)
        | norms(prefix, "token_layernorm", "hidden_layernorm", "final_layernorm")
        | {f"{prefix}input_proj.weight": beside(zeros(HIDDEN, HIDDEN), identity(HIDDEN))}  # [hidden state | embedding]
    )
