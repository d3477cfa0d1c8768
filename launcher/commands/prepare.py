"""From words and environment to a plan: the one place where all rooms meet.

The only effects on this road are reads, and facts remembered under the cache.  Problems that do not depend on each
other are collected, so that one start shows all of them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from launcher import __version__, hardware, layout, logs, places, served_name
from launcher.arguments.config_file import read_config
from launcher.arguments.merge import Level, effective, level, merge
from launcher.arguments.runtime import from_runtime_config
from launcher.arguments.spellings import parse_words
from launcher.arguments.values import SPECULATIVE, Argument, Merged, Parsed, given
from launcher.cache.remembered import Remembered
from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError, DeniedError, LauncherError, gathered
from launcher.fetch.local import LocalFolder
from launcher.gather import gather_checkpoint, gather_draft
from launcher.machine import Machine
from launcher.plan import PLANNED_REFUSALS, Artifact, EngineFacts, LaunchPlan, failure
from launcher.settings.parse import early_log_setup, parse_settings
from launcher.settings.values import Settings
from launcher.sources import Entry, ModelSource, Source, parse_source
from launcher.speculation import methods, select
from launcher.speculation.values import Decision, DraftReference, Layer, Request
from launcher.vllm import environment, installed, tables
from launcher.vllm.tables import EngineTable

T = TypeVar("T")
COMMAND_LINE = "command line"
PASSTHROUGH = "NIM_PASSTHROUGH_ARGS"
SPECDEC_ARGS = "NIM_SPECDEC_ARGS"
ENABLE = "NIM_SPECDEC_ENABLE"
MODEL_PATH = "NIM_MODEL_PATH"
RUNTIME_CONFIG = "runtime_config.json"
VARIABLES = "NIM variables"
DERIVED = "derived"
API_KEY = "VLLM_API_KEY"
SERVED_NAME = "--served-model-name"
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


class Listed(NamedTuple):
    """A source whose listing was already taken: every file is looked at once a start."""

    source: Source
    entries: tuple[Entry, ...]

    def listing(self) -> tuple[Entry, ...]:
        return self.entries

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.source.read(path, offset, length)


class Gathered(NamedTuple):
    """A model folder, as gathered."""

    source: ModelSource
    entries: tuple[Entry, ...]
    checkpoint: Checkpoint


class Prepared(NamedTuple):
    """A plan, and what must never be printed: the parent's environment and the secrets for the child."""

    plan: LaunchPlan
    environment: Mapping[str, str]  # of this process, less what would mislead the child
    scratch: str  # this user's private folder; made before anything is put there
    secrets: Mapping[str, str]  # credentials that the child gets and this process does not pass on by itself
    api_keys: tuple[str, ...]  # more than one: they need a file of their own

    def private_files(self, where: layout.Layout) -> Iterator[tuple[str, str]]:
        """(path, content) of the files that only this user may read."""
        if len(self.api_keys) > 1:
            import json

            # JSON is YAML, and vLLM reads its configuration file as YAML.
            yield f"{where.workspace}/{layout.API_KEYS}", json.dumps({"api-key": list(self.api_keys)})


class Intake(NamedTuple):
    """All that was said, before any model file is looked at."""

    settings: Settings
    engine: installed.Engine | None
    table: EngineTable
    places: places.Places
    command_line: Parsed
    passthrough: Parsed | None
    specdec: Parsed | None  # NIM_SPECDEC_ARGS, when the toggle lets it count
    model: ModelSource
    memory: Remembered | None


class Warnings:
    """Warnings as they are found: logged at once, and kept for the plan."""

    def __init__(self, kept: list[str]) -> None:
        self.kept = kept

    def add(self, texts: Sequence[str]) -> None:
        for text in texts:
            if text not in self.kept:
                self.kept.append(text)
                logs.warning(text)


class Problems:
    """Independent problems of one pass, so that one start shows all of them."""

    def __init__(self) -> None:
        self.found: list[LauncherError] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        """The step's result, or None when it failed."""
        try:
            return step()
        except LauncherError as error:
            self.found += [error, *error.others]
            return None

    def settle(self) -> None:
        """Raise what was found, if anything."""
        if self.found:
            raise gathered(self.found)


