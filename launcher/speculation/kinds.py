"""What a draft's own files say: its kind, and the numbers that must fit the target.

Values that vLLM looks up in several places are looked up here in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.checkpoint import Checkpoint, Config, Tensor, read_config
from launcher.speculation.families import mtp_family
from launcher.typing import Any

_SPECULATORS = {"eagle3": "eagle3", "peagle": "eagle3", "dflash": "dflash", "dflash2": "dflash", "dspark": "dspark"}
_DFLASH = frozenset({"LiLiCorrDraftModel", "MuseGlimmerAssistantModel", "Qwen3XPressModel"})
DSPARK_DRAFTS = frozenset(
    {"Qwen3DSparkModel", "Qwen3OmniDSparkModel", "Gemma4DSparkModel", "MuseSparkDSparkModel", "K3DSparkModel"}
)
_ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
_DEFAULT_AUX = 3  # auxiliary states that an EAGLE3 draft combines where its config lists no layers
_MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
_PICKLE = "pickle"
_AUX = "eagle_aux_hidden_state_layer_ids"
_FUSES = ("fc.weight", "eagle_linear.weight")  # what joins the target's states; the second in Mistral's own format
_ROPE = ("rope_parameters", "rope_scaling", "yarn")  # the last in Mistral's own format
_UNSCALED = (None, "default", "mrope")
# What vLLM reads of a speculators config.json without a default, by its type.
_SPECULATORS_NEED = {
    "peagle": ("mask_token_id",),
    "dflash": ("mask_token_id", "aux_hidden_state_layer_ids"),
    "dflash2": ("mask_token_id", "aux_hidden_state_layer_ids"),
    "dspark": ("aux_hidden_state_layer_ids",),
}
_SPECULATORS_LAYERS = ("llama", "qwen3")  # the models whose layers its EAGLE3 drafts may be built of


def draft_kind(draft: Checkpoint) -> str | None:
    """The method a draft was made for, by its own files; None when they do not tell.

    A kind that no vLLM runs ("domino") is named too, so that a message can name it.
    """
    config = draft.config
    if is_speculators(config):
        return _SPECULATORS.get(str(config.document.get("speculators_model_type")))
    return _kind_by_name(config) or _kind_by_fields(config) or _kind_by_tensors(draft) or _plain_model(draft)


def is_speculators(config: Config) -> bool:
    """Whether config.json is in the speculators format.

    Served as the *target*, such a folder makes vLLM load the verifier that `speculators_verifier` names instead.
    """
    return not config.model_type and isinstance(config.document.get("speculators_config"), dict)


def speculators_verifier(config: Config) -> str | None:
    """The target a speculators-format draft was trained for, as its config names it."""
    verifier = _section(_section(config.document, "speculators_config"), "verifier")
    name = verifier.get("name_or_path")
    return name if isinstance(name, str) else None


def needs_conversion(draft: Checkpoint) -> str:
    """Why vLLM cannot read a draft in its published form, or an empty string."""
    config = draft.config
    if is_speculators(config):
        return _unreadable_speculators(config)
    if config.model_type == "eagle" and not isinstance(config.document.get("model"), dict):
        return (
            "it is in the EAGLE authors' original format (model_type eagle without the model it extends); use a "
            "checkpoint in vLLM's or the speculators format, or convert it"
        )
    return ""


def _unreadable_speculators(config: Config) -> str:
    algorithm = str(config.document.get("speculators_model_type"))
    lacking = [key for key in _SPECULATORS_NEED.get(algorithm, ()) if config.document.get(key) is None]
    if lacking:
        return f"its config.json has no {' and no '.join(lacking)}, which the type {algorithm} needs"
    layers = config.text.get("model_type", _SPECULATORS_LAYERS[0])
    if _SPECULATORS.get(algorithm) == "eagle3" and layers not in _SPECULATORS_LAYERS:
        return f"its layers are of the model type {layers}, and those of the type {algorithm} must be llama or qwen3"
    return ""


def parallel_drafting(draft: Checkpoint) -> bool:
    """Whether the draft was trained to draft all tokens at once (P-EAGLE, PARD) and wants ``parallel_drafting``."""
    document = draft.config.document
    if is_speculators(draft.config):
        return document.get("speculators_model_type") == "peagle"
    if draft.config.architecture.lower().startswith("peagle"):
        return True
    return any(key in document for key in ("pard_token", "ptd_token_id"))


def draft_architecture(method: str, config: Config) -> str:
    """The architecture that vLLM looks up in its registry for this draft under ``method``.

    A name that the version's table lacks means "not supported".  Empty where the config names none.
    """
    if is_speculators(config):
        return _speculators_architecture(config)
    name = config.architecture
    if config.model_type == "eagle":
        name = read_config(config.text).architecture or name  # the model that the head extends
    if method == "eagle3" and name and not (name.startswith("Eagle3") or name.endswith("Eagle3")):
        return f"Eagle3{name}"
    if method == "eagle" and name and not name.startswith("Eagle"):
        return f"Eagle{name}"
    if method == "dflash" and name and name != "LiLiCorrDraftModel":
        return name if name.startswith("DFlash") or name.endswith("DFlash") else f"DFlash{name}"
    if method == "dspark" and name not in DSPARK_DRAFTS:
        if name == "DSparkDraftModel" and config.model_type == "qwen3":
            return "Qwen3DSparkModel"
        return "DSparkV41DraftModel" if config.model_type == "deepseek_v41" else "DSparkDraftModel"
    return "MedusaModel" if method == "medusa" else name


def fact(config: Config, key: str) -> Any:
    """A top-level field of config.json, else of its text part; None when neither states it."""
    value = config.document.get(key)
    return config.text.get(key) if value is None else value


def uses_aux_states(config: Config) -> bool:
    """Whether an EAGLE3 draft combines several hidden states of the target (nearly all do)."""
    return _section(config.document, "eagle_config").get("use_aux_hidden_state", True) is not False


def aux_layers(draft: Config, target_layers: int, runner: int) -> tuple[int, ...]:
    """The target layers whose states an EAGLE3 draft gets from a model runner (1 or 2), as vLLM counts them: a set, in
    order.

    Where the runner finds no list in the draft's config they are the second, the middle and the third from the end.
    """
    inner = _section(draft.document, "eagle_config").get(_AUX if runner == 1 else "layer_ids")
    stated = _layer_list(fact(draft, _AUX)) or _layer_list(inner)
    return tuple(sorted(set(stated or (2, target_layers // 2, target_layers - 3))))


def aux_nested(draft: Config) -> tuple[int, ...]:
    """The layers that the draft's eagle_config lists: runner V1 reads them there, V2 looks at the top level alone."""
    return _layer_list(_section(draft.document, "eagle_config").get(_AUX))


