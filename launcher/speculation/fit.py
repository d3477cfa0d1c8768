"""Whether a draft fits its target, by the files of both alone.

Three of these mismatches pass vLLM's own health check and kill the engine at the first request: the hidden size, the
auxiliary layers and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checkpoint import ADAPTER_HINT, Checkpoint
from launcher.speculation import keys, kinds
from launcher.speculation.families import mtp_family
from launcher.speculation.methods import config_overrides_method
from launcher.speculation.rows import Row, equal, failed, known, passed
from launcher.speculation.values import Check
from launcher.vllm.tables import EngineTable

_DEEPSEEK = ("deepseek_v2", "deepseek_v3", "kimi_k2")


def rows(
    method: str,
    target: Checkpoint,
    draft: Checkpoint,
    table: EngineTable,
    *,
    own_vocabulary: bool = False,
    runner: int | None = None,
) -> Iterator[Row]:
    """Every row of the fit tables.

    ``own_vocabulary``: a draft model may differ from the target in its vocabulary.  ``runner`` is vLLM's model runner,
    1 or 2; None where it is not known, and a draft is then refused for what both refuse.
    """
    yield _format(draft)
    yield _kind(method, draft, table)
    yield _class(method, draft, table)
    if method in keys.AUXILIARY:
        yield _gives_auxiliary_states(method, target, table)
    if method in keys.EAGLE_LIKE:
        yield _hidden_size(target, draft)
    if method not in ("medusa", "mlp_speculator") and not own_vocabulary:
        yield _vocabulary(method, target, draft)
    if method in ("eagle", "eagle3", "dflash", "dspark"):
        yield _pruned_vocabulary(draft)
    if method == "eagle3" and kinds.uses_aux_states(draft.config):
        yield _auxiliary_layers(target, draft, runner)
    if method in ("dflash", "dspark"):
        yield _context_layers(target, draft)
        yield mask_token(draft)
    if method == "dflash":
        yield _anchor(draft, runner)


def advice(method: str, target: Checkpoint, draft: Checkpoint, runner: int | None) -> Iterator[str]:
    """What vLLM accepts although the draft was made for something else: it shows in the acceptance alone."""
    depth = target.config.num_hidden_layers
    if depth is None:
        return
    nested = kinds.aux_nested(draft.config)
    if method == "eagle3" and nested and runner == 2 and kinds.uses_aux_states(draft.config):
        taken = kinds.aux_layers(draft.config, depth, 2)
        if taken != tuple(sorted(set(nested))):
            yield (
                f"the draft {draft.place} was trained on the layers {_listed(nested)} of its target, but vLLM's model "
                f"runner V2 does not look into the eagle_config and takes the layers {_listed(taken)}: "
                "eagle_aux_hidden_state_layer_ids belongs at the top level of the draft's config.json"
            )
    trained = kinds.trained_depth(draft.config) if method in ("dflash", "dspark") else None
    if trained is not None and trained != depth:
        yield (
            f"the draft {draft.place} was made for a target of {trained} layers, and {target.place} has {depth}: few "
            "of its tokens will be accepted"
        )


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def _format(draft: Checkpoint) -> Check | None:
    if draft.lora:
        return failed("draft-format", f"the draft {draft.place} is a LoRA adapter, not a model", ADAPTER_HINT)
    why = kinds.needs_conversion(draft)
    return failed("draft-format", f"the draft {draft.place} cannot be loaded: {why}", "Convert it") if why else None


def _kind(method: str, draft: Checkpoint, table: EngineTable) -> Row:
    """Whether the draft was made for the method, and will not make vLLM change it."""
    kind = kinds.draft_kind(draft)
    if method == "mtp" and mtp_family(draft.config) is not None:
        return passed("draft-kind", f"{draft.place} has an MTP head")
    if method == "dspark" and draft.weights.head("dspark") is not None:
        return passed("draft-kind", f"{draft.place} has a DSpark head")
    if kind is None:
        return f"what kind of draft {draft.place} is: its config.json does not tell"
    if kind != method:
        made = "an ordinary model" if kind == "draft_model" else f"made for {kind}"
        return failed(
            "draft-kind", f"the method is {method}, but the draft {draft.place} is {made}", f"Name the method {kind}"
        )
    other = config_overrides_method(draft.config, method, table)
    if other is not None:
        return failed(
            "draft-kind",
            f"vLLM would run the draft {draft.place} by {other} instead of {method}, because of its config.json",
            f"Name the method {other}, or use another draft",
        )
    return passed("draft-kind", f"{draft.place} is a draft for {method}")


def _class(method: str, draft: Checkpoint, table: EngineTable) -> Row:
    """Whether this vLLM has a class for the draft.  Ordinary models may be served through Transformers: not asked."""
    if method in ("draft_model", "mtp"):
        return None
    algorithm = draft.config.document.get("speculators_model_type")
    if kinds.is_speculators(draft.config) and table.exact and algorithm not in table.speculators:
        return failed(
            "draft-class",
            f"vLLM {table.version} does not read speculators drafts of the type {algorithm} ({draft.place})",
            "Use a draft in another format, or a vLLM that reads it",
        )
    name = kinds.draft_architecture(method, draft.config)
    if not name:
        return f"which class vLLM takes for the draft {draft.place}: its config.json names no architecture"
    if not known(name, table):
        return failed(
            "draft-class",
            f"vLLM {table.version} has no class {name}, which the draft {draft.place} needs under {method}",
            "Use a draft of a known architecture, or a vLLM that has it",
        )
    return passed("draft-class", name)


def _gives_auxiliary_states(method: str, target: Checkpoint, table: EngineTable) -> Row:
    name = target.config.architecture
    if name in table.eagle3_targets:
        return passed("target-states", f"{name} gives its inner states out")
    if not table.exact:
        return f"whether {name or 'the target'} gives its inner states out in this vLLM"
    return failed(
        "target-states",
        f"{method} reads inner states of the target, which {name or 'its class'} ({target.place}) does not give out in "
        f"vLLM {table.version}",
        "Choose another method, such as ngram",
    )


def _hidden_size(target: Checkpoint, draft: Checkpoint) -> Row:
    return equal(
        "hidden-size", "hidden size", kinds.target_hidden(draft.config), target.config.hidden_size, draft, target
    )


def _vocabulary(method: str, target: Checkpoint, draft: Checkpoint) -> Row:
    ours, theirs = draft.config.vocab_size, target.config.vocab_size
    padded = None not in (ours, theirs) and (ours or 0) > (theirs or 0)
    # A DSpark draft may add tokens of its own, where it brings their embeddings.
    if method == "dspark" and padded and draft.weights.tensor("embed_tokens.weight") is not None:
        return passed("vocabulary", f"{ours} tokens with embeddings of its own, {theirs} in the target")
    return equal("vocabulary", "vocabulary", ours, theirs, draft, target)


def _pruned_vocabulary(draft: Checkpoint) -> Row:
    """A draft may predict fewer tokens than it reads, where it maps them back."""
    predicted, read = kinds.draft_vocabulary(draft.config), draft.config.vocab_size
    if predicted is None or read is None or predicted == read:
        return None
    if predicted > read:
        return failed(
            "draft-vocabulary",
            f"the draft {draft.place} predicts {predicted} tokens (draft_vocab_size), but its vocabulary has {read}",
            "Use a draft that was made for this target",
        )
    if draft.weights.form != "safetensors":
        return (
            f"whether the draft {draft.place} maps its {predicted} tokens to the target's: its weights cannot be listed"
        )
    mapping = draft.weights.tensor("d2t")
    if mapping is None or (mapping.shape and mapping.shape[0] != predicted):
        found = "has no tensor d2t" if mapping is None else f"has a tensor d2t of {mapping.shape[0]}"
        return failed(
            "draft-vocabulary",
            f"the draft {draft.place} predicts {predicted} of {read} tokens, but {found} that maps them back",
            "Use a draft whose weights include d2t",
        )
    return passed("draft-vocabulary", f"{predicted} of {read} tokens, mapped by d2t")


def _auxiliary_layers(target: Checkpoint, draft: Checkpoint, runner: int | None) -> Row:
    """An EAGLE3 draft's ``fc`` takes as many states as the target really gives: the different layers that exist."""
    if runner is not None:
        return _given_states(target, draft, runner)
    first, second = _given_states(target, draft, 1), _given_states(target, draft, 2)
    if _fails(first) != _fails(second):
        return (
            f"whether the target gives the draft {draft.place} the states that it takes: nothing says which of vLLM's "
            "model runners is used"
        )
    return second


