"""The profile of a model that no file describes: its precision, and how many GPUs share it (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.profiles.values import CAPABILITY, GENERIC, OLDEST, Model, Profile, describe, identify

_MODEL = Model("", "", GENERIC, (), {}, None, None, "")
SHARES = (1, 2, 4, 8, 16)
PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4", "mxfp4", "mxfp8", "mixed")


def generic(precision: str, tp: int = 1, pp: int = 1, ids: Mapping[str, str] | None = None) -> Profile:
    """The generic profile with these tags.  ``ids``: those that were worked out before, by description."""
    capability = CAPABILITY.get(precision, OLDEST)
    description = describe(precision, tp, pp)
    known = (ids or {}).get(description)
    number = known or identify({"origin": GENERIC, "precision": precision, "tp": tp, "pp": pp})
    return Profile(number, description, _MODEL, (), precision, tp, pp, None, None, capability, {})


def from_description(word: str, precision: str) -> Profile | None:
    """The generic profile that a description means; None when it is none of this checkpoint's precision."""
    parts = word.split("-")
    if len(parts) != 4 or parts[0] != "vllm" or parts[1] != precision:
        return None
    tp, pp = (_count(part, name) for part, name in zip(parts[2:], ("tp", "pp"), strict=True))
    return generic(precision, tp, pp) if tp and pp else None


def _count(part: str, name: str) -> int:
    digits = part.removeprefix(name)
    return int(digits) if digits != part and digits.isascii() and digits.isdecimal() and len(digits) < 5 else 0
