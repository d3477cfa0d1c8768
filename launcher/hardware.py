"""The probe behind `launcher.machine.Machine`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launcher.machine import Machine

ARCTIC = "arctic_inference"


def probe(engine_device: str | None, packages: Sequence[str]) -> Machine:
    """What this machine is.

    The engine's build decides; failing that, the NVIDIA driver's device node.  ``packages`` are the folders that the
    engine's interpreter imports from; without any, nothing is known of its packages.
    """
    device = engine_device or ("cuda" if os.path.exists("/dev/nvidiactl") else None)
    arctic = any(os.path.isdir(f"{folder}/{ARCTIC}") for folder in packages) if packages else None
    return Machine(device, arctic)
