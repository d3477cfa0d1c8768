"""``list-model-profiles`` and ``launcher profiles``: what is known of models, and what runs here.

Needs no model, no GPU and no network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import click

from launcher import __version__, hardware, nim_manifest
from launcher.commands import known as knowing
from launcher.commands.profile import of_card
from launcher.commands.setting_up import set_up
from launcher.errors import ConfigurationError, DeniedError, HardwareError
from launcher.machine import Gpu, Machine
from launcher.offered import to_yaml
from launcher.profiles import fits, identity, named
from launcher.profiles.compiled import Store
from launcher.profiles.fits import Fit
from launcher.profiles.values import Profile
from launcher.settings.hints import did_you_mean, nearest
from launcher.sources import parse_source
from launcher.typing import Any, NamedTuple
from launcher.vllm import installed, tables

SCHEMA = 1
NONE = "<None>"
_BUSY = 0.05  # the share of its memory above which a GPU does not count as free
_BUCKETS = (
    (fits.RUNS, "Compatible with system and runnable"),
    (fits.LOW_MEMORY, "Compatible with system but low memory"),
    (fits.DOES_NOT, "Incompatible with system"),
)


class Seen(NamedTuple):
    """The machine and the profiles, each with whether it runs here."""

    machine: Machine
    profiles: tuple[tuple[Profile, Fit], ...]
    about: str = ""  # of the model that was named, if none is made for it


def run_list(model: str | None, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the profiles, of one model where one is named."""
    ready = set_up(environ)
    known = knowing.stores(ready.settings)
    wanted = model or (ready.settings.model.value if ready.settings.model else None)
    found, about = _of_model(wanted, known) if wanted else (_all(known), "")
    machine = _machine(environ)
    seen = Seen(machine, tuple((profile, fits.examine(profile, machine)) for profile in found), about)
    click.echo(json.dumps(_document(seen), indent=2) if as_json else _text(seen))
    return 0


