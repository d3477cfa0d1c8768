"""From what was said to a plan: the one place where all rooms meet.

The only effects on this road are reads, and facts remembered under the cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from launcher import hardware, memory, places, served_name, shared_memory, surface
from launcher.arguments.merge import Level, effective, level, merge
from launcher.arguments.values import SPECULATIVE, Argument, Merged, Parsed, given
from launcher.checkpoint import Checkpoint
from launcher.commands import known, profile
from launcher.commands.assembly import Launch, Prepared, assemble
from launcher.commands.intake import (
    COMMAND_LINE,
    ENGINE_CONFIG,
    PASSTHROUGH,
    Intake,
    Problems,
    Warnings,
    heard,
    is_enabled,
    take_in,
)
from launcher.commands.models import Gathered, gather_reference, gather_target, look_at_named_draft
from launcher.errors import ConfigurationError, LauncherError
from launcher.machine import Machine
from launcher.memory import Estimate
from launcher.plan import PLANNED_REFUSALS, PlannedProfile, failure
from launcher.profiles.choose import Choice
from launcher.settings.values import DYNAMO, Settings
from launcher.sources import ModelSource
from launcher.speculation import select
from launcher.speculation.values import Decision, Layer, Request
from launcher.typing import TYPE_CHECKING
from launcher.vllm import installed
from launcher.vllm.tables import EngineTable

if TYPE_CHECKING:
    from launcher.fetch.describe import Described

SPECDEC_ARGS = "NIM_SPECDEC_ARGS"
DRAFT_PATH = "NIM_DRAFT_MODEL_PATH"
RUNTIME_CONFIG = "runtime_config.json"
VARIABLES = "NIM variables"
DERIVED = "derived"
API_KEY = "VLLM_API_KEY"
SERVED_NAME = "--served-model-name"
TENSOR_PARALLEL = "--tensor-parallel-size"
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def prepare(words: Sequence[str], environ: Mapping[str, str], kept_warnings: list[str] | None = None) -> Prepared:
    """Read everything that decides the launch and make the plan.

    Raises LauncherError when no plan is possible; a plan whose checks fail (codes 8 and 9) is returned with its
    ``error`` set.  ``kept_warnings`` receives each warning as it is found, for a caller that prints them after a
    failure too.
    """
    warnings = Warnings([] if kept_warnings is None else kept_warnings)
    problems = Problems()
    intake = take_in(words, environ, warnings, problems)
    target = problems.attempt(lambda: gather_target(intake, warnings)) if intake else None
    if intake is not None:
        problems.attempt(lambda: places.check_workspace(intake.places.workspace))
        problems.attempt(lambda: surface.check_environment(environ, intake.engine))
        if target is None and intake.settings.draft is not None:
            problems.attempt(lambda: look_at_named_draft(intake))
    problems.settle()
    assert intake is not None and target is not None
    runtime = _runtime(intake, target)
    machine = _machine(intake.engine, environ)
    above = _levels(intake, runtime)
    choice, defaults = _profiled(intake, target, machine, above, warnings)
    parts = (intake.command_line, intake.passthrough, intake.specdec, intake.engine_config, runtime, defaults)
    said = tuple(heard(parts, warnings))
    below = [level(5, profile.origin(choice), defaults)] if defaults else []
    derived = Level(6, DERIVED, tuple(_derived(intake.model.source, choice.derived_tp, intake.table)))
    merged = _merged(intake, [*above, *below, derived], machine)
    if any(argument.flag.startswith("--ssl-") for argument in merged.arguments):
        from launcher import tls  # lazy: few starts serve over TLS

        tls.check(merged)
    if intake.settings.peft_source is not None:
        from launcher import adapters  # lazy: few starts have them

        merged = adapters.settled(merged)
    warnings.add(merged.warnings)
    request = _request(intake, merged, environ, choice)
    drafts, facts, decision = _decide(intake, request, target, machine, warnings)
    warnings.add(decision.warnings)
    draft = _chosen_draft(decision, drafts)
    decision, needed = _fitted(decision, request, target, draft, machine, warnings)
    error = failure(decision.checks)
    if error is not None and error.code not in PLANNED_REFUSALS:
        raise error
    if decision.dropped:
        kept = tuple(argument for argument in merged.arguments if argument.flag not in decision.dropped)
        merged = merged._replace(arguments=kept)
    warnings.add(tuple(profile.unpinned(request, decision, draft)))
    warnings.add(shared_memory.too_small(effective(merged)))
    shown = PlannedProfile(choice.profile.id, choice.profile.description, choice.reason)
    return assemble(
        Launch(intake, target, draft, request, facts, decision, merged, said, warnings, error, machine, shown, needed)
    )


def _profiled(
    intake: Intake, target: Gathered, machine: Machine, above: Sequence[Level], warnings: Warnings
) -> tuple[Choice, Parsed | None]:
    """The profile of this start, and the arguments that it sets."""
    stores = known.stores(intake.settings)
    choice = profile.picked(intake.settings, target, machine, above, stores, intake.model.offered)
    if intake.node is not None:
        choice = profile.among_nodes(choice)
    warnings.add(choice.warnings)
    defaults, notes = profile.arguments_of(choice, intake.table)
    warnings.add(notes)
    return choice, defaults


def _machine(engine: installed.Engine | None, environ: Mapping[str, str]) -> Machine:
    packages = sys.path if engine and engine.own else ()
    return hardware.probe(engine.device if engine else None, packages, environ)


def _runtime(intake: Intake, target: Gathered) -> Parsed | None:
    """The model folder's own runtime_config.json."""
    document = target.checkpoint.runtime
    if document is None:
        return None
    from launcher.arguments.runtime import from_runtime_config  # lazy: few folders hold one

    where = f"{target.checkpoint.place}/{RUNTIME_CONFIG}"
    return from_runtime_config(document, intake.table, where, passthrough=True)