def _fails(row: Row) -> bool:
    return isinstance(row, Check) and row.error is not None


def _given_states(target: Checkpoint, draft: Checkpoint, runner: int) -> Row:
    depth, hidden = target.config.num_hidden_layers, target.config.hidden_size
    if depth is None or hidden is None:
        return f"whether the target has the layers that the draft {draft.place} reads"
    if kinds.target_hidden(draft.config) not in (None, hidden):
        return None  # the hidden size says it already
    nested = kinds.aux_nested(draft.config)
    if runner == 2 and nested and max(nested) > depth:  # this runner overlooks them, and would start in vain
        return failed(
            "auxiliary-layers",
            f"the draft {draft.place} was trained on the layers {_listed(nested)} of its target, but {target.place} "
            f"has {depth} layers",
            "Use a draft that was made for this target",
        )
    asked = kinds.aux_layers(draft.config, depth, runner)
    first, last = _layer_range(target, depth)
    given = [layer for layer in asked if first <= layer <= last]
    built = kinds.aux_expected(draft.config) * hidden
    taken = kinds.fc_inputs(draft) or built
    layers = _listed(asked)
    if len(given) != len(asked) or len(given) * hidden != taken:
        return failed(
            "auxiliary-layers",
            f"the draft {draft.place} takes {taken} features, but the layers {layers} that it reads give "
            f"{len(given) * hidden} ({len(given)} times {hidden}) in {target.place}, which has {depth} layers",
            _listing_hint(draft, depth, runner),
        )
    if taken != built:
        return failed(
            "auxiliary-layers",
            f"the fc of the draft {draft.place} takes {taken} features, but by its config.json vLLM expects {built}",
            f"State num_aux_hidden_states {taken // hidden} in the draft's config.json",
        )
    return passed("auxiliary-layers", f"layers {layers} of {depth} give the {taken} features that the draft takes")


