"""The probe behind `launcher.machine.Machine`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launcher.machine import Machine

ARCTIC = "arctic_inference"


def probe(engine_device: str | None, packages: Sequence[str]) -> Machine:
    """What this machine is.

    The engine's build decides; failing that, the NVIDIA driver's device node.  ``packages`` are the folders that the
    engine's interpreter imports from; without any, nothing is known of its packages.
    """
    device = engine_device or ("cuda" if Path("/dev/nvidiactl").exists() else None)
    arctic = any(Path(folder, ARCTIC).is_dir() for folder in packages) if packages else None
    return Machine(device, arctic)
