"""The layers of speculative settings: what each origin says, merged key by key, then read with the engine's table.

Two steps on purpose.  `merge` needs no engine; `validated` reads only what survived the merge, so that a setting which
a higher layer replaced can refuse nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from launcher.errors import ConfigurationError, LauncherError, gathered
from launcher.settings.hints import choice, nearest
from launcher.speculation import keys
from launcher.speculation.methods import canonical_method
from launcher.speculation.values import Layer
from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import EngineTable, load, supported

OFF = "none"
SWITCH_OFF = "--speculative-config none"
# Model names by which older vLLM releases asked for prompt lookup.
_NGRAM_MODELS = ("ngram", "[ngram]")
_SHOWN = 80  # characters of a value in a message


class Effective(NamedTuple):
    """What the layers say together.

    ``config`` is None when speculation is off or nobody said anything; ``off`` is the origin that switched it off or,
    when layers above it said more, where the merge stopped.  ``origins`` names the origin of each key of ``config``.
    """

    config: Mapping[str, Any] | None
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    off: str | None = None


def merge(layers: Sequence[Layer]) -> Effective:
    """Merge ``layers``, highest first.

    A layer that names another method or another draft discards method, draft, tokens and what belongs to them below it.
    Raises ConfigurationError for a layer that is no object or an empty one.
    """
    said, off, warnings = _said(layers)
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in reversed(said):
        assert layer.config is not None
        if _names_another(layer.config, merged):
            kept = {key: value for key, value in merged.items() if not keys.belongs(key)}
            origins = {key: origins[key] for key in kept}
            merged = kept
        merged |= layer.config
        origins |= dict.fromkeys(layer.config, layer.origin)
    stated = {key: value for key, value in merged.items() if value is not None}
    return Effective(
        stated if said else None, {key: origins[key] for key in stated}, tuple(warnings), off.origin if off else None
    )


def _said(layers: Sequence[Layer]) -> tuple[list[Layer], Layer | None, list[str]]:
    """The layers that count, canonical, and the one that ends the merge."""
    said: list[Layer] = []
    warnings: list[str] = []
    for layer in layers:
        config = _object(layer)
        if config is None:
            return said, layer, warnings
        canonical, notes = _canonical(config, layer.origin)
        warnings += notes
        if _is_off(canonical):
            return said, layer, warnings
        said.append(Layer(layer.origin, canonical))
    return said, None, warnings


def _object(layer: Layer) -> Mapping[str, Any] | None:
    config: object = layer.config  # hand-made layers may hold anything that JSON can
    if config is None or (isinstance(config, str) and config.strip().lower() in ("", OFF)):
        return None
    if not isinstance(config, Mapping):
        raise ConfigurationError(
            f"{layer.origin}: the speculative configuration is {shown(config)}, not a JSON object",
            'Write an object such as {"method": "ngram", "num_speculative_tokens": 3}',
        )
    if not config:
        raise ConfigurationError(
            f"{layer.origin}: the speculative configuration is an empty object",
            f"Name a method, or write {SWITCH_OFF} to switch speculation off",
        )
    return config


def _canonical(config: Mapping[str, Any], origin: str) -> tuple[dict[str, Any], list[str]]:
    """Keys in vLLM's spelling, the method by its one name, empty text as "not set"."""
    canonical: dict[str, Any] = {}
    warnings = []
    for spelling, value in config.items():
        key = str(spelling).replace("-", "_")
        if key in canonical and canonical[key] != value:
            warnings.append(f"{origin}: the speculative key {key} is given twice; {shown(value)} counts")
        canonical[key] = value
    model = canonical.get("model")
    if isinstance(model, str) and not model.strip():
        canonical["model"] = None
    if not canonical.get("method") and model in _NGRAM_MODELS:
        canonical |= {"method": "ngram", "model": None}
    method = canonical.get("method")
    if isinstance(method, str):
        canonical["method"] = known = canonical_method(method.strip())
        if known != method.strip():
            warnings.append(f"{origin}: the speculative method {method} is an older name of {known}")
    return canonical, warnings


def _is_off(config: Mapping[str, Any]) -> bool:
    """Whether a layer's method says "none".  A null method beside a model only leaves the method to the draft."""
    if "method" not in config:
        return False
    method = config["method"]
    if method is None:
        return config.get("model") is None
    return isinstance(method, str) and method.lower() in ("", OFF)


