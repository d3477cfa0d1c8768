"""Whether /dev/shm has room for workers that share each layer.

NCCL and vLLM's own queues put their buffers there; Docker gives a container 64 MB unless told otherwise, and what
follows is an error of NCCL or a hang, minutes into the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PLACE = "/dev/shm"
ENOUGH = 1 << 30  # bytes: NCCL's buffers grow with the GPUs; guides give 16 GB, which costs nothing until it is used
_PARALLEL = "--tensor-parallel-size"
_ADVICE = "give the container more: --shm-size=16g, or in Kubernetes an emptyDir with medium Memory mounted at /dev/shm"


def too_small(flags: Mapping[str, tuple[str, ...]], place: str = PLACE) -> tuple[str, ...]:
    """The warning that a launch with these effective arguments deserves; ``place`` is looked at only for workers."""
    workers = (flags.get(_PARALLEL) or ("1",))[-1]
    if not workers.isdecimal() or int(workers) < 2:
        return ()
    try:
        found = os.statvfs(place)
    except OSError as error:
        return (f"{place} cannot be looked at ({error.strerror}), and {workers} workers need it: {_ADVICE}",)
    size = found.f_frsize * found.f_blocks
    if size >= ENOUGH:
        return ()
    shown = f"{size / 1e6:.0f} MB"
    return (f"{place} holds {shown}, which is too little for {workers} workers that share each layer: {_ADVICE}",)
