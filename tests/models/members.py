"""The family: every checkpoint by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.models import drafts, parallel, targets
from tests.models.drafts import LARGE_VOCAB, SMALL_HIDDEN, SMALL_VOCAB
from tests.models.targets import LAYERS, Config, Tensors


class Member(NamedTuple):
    """One checkpoint: configuration, weights (None: it has none), and whether it brings its tokenizer."""

    config: Config
    tensors: Tensors | None
    tokenizer: bool = False


def _target(config: Config, tensors: Tensors) -> Member:
    return Member(config, tensors, tokenizer=True)


def _mtp() -> Member:
    return _target(targets.DEEPSEEK, targets.deepseek() | targets.deepseek_head())


def _mtp_stripped() -> Member:
    return _target(targets.DEEPSEEK, targets.deepseek())


def _mtp_stripped_quantized() -> Member:
    return _target({**targets.DEEPSEEK, "quantization_config": targets.EXEMPT_QUANTIZATION}, targets.deepseek())


def _mimo() -> Member:
    return _target(targets.MIMO, targets.mimo() | targets.mimo_head())


def _draft_other_vocab() -> Member:
    config, tensors = drafts.other_vocabulary()
    return _target(config, tensors)


def _reading(*layers: int) -> Member:
    """An EAGLE3 draft that reads other layers than its weights were made for; none: it does not say which."""
    config = drafts.eagle3_config(eagle_aux_hidden_state_layer_ids=list(layers))
    if not layers:
        del config["eagle_aux_hidden_state_layer_ids"]
    return Member(config, drafts.eagle3())


def _eagle3_vocab() -> Member:
    config = drafts.eagle3_config(vocab_size=LARGE_VOCAB, draft_vocab_size=LARGE_VOCAB)
    return Member(config, drafts.eagle3_foreign_ids())


def _mimo_stripped_quantized() -> Member:
    return _target({**targets.MIMO, "quantization_config": targets.EXEMPT_QUANTIZATION}, targets.mimo())


MEMBERS: Mapping[str, Callable[[], Member]] = {
    # targets
    "mtp": _mtp,
    "mtp-stripped": _mtp_stripped,
    "mtp-stripped-quantized": _mtp_stripped_quantized,  # vLLM misses the head all the same: this family insists
    "plain": lambda: _target(targets.LLAMA, targets.llama()),
    "mimo": _mimo,
    "mimo-stripped-quantized": _mimo_stripped_quantized,  # vLLM starts it with method mtp, and no guess is ever right
    # the EAGLE3 draft for the DeepSeek targets
    "eagle3-mla": lambda: Member(drafts.eagle3_mla_config(), drafts.eagle3_mla()),
    # drafts for the plain target (in shape they fit the others too)
    "eagle3": lambda: Member(drafts.eagle3_config(), drafts.eagle3()),
    "eagle3-speculators": lambda: Member(drafts.speculators_config(), drafts.eagle3(layer="layers.0.")),
    "eagle3-small-vocab": lambda: Member(
        drafts.eagle3_config(draft_vocab_size=SMALL_VOCAB), drafts.eagle3_small_vocabulary()
    ),
    "eagle3-forgetful": lambda: Member(drafts.eagle3_config(), drafts.eagle3_forgetful()),
    "eagle": lambda: Member(drafts.eagle_config(), drafts.eagle()),
    "draft": lambda: _target({**targets.LLAMA, "num_hidden_layers": 1}, targets.llama(1)),
    "medusa": lambda: Member(drafts.medusa_config(), drafts.medusa()),
    "dflash": lambda: Member(parallel.dflash_config(causal=False), parallel.dflash()),
    "dflash-causal": lambda: Member(parallel.dflash_config(causal=True), parallel.dflash()),
    "dspark": lambda: Member(parallel.dspark_config(), parallel.dspark()),
    # drafts that fit none of them
    "eagle3-hidden": lambda: Member(drafts.eagle3_config(hidden_size=SMALL_HIDDEN), drafts.eagle3_small_hidden()),
    "eagle3-aux": lambda: _reading(1, 2),  # fc takes three
    "eagle3-aux-repeated": lambda: _reading(1, 2, 2),  # the layers are a set: two are left
    "eagle3-aux-beyond": lambda: _reading(1, 2, LAYERS + 1),
    "eagle3-aux-default": lambda: _reading(),  # layers 2, n // 2 and n - 3: one and the same where n is five
    "eagle3-vocab": _eagle3_vocab,
    "eagle3-no-weights": lambda: Member(drafts.eagle3_config(), None),
    "draft-other-vocab": _draft_other_vocab,
}
