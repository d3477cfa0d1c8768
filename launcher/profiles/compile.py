"""From profile files to the compiled form: validated, expanded, with ids.  Runs at build, and for a user's own folder.

``python -m launcher.profiles.compile FOLDER OUTPUT`` is what the build and ``make setup`` run.

The compiled file is one JSON array, a line for each entry.  The first is an index (``sources`` and ``shapes`` lead to
entries), so that a start decodes that line and the one of its model only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import glob
from math import ceil

import msgspec

from launcher.errors import ConfigurationError, LauncherError, NotFoundError
from launcher.profiles import schema
from launcher.profiles.documents import Path, Written, read_document
from launcher.profiles.generic import PRECISIONS, SHARES, generic
from launcher.profiles.values import BUILT_IN, CAPABILITY, OLDEST, canonical, canonical_source, describe, identify
from launcher.sources import parse_source
from launcher.typing import Any

FORMAT = 1
# Runtime keys that have a place of their own in a profile.
_ELSEWHERE = {
    "speculative_config": "Write it under speculation",
    "model": "Write it under sources",
    "config": "Write its keys here",
    "tensor_parallel_size": "Write it as tensor_parallel",
    "pipeline_parallel_size": "Write it as pipeline_parallel",
}


def files_in(folder: str) -> tuple[str, ...]:
    """The profile files of a folder, sorted.  Raises NotFoundError when it is absent, ConfigurationError for a file."""
    if not os.path.isdir(folder):
        if os.path.exists(folder):
            raise ConfigurationError(f"{folder} is a file, not a folder of profiles", "Give the folder that it lies in")
        raise NotFoundError(f"there is no folder of profiles {folder}", "Is the volume mounted? Check the path")
    return tuple(sorted(glob(f"{glob_safe(folder)}/*.yaml") + glob(f"{glob_safe(folder)}/*.yml")))


def glob_safe(folder: str) -> str:
    from glob import escape

    return escape(folder.rstrip("/"))


def compiled(folder: str, origin: str | None = None) -> tuple[dict[str, Any], ...]:
    """Every model of a folder, compiled, in the order of their names.

    ``origin`` None: each model's is its file.  Raises ConfigurationError or NotFoundError for the first thing wrong.
    """
    models: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for path in files_in(folder):
        written = read_document(path)
        for number, model in enumerate(written.document.models):
            here: Path = ("models", number)
            if model.name in models:
                what = f"the model {model.name} is also in {models[model.name]['file']}"
                raise written.refusal((*here, "name"), what, "Give each its own name")
            _check(written, here, model)
            for place, source in _sources(model):
                key = canonical_source(source)
                if places.setdefault(key, model.name) != model.name:
                    what = f"the source {source} of {model.name} also belongs to {places[key]}"
                    raise written.refusal((*here, *place), what, "Keep it in one of the two")
            entry = compile_model(model, written.document.family, path if origin is None else origin)
            models[model.name] = {**entry, "file": path}
    plain = [{key: value for key, value in entry.items() if key != "file"} for entry in models.values()]
    return tuple(sorted(plain, key=lambda entry: str(entry["model"])))


def compile_model(model: schema.Model, family: str, origin: str) -> dict[str, Any]:
    """One model with its profiles; see `launcher.profiles.values` for what the keys mean."""
    common = {
        "model": model.name,
        "family": family,
        "origin": origin,
        "architectures": model.architectures,
        "sizes": {key: size for key, size in msgspec.to_builtins(model.sizes).items() if size is not None},
        "head": _way(model.speculation.head),
        "draft": _way(model.speculation.draft),
        "note": model.note,
    }
    profiles = [entry for variant in model.variants for entry in _profiles(model, variant)]
    return {**common, "profiles": [{"id": identify({**common, **entry}), **entry} for entry in profiles]}


def _check(written: Written, here: Path, model: schema.Model) -> None:
    """Refuse what the schema cannot: keys that have another place, revisions, and a profile that is there twice."""
    variants = [(("variants", number), variant) for number, variant in enumerate(model.variants)]
    for place, runtime in (((), model.runtime), *((place, variant.runtime) for place, variant in variants)):
        for key in runtime:
            if (elsewhere := _ELSEWHERE.get(key.replace("-", "_"))) is not None:
                where = (*here, *place, "runtime", key)
                raise written.refusal(where, f"the runtime key {key} of {model.name} cannot be set here", elsewhere)
    draft = model.speculation.draft
    for place, source in _sources(model):
        _refuse_revision(written, (*here, *place), model.name, source, "Leave the revision out")
    if draft is not None:
        where = (*here, "speculation", "draft", "source")
        _refuse_revision(written, where, model.name, draft.source, "Write the draft's as revision")
    seen: set[str] = set()
    for place, variant in variants:
        for entry in _profiles(model, variant):
            if entry["description"] in seen:
                what = f"{model.name} has two profiles {entry['description']}"
                raise written.refusal((*here, *place), what, "Join the sources of one precision")
            seen.add(entry["description"])


def _sources(model: schema.Model) -> Iterator[tuple[Path, str]]:
    """Every source of a model, and where it stands in it."""
    for number, variant in enumerate(model.variants):
        for position, source in enumerate(variant.sources):
            yield ("variants", number, "sources", position), source


def _refuse_revision(written: Written, place: Path, model: str, text: str, todo: str) -> None:
    """A profile is for a model at any revision; a draft has a key of its own for it."""
    try:
        revision = parse_source(text, model).revision
    except LauncherError as error:
        raise written.refusal(place, error.what, error.todo) from None
    if revision is not None:
        raise written.refusal(place, f"the source {text} of {model} has a revision", todo)


def _profiles(model: schema.Model, variant: schema.Variant) -> Iterator[dict[str, Any]]:
    for tp in variant.tensor_parallel:
        gpus = tp * variant.pipeline_parallel
        yield {
            "description": describe(variant.precision, tp, variant.pipeline_parallel, model.name),
            "sources": variant.sources,
            "precision": variant.precision,
            "tp": tp,
            "pp": variant.pipeline_parallel,
            "weights": _share(variant.weights_gb, gpus),
            "memory": _share(variant.memory_gb, gpus),
            "capability": _capability(variant),
            "runtime": {**model.runtime, **variant.runtime},
        }


def _share(total: float | None, gpus: int) -> float | None:
    return None if total is None else ceil(10 * total / gpus) / 10


def _capability(variant: schema.Variant) -> tuple[int, int]:
    if variant.capability is None:
        return CAPABILITY.get(variant.precision, OLDEST)
    major, minor = variant.capability.split(".")
    return int(major), int(minor)


def _way(way: schema.Head | schema.Draft | None) -> dict[str, Any] | None:
    return None if way is None else dict(msgspec.to_builtins(way))


def shape(architecture: str, sizes: Mapping[str, Any]) -> str | None:
    """The key under which models of one class and size are found together; None where a size is missing."""
    numbers = [sizes.get(name) for name in ("hidden_size", "num_hidden_layers", "vocab_size")]
    return None if None in numbers or not architecture else " ".join([architecture, *map(str, numbers)])


def text_of(models: Sequence[Mapping[str, Any]]) -> str:
    """The compiled file: the same text for the same models."""
    sources: dict[str, int] = {}
    shapes: dict[str, list[int]] = {}
    for number, model in enumerate(models):
        sources |= {canonical_source(source): number for entry in model["profiles"] for source in entry["sources"]}
        for architecture in model["architectures"]:
            key = shape(architecture, model["sizes"])
            if key is not None:
                shapes.setdefault(key, []).append(number)
    lines = [canonical(model) for model in models]
    starts, position = [], 0
    for line in lines:
        starts.append((position, len(line)))
        position += len(line) + 2  # the comma and the end of the line
    generics = {one.description: one.id for one in (generic(p, tp) for p in PRECISIONS for tp in SHARES)}
    index = {"format": FORMAT, "sources": sources, "shapes": shapes, "lines": starts, "generic": generics}
    return "[\n" + ",\n".join([canonical(index), *lines]) + "\n]\n"


def write(folder: str, output: str) -> int:
    """Compile ``folder`` into the file ``output``; gives the number of profiles.  Raises LauncherError and OSError."""
    models = compiled(folder, BUILT_IN)
    text = text_of(models)
    aside = f"{output}.{os.getpid()}"
    with open(aside, "w", encoding="ascii") as stream:
        stream.write(text)
    os.replace(aside, output)
    return sum(len(model["profiles"]) for model in models)


def main(words: Iterable[str]) -> int:
    folder, output = words
    try:
        many = write(folder, output)
    except LauncherError as error:
        print(error, file=sys.stderr)
        return error.code
    print(f"{many} profiles in {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
