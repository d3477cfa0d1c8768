"""The few facts of a configuration that decide how a class speculates, and the files that prove a head.

Sizes come from the profiles; which fields a class keeps where was read in configurations of published models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from launcher.checkpoint import Checkpoint, Config, Tensor, Weights, read_config
from launcher.profiles.values import Model, Way
from launcher.tensors import heads_of, survey


class Shape(NamedTuple):
    """What a class has besides its sizes.  ``fields`` stand where the sizes stand."""

    model_type: str
    fields: Mapping[str, Any] = MappingProxyType({})
    nested: bool = False
    tensors: str = ""  # a name of the head's; N stands for the number of layers, counted on where there are several
    depth: int = 1


NEXTN = {"num_nextn_predict_layers": 1}
LAYER = "model.layers.N.eh_proj.weight"
SHAPES = {
    "LlamaForCausalLM": Shape("llama"),
    "Llama4ForConditionalGeneration": Shape("llama4", nested=True),
    "Qwen3ForCausalLM": Shape("qwen3"),
    "Qwen3MoeForCausalLM": Shape("qwen3_moe"),
    "Qwen3NextForCausalLM": Shape("qwen3_next", tensors="mtp.fc.weight"),
    "Qwen3VLMoeForConditionalGeneration": Shape("qwen3_vl_moe", nested=True),
    "Qwen3_5ForConditionalGeneration": Shape("qwen3_5", {"mtp_num_hidden_layers": 1}, True, "mtp.fc.weight"),
    "Qwen3_5MoeForConditionalGeneration": Shape("qwen3_5_moe", {"mtp_num_hidden_layers": 1}, True, "mtp.fc.weight"),
    "GptOssForCausalLM": Shape("gpt_oss"),
    "DeepseekV3ForCausalLM": Shape("deepseek_v3", NEXTN, tensors=LAYER),
    "DeepseekV32ForCausalLM": Shape("deepseek_v32", NEXTN, tensors=LAYER),
    "DeepseekV4ForCausalLM": Shape("deepseek_v4", NEXTN, tensors="mtp.0.e_proj.weight"),
    "Glm4MoeForCausalLM": Shape("glm4_moe", NEXTN, tensors=LAYER),
    "Glm4MoeLiteForCausalLM": Shape("glm4_moe_lite", NEXTN, tensors=LAYER),
    "GlmMoeDsaForCausalLM": Shape("glm_moe_dsa", NEXTN, tensors=LAYER),
    "KimiK25ForConditionalGeneration": Shape("kimi_k25", {"num_nextn_predict_layers": 0}, True),
    "KimiK3ForConditionalGeneration": Shape("kimi_k3", {"num_nextn_predict_layers": 0}, True),
    "MiniMaxM2ForCausalLM": Shape("minimax_m2", {"use_mtp": True, "num_mtp_modules": 3}),
    "MiniMaxM3SparseForConditionalGeneration": Shape("minimax_m3_vl", {"num_mtp_modules": 1}, True, "mtp.layers.0.w"),
    "MiMoForCausalLM": Shape("mimo", NEXTN, tensors="model.mtp_layers.0.input_proj.weight"),
    "MiMoV2FlashForCausalLM": Shape("mimo_v2_flash", tensors="model.mtp.layers.0.eh_proj.weight"),
    "NemotronHForCausalLM": Shape("nemotron_h", NEXTN, tensors="mtp.layers.0.eh_proj.weight"),
    "Ernie4_5_MoeForCausalLM": Shape("ernie4_5_moe", NEXTN, tensors="model.mtp_linear_proj.0.weight"),
    "Step3p7FlashForCausalLM": Shape("step3p7", {"num_nextn_predict_layers": 3}, True, LAYER, 3),
    "LongcatFlashForCausalLM": Shape("longcat_flash", tensors="model.mtp.layers.0.eh_proj.weight"),
    "HYV3ForCausalLM": Shape("hy_v3", NEXTN, tensors=LAYER),
    "Gemma4ForConditionalGeneration": Shape("gemma4", nested=True),
    "MistralLarge3ForCausalLM": Shape("mistral_large_3"),
    "MistralForCausalLM": Shape("mistral"),  # a stand-in where a profile states no class
}
_SIZES = {
    "hidden_size": 4096,
    "num_hidden_layers": 40,
    "vocab_size": 131072,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
}
# The same class and the same prefix, and yet another head: stages of DSpark.
_STAGES = {"deepseek-v4-flash-0731": "mtp.0.main_proj.weight", "deepseek-v4-pro-0813": "mtp.0.main_proj.weight"}
# Models that share a class with others and yet differ in what decides.
# The class has a head, and these checkpoints were published without one, whatever their config.json counts.
_HEADLESS = ("kimi-k2-instruct", "nemotron-3-nano-30b-a3b", "minimax-m3")
_EXCEPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"dspark_block_size": 7} for name in _STAGES},
    "kimi-k2-instruct": {"model_type": "kimi_k2", "num_nextn_predict_layers": 0},
    "nemotron-3-nano-30b-a3b": {"num_nextn_predict_layers": 0},
}


def shape_of(model: Model) -> tuple[str, Shape]:
    architecture = model.architectures[0] if model.architectures else "MistralForCausalLM"
    return architecture, SHAPES[architecture]


def document(model: Model) -> dict[str, Any]:
    """A config.json that decides as the model's own does."""
    architecture, shape = shape_of(model)
    text = {**_SIZES, **model.sizes, **shape.fields}
    top = {"architectures": [architecture], "model_type": shape.model_type}
    known = {**top, "text_config": text} if shape.nested else {**top, **text}
    return {**known, **_EXCEPTIONS.get(model.name, {})}


