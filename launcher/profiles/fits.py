"""Whether a machine can run a profile, and how many GPUs share a layer (pure)."""

from __future__ import annotations

from math import ceil

from launcher.checkpoint import Config, read_config
from launcher.kv_cache import FULLEST, UTILIZATION, Span
from launcher.kv_cache import span as span_of
from launcher.machine import Gpu, Machine
from launcher.profiles.values import Profile
from launcher.typing import NamedTuple

GIGABYTE = 1_000_000_000
RUNS, LOW_MEMORY, DOES_NOT = "runs", "low memory", "does not run"


class Fit(NamedTuple):
    """``verdict`` and, unless the profile simply runs, why not and what would help.

    ``tokens``: the longest context, where a shorter one helps.
    """

    verdict: str
    why: str = ""
    instead: str = ""
    tokens: int | None = None


def first_of_kind(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs that are like the first: layers are shared evenly, so that others would only hold them back."""
    return tuple(gpu for gpu in gpus if (gpu.name, gpu.memory_total) == (gpus[0].name, gpus[0].memory_total))


def shares(available: int, config: Config) -> int:
    """The most GPUs, up to ``available``, that share the layers of a model evenly: a power of two.

    Others divide the attention heads of some models, and then hardly ever the widths of their layers.
    """
    count = 1 << (max(available, 1).bit_length() - 1)
    while count > 1 and not is_even(config, count):
        count //= 2
    return count


def is_even(config: Config, count: int) -> bool:
    """Whether vLLM can share the layers among so many GPUs, as far as the configuration says.

    Heads divide; key-value heads divide, or are divided themselves; so do the widths of the feed-forward layers, in
    whole blocks where the weights are quantised by blocks.
    """
    heads, shared = config.num_attention_heads, _size(config, "num_key_value_heads")
    if heads is not None and heads % count:
        return False
    if shared is not None and shared % count and count % shared:
        return False
    block = _block(config)
    widths = (_size(config, name) for name in ("intermediate_size", "moe_intermediate_size"))
    return all(width is None or width % (count * block) == 0 for width in widths)


def _size(config: Config, name: str) -> int | None:
    value = config.text.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _block(config: Config) -> int:
    """How many columns one scale of the weights covers."""
    for mapping in (config.document, config.text):
        section = mapping.get("quantization_config")
        size = section.get("weight_block_size") if isinstance(section, dict) else None
        if isinstance(size, list) and size and isinstance(size[0], int) and size[0] > 0:
            return size[0]
    return 1


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
        return Fit(DOES_NOT, "needs a GPU, and there is none here")
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
            f"needs {profile.weights:g} GB a GPU for the weights alone, and there are {total:.0f} GB",
            "Share it among more GPUs, or use a smaller precision",
        )
    span = _span(profile)
    full = 0 if span is None else ceil(span.needs(span.tokens) / GIGABYTE)
    required = max(full, profile.memory or 0)
    if required <= free:
        return Fit(RUNS)
    why = f"requires >={required:g} GB/gpu"
    if required <= total:
        return Fit(LOW_MEMORY, f"{why}, {free:.0f} GB are free", "end what else uses the GPU")
    length = span.longest(int(total) * GIGABYTE) if span is not None and full > total else None
    if span is not None and length is not None:
        reduced = ceil(span.needs(length) / GIGABYTE)
        return Fit(LOW_MEMORY, why, f"try --max-model-len={length} to reduce to >={reduced} GB/gpu", length)
    tight = profile.weights is not None and profile.weights > total * UTILIZATION
    share = f"try --gpu-memory-utilization={FULLEST}, or more GPUs"
    return Fit(
        LOW_MEMORY,
        f"{why}, {free:.0f} GB are free",
        share if tight else "try a smaller --max-model-len, or more GPUs",
    )


def _span(profile: Profile) -> Span | None:
    """What its context takes, where the profile's sizes tell it."""
    if profile.weights is None:
        return None
    config = read_config({"architectures": list(profile.model.architectures), **profile.model.sizes})
    return span_of(config, profile.tp, profile.pp, int(profile.weights * GIGABYTE))