def prepare(words: Sequence[str], environ: Mapping[str, str], kept_warnings: list[str] | None = None) -> Prepared:
    """Read everything that decides the launch and make the plan.

    Raises LauncherError when no plan is possible; a plan whose checks fail (codes 8 and 9) is returned with its
    ``error`` set.  ``kept_warnings`` receives each warning as it is found, for a caller that prints them after a
    failure too.
    """
    warnings = Warnings([] if kept_warnings is None else kept_warnings)
    logs.configure(*early_log_setup(environ))
    intake = _take_in(words, environ, warnings)
    target = _gather_target(intake)
    runtime = _runtime(intake, target)
    said = _heard((intake.command_line, intake.passthrough, intake.specdec, runtime), warnings)
    merged = merge(_levels(intake, runtime))
    warnings.add(merged.warnings)
    machine = _machine(intake.engine)
    request = _request(intake, merged, environ)
    drafts, decision = _decide(intake, request, target, machine)
    warnings.add(decision.warnings)
    error = failure(decision.checks)
    if error is not None and error.code not in PLANNED_REFUSALS:
        raise error
    draft = _chosen_draft(decision, drafts)
    return _assemble(intake, target, draft, decision, merged, said, environ, warnings, error)


def _take_in(words: Sequence[str], environ: Mapping[str, str], warnings: Warnings) -> Intake:
    settings = parse_settings(environ, _read_text)
    logs.configure(*settings.log_setup())
    for note in settings.notes:
        logs.info(note)
    warnings.add(settings.warnings)
    engine = installed.find(environ)
    table = tables.pinned() if engine is None else tables.load(engine.version)
    warnings.add(tuple(_about_engine(engine, table)))
    if settings.specdec_args is not None and not _is_enabled(settings):
        unused = f"{settings.specdec_args.origin} is ignored, all of it: set {ENABLE}=1 to let it count"
        warnings.add((unused,))
    problems = Problems()
    said = _Said(settings, table)
    command_line = problems.attempt(lambda: parse_words(words, table, COMMAND_LINE, read_config))
    passthrough = problems.attempt(said.passthrough)
    specdec = problems.attempt(said.specdec)
    model = problems.attempt(lambda: _model(command_line, passthrough, settings)) if command_line else None
    _heard((command_line, passthrough, specdec), warnings)
    problems.settle()
    assert command_line is not None and model is not None
    found = _places(environ, settings)
    for note in found.notes:
        logs.info(note)
    return Intake(settings, engine, table, found, command_line, passthrough, specdec, model, _memory(found))


def _memory(found: places.Places) -> Remembered | None:
    """Where facts are remembered: under the cache, if that is a folder which nobody else could have filled."""
    if found.cache == found.scratch:
        try:
            places.make_private(found.scratch)
        except DeniedError:
            return None  # whoever cannot do without the folder says why
    return Remembered(f"{found.cache}/facts")


def _heard(parts: Sequence[Parsed | None], warnings: Warnings) -> list[Parsed]:
    """The parts that are there; from here on their secrets are masked and their warnings said."""
    heard = [parsed for parsed in parts if parsed is not None]
    for parsed in heard:
        logs.add_secrets([value for _, value in parsed.secrets])
        warnings.add(parsed.warnings)
    return heard


class _Said(NamedTuple):
    """The variables that hold vLLM arguments."""

    settings: Settings
    table: EngineTable

    def passthrough(self) -> Parsed | None:
        given_words = self.settings.passthrough
        return given_words and parse_words(given_words.value, self.table, given_words.origin, read_config)

    def specdec(self) -> Parsed | None:
        args = self.settings.specdec_args
        if args is None or not _is_enabled(self.settings):
            return None
        return from_runtime_config(args.value, self.table, args.origin)


def _is_enabled(settings: Settings) -> bool:
    return settings.specdec_enable is not None and settings.specdec_enable.value


def _machine(engine: installed.Engine | None) -> Machine:
    return hardware.probe(engine.device if engine else None, sys.path if engine and engine.own else ())


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _about_engine(engine: installed.Engine | None, table: EngineTable) -> Iterator[str]:
    if engine is None:
        return
    if not table.exact:
        yield (
            f"vLLM {engine.version} is newer than what this launcher knows: checked against the table of "
            f"{table.version}, unknown flags and keys pass"
        )
    if not engine.own:
        yield (
            f"{engine.executable} (vLLM {engine.version}) belongs to another Python than the launcher: "
            "the launcher's middleware is left out"
        )


def _places(environ: Mapping[str, str], settings: Settings) -> places.Places:
    def absolute(wish: Any) -> str | None:
        if wish is not None and not wish.value.startswith("/"):
            raise ConfigurationError(f"{wish.origin}: {wish.value!r} is a relative path", "Give an absolute path")
        return wish and (wish.value.rstrip("/") or "/")

    return places.find_places(environ, absolute(settings.cache_path), absolute(settings.workspace))


