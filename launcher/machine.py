"""The machine as the decisions see it."""

from __future__ import annotations

from launcher.typing import NamedTuple


class Machine(NamedTuple):
    """``device`` is "cpu", "cuda" or None when nothing says: then device checks refuse nothing.

    ``arctic`` tells whether the engine's environment has the package arctic_inference, which suffix decoding needs;
    None when nobody looked.
    """

    device: str | None
    arctic: bool | None = None