def _listing_hint(draft: Checkpoint, depth: int, runner: int) -> str:
    """What to do about missing states: runner V2 may only have overlooked a list that the target could serve."""
    nested = sorted(set(kinds.aux_nested(draft.config)))
    if runner == 2 and nested and kinds.aux_layers(draft.config, depth, 1) == tuple(nested):
        return (
            "Move eagle_aux_hidden_state_layer_ids from the eagle_config to the top level of the draft's config.json, "
            f"and state num_aux_hidden_states {len(nested)} there"
        )
    return "Use a draft that was made for this target"


def _layer_range(target: Checkpoint, depth: int) -> tuple[int, int]:
    """The states a target can give: 0 is the embedding, ``depth`` the last layer's output.

    The DeepSeek decoder has no state before its first layer; the one with the sparse indexer gives none after its last.
    """
    if kinds.fact(target.config, "index_topk") is not None:
        return 0, depth - 1
    return (1 if target.config.text.get("model_type") in _DEEPSEEK else 0), depth


def _context_layers(target: Checkpoint, draft: Checkpoint) -> Row:
    depth, hidden = target.config.num_hidden_layers, target.config.hidden_size
    layers = kinds.context_layers(draft.config)
    if depth is None or not layers:
        return f"which layers of the target the draft {draft.place} reads"
    named = _listed(layers)
    # -1 is the embedding: what a list that counts it as layer 0 calls 0.
    if min(layers) < -1 or max(layers) >= depth:
        return failed(
            "context-layers",
            f"the draft {draft.place} reads the layers {named} of the target, but {target.place} has {depth} layers",
            "Use a draft that was made for this target",
        )
    taken = kinds.fc_inputs(draft)
    if taken is not None and hidden is not None and taken != len(set(layers)) * hidden:
        return failed(
            "context-layers",
            f"the draft {draft.place} takes {taken} features, but the layers {named} of {target.place} give "
            f"{len(set(layers)) * hidden}",
            "Use a draft that was made for this target",
        )
    return passed("context-layers", f"layers {named} of {depth}")


def _anchor(draft: Checkpoint, runner: int | None) -> Row:
    """Model runner V2 knows one layout of a DFlash block, in which the anchor is no prediction; V1 does not look."""
    if runner == 1 or not kinds.dflash_samples_anchor(draft.config):
        return None
    if runner is None:
        return f"whether the draft {draft.place} may sample from its anchor: model runner V2 of vLLM refuses it"
    return failed(
        "sample-from-anchor",
        f"the draft {draft.place} samples from its anchor (sample_from_anchor), which vLLM does not support for dflash",
        "Use a draft without it",
    )


def mask_token(draft: Checkpoint) -> Row:
    """Drafting in parallel stands on a token that marks the positions to fill."""
    token, vocabulary = kinds.mask_token(draft.config), draft.config.vocab_size
    if token is None:
        return failed(
            "mask-token",
            f"the config.json of the draft {draft.place} names no mask_token_id, which drafting in parallel needs",
            "Add the mask_token_id that the draft was trained with",
        )
    if vocabulary is not None and not 0 <= token < vocabulary:
        return failed(
            "mask-token",
            f"the mask token {token} of the draft {draft.place} is outside its vocabulary of {vocabulary}",
            "Correct mask_token_id in the draft's config.json",
        )
    return passed("mask-token", f"token {token}")
