"""Whether a machine can run a profile, and how many GPUs share a layer (pure)."""

from __future__ import annotations

from launcher.machine import Gpu, Machine
from launcher.profiles.values import Profile
from launcher.typing import NamedTuple

GIGABYTE = 1_000_000_000
RUNS, LOW_MEMORY, DOES_NOT = "runs", "low memory", "does not run"


class Fit(NamedTuple):
    """``verdict`` and, unless the profile simply runs, why not and what would help."""

    verdict: str
    why: str = ""
    instead: str = ""


def first_of_kind(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs that are like the first: layers are shared evenly, so that others would only hold them back."""
    return tuple(gpu for gpu in gpus if (gpu.name, gpu.memory_total) == (gpus[0].name, gpus[0].memory_total))


def shares(available: int, heads: int | None) -> int:
    """The most GPUs, up to ``available``, among which the attention heads divide evenly.

    Without a number of heads, a power of two, which divides those of nearly every model.
    """
    if heads is None or heads < 1:
        return 1 << (max(available, 1).bit_length() - 1)
    return next((count for count in range(max(available, 1), 0, -1) if heads % count == 0), 1)


def examine(profile: Profile, machine: Machine) -> Fit:
    """Whether ``profile`` can run here.  Where GPUs cannot be read nothing speaks against it.

    Free memory decides; what is taken now may be free later, so that too little of it is only "low memory".
    """
    if machine.device == "cpu":
        if profile.gpus > 1:
            return Fit(DOES_NOT, f"needs {profile.gpus} GPUs, and this engine runs on the CPU", "Use one with tp1")
        return Fit(RUNS)
    if not machine.gpus:
        if machine.unread or machine.device == "cuda":
            return Fit(RUNS)
        return Fit(DOES_NOT, "there is no GPU here")
    gpus = first_of_kind(machine.gpus)
    if len(gpus) < profile.gpus:
        kind = "" if len(gpus) == len(machine.gpus) else " of one kind"
        seen = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}{kind}"
        return Fit(DOES_NOT, f"needs {profile.gpus} GPUs, and there {'is' if len(gpus) == 1 else 'are'} {seen}")
    capability = gpus[0].capability
    if capability is not None and capability < profile.capability:
        wanted, has = ".".join(map(str, profile.capability)), ".".join(map(str, capability))
        why = f"is made for compute capability {wanted}, and {gpus[0].name} has {has}"
        return Fit(DOES_NOT, why, "Use another precision")
    return _memory(profile, gpus[: profile.gpus])


def _memory(profile: Profile, gpus: tuple[Gpu, ...]) -> Fit:
    total = min(gpu.memory_total for gpu in gpus) / GIGABYTE
    free = min(gpu.memory_free for gpu in gpus) / GIGABYTE
    if profile.weights is not None and profile.weights > total:
        return Fit(
            DOES_NOT,
            f"its weights alone take {profile.weights:g} GB a GPU of {total:.0f} GB",
            "Share it among more GPUs, or use a smaller precision",
        )
    if profile.memory is None or profile.memory <= free:
        return Fit(RUNS)
    why = f"requires >={profile.memory:g} GB/gpu, {free:.0f} GB are free"
    if profile.memory <= total:
        return Fit(LOW_MEMORY, why, "end what else uses the GPU")
    return Fit(LOW_MEMORY, why, "try a smaller --max-model-len, or more GPUs")