def _names_another(upper: Mapping[str, Any], lower: Mapping[str, Any]) -> bool:
    """Whether ``upper`` names another method or another draft than ``lower`` does.

    A method that takes no draft and a draft's name exclude each other: naming the one is naming another.
    """
    method, draft = upper.get("method"), upper.get("model")
    method_below, draft_below = lower.get("method"), lower.get("model")
    if method is not None and method_below is not None and method != method_below:
        return True
    if draft is not None and draft_below is not None:
        return bool(draft != draft_below)
    if draft is not None and method is None:
        return _draftless(method_below)
    return draft_below is not None and method_below is None and _draftless(method)


def _draftless(method: object) -> bool:
    return isinstance(method, str) and method in keys.WITHOUT_DRAFT


def validated(effective: Effective, table: EngineTable) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The merged configuration with every value in its type, and warnings.

    Raises ConfigurationError, carrying all that is wrong, for keys and values that this vLLM would not take.  With a
    table that is not exact (a newer vLLM than any we know) unknown keys and methods only warn.
    """
    config: dict[str, Any] = {}
    warnings: list[str] = []
    problems: list[LauncherError] = []
    for key, value in (effective.config or {}).items():
        origin = effective.origins[key]
        try:
            config[key] = _read(key, value, origin, table)
        except _Unknown as unknown:
            if table.exact:
                problems.append(ConfigurationError(unknown.what, unknown.todo))
            else:
                warnings.append(f"{unknown.what}; it is passed on as it is, since this vLLM is newer than its table")
                config[key] = value
        except LauncherError as problem:
            problems.append(problem)
    problems += _window(config, effective.origins)
    if problems:
        raise gathered(problems)
    return config, tuple(warnings)


def _window(config: Mapping[str, Any], origins: Mapping[str, str]) -> list[LauncherError]:
    """The n-gram window the right way round, whatever method comes of it."""
    least, most = config.get("prompt_lookup_min"), config.get("prompt_lookup_max")
    if least is None or most is None or least <= most:
        return []
    where = " and ".join(dict.fromkeys((origins["prompt_lookup_min"], origins["prompt_lookup_max"])))
    what = f"{where}: prompt_lookup_min is {least}, more than prompt_lookup_max, which is {most}"
    return [ConfigurationError(what, f"Set prompt_lookup_min to {most} or less")]


class _Unknown(ConfigurationError):
    """A name that the table lacks, which a newer engine may have."""


def _read(key: str, value: Any, origin: str, table: EngineTable) -> Any:
    if key == "tensor_parallel_size":
        raise ConfigurationError(
            f"{origin}: tensor_parallel_size is no speculative key", "Write draft_tensor_parallel_size"
        )
    field = table.field(key)
    if field is None:
        raise _unknown_key(key, origin, table)
    if field.internal:
        raise ConfigurationError(
            f"{origin}: the speculative key {key} is vLLM's own and cannot be given", "Leave it out"
        )
    if key == "method":
        return _method(value, origin, table)
    try:
        return keys.read(field, value)
    except ValueError as wrong:
        raise ConfigurationError(f"{origin}: {key} is {shown(value)}", f"Give {wrong}") from None


def _method(value: Any, origin: str, table: EngineTable) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{origin}: method is {shown(value)}", "Give the name of a speculative method")
    if value in table.methods:
        return value
    where = _elsewhere(value, table, lambda other: other.methods)
    near = nearest(value, table.methods)
    todo = (
        f"The nearest method is {near}"
        if near
        else f"Choose {choice(sorted(table.methods - table.mtp_types | {'mtp'}))}"
    )
    raise _Unknown(f"{origin}: vLLM {table.version} has no speculative method {value!r}{where}", todo)


def _unknown_key(key: str, origin: str, table: EngineTable) -> _Unknown:
    known = [field.name for field in table.fields if not field.internal and field.name != "tensor_parallel_size"]
    where = _elsewhere(key, table, lambda other: (field.name for field in other.fields))
    near = nearest(key, known)
    todo = f"The nearest key is {near}" if near else f"The keys are {choice(sorted(known))}"
    return _Unknown(f"{origin}: vLLM {table.version} has no speculative key {key!r}{where}", todo)


def _elsewhere(name: str, table: EngineTable, names: Callable[[EngineTable], Iterable[str]]) -> str:
    """Which of the other supported versions know a name that this one lacks."""
    others = [version for version in supported() if version != table.version and name in names(load(version))]
    return f" (known to {', '.join(others)})" if others else ""


def shown(value: object) -> str:
    """A value as a message shows it, cut where it would drown the sentence."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