def _model(command_line: Parsed, passthrough: Parsed | None, settings: Settings) -> ModelSource:
    """The model: the command line's beats the variable's; two in arguments are an error."""
    named = command_line.positionals
    hidden = passthrough.positionals if passthrough else ()
    if hidden and (named or settings.model):
        first = named[0] if named else settings.model and settings.model.value
        raise ConfigurationError(
            f"{PASSTHROUGH} names a second model, {hidden[0]!r} beside {first!r}", "Name one model"
        )
    if named or hidden:
        word, origin = (named[0], COMMAND_LINE) if named else (hidden[0], PASSTHROUGH)
    elif settings.model is not None:
        word, origin = settings.model
    else:
        raise ConfigurationError(
            "no model is named",
            f"Set {MODEL_PATH} or give the model first on the command line; an image with a model inside is made by "
            f"deriving from this one and setting {MODEL_PATH} there",
        )
    source = parse_source(word, origin)
    if not source.is_local:
        raise _unbuilt(source, origin)
    return source


def _unbuilt(source: ModelSource, origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin}: {source.scheme}:// sources cannot be fetched by version {__version__}",
        f"Download {source.text} to a folder, and give its absolute path",
    )


def _gather_target(intake: Intake) -> Gathered:
    folder = LocalFolder(intake.model.name)
    listed = Listed(folder, folder.listing())
    return Gathered(intake.model, listed.entries, gather_checkpoint(listed, folder.path, intake.memory))


def _gather_draft(intake: Intake, reference: DraftReference) -> Gathered:
    source = parse_source(reference.source, reference.origin)
    if not source.is_local:
        raise _unbuilt(source, reference.origin)
    folder = LocalFolder(source.name)
    listed = Listed(folder, folder.listing())
    return Gathered(source, listed.entries, gather_draft(listed, folder.path, intake.memory))


def _runtime(intake: Intake, target: Gathered) -> Parsed | None:
    """The model folder's own runtime_config.json."""
    document = target.checkpoint.runtime
    where = f"{target.checkpoint.place}/{RUNTIME_CONFIG}"
    return None if document is None else from_runtime_config(document, intake.table, where, passthrough=True)


def _levels(intake: Intake, runtime: Parsed | None) -> list[Level]:
    """All levels of arguments, highest first."""
    settings, table = intake.settings, intake.table
    return [
        level(1, COMMAND_LINE, intake.command_line),
        *([level(2, PASSTHROUGH, intake.passthrough)] if intake.passthrough else []),
        *([level(3, SPECDEC_ARGS, intake.specdec)] if intake.specdec else []),
        Level(3, VARIABLES, tuple(_variables(settings, table))),
        *([level(4, RUNTIME_CONFIG, runtime)] if runtime else []),
        Level(6, DERIVED, tuple(_derived(intake.model, table))),
    ]


def _variables(settings: Settings, table: EngineTable) -> Iterator[Argument]:
    """The NIM variables that stand for flags."""
    for setting in settings.engine:
        flag = table.flag(setting.flag)
        if flag is None:
            raise ConfigurationError(f"{setting.origin}: vLLM {table.version} has no {setting.flag}", "Unset it")
        if setting.negated and flag.kind == "switch":
            # Nothing to say to vLLM, and yet it keeps a lower level from switching it on.
            yield Argument(flag.name, (), True, (), setting.origin)
        else:
            values = () if setting.value is None else (setting.value,)
            yield given(flag, values, setting.origin, negated=setting.negated)
    if settings.served_names is not None:
        yield _served(settings.served_names.value, settings.served_names.origin, table)
    if settings.peft_source is not None:
        from launcher import adapters

        found = adapters.adapters_of(adapters.read_folders(settings.peft_source.value))
        yield from adapters.adapter_arguments(found, table)


def _derived(model: ModelSource, table: EngineTable) -> Iterator[Argument]:
    yield _served((served_name.derived_name(model),), DERIVED, table)


def _served(names: tuple[str, ...], origin: str, table: EngineTable) -> Argument:
    flag = table.flag(SERVED_NAME)
    assert flag is not None, "every table has it"
    return given(flag, names, origin)


def _request(intake: Intake, merged: Merged, environ: Mapping[str, str]) -> Request:
    settings = intake.settings
    enable = settings.specdec_enable
    runner = {"0": 1, "1": 2}.get(environ.get(RUNNER, "").strip())
    flags = effective(merged)
    return Request(
        layers=tuple(Layer(layer.origin, layer.value) for layer in merged.layers.get(SPECULATIVE, ())),
        enabled=_is_enabled(settings),
        enabled_origin=enable.origin if enable else None,
        draft=settings.draft.value if settings.draft else None,
        policy=settings.specdec_policy,
        flags=flags,
        trust_custom_code="--trust-remote-code" in flags,
        model_runner=runner,
    )


