"""The keys of a speculative configuration: what belongs together, and how a value is read."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.settings.hints import choice
from launcher.typing import Any
from launcher.vllm.tables import Field

# Naming one of these says that no draft folder is wanted.
WITHOUT_DRAFT = frozenset({"ngram", "ngram_gpu", "suffix", "mtp", "extract_hidden_states"})
# The drafter reads the target's hidden states.
EAGLE_LIKE = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"})
# The drafter reads hidden states of inner layers of the target, so the target's class must give them out.
AUXILIARY = frozenset({"eagle3", "dflash", "dspark", "extract_hidden_states"})
LOOKUP = frozenset({"ngram", "ngram_gpu"})

# Keys that describe one method, draft or token count, and mean nothing, or something wrong, beside another.
_BELONGS = frozenset(
    {
        "method",
        "model",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "revision",
        "code_revision",
        "quantization",
        "max_model_len",
        "parallel_drafting",
        "use_heterogeneous_vocab",
        "index_share_for_mtp_iteration",
        "enable_adaptive_verification",
        "xpress_topc",
    }
)
_BELONGING_PREFIXES = ("draft_", "prompt_lookup_", "suffix_", "dspark_")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def belongs(key: str) -> bool:
    """Whether a key is discarded with the method, draft or token count that it was written for."""
    return key in _BELONGS or key.startswith(_BELONGING_PREFIXES)


def read(field: Field, value: Any) -> Any:
    """``value`` in the type of ``field``; text that holds a number or a boolean is taken, as vLLM takes it.

    Raises ValueError whose text says what would be right: "a whole number of at least 1".
    """
    if field.choices:
        return _choice(field, value)
    if field.type in ("int", "human-int"):
        return _at_least(field, _whole(value), "a whole number")
    if field.type == "float":
        return _at_least(field, _real(value), "a number")
    if field.type == "bool":
        return _boolean(value)
    if field.type == "json":
        return _instance(value, Mapping, "a JSON object")
    if field.type == "json-any":
        return _instance(value, (Mapping, list, tuple), "a JSON list or object")
    return _instance(value, str, "a text")


def _choice(field: Field, value: Any) -> Any:
    """A member of a closed list.  Case is forgiven where the list spells the word in one case only."""
    if isinstance(value, str):
        if value in field.choices:
            return value
        folded = {known.casefold(): known for known in reversed(field.choices)}
        if value.casefold() in folded:
            return folded[value.casefold()]
    raise ValueError(f"one of {choice(field.choices)}" if len(field.choices) > 1 else field.choices[0])


def _at_least(field: Field, number: float | None, kind: str) -> float:
    least = field.minimum
    if number is None or (least is not None and number < least):
        raise ValueError(kind if least is None else f"{kind} of at least {least:g}")
    return number


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        digits = value.strip()
        # Ten digits hold every count there is; int() on longer text is slow and may refuse.
        if len(digits) > 10 or not digits.removeprefix("-").removeprefix("+").isdecimal():
            return None
        return int(digits)
    return value if isinstance(value, int) else None


def _real(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number - number == 0 else None  # neither infinite nor "not a number"


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("true or false")


def _instance(value: Any, kind: type | tuple[type, ...], name: str) -> Any:
    if isinstance(value, kind):
        return value
    raise ValueError(name)
