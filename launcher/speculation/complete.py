"""A speculative configuration with everything written out that vLLM would otherwise decide late or refuse (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError
from launcher.speculation import kinds
from launcher.speculation.families import mtp_family
from launcher.speculation.keys import LOOKUP
from launcher.speculation.methods import default_tokens
from launcher.typing import Any

DEFAULT = "default"
# vLLM's own window where nobody gives one, and the wider one of the automatic choice.
_WINDOW = (5, 5)
_AUTOMATIC_WINDOW = (4, 1)


def complete(
    method: str,
    said: Mapping[str, Any],
    target: Checkpoint,
    draft: Checkpoint | None,
    *,
    automatic: bool = False,
) -> dict[str, Any]:
    """``said`` for ``method``, less the draft's path, with the token count and (for n-gram) the window written out.

    Raises ConfigurationError when the method has no default token count and none is given.
    """
    config = {"method": method, "num_speculative_tokens": _tokens(method, said, target, draft)}
    config |= {key: value for key, value in said.items() if key not in (*config, "model")}
    if method == "custom_class" and said.get("model") is not None:
        config["model"] = said["model"]
    if method in LOOKUP:
        config |= _window(said, automatic=automatic)
    if draft is not None and method in ("eagle3", "draft_model") and kinds.parallel_drafting(draft):
        config.setdefault("parallel_drafting", True)
    return config


def _tokens(method: str, said: Mapping[str, Any], target: Checkpoint, draft: Checkpoint | None) -> int:
    given = said.get("num_speculative_tokens")
    if given is not None:
        return int(given)
    holder = draft or target
    tokens = default_tokens(method, mtp_family(holder.config), holder, said)
    if tokens is None:
        why = f"the method {method} has no default here"
        if method in ("dflash", "dspark"):
            field = "block_size" if draft is not None else "dspark_block_size"
            why = f"the config.json of {holder.place} states no {field}"
        raise ConfigurationError(
            f"num_speculative_tokens is not given, and {why}",
            "Add num_speculative_tokens to the speculative config",
        )
    return tokens


def _window(said: Mapping[str, Any], *, automatic: bool) -> dict[str, int]:
    """The n-gram window.  A missing bound takes the other's value; the automatic choice keeps its own where it can."""
    most: int | None = said.get("prompt_lookup_max")
    least: int | None = said.get("prompt_lookup_min")
    widest, narrowest = _AUTOMATIC_WINDOW if automatic else _WINDOW
    if most is None:
        most = widest if least is None else max(widest, least) if automatic else least
    if least is None:
        least = min(narrowest, most) if automatic else most
    return {"prompt_lookup_max": most, "prompt_lookup_min": least}