def target(model: Model, *, head: bool) -> Checkpoint:
    """The model, with or without the tensors of its head: what they are is told by their names."""
    config = read_config(document(model))
    found = survey({name: _entry(config) for name in names(model, config, head=head)}, config.num_hidden_layers)
    heads = heads_of((found,), config.hidden_size)
    place = f"/models/{model.name}"
    return Checkpoint(place, config, Weights("safetensors", 1000, 1, heads, found.telling), (), False)


def names(model: Model, config: Config, *, head: bool) -> Iterator[str]:
    """Names of tensors, as the checkpoint of the model has them."""
    _, shape = shape_of(model)
    depth = config.num_hidden_layers or 1
    yield "model.embed_tokens.weight"
    yield from (f"model.layers.{layer}.self_attn.o_proj.weight" for layer in range(depth))
    if not head or model.name in _HEADLESS:
        return
    tensors = _STAGES.get(model.name, shape.tensors)
    if tensors:
        yield from (tensors.replace("N", str(depth + layer)) for layer in range(shape.depth))


def _entry(config: Config) -> dict[str, Any]:
    return {"dtype": "BF16", "shape": [config.hidden_size or 1] * 2, "data_offsets": (0, 0)}


def published(way: Way, model: Model) -> Checkpoint:
    """A draft as it would be published for this model."""
    config = read_config(document(model))
    sizes = {
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
    }
    kinds: dict[str, dict[str, Any]] = {
        "eagle3": {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"},
        "eagle": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
        "mtp": {"architectures": ["Gemma4AssistantModel"], "model_type": "gemma4_assistant"},
        "dflash": {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": 8,
            "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 4, 6]},
        },
        "dspark": {
            "architectures": ["K3DSparkModel"],
            "model_type": "qwen3",
            "block_size": 8,
            "markov_rank": 8,
            "target_layer_ids": [1, 4, 6],
            "mask_token_id": 3,
        },
    }
    if way.settings.get("parallel_drafting"):
        sizes["ptd_token_id"] = 3
    hidden = config.hidden_size or 1
    width = {"eagle3": 3 * hidden, "eagle": 2 * hidden}.get(way.method)
    tensors = (Tensor("fc.weight", "BF16", (hidden, width)),) if width else ()
    weights = Weights("safetensors", 1000, 1, (), tensors)
    return Checkpoint(str(way.draft), read_config({**kinds[way.method], **sizes}), weights, (), False)