def _decide(
    intake: Intake, request: Request, target: Gathered, machine: Machine
) -> tuple[dict[str, Gathered], Decision]:
    found: dict[str, Gathered] = {}
    facts: dict[str, Checkpoint | LauncherError] = {}
    for reference in select.candidates(request, target.checkpoint, intake.table):
        try:
            found[reference.source] = _gather_draft(intake, reference)
            facts[reference.source] = found[reference.source].checkpoint
        except LauncherError as error:
            facts[reference.source] = error
    return found, select.decide(request, target.checkpoint, facts, intake.table, machine)


def _chosen_draft(decision: Decision, drafts: Mapping[str, Gathered]) -> Gathered | None:
    reference = decision.speculation.draft
    return None if reference is None else drafts.get(reference.source)


def _assemble(
    intake: Intake,
    target: Gathered,
    draft: Gathered | None,
    decision: Decision,
    merged: Merged,
    said: Sequence[Parsed],
    environ: Mapping[str, str],
    warnings: Warnings,
    error: LauncherError | None,
) -> Prepared:
    where = _layout(intake, target, draft, decision)
    secrets, api_keys = _credentials(intake.settings, said)
    if len(api_keys) > 1:
        path = f"{where.workspace}/{layout.API_KEYS}"
        keys_file = Argument("--config", (path,), False, ("--config", path), COMMAND_LINE)
        merged = merged._replace(arguments=(keys_file, *merged.arguments))
    dropped = frozenset(intake.settings.drop_environment)
    parent = {name: value for name, value in environ.items() if name not in dropped}
    added = environment.additions(
        parent,
        state=intake.places.state,
        offline=True,
        log_level=intake.settings.log_level,
        user_known=_user_known(),
        writable=_writable,
    )
    names = tuple(argument.values for argument in merged.arguments if argument.flag == SERVED_NAME)
    engine = intake.engine
    plan = LaunchPlan(
        engine=EngineFacts(
            engine.executable if engine else "vllm",
            engine.version if engine else intake.table.version,
            engine is not None,
        ),
        model=_artifact(target, ",".join(names[-1])),
        draft=_artifact(draft, None) if draft else None,
        decision=decision,
        merged=merged,
        rest=_rest(said),
        layout=where,
        environment={**added, **dict.fromkeys(secrets, logs.MASK)},
        warnings=tuple(warnings.kept),
        unknown=(*_unknown(engine, intake.table), *decision.unknown),
        error=error,
    )
    return Prepared(plan, parent, intake.places.scratch, secrets, api_keys)


def _layout(intake: Intake, target: Gathered, draft: Gathered | None, decision: Decision) -> layout.Layout:
    chosen = decision.speculation
    placement: layout.Placement | None = None
    if draft is not None and chosen.draft is not None:
        layout.refuse_hidden_file(chosen.draft.name, [entry.path for entry in target.entries], chosen.draft.origin)
        placement = layout.Placement(chosen.draft.name, draft.checkpoint.place, chosen.draft.as_is)
    folder = intake.model.name
    if f"{intake.places.workspace}/".startswith(f"{folder}/"):
        raise ConfigurationError(
            f"the workspace {intake.places.workspace} lies inside the model folder {folder}, which is never written to",
            "Set NIM_WORKSPACE to another folder",
        )

    def changes_method(path: str) -> bool:
        return chosen.method is not None and methods.path_overrides_method(path, chosen.method) is not None

    entries = layout.top_level(entry.path for entry in target.entries)
    return layout.arrange(intake.places.workspace, folder, entries, placement, changes_method, intake.places.scratch)


def _rest(said: Sequence[Parsed]) -> tuple[str, ...]:
    """``--`` and what follows it, from all places: vLLM gets it as it came, and says what it thinks of it."""
    words = [word for parsed in said for word in parsed.rest[1:]]
    return ("--", *words) if any(parsed.rest for parsed in said) else ()


def _credentials(settings: Settings, said: Sequence[Parsed]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What the child gets by environment, and the clients' keys where there are several.  Higher levels win."""
    secrets = {name: secret.reveal() for name, secret in settings.child_environment}
    keys: tuple[str, ...] = ()
    for parsed in reversed(said):
        secrets |= {name: value for name, value in parsed.secrets if name != API_KEY}
        keys = tuple(value for name, value in parsed.secrets if name == API_KEY) or keys
    if len(keys) == 1:
        secrets[API_KEY] = keys[0]
    return secrets, keys


def _artifact(found: Gathered, name: str | None) -> Artifact:
    size = sum(entry.size for entry in found.entries)
    return Artifact(found.source.text, None, found.checkpoint.place, name, size, 0, "local folder")


def _unknown(engine: installed.Engine | None, table: EngineTable) -> Iterator[str]:
    if engine is None:
        yield f"no vllm is installed here: checked against the table of {table.version}"


def _user_known() -> bool:
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _writable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
