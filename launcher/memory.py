"""What a launch needs of each GPU's memory, as far as files and arguments tell, against what is there (pure).

Counted: weights, the draft's weights, the KV cache of one request of full length, and the rows of logits that verifying
drafted tokens adds.  Not counted: activations, CUDA graphs, states of recurrent layers, buffers of kernels and of
communication (docs/memory.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.arguments.typed import human_int
from launcher.checkpoint import Checkpoint, Config, Portion
from launcher.errors import HardwareError
from launcher.kv_cache import FULLEST, UTILIZATION, Layers, fitting, kinds, per_layer
from launcher.machine import Gpu, Machine
from launcher.speculation.values import Check, Speculation
from launcher.typing import Any, NamedTuple

CHECK = "memory"
_SEQUENCES = 256  # vLLM's own --max-num-seqs, or less on small GPUs
_LARGEST = 1e6  # factor of a context that is no nonsense
_LOGIT = 4  # bytes: vLLM samples from 32-bit logits
# With these the weights take another size, or another place, than the files say.
_BENDING = ("--cpu-offload-gb", "--offload-backend", "--quantization", "--hf-overrides", "--kv-cache-memory-bytes")
_OWN_CACHE = ("eagle", "eagle3", "dflash", "dspark", "draft_model", "mtp")


class Estimate(NamedTuple):
    """Bytes that each GPU needs.  None: not known.

    ``weights`` are exact on one GPU where every header was read; over several, what cannot be divided is counted on
    each.  ``least`` is what no way of dividing them can go below.
    """

    tensor_parallel: int
    pipeline_parallel: int
    weights: int
    draft_weights: int
    kv_cache: int | None
    kv_bytes_per_token: int | None
    tokens: int | None
    speculation: int
    least: int
    available: int | None = None
    gpu: str | None = None
    advice: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.weights + self.draft_weights + (self.kv_cache or 0) + self.speculation

    @property
    def fits(self) -> bool | None:
        return None if self.available is None else self.total <= self.available


class Demand(NamedTuple):
    """What the estimate rests on.  ``flags`` as in `launcher.speculation.values.Request`."""

    target: Checkpoint
    draft: Checkpoint | None
    speculation: Speculation
    flags: Mapping[str, tuple[str, ...]]
    machine: Machine

    def value(self, flag: str) -> str | None:
        values = self.flags.get(flag, ())
        return values[-1] if values else None

    def number(self, flag: str, default: int) -> int:
        """A positive count, or ``default`` where there is none (auto and -1 included)."""
        try:
            return max(human_int(self.value(flag) or ""), 0) or default
        except ValueError:
            return default

    @property
    def tensor_parallel(self) -> int:
        return self.number("--tensor-parallel-size", 1)

    @property
    def pipeline_parallel(self) -> int:
        return self.number("--pipeline-parallel-size", 1)

    @property
    def draft_parallel(self) -> int:
        own = self.speculation.config.get("draft_tensor_parallel_size")
        return own if isinstance(own, int) and own > 0 else self.tensor_parallel


def estimate(demand: Demand) -> Estimate:
    """The estimate, with advice where it does not fit."""
    gpu, available, why = _available(demand)
    tokens = _tokens(demand)
    layers, notes = _cached(demand)
    cache = sum(part.cache(tokens) for part in layers) if layers and tokens else None
    rate = sum(part.layers * part.bytes for part in layers) if layers else None
    weights, least = _weights(demand)
    found = Estimate(
        demand.tensor_parallel,
        demand.pipeline_parallel,
        weights,
        _draft_weights(demand),
        cache,
        rate,
        tokens,
        _verification(demand),
        least,
        available,
        gpu.name if gpu else None,
        (),
        (*why, *notes),
    )
    return found if found.fits is not False else found._replace(advice=_advice(demand, found, layers, gpu))


def check(demand: Demand, found: Estimate) -> Check | None:
    """The refusal of weights that cannot fit, whatever else is set; None otherwise."""
    bending = [flag for flag in _BENDING if flag in demand.flags]
    if found.available is None or bending or found.least <= found.available:
        return None
    place, ranks = demand.target.place, found.tensor_parallel * found.pipeline_parallel
    spread = f" on each of {ranks} GPUs" if ranks > 1 else ""
    there = f"{_gb(found.available)} of {found.gpu} are to be had"
    what = f"the weights of {place} take at least {_gb(found.least)}{spread}, and {there}"
    size = found.tensor_parallel
    while found.least * found.tensor_parallel > size * found.available:
        size *= 2
    todo = f"Share them with --tensor-parallel-size {size}, or use a smaller or quantised checkpoint"
    gpu, _, _ = _available(demand)
    if gpu is not None and found.least < min(gpu.memory_free, int(gpu.memory_total * FULLEST)):
        todo = f"Give vLLM more of the GPU with --gpu-memory-utilization {FULLEST}, or s{todo[1:]}"
    return Check(CHECK, HardwareError(what, todo), what)


def warning(found: Estimate) -> str | None:
    """One sentence where the estimate does not fit, with the two settings that help most."""
    if found.fits is not False or found.available is None:
        return None
    parts = [f"weights {_gb(found.weights)}"]
    parts += [f"draft {_gb(found.draft_weights)}"] if found.draft_weights else []
    parts += [f"KV cache {_gb(found.kv_cache)} for {found.tokens} tokens"] if found.kv_cache else []
    parts += [f"speculation {_gb(found.speculation)}"] if found.speculation else []
    advice = f": try {' or '.join(found.advice)}" if found.advice else ""
    return (
        f"each GPU needs about {_gb(found.total)} ({', '.join(parts)}), and {_gb(found.available)} of {found.gpu} are "
        f"to be had{advice}"
    )


def occupied(demand: Demand) -> str | None:
    """One sentence where other processes hold some of what vLLM takes: it looks first, and then does not start."""
    if demand.machine.device == "cpu":
        return None
    share = _share(demand)
    for gpu in demand.machine.gpus[: demand.tensor_parallel * demand.pipeline_parallel]:
        if gpu.memory_free < gpu.memory_total * share:
            left = gpu.memory_free * 100 // gpu.memory_total / 100
            instead = f", or set --gpu-memory-utilization {left:g}" if left > 0 else ""
            return (
                f"{_gb(gpu.memory_free)} of {gpu.name} are free, and vLLM does not start with less than "
                f"{_gb(int(gpu.memory_total * share))} ({share:g} of it): end what else uses the GPU{instead}"
            )
    return None


# What there is -------------------------------------------------------------------------------------------------------


def _available(demand: Demand) -> tuple[Gpu | None, int | None, tuple[str, ...]]:
    """The GPU that has least for this launch, and how much: what is free, but not above the share that vLLM takes."""
    machine = demand.machine
    if machine.device == "cpu":
        return None, None, ("whether the model fits: this vLLM runs on the processor, whose memory is not compared",)
    ranks = demand.tensor_parallel * demand.pipeline_parallel
    gpus = machine.gpus[:ranks]
    if not gpus:
        reason = "its GPUs cannot be read" if machine.unread else "no GPU is to be seen here"
        return None, None, (f"whether the model fits into GPU memory: {reason}",)
    share = _share(demand)
    tightest = min(gpus, key=lambda gpu: min(gpu.memory_free, int(gpu.memory_total * share)))
    return tightest, min(tightest.memory_free, int(tightest.memory_total * share)), ()


def _share(demand: Demand) -> float:
    try:
        share = float(demand.value("--gpu-memory-utilization") or UTILIZATION)
    except ValueError:
        return UTILIZATION
    return share if 0 < share <= 1 else UTILIZATION  # vLLM refuses any other


# Weights -------------------------------------------------------------------------------------------------------------


def _weights(demand: Demand) -> tuple[int, int]:
    """Bytes of the target's weights on one rank, and the least that any division leaves on one."""
    target, tensor, pipeline = demand.target, demand.tensor_parallel, demand.pipeline_parallel
    ranks = (
        tensor
        * pipeline
        * (demand.number("--data-parallel-size", 1) if "--enable-expert-parallel" in demand.flags else 1)
    )
    portions = target.weights.portions
    if not portions:  # sizes of files: heads and duplicates are in them
        size = target.weights.bytes // (2 if _narrowed(target.config, demand) and _is_wide(target.config) else 1)
        return size // (tensor * pipeline), size * 9 // 10 // ranks
    tied = (
        target.config.document.get("tie_word_embeddings") is True
        or target.config.text.get("tie_word_embeddings") is True
    )
    sizes: dict[str, float] = {}
    everything = 0
    for portion in portions:
        if portion.part == "head" or (portion.part == "output" and tied and _has(portions, "embedding")):
            continue
        size = _loaded(portion, target.config, demand)
        everything += size
        sizes[portion.part] = sizes.get(portion.part, 0) + (size / tensor if portion.split else size)
    depth = target.config.num_hidden_layers or 1
    layers = sizes.get("layers", 0) * (-(-depth // pipeline) / depth)
    ends = sizes.get("embedding", 0), sizes.get("output", 0)
    return int(layers + (sum(ends) if pipeline == 1 else max(ends)) + sizes.get("other", 0)), everything // ranks


def _has(portions: tuple[Portion, ...], part: str) -> bool:
    return any(portion.part == part for portion in portions)


def _loaded(portion: Portion, config: Config, demand: Demand) -> int:
    return portion.bytes // 2 if portion.wide and _narrowed(config, demand) else portion.bytes


def _narrowed(config: Config, demand: Demand) -> bool:
    """Whether 32-bit weights are loaded as 16-bit ones, as vLLM does unless told otherwise."""
    return config.quantization is None and demand.value("--dtype") not in ("float32", "float")


def _is_wide(config: Config) -> bool:
    return bool(config.text.get("torch_dtype", config.text.get("dtype")) == "float32")


def _draft_weights(demand: Demand) -> int:
    """Bytes of the draft on one rank, or of the bundled head that runs."""
    chosen = demand.speculation
    if not chosen.enabled:
        return 0
    if demand.draft is not None:
        portions = demand.draft.weights.portions
        if not portions:
            return demand.draft.weights.bytes // demand.draft_parallel
        config = demand.draft.config
    elif chosen.method in ("mtp", "dspark"):
        portions = tuple(portion for portion in demand.target.weights.portions if portion.part == "head")
        config = demand.target.config
    else:
        return 0
    size = demand.draft_parallel
    sizes = [_loaded(portion, config, demand) / (size if portion.split else 1) for portion in portions]
    return int(sum(sizes))


def _verification(demand: Demand) -> int:
    """Logits of the drafted tokens: one more row for each of them in each request of a full batch."""
    chosen = demand.speculation
    if not chosen.enabled or not chosen.tokens:
        return 0
    return demand.number("--max-num-seqs", _SEQUENCES) * chosen.tokens * (demand.target.config.vocab_size or 0) * _LOGIT


# The KV cache --------------------------------------------------------------------------------------------------------


def _tokens(demand: Demand) -> int | None:
    """The longest context: what was set, else what config.json gives."""
    given = demand.number("--max-model-len", 0)
    config = demand.target.config
    if given or config.max_position_embeddings is None:
        return given or None
    scaling = config.text.get("rope_scaling") or config.text.get("rope_parameters")
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, Mapping) else None
    factor = scaling.get("factor") if isinstance(scaling, Mapping) else None
    if kind in ("linear", "dynamic") and isinstance(factor, int | float) and 0 < factor < _LARGEST:
        return int(config.max_position_embeddings * factor)
    if kind == "longrope":
        original = config.text.get("original_max_position_embeddings")
        return original if isinstance(original, int) else config.max_position_embeddings
    return config.max_position_embeddings


def _cached(demand: Demand) -> tuple[tuple[Layers, ...], tuple[str, ...]]:
    """The layers that keep a cache on the fullest rank, the draft's included; () where the attention is not known."""
    width = _element(demand)
    target = demand.target.config
    rate = per_layer(target, demand.tensor_parallel, width) if width else None
    depth = target.num_hidden_layers
    if not width or not rate or not depth:
        return (), (f"the size of the KV cache: the config.json of {demand.target.place} does not tell it",)
    found, states = kinds(target, depth, rate, demand.pipeline_parallel)
    notes = (f"memory for the states of {states} recurrent layers",) if states else ()
    return (*found, *_draft_layers(demand, rate, width)), notes


def _element(demand: Demand) -> int | None:
    """Bytes of one number in the cache."""
    name = demand.value("--kv-cache-dtype") or "auto"
    if name.startswith(("fp8", "int8")):
        return 1
    if name in ("bfloat16", "float16", "half"):
        return 2
    if name != "auto":
        return None
    section = demand.target.config.document.get("quantization_config")
    section = section if isinstance(section, Mapping) else {}
    scheme: Any = section.get("kv_cache_scheme")
    if (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8) or section.get("kv_cache_quant_algo") == "FP8":
        return 1
    return 4 if demand.value("--dtype") in ("float32", "float") else 2


def _draft_layers(demand: Demand, rate: int, width: int) -> tuple[Layers, ...]:
    chosen, draft = demand.speculation, demand.draft
    if not chosen.enabled or chosen.method not in _OWN_CACHE:
        return ()
    if draft is None:
        head = demand.target.weights.head(chosen.method or "")
        return (Layers(len(head.layers) or 1, rate),) if head is not None else ()
    own = per_layer(draft.config, demand.draft_parallel, width)
    depth = draft.config.num_hidden_layers
    return (Layers(depth, own),) if own and depth else ()


# Advice --------------------------------------------------------------------------------------------------------------


def _advice(demand: Demand, found: Estimate, layers: tuple[Layers, ...], gpu: Gpu | None) -> tuple[str, ...]:
    """The two settings that free the most, with the context that would fit where shortening it is enough."""
    assert found.available is not None and gpu is not None
    gains: list[tuple[int, str]] = []
    cache = found.kv_cache or 0
    room = found.available - (found.total - cache)
    shorter = fitting(layers, room, found.tokens or 0)
    if shorter is not None:
        gains.append((cache - sum(part.cache(shorter) for part in layers), f"--max-model-len {shorter}"))
    if cache and _element(demand) != 1:
        gains.append((cache // 2, "--kv-cache-dtype fp8"))
    size = 2 * found.tensor_parallel
    heads = demand.target.config.num_attention_heads
    if size * found.pipeline_parallel <= len(demand.machine.gpus) and heads and heads % size == 0:
        gains.append(((found.weights + cache) // 2, f"--tensor-parallel-size {size}"))
    lighter = found.draft_weights + found.speculation
    if lighter:
        gains.append((lighter, "--speculative-config none"))
    more = min(gpu.memory_free, int(gpu.memory_total * FULLEST)) - found.available
    if more > 0:
        gains.append((more, f"--gpu-memory-utilization {FULLEST}"))
    return tuple(text for _, text in sorted(gains, key=lambda gain: -gain[0])[:2])


def _gb(size: int | None) -> str:
    return f"{(size or 0) / 1e9:.1f} GB"
