"""What vLLM demands of a DSpark draft for Qwen3-Omni: more than of any other draft, and all of it at start."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checkpoint import Checkpoint, Config
from launcher.speculation import kinds
from launcher.speculation.rows import Row, failed, passed
from launcher.typing import Any

_TARGETS = ("Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration")
_DRAFT = "Qwen3OmniDSparkModel"
_NAME = "omni-draft"


def row(target: Checkpoint, draft: Checkpoint, tokens: int | None) -> Row:
    """Whether a DSpark ``draft`` meets every demand; nothing where the target is no Qwen3-Omni."""
    omni = target.config.model_type == "qwen3_omni_moe" or not set(_TARGETS).isdisjoint(target.config.architectures)
    if not omni:
        return None
    unmet = next(_unmet(target.config, draft.config, tokens), None)
    if unmet is None:
        return passed(_NAME, "the draft meets vLLM's demands on Qwen3-Omni")
    return failed(
        _NAME,
        f"vLLM refuses the draft {draft.place} for Qwen3-Omni ({target.place}): {unmet}",
        "Use a DSpark draft that was made for Qwen3-Omni",
    )


def _unmet(target: Config, draft: Config, tokens: int | None) -> Iterator[str]:
    if _DRAFT not in draft.architectures:
        yield f"its architecture is {draft.architecture or 'not stated'}, not {_DRAFT}"
    block = kinds.block_size(draft)
    if tokens is not None and tokens != block:
        yield f"num_speculative_tokens is {tokens}, but must be its block size, which is {block}"
    for name, ours, theirs in _pairs(target, draft):
        if theirs is not None and ours != theirs:
            yield f"its {name} is {_stated(ours)}, that of the target is {_stated(theirs)}"
    layers, depth = kinds.context_layers(draft), target.num_hidden_layers
    rising = bool(layers) and list(layers) == sorted(set(layers))
    if not rising or layers[0] < 0 or (depth is not None and layers[-1] >= depth):
        yield f"its target_layer_ids {list(layers)} must rise, and name layers from 0 to {(depth or 1) - 1}"
    if _nested(draft, "use_aux_hidden_state") is not True:
        yield "its use_aux_hidden_state is not true"
    rank, head = kinds.fact(draft, "markov_rank"), kinds.fact(draft, "markov_head_type")
    if not isinstance(rank, int) or rank <= 0:
        yield f"its markov_rank is {_stated(rank)}, and must be above 0"
    if head != "vanilla":
        yield f"its markov_head_type is {_stated(head)}, and must be vanilla"
    if not kinds.samples_anchor(draft) or kinds.fact(draft, "dspark_bonus_anchor"):
        yield "it does not sample from its anchor (sample_from_anchor)"
    predicted, known = kinds.draft_vocabulary(draft), target.vocab_size
    if predicted is None or (known is not None and not 0 < predicted <= known):
        yield f"it predicts {_stated(predicted)} tokens, and the target knows {_stated(known)}"
    if kinds.uses_mrope(draft):
        yield "its positions have several dimensions (mrope_section)"


def _pairs(target: Config, draft: Config) -> Iterator[tuple[str, Any, Any]]:
    """Name, the draft's value and the target's, of what must be the same."""
    yield "target_hidden_size", kinds.fact(draft, "target_hidden_size"), target.hidden_size
    yield "hidden_size", draft.hidden_size, target.hidden_size
    yield "num_attention_heads", draft.num_attention_heads, target.num_attention_heads
    yield "num_key_value_heads", _key_value_heads(draft), _key_value_heads(target)
    yield "head_dim", _head_size(draft), _head_size(target)


def _key_value_heads(config: Config) -> Any:
    return config.text.get("num_key_value_heads", config.num_attention_heads)


def _head_size(config: Config) -> Any:
    stated = config.text.get("head_dim")
    if stated is not None or not config.hidden_size or not config.num_attention_heads:
        return stated
    return config.hidden_size // config.num_attention_heads


def _nested(draft: Config, key: str) -> Any:
    """A field where block drafts keep it: in dflash_config, else in eagle_config, else at the top level."""
    for section in ("dflash_config", "eagle_config"):
        inner = draft.document.get(section)
        if isinstance(inner, dict) and inner.get(key) is not None:
            return inner[key]
    return kinds.fact(draft, key)


def _stated(value: object) -> object:
    return "not stated" if value is None else value
