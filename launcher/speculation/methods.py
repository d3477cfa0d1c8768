"""The methods of speculation: what each needs, which keys are its own, and how vLLM may exchange it for another."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checkpoint import Checkpoint, Config
from launcher.speculation.families import Family, mtp_family, mtp_types
from launcher.speculation.kinds import (
    DSPARK_DRAFTS,
    block_size,
    draft_architecture,
    draft_kind,
    needs_conversion,
    samples_anchor,
)
from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import EngineTable

__all__ = [
    "METHODS",
    "Family",
    "Method",
    "canonical_method",
    "config_overrides_method",
    "default_tokens",
    "draft_kind",
    "mtp_family",
    "needs_conversion",
    "path_overrides_method",
    "takes_draft",
    "uses_head",
]


class Method(NamedTuple):
    """A method of vLLM, in a line."""

    needs: (
        str  # "draft": a model of its own; "head": the target's checkpoint, or a draft where one is named; "": neither
    )
    summary: str


METHODS: Mapping[str, Method] = {
    "mtp": Method("head", "multi-token-prediction layers that the target was trained with"),
    "eagle3": Method("draft", "a small head that reads several of the target's layers"),
    "eagle": Method("draft", "a small head that reads the target's last layer"),
    "dflash": Method("draft", "a small model that fills a whole block of tokens at once"),
    "dspark": Method("head", "a block draft with a Markov correction, on its own or inside the target"),
    "draft_model": Method("draft", "a smaller model of the same vocabulary"),
    "ngram": Method("", "repeats what followed the same words earlier in the text"),
    "ngram_gpu": Method("", "n-gram look-up on the GPU"),
    "suffix": Method("", "repeats from suffix trees of this and earlier answers (needs arctic-inference)"),
    "medusa": Method("draft", "extra output heads, each for one position ahead"),
    "mlp_speculator": Method("draft", "a small MLP over the target's last state"),
    "custom_class": Method("", "a proposer class of the user's own"),
    "extract_hidden_states": Method("", "no speculation: writes hidden states out"),
}

_FIXED_BY_NAME = frozenset({"eagle", "eagle3", "dflash", "dspark"})  # vLLM keeps these whatever the draft looks like
_PATH_TRIGGERS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
_DSPARK_BY_CONFIG = DSPARK_DRAFTS - {"K3DSparkModel"}
_LOADED = frozenset(name for name, method in METHODS.items() if method.needs)
_USUAL_TOKENS = 3
_SUFFIX_DEPTH = 24  # vLLM's default for suffix_decoding_max_tree_depth


def canonical_method(name: str, table: EngineTable | None = None) -> str:
    """``name`` as vLLM will take it: its MTP types ("deepseek_mtp" …) are all ``mtp``, others come back as given.

    Without ``table``, the types of every version are known.
    """
    return "mtp" if name in (mtp_types() if table is None else table.mtp_types) else name


def takes_draft(method: str) -> bool:
    """Whether the method cannot do without a draft of its own (mtp and dspark can)."""
    return method in METHODS and METHODS[method].needs == "draft"


def uses_head(method: str) -> bool:
    """Whether the method works with a head in the target's own checkpoint when no draft is named."""
    return method in METHODS and METHODS[method].needs == "head"


def default_tokens(
    method: str,
    family: Family | None = None,
    checkpoint: Checkpoint | None = None,
    config: Mapping[str, Any] | None = None,
) -> int | None:
    """How many tokens to draft where nobody says; None when the method must be told.

    ``checkpoint`` is the draft, or the target for a head of its own; ``config`` the speculative config so far.
    """
    if method == "mtp":
        return (family.tokens if family is not None else None) or 1
    if method in ("eagle", "eagle3", "draft_model", "ngram"):
        return _USUAL_TOKENS
    if method in ("dflash", "dspark"):
        block = None if checkpoint is None else block_size(checkpoint.config)
        if checkpoint is None or block is None:
            return None
        known = method == "dflash" or not samples_anchor(checkpoint.config)  # the block's first token is known already
        tokens = block - known
        return tokens if tokens > 0 else None
    if method == "suffix":
        depth = (config or {}).get("suffix_decoding_max_tree_depth", _SUFFIX_DEPTH)
        return depth if isinstance(depth, int) and depth > 0 else _SUFFIX_DEPTH
    return None


def path_overrides_method(path: str, method: str) -> str | None:
    """The method that vLLM would take instead of ``method`` because of what the draft's path spells, or None.

    It looks for these words anywhere in the lower-cased path, in this order; for a head the path is the target's own.
    """
    if method not in _LOADED or method in _FIXED_BY_NAME:
        return None
    lower = path.lower()
    return next((other for word, other in _PATH_TRIGGERS if word in lower), None)


def config_overrides_method(draft: Config, method: str, table: EngineTable | None = None) -> str | None:
    """The method that vLLM would take instead of ``method`` because of the draft's config.json, or None.

    A draft whose family has an MTP head (a small Qwen3.5, say) cannot be a ``draft_model``: vLLM runs its head alone.
    """
    if method not in _LOADED or method in _FIXED_BY_NAME:
        return None
    other: str | None = None
    if "MuseGlimmerAssistantModel" in draft.architectures:
        other = "dflash"
    elif draft_architecture("dspark", draft) in _DSPARK_BY_CONFIG:
        other = "dspark"
    elif draft.model_type in ("medusa", "mlp_speculator"):
        other = draft.model_type
    elif mtp_family(draft, table) is not None:
        other = "mtp"
    return None if other == method else other
