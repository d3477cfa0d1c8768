"""The machine as the decisions see it."""

from __future__ import annotations

from launcher.typing import NamedTuple


class Gpu(NamedTuple):
    """One device that CUDA would enumerate: a GPU, or one MIG slice of it.  Memory in bytes."""

    number: int  # as CUDA_VISIBLE_DEVICES counts: the driver's order; that of its GPU for a slice
    name: str
    pci_id: str  # "2331:10de", device and vendor
    memory_total: int
    memory_free: int
    capability: tuple[int, int] | None = None  # (9, 0); None when the driver does not say
    uuid: str = ""
    mig: bool = False


class Machine(NamedTuple):
    """``device`` is "cpu", "cuda" or None when nothing says: then device checks refuse nothing.

    ``arctic`` tells whether the engine's environment has the package arctic_inference, which suffix decoding needs;
    None when nobody looked.  ``gpus`` are those that the engine may use, in its order.  Where they are not known
    ``unread`` says in half a sentence why; with neither there are none.
    """

    device: str | None
    arctic: bool | None = None
    gpus: tuple[Gpu, ...] = ()
    unread: str = ""