def aux_expected(draft: Config) -> int:
    """How many states vLLM builds the EAGLE3 draft's ``fc`` for."""
    stated = fact(draft, "num_aux_hidden_states")
    layers = aux_nested(draft)
    if "Qwen3" in draft_architecture("eagle3", draft):  # only this class counts the top-level list
        stated = fact(draft, "num_aux_layers") or stated
        layers = _layer_list(fact(draft, _AUX)) or layers
    return stated if isinstance(stated, int) else len(layers) or _DEFAULT_AUX


def fc_inputs(draft: Checkpoint) -> int | None:
    """The width that the draft's ``fc`` really takes, from its tensor; None when there is none or it is packed."""
    tensor = _fused(draft)
    if tensor is None or len(tensor.shape) != 2 or tensor.dtype in ("U8", "I32", "F4"):
        return None
    return tensor.shape[1]


def _fused(draft: Checkpoint) -> Tensor | None:
    found = (draft.weights.tensor(name) for name in _FUSES)
    return next((tensor for tensor in found if tensor is not None), None)


def target_hidden(draft: Config) -> int | None:
    """The hidden size of the target that the draft expects."""
    key = "backbone_hidden_size" if draft.model_type in _ASSISTANTS else "target_hidden_size"
    stated = fact(draft, key)
    return stated if isinstance(stated, int) else draft.hidden_size


def scales_positions(config: Config) -> bool:
    """Whether a model stretches its positions, so that its length is not what config.json states."""
    return any(part.get("rope_type", part.get("type")) not in _UNSCALED or "factor" in part for part in _rope(config))


def uses_mrope(config: Config) -> bool:
    """Whether positions have several dimensions, as in models that see images."""
    return any(isinstance(part.get(key), list) for part in _rope(config) for key in ("mrope_section", "xdrope_section"))


def _rope(config: Config) -> Iterator[Mapping[str, Any]]:
    """Every set of rotary parameters: there may be one for each type of layer."""
    for mapping in (config.document, config.text):
        for key in _ROPE:
            whole = _section(mapping, key)
            yield whole
            yield from (part for part in whole.values() if isinstance(part, dict))


def draft_vocabulary(draft: Config) -> int | None:
    """How many tokens the draft predicts; smaller than its vocabulary when it was pruned (it then needs ``d2t``)."""
    stated = fact(draft, "draft_vocab_size")
    return stated if isinstance(stated, int) else draft.vocab_size


def context_layers(draft: Config) -> tuple[int, ...]:
    """The target layers whose output a DFlash or DSpark draft reads, counted from 0; empty when none are listed."""
    aux = _layer_list(fact(draft, _AUX)) or _layer_list(fact(draft, "aux_hidden_state_layer_ids"))
    if aux:
        return tuple(layer - 1 for layer in aux)  # these count the embedding as layer 0
    for mapping, key in (
        (_section(draft.document, "dflash_config"), "target_layer_ids"),
        (draft.document, "dspark_target_layer_ids"),
        (draft.document, "target_layer_ids"),
    ):
        layers = _layer_list(mapping.get(key))
        if layers:
            return layers
    return ()