def _merged(intake: Intake, levels: Sequence[Level], machine: Machine) -> Merged:
    """All levels together."""
    if intake.node is None:
        return merge(levels)
    from launcher import nodes  # lazy: most starts are alone

    return nodes.joined(intake.node, levels, len(machine.gpus), intake.table)


def _levels(intake: Intake, runtime: Parsed | None) -> list[Level]:
    """The levels of arguments above the profile, highest first."""
    settings, table = intake.settings, intake.table
    return [
        level(1, COMMAND_LINE, intake.command_line),
        *([level(2, PASSTHROUGH, intake.passthrough)] if intake.passthrough else []),
        *([level(3, SPECDEC_ARGS, intake.specdec)] if intake.specdec else []),
        Level(3, VARIABLES, tuple(_variables(settings, table))),
        *([level(3, ENGINE_CONFIG, intake.engine_config)] if intake.engine_config else []),
        *([level(4, RUNTIME_CONFIG, runtime)] if runtime else []),
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
    if settings.log_level != "INFO" and settings.engine_name != DYNAMO:
        flag = table.flag("--uvicorn-log-level")
        assert flag is not None, "every table has it"
        yield given(flag, (settings.log_level.lower(),), "NIM_LOG_LEVEL")
    bars = table.flag("--use-tqdm-on-load") if settings.jsonl else None
    if bars is not None:  # they would stand between the lines of JSON
        yield given(bars, (), "NIM_JSONL_LOGGING", negated=True)
    if settings.served_names is not None:
        yield _served(settings.served_names.value, settings.served_names.origin, table)
    if settings.peft_source is not None:
        from launcher import adapters  # lazy: few starts have them

        found = adapters.adapters_of(adapters.read_folders(settings.peft_source.value))
        yield from adapters.adapter_arguments(found, table)


def _derived(model: ModelSource, tensor_parallel: int | None, table: EngineTable) -> Iterator[Argument]:
    yield _served((served_name.derived_name(model),), DERIVED, table)
    flag = table.flag(TENSOR_PARALLEL)
    if tensor_parallel is not None and tensor_parallel > 1 and flag is not None:
        yield given(flag, (str(tensor_parallel),), DERIVED)


def _served(names: tuple[str, ...], origin: str, table: EngineTable) -> Argument:
    flag = table.flag(SERVED_NAME)
    assert flag is not None, "every table has it"
    return given(flag, names, origin)


def _request(intake: Intake, merged: Merged, environ: Mapping[str, str], choice: Choice) -> Request:
    settings = intake.settings
    enable = settings.specdec_enable
    runner = {"0": 1, "1": 2}.get(environ.get(RUNNER, "").strip())
    flags = effective(merged)
    return Request(
        layers=tuple(Layer(layer.origin, layer.value) for layer in merged.layers.get(SPECULATIVE, ())),
        enabled=is_enabled(settings),
        enabled_origin=enable.origin if enable else None,
        draft=settings.draft.value if settings.draft else None,
        policy=settings.specdec_policy,
        flags=flags,
        trust_custom_code="--trust-remote-code" in flags,
        published=profile.published(choice),
        no_published=choice.note,
        model_runner=runner,
    )


def _decide(
    intake: Intake, request: Request, target: Gathered, machine: Machine, warnings: Warnings
) -> tuple[dict[str, Gathered], dict[str, Checkpoint | LauncherError], Decision]:
    """Read the drafts that may be meant, and choose.  What is said of a model in the cache names its source."""
    found: dict[str, Gathered] = {}
    facts: dict[str, Checkpoint | LauncherError] = {}
    try:
        decision = _decided(intake, request, target, machine, warnings, found, facts)
    except LauncherError as error:
        fetched = _fetched(target, found)
        if not fetched:
            raise
        from launcher.fetch import wording  # lazy: local models need none of it

        raise wording.of_sources(error, fetched) from None
    if fetched := _fetched(target, found):
        from launcher.fetch import wording  # lazy: local models need none of it

        decision = wording.of_decision(decision, fetched)
    return found, facts, decision


def _fetched(target: Gathered, drafts: Mapping[str, Gathered]) -> list[Described]:
    return [model.described for model in (target, *drafts.values()) if model.described is not None]


def _decided(
    intake: Intake,
    request: Request,
    target: Gathered,
    machine: Machine,
    warnings: Warnings,
    found: dict[str, Gathered],
    facts: dict[str, Checkpoint | LauncherError],
) -> Decision:
    """The decision; ``found`` receives each draft that could be read, ``facts`` what is known of every one."""
    for reference in select.candidates(request, target.checkpoint, intake.table, machine):
        try:
            found[reference.source] = gather_reference(intake, reference, target, warnings)
            facts[reference.source] = found[reference.source].checkpoint
        except LauncherError as error:
            facts[reference.source] = error
    return select.decide(request, target.checkpoint, facts, intake.table, machine)


def _fitted(
    decision: Decision,
    request: Request,
    target: Gathered,
    draft: Gathered | None,
    machine: Machine,
    warnings: Warnings,
) -> tuple[Decision, Estimate]:
    """The decision with what is to be said of memory, and the estimate behind it."""
    chosen = decision.speculation
    demand = memory.Demand(target.checkpoint, draft.checkpoint if draft else None, chosen, request.flags, machine)
    found = memory.estimate(demand)
    refused = memory.check(demand, found)
    remarks = (memory.warning(found), memory.occupied(demand)) if refused is None else ()
    warnings.add([remark for remark in remarks if remark])
    checks = (*decision.checks, refused) if refused is not None else decision.checks
    return decision._replace(checks=checks, unknown=(*decision.unknown, *found.unknown)), found


def _chosen_draft(decision: Decision, drafts: Mapping[str, Gathered]) -> Gathered | None:
    reference = decision.speculation.draft
    return None if reference is None else drafts.get(reference.source)
