"""What the merged settings ask for, before a draft is read: off, a method, a draft or the automatic choice (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError
from launcher.speculation import draft, layers
from launcher.speculation.families import mtp_family
from launcher.speculation.methods import METHODS, takes_draft
from launcher.speculation.values import DraftReference, Request
from launcher.typing import Any, NamedTuple

TOGGLE = "NIM_SPECDEC_ENABLE"


class Intent(NamedTuple):
    """``references`` are the drafts that may be meant, best first; for the automatic choice, those at hand.

    ``off`` says why speculation is off; empty otherwise.  ``spare``: the target's own head serves as well, so that the
    reference counts only if it holds one.
    """

    method: str | None = None
    references: tuple[DraftReference, ...] = ()
    automatic: bool = False
    off: str = ""
    spare: bool = False
    warnings: tuple[str, ...] = ()


def intent(effective: layers.Effective, said: Mapping[str, Any], request: Request, target: Checkpoint) -> Intent:
    """Read ``said``, the merged configuration.

    Raises ConfigurationError where it names nothing to speculate with, or a draft reference that can mean nothing.
    NIM_DRAFT_MODEL_PATH is read in any case, so that a mistake in it shows.
    """
    given = draft.from_variable(request)
    if effective.config is None and effective.off is not None:
        return _without(f"{effective.off} switches speculation off", given)
    method = said.get("method")
    if isinstance(method, str):
        return _with_method(method, effective, said, request, target)
    if said.get("model") is not None:
        return _with_model(None, effective, said, request, target)
    if given is not None and (said or request.enabled):
        return Intent(references=(given,))
    if request.enabled and effective.off is None:
        return Intent(references=_at_hand(request, target), automatic=True)
    if said:
        origin = next(iter(effective.origins.values()))
        todo = f"Name a method, or set {TOGGLE}=1 for the automatic choice"
        off = ""
        if effective.off is not None:
            off = f", and {effective.off} switches speculation off"
            todo = f"Name a method, or take the switch out of {effective.off}"
        raise ConfigurationError(f"{origin}: the speculative config names neither a method nor a draft{off}", todo)
    return _without(_not_enabled(request), given)


def _not_enabled(request: Request) -> str:
    if request.enabled_origin is not None:
        return f"{request.enabled_origin} is off"
    return f"nothing asks for speculation; {TOGGLE}=1 turns the automatic choice on"


def _without(reason: str, given: DraftReference | None) -> Intent:
    return Intent(off=reason, warnings=unused(reason) if given else ())


def _with_model(
    method: str | None, effective: layers.Effective, said: Mapping[str, Any], request: Request, target: Checkpoint
) -> Intent:
    resolved = draft.resolve(said["model"], effective.origins["model"], request, target, said.get("revision"))
    warnings = unused(resolved.unused) if resolved.unused else ()
    return Intent(method, resolved.references, warnings=warnings)


def _with_method(
    method: str, effective: layers.Effective, said: Mapping[str, Any], request: Request, target: Checkpoint
) -> Intent:
    needs = METHODS[method].needs if method in METHODS else "draft"
    named = said.get("model") is not None
    given = draft.from_variable(request)
    if not needs:
        reason = f"the method {method} takes no draft"
        warnings = unused(reason) if given else ()
        if named and method != "custom_class":
            warnings += (f"{effective.origins['model']}: the draft {said['model']} is not used: {reason}",)
        return Intent(method, warnings=warnings)
    if named:
        return _with_model(method, effective, said, request, target)
    if given is None:
        return Intent(method, _for_method(method, request, target))
    # A head of the target's own needs no draft; only weights that can be listed prove that there is none.
    unproven = target.weights.head("mtp") is not None or target.weights.form != "safetensors"
    return Intent(method, (given,), spare=method == "mtp" and unproven and mtp_family(target.config) is not None)


def _for_method(method: str, request: Request, target: Checkpoint) -> tuple[DraftReference, ...]:
    """The drafts at hand for a method that came without one: the folders of the target, else the published one."""
    if method in ("mtp", "dspark") and target.weights.head(method) is not None:
        return ()
    folders = draft.from_folders(target) if takes_draft(method) or method == "dspark" else ()
    way, published = request.published_draft, draft.from_profile(request)
    return folders or ((published,) if published is not None and way is not None and way.method == method else ())


def _at_hand(request: Request, target: Checkpoint) -> tuple[DraftReference, ...]:
    published = draft.from_profile(request)
    return (*draft.from_folders(target), *((published,) if published is not None else ()))


def unused(reason: str) -> tuple[str, ...]:
    return (f"{draft.VARIABLE} is not used: {reason}",)