def trained_depth(draft: Config) -> int | None:
    """How many layers the target had that a DFlash or DSpark draft was trained for, where its config says.

    vLLM does not compare it; another depth means another target, which shows only in the acceptance.
    """
    stated = None if draft.architecture == "K3DSparkModel" else draft.document.get("num_target_layers")
    return stated if isinstance(stated, int) else None  # that class means the number of layers it reads


def block_size(config: Config) -> int | None:
    """The trained block of a DFlash or DSpark draft, or of a DSpark head in a target; None when it is not stated."""
    for value in (
        fact(config, "block_size"),
        _section(config.document, "dflash_config").get("block_size"),
        fact(config, "dspark_block_size"),
    ):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def samples_anchor(config: Config) -> bool:
    """Whether a DSpark draft predicts at the first position of its block too, which otherwise holds a token already
    known: drafts in the speculators format do so only where they say it."""
    value = fact(config, "sample_from_anchor")
    return value if isinstance(value, bool) else not is_speculators(config)


def dflash_samples_anchor(config: Config) -> bool:
    """Whether a DFlash draft predicts at the first position of its block, which vLLM does not support."""
    section = config.document if is_speculators(config) else _section(config.document, "dflash_config")
    return bool(section.get("sample_from_anchor"))


def mask_token(config: Config) -> int | None:
    """The token that stands for a position to be drafted (DFlash, DSpark, parallel drafting)."""
    values = [
        _section(config.document, "dflash_config").get("mask_token_id"),
        *(fact(config, key) for key in _MASK_KEYS),
    ]
    return next((value for value in values if isinstance(value, int)), None)


def _section(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _layer_list(value: Any) -> tuple[int, ...]:
    whole = isinstance(value, (list, tuple)) and all(isinstance(layer, int) for layer in value)
    return tuple(value) if whole else ()


def _speculators_architecture(config: Config) -> str:
    algorithm = config.document.get("speculators_model_type")
    base = "Qwen3" if config.text.get("model_type") == "qwen3" else "Llama"
    if algorithm == "dspark":
        return "Qwen3OmniDSparkModel" if "Qwen3OmniDSparkModel" in config.architectures else "Qwen3DSparkModel"
    names = {
        "eagle3": f"Eagle3{base}ForCausalLM",
        "peagle": f"Peagle{base}ForCausalLM",
        "dflash": "DFlashDraftModel",
        "dflash2": "DFlash2DraftModel",
    }
    return names.get(str(algorithm), "")


def _kind_by_name(config: Config) -> str | None:
    """By architecture: the names are conventions that vLLM itself relies on."""
    name = config.architecture
    if "Eagle3" in name or name.lower().startswith("peagle"):
        return "eagle3"
    if name.startswith("Eagle") and name.endswith(("ForCausalLM", "MTPModel", "EagleModel")):
        return "eagle"
    if name in _DFLASH or name.startswith("DFlash") or name.endswith("DFlash"):
        return "dflash"
    if "DSpark" in name:
        return "dspark"
    if name.startswith("Domino"):
        return "domino"
    family = mtp_family(config)
    return "mtp" if family is not None and family.standalone else None


def _kind_by_fields(config: Config) -> str | None:
    document = config.document
    if config.model_type == "medusa" or config.architecture == "MedusaModel":
        return "medusa"
    if "medusa_num_heads" in document and not config.model_type:
        return "medusa"
    if config.model_type == "mlp_speculator" or config.architecture == "MLPSpeculatorPreTrainedModel":
        return "mlp_speculator"
    if config.model_type == "eagle":
        return "eagle3" if document.get("method") == "eagle3" else "eagle"
    if _section(document, "dflash_config"):
        return "dspark" if "markov_rank" in document or "markov_rank" in document["dflash_config"] else "dflash"
    if any(key in document for key in ("eagle_config", "eagle_aux_hidden_state_layer_ids", "draft_vocab_size")):
        return "eagle3"
    return None


def _kind_by_tensors(draft: Checkpoint) -> str | None:
    """An ordinary architecture name with a draft's tensors: what fuses the target's states tells which."""
    weights = draft.weights
    if weights.tensor("markov_head.markov_w1.weight") is not None:
        return "dspark"
    if weights.tensor("eagle_linear.weight") is not None:
        return "eagle"
    fused = weights.tensor("fc.weight")
    if fused is None or draft.weights.head("mtp") is not None:
        return None
    if weights.tensor("d2t") is not None or any("midlayer." in t.name for t in weights.tensors):
        return "eagle3"
    if any(t.name.endswith(".hidden_norm.weight") for t in weights.tensors):
        return "eagle3"
    hidden = draft.config.hidden_size
    if hidden is None or len(fused.shape) != 2:
        return None
    return "eagle3" if fused.shape[1] > 2 * hidden else "eagle"


def _plain_model(draft: Checkpoint) -> str | None:
    """An ordinary language model, unless it may as well be an EAGLE head whose tensors cannot be listed."""
    if not draft.config.architecture and not draft.config.model_type:
        return None
    if draft.weights.form == _PICKLE and draft.config.num_hidden_layers == 1:
        return None
    return "draft_model"