def run_show(word: str, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print everything about a profile, or about all of a model."""
    known = knowing.stores(set_up(environ).settings)
    document = _shown(word, known)
    click.echo(json.dumps(document, indent=2) if as_json else "\n".join(_lines(document)))
    return 0


def run_manifest(profiles: Sequence[str], output: str | None, environ: Mapping[str, str], *, pin: bool) -> int:
    """Write NIM's model manifest of these profiles, or of all.  ``pin``: list each source and pin its files."""
    ready = set_up(environ)
    known = knowing.stores(ready.settings)
    chosen = selected(profiles, known) if profiles else _all(known)
    files = _pinned(chosen, ready.options) if pin else {}
    text = to_yaml([nim_manifest.of_profile(profile, files.get(profile.id, {})) for profile in chosen])
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        with open(output, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise DeniedError(f"--output {output}: it cannot be written: {error.strerror}", "Give another path") from None
    return 0


def run_check(folder: str) -> int:
    """Read every profile file of a folder, and say how many profiles it holds.  Raises the first mistake.

    Runtime keys and speculative settings are held against the pinned vLLM.
    """
    from launcher.arguments.runtime import from_runtime_config
    from launcher.profiles.compile import compiled

    models, table = compiled(folder), tables.pinned()
    for model in models:
        where = f"{model['origin']}: {model['model']}"
        for entry in model["profiles"]:
            from_runtime_config(entry["runtime"], table, f"{where}: runtime")
        for way in (model["head"], model["draft"]):
            for key in way["settings"] if way else ():
                if table.field(key) is None:
                    raise ConfigurationError(
                        f"{where}: settings: vLLM {table.version} has no speculative key {key}",
                        did_you_mean(key, [field.name for field in table.fields if not field.internal]),
                    )
    profiles = sum(len(model["profiles"]) for model in models)
    click.echo(f"{_many(profiles, 'profile')} of {_many(len(models), 'model')} in {folder}")
    return 0


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def selected(words: Iterable[str], known: Sequence[Store]) -> tuple[Profile, ...]:
    """The profiles that these ids or descriptions name.  Raises HardwareError (exit code 9) with the nearest."""
    everything = _all(known)
    return tuple(named.find(word, "--profiles", everything, (), "") for word in words)


def _all(known: Sequence[Store]) -> tuple[Profile, ...]:
    return tuple(profile for store in known for profile in store.all())


def _machine(environ: Mapping[str, str]) -> Machine:
    engine = installed.find(environ)
    return hardware.probe(engine.device if engine else None, (), environ)


def _of_model(word: str, known: Sequence[Store]) -> tuple[tuple[Profile, ...], str]:
    """The profiles of a model; with none, why."""
    source = parse_source(word, "MODEL")
    key = f"{source.scheme}://{source.name}"
    if source.is_local:
        card = [one for one in of_card(f"{source.name}/{identity.CARD}") if not one.derived]
        said = identity.of_path(source.name) or next(iter(card), None)
        key = said.source if said else source.name
    for store in known:
        found = store.of_source(key)
        if found:
            return found, ""
    return (), f"no profile is made for {word}: it gets a generic one, such as vllm-bf16-tp1-pp1"


def _pinned(profiles: Iterable[Profile], options: Any) -> dict[str, dict[str, str]]:
    """Profile id -> file -> URI with the revision of today."""
    from launcher.fetch.describe import describe  # lazy: only a pinned manifest asks the network

    files: dict[str, dict[str, str]] = {}
    listed: dict[str, dict[str, str]] = {}
    for profile in profiles:
        text = profile.sources[0]
        if text not in listed:
            described = describe(parse_source(text, "the profile"), options)
            pinned = f"{text}:{described.revision}"
            listed[text] = {file.path: f"{pinned}?file={file.path}" for file in described.files}
        files[profile.id] = listed[text]
    return files


# For people ----------------------------------------------------------------------------------------------------------


def _text(seen: Seen) -> str:
    lines = ["SYSTEM INFO", *_gpu_lines(seen.machine), "MODEL PROFILES"]
    if seen.about:
        lines.append(f"- {seen.about}")
    for verdict, title in _BUCKETS:
        rows = [_row(profile, fit) for profile, fit in seen.profiles if fit.verdict == verdict]
        lines += [f"- {title}:", *rows] if rows else [f"- {title}: {NONE}"]
    return "\n".join(lines)


def _gpu_lines(machine: Machine) -> list[str]:
    free = [gpu for gpu in machine.gpus if _used(gpu) <= _BUSY]
    busy = [gpu for gpu in machine.gpus if gpu not in free]
    lines = [f"- Device: {machine.device or 'unknown'}"] if machine.device != "cuda" else []
    for title, gpus in (("Free GPUs", free), ("Non-free GPUs", busy)):
        if gpus:
            lines += [f"- {title}:", *map(_gpu_line, gpus)]
        elif gpus is free:
            lines.append(f"- {title}: {NONE}" + (f" ({machine.unread})" if machine.unread else ""))
    return lines


def _used(gpu: Gpu) -> float:
    return 1 - gpu.memory_free / gpu.memory_total if gpu.memory_total else 1.0


def _gpu_line(gpu: Gpu) -> str:
    total = f"{gpu.memory_total / fits.GIGABYTE:.0f} GB"
    return f"  -  [{gpu.pci_id}] ({gpu.number}) {gpu.name} [current utilization: {100 * _used(gpu):.0f}% of {total}]"


def _row(profile: Profile, fit: Fit) -> str:
    why = ", ".join(part for part in (fit.why, fit.instead[:1].lower() + fit.instead[1:]) if part)
    return f"  - {profile.id} ({profile.description})" + (f" [{why}]" if why else "")


def _lines(value: Any, indent: int = 0) -> list[str]:
    """A document as indented lines."""
    pad = " " * indent
    lines: list[str] = []
    for key, entry in value.items():
        if isinstance(entry, Mapping) and entry:
            lines += [f"{pad}{key}:", *_lines(entry, indent + 2)]
        elif isinstance(entry, list) and entry and isinstance(entry[0], Mapping):
            lines.append(f"{pad}{key}:")
            for one in entry:
                first, *rest = _lines(one, indent + 4)
                lines += [f"{pad}  - {first.strip()}", *rest]
        else:
            lines.append(f"{pad}{key}: {_plain(entry)}")
    return lines


def _plain(entry: Any) -> str:
    if isinstance(entry, list):
        return ", ".join(map(str, entry)) or "none"
    return "none" if entry in (None, "", {}) else str(entry)


# For machines --------------------------------------------------------------------------------------------------------


def _document(seen: Seen) -> dict[str, Any]:
    machine = seen.machine
    system = {"device": machine.device, "gpus": [gpu._asdict() for gpu in machine.gpus], "unread": machine.unread}
    rows = [_entry(profile, fit) for profile, fit in seen.profiles]
    return {"schema": SCHEMA, "launcher": __version__, "system": system, "profiles": rows}


def _entry(profile: Profile, fit: Fit) -> dict[str, Any]:
    model = profile.model
    way = model.head or model.draft
    return {
        "id": profile.id,
        "description": profile.description,
        "model": model.name,
        "family": model.family,
        "origin": model.origin,
        "sources": list(profile.sources),
        "precision": profile.precision,
        "tp": profile.tp,
        "pp": profile.pp,
        "memory_gb_per_gpu": profile.memory,
        "speculation": {"method": way.method if way else "ngram", "draft": model.draft.draft if model.draft else None},
        "verdict": fit.verdict,
        "why": fit.why,
        "instead": fit.instead,
        "max_model_len": fit.tokens,
    }


def _shown(word: str, known: Sequence[Store]) -> dict[str, Any]:
    """The compiled entry of a profile, or of the model that a name or a source means."""
    documents = [store.document(number) for store in known for number in range(len(store.lines))]
    for document in documents:
        sources = {source.lower() for entry in document["profiles"] for source in entry["sources"]}
        if word == document["model"] or word.lower() in sources:
            return document
    try:
        (found,) = selected([word], known)
    except HardwareError as error:
        near = nearest(word, [document["model"] for document in documents])
        raise HardwareError(f"{word!r} is no profile and no model of one", _or_model(near, error.todo)) from None
    document = next(document for document in documents if document["model"] == found.model.name)
    return {**document, "profiles": [entry for entry in document["profiles"] if entry["id"] == found.id]}


def _or_model(near: str | None, todo: str) -> str:
    return f"The nearest model is {near}" if near else todo
