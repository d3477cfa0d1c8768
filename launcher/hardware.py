"""The probe behind `launcher.machine.Machine`.

GPUs are asked of the driver's management library (NVML) through nvidia-ml-py, the maker's own binding.  It is imported
only where a driver or a GPU build of the engine lets GPUs be expected: a CPU machine pays for one look at /dev.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from launcher.machine import Gpu, Machine
from launcher.typing import Any

ARCTIC = "arctic_inference"
CONTROL = "/dev/nvidiactl"
VISIBLE = "CUDA_VISIBLE_DEVICES"
MEMORY = "/proc/meminfo"


def probe(
    engine_device: str | None, packages: Sequence[str], environ: Mapping[str, str] | None = None, nvml: Any = None
) -> Machine:
    """What this machine is.

    The engine's build decides; failing that, the NVIDIA driver's device node.  ``packages`` are the folders that the
    engine's interpreter imports from; without any, nothing is known of its packages.  ``nvml`` stands in for the module
    pynvml.
    """
    device = engine_device or ("cuda" if os.path.exists(CONTROL) else None)
    arctic = any(os.path.isdir(f"{folder}/{ARCTIC}") for folder in packages) if packages else None
    if device != "cuda" and nvml is None:
        return Machine(device, arctic)
    gpus, unread = visible_gpus(environ or {}, nvml)
    return Machine(device, arctic, gpus, unread)


def visible_gpus(environ: Mapping[str, str], nvml: Any = None) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that CUDA would show a process with this environment, and why they are not known where they are not.

    No driver at all is not an error: there are no GPUs then.
    """
    if nvml is None:
        try:
            import pynvml  # lazy: a CPU machine has no use for it
        except ImportError:
            driver = os.path.exists(CONTROL)
            return (), "an NVIDIA driver is here, but the package nvidia-ml-py that reads it is not" if driver else ""
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return (), f"the NVIDIA driver does not answer: {error}" if os.path.exists(CONTROL) else ""
    try:
        return _visible(tuple(_devices(nvml)), environ), ""
    except nvml.NVMLError as error:
        return (), f"the NVIDIA driver does not tell its GPUs: {error}"
    finally:
        nvml.nvmlShutdown()


def _devices(nvml: Any) -> Iterator[tuple[Gpu, ...]]:
    """Every GPU in the driver's order: itself, or its slices where it is divided (none, if none was made)."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        whole = _gpu(nvml, handle, index)
        yield tuple(_slices(nvml, handle, whole)) if _divided(nvml, handle) else (whole,)


def _gpu(nvml: Any, handle: Any, index: int) -> Gpu:
    combined = nvml.nvmlDeviceGetPciInfo(handle).pciDeviceId
    total, free = _memory(nvml, handle)
    try:
        capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
    except nvml.NVMLError:
        capability = None
    pci = f"{combined >> 16:04x}:{combined & 0xFFFF:04x}"
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return Gpu(index, nvml.nvmlDeviceGetName(handle), pci, total, free, capability, uuid)


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and free bytes.  A GPU that shares the processor's memory has none of its own to tell."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        return _system_memory()
    return info.total, info.free


def _system_memory() -> tuple[int, int]:
    with open(MEMORY, encoding="ascii") as stream:
        lines = dict(line.split(":", 1) for line in stream)
    total, free = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, free


def _divided(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False  # a GPU that cannot be divided
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _slices(nvml: Any, handle: Any, whole: Gpu) -> Iterator[Gpu]:
    for position in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position)
        except nvml.NVMLError:
            continue  # no slice in this place
        total, free = _memory(nvml, part)
        yield whole._replace(
            name=nvml.nvmlDeviceGetName(part),
            memory_total=total,
            memory_free=free,
            uuid=nvml.nvmlDeviceGetUUID(part),
            mig=True,
        )


def _visible(devices: tuple[tuple[Gpu, ...], ...], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves, in its order, as CUDA reads it: the first word that means no device ends it.

    Of slices CUDA shows one process a single one.
    """
    whole = tuple(gpu for parts in devices for gpu in parts if not gpu.mig)
    parts = tuple(gpu for slices in devices for gpu in slices if gpu.mig)
    wish = environ.get(VISIBLE)
    if wish is None:
        return whole or parts[:1]
    chosen: list[Gpu] = []
    for word in wish.split(","):
        found = _named(word.strip(), devices)
        if found is None or found in chosen:
            break
        chosen.append(found)
    return tuple(gpu for gpu in chosen if not gpu.mig) or tuple(chosen[:1])


def _named(word: str, devices: tuple[tuple[Gpu, ...], ...]) -> Gpu | None:
    """A device by its number, or by its identifier or the beginning of one."""
    if word.isascii() and word.isdecimal():
        parts = devices[int(word)] if int(word) < len(devices) else ()
        return parts[0] if parts else None
    meant = [gpu for parts in devices for gpu in parts if gpu.uuid.startswith(word)] if word[:4] in _KINDS else []
    return meant[0] if len(meant) == 1 else None


_KINDS = ("GPU-", "MIG-")
