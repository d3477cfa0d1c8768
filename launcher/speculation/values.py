"""The values of a speculative decision."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import LauncherError
from launcher.typing import Any, NamedTuple


class Layer(NamedTuple):
    """What one origin says about speculation.  ``config`` None switches it off and ends the merge there."""

    origin: str
    config: Mapping[str, Any] | None


class DraftReference(NamedTuple):
    """A draft as it was referred to, and where its files come from."""

    name: str  # bare name or last path part: the workspace sub-directory
    source: str  # absolute path or URI of its files
    origin: str  # which setting decided it
    named: bool  # somebody named it (False: an automatic candidate)
    as_is: bool = False  # somebody pointed at that very folder: no link in the workspace is needed
    note: str = ""  # what else the words might have meant, for when nothing can be read there


class Published(NamedTuple):
    """A way to speculate that the profile knows for this very model.  ``config``: keys of the speculative config."""

    method: str
    config: Mapping[str, Any]  # less method and model
    draft: str | None = None  # the source of the draft; None: the head in the checkpoint
    pinned: bool = True


class Step(NamedTuple):
    """One considered method."""

    method: str
    accepted: bool
    reason: str


class Speculation(NamedTuple):
    """The decision.  ``config`` is what vLLM gets, less ``model``, which the layout supplies.

    Where ``model`` is no folder (method ``custom_class``: a Python path) it stays in ``config`` and ``draft`` is None.
    """

    enabled: bool
    method: str | None
    tokens: int | None
    draft: DraftReference | None
    config: Mapping[str, Any]
    reason: str
    considered: tuple[Step, ...]
    origins: Mapping[str, str]  # key -> origin
    forgiven: str = ""  # why the policy "fallback" starts the server without what was asked for


class Check(NamedTuple):
    """One check before exec.  A failed one carries its error."""

    name: str
    error: LauncherError | None
    message: str


class Request(NamedTuple):
    """Everything a user said that bears on speculation, before any file was looked at."""

    layers: tuple[Layer, ...]  # highest first; those the toggle governs are absent when it is off
    enabled: bool  # NIM_SPECDEC_ENABLE: the automatic choice may act
    enabled_origin: str | None  # None: the toggle was not given
    draft: str | None  # NIM_DRAFT_MODEL_PATH, as given
    policy: str  # "required" or "fallback"
    # Effective vLLM flags: canonical spelling -> values; () for a switch that is on.  A switch that is off is there by
    # its "--no-" spelling or with the value "false", or not at all.
    flags: Mapping[str, tuple[str, ...]]
    trust_custom_code: bool
    published: tuple[Published, ...] = ()  # what the profile knows, in the order of its preference
    no_published: str = ""  # why a published draft that may come to mind is none for this model
    model_runner: int | None = None  # VLLM_USE_V2_MODEL_RUNNER of the child: 1 or 2; None: vLLM chooses

    @property
    def published_draft(self) -> Published | None:
        """The draft that the profile publishes for this very model."""
        return next((way for way in self.published if way.draft is not None), None)

    def way(self, method: str, draft: str | None) -> Published | None:
        """What the profile knows of a method with this draft (None: the checkpoint's own head)."""
        return next((way for way in self.published if (way.method, way.draft) == (method, draft)), None)


class Decision(NamedTuple):
    """What `select.decide` gives back: the choice, every check that was made, and what to warn about.

    ``unknown`` holds what could not be known and therefore refused nothing.  ``dropped`` are the flags that vLLM takes
    together with speculation only, and refuses now that there is none.
    """

    speculation: Speculation
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
