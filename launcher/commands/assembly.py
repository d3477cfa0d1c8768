"""From decisions to the plan: what vLLM is started with, and what must not be printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from launcher import layout, logs, places, surface
from launcher.arguments.merge import effective
from launcher.arguments.values import Argument, Merged, Parsed
from launcher.commands import profile
from launcher.commands.engine import Program, program
from launcher.commands.intake import COMMAND_LINE, Intake, Warnings
from launcher.commands.models import Gathered
from launcher.errors import LauncherError
from launcher.machine import Machine
from launcher.memory import Estimate
from launcher.plan import Artifact, LaunchPlan, PlannedProfile
from launcher.settings.values import DYNAMO, Settings
from launcher.speculation import methods
from launcher.speculation.known import Drafts
from launcher.speculation.values import Decision, Request
from launcher.typing import NamedTuple
from launcher.vllm import environment, log_config

API_KEY = "VLLM_API_KEY"
SERVED_NAME = "--served-model-name"


class Launch(NamedTuple):
    """Everything that a plan is made of."""

    intake: Intake
    target: Gathered
    draft: Gathered | None
    request: Request
    drafts: Drafts  # every draft that was looked at: its facts, or why there are none
    decision: Decision
    merged: Merged
    said: tuple[Parsed, ...]
    warnings: Warnings
    error: LauncherError | None
    machine: Machine
    profile: PlannedProfile
    memory: Estimate | None = None


class Prepared(NamedTuple):
    """A plan, and what must never be printed: the parent's environment and the secrets for the child."""

    plan: LaunchPlan
    launch: Launch
    environment: Mapping[str, str]  # of this process, less what would mislead the child
    scratch: str  # this user's private folder; made before anything is put there
    secrets: Mapping[str, str]  # credentials that the child gets and this process does not pass on by itself
    api_keys: tuple[str, ...]  # more than one: they need a file of their own
    logging: str | None  # vLLM's logging configuration, where it is ours

    def private_files(self) -> dict[str, str]:
        """Name and content of the workspace's files that only this user may read."""
        files = {} if self.logging is None else {layout.LOGGING: self.logging}
        if len(self.api_keys) > 1:
            import json

            # JSON is YAML, and vLLM reads its configuration file as YAML.
            files[layout.API_KEYS] = json.dumps({"api-key": list(self.api_keys)})
        return files


def assemble(launch: Launch) -> Prepared:
    """The plan of a launch (pure but for a look at who we are and where we may write)."""
    intake, settings = launch.intake, launch.intake.settings
    where = _layout(launch)
    secrets, api_keys = _credentials(settings, launch.said)
    if settings.engine_name == DYNAMO and (api_keys or API_KEY in secrets or API_KEY in intake.environ):
        launch.warnings.add((f"{API_KEY} has no effect with {DYNAMO}: guard Dynamo's frontend, which clients talk to",))
        api_keys = ()
    merged = _with_keys_file(launch.merged, where, api_keys)
    attached = _is_attached(launch, merged)
    if attached:
        # In front of the user's own: those stand around it, as they would without it.
        merged = merged._replace(arguments=(surface.argument(intake.table), *merged.arguments))
    dropped = frozenset(settings.drop_environment)
    parent = {name: value for name, value in intake.environ.items() if name not in dropped}
    logging = _logging(launch, log_config.Said(settings.log_level, settings.jsonl, parent, effective(merged)))
    chosen = program(settings.engine_name, intake.engine, intake.table, merged.arguments, _rest(launch.said))
    launch.warnings.add(chosen.warnings)
    names = tuple(argument.values for argument in merged.arguments if argument.flag == SERVED_NAME)
    model = _artifact(launch.target, ",".join(names[-1]))
    draft = _artifact(launch.draft, None) if launch.draft else None
    added = _environment(launch, parent)
    if logging is not None:
        added |= {log_config.VARIABLE: f"{where.workspace}/{layout.LOGGING}"}
    if attached:
        added |= _surface(launch, model, draft, chosen)
    plan = LaunchPlan(
        engine=chosen.facts,
        model=model,
        draft=draft,
        profile=launch.profile,
        decision=launch.decision,
        merged=merged._replace(arguments=chosen.arguments),
        rest=chosen.rest,
        layout=where,
        environment={**dict(sorted(added.items())), **dict.fromkeys(secrets, logs.MASK)},
        warnings=tuple(launch.warnings.kept),
        unknown=(*chosen.unknown, *profile.unread(launch.machine), *launch.decision.unknown),
        memory=launch.memory,
        error=launch.error,
    )
    return Prepared(plan, launch, parent, intake.places.scratch, secrets, api_keys, logging)


def _with_keys_file(merged: Merged, where: layout.Layout, api_keys: Sequence[str]) -> Merged:
    """Several keys of clients go by a file of ours, so that none is on a command line."""
    if len(api_keys) < 2:
        return merged
    path = f"{where.workspace}/{layout.API_KEYS}"
    keys_file = Argument("--config", (path,), False, ("--config", path), COMMAND_LINE)
    return merged._replace(arguments=(keys_file, *merged.arguments))


def _is_attached(launch: Launch, merged: Merged) -> bool:
    """Whether vLLM gets the middleware, with a warning of what somebody asked of it and will not get."""
    settings, flags = launch.intake.settings, effective(merged)
    attached, remark = surface.attachment(launch.intake.engine, flags, sys.path)
    if settings.engine_name == DYNAMO:
        attached, remark = False, ()  # a worker without an HTTP server
    launch.warnings.add((*remark, *surface.remarks(attached, settings, launch.decision.speculation, flags)))
    if attached and settings.capture is not None:
        launch.warnings.add(places.unwritable_capture(settings.capture.path))
    return attached


def _environment(launch: Launch, parent: Mapping[str, str]) -> dict[str, str]:
    return environment.additions(
        parent,
        state=launch.intake.places.state,
        offline=True,
        log_level=launch.intake.settings.log_level,
        user_known=_user_known(),
        writable=_writable,
    )


def _surface(launch: Launch, model: Artifact, draft: Artifact | None, chosen: Program) -> dict[str, str]:
    """What the middleware is told."""
    served = [surface.Served(model, _manifest(launch.target))]
    served += [surface.Served(draft, _manifest(launch.draft))] if draft and launch.draft else []
    speculation, settings = launch.decision.speculation, launch.intake.settings
    return surface.variable(served, speculation, launch.profile, chosen.facts.version, settings)


def _logging(launch: Launch, said: log_config.Said) -> str | None:
    """vLLM's logging configuration; None, with a warning where JSON was asked for, when it keeps another one."""
    if launch.intake.settings.engine_name == DYNAMO:
        return None
    engine = launch.intake.engine
    foreign = engine is not None and not engine.own
    obstacle = "vLLM belongs to another Python than the launcher" if foreign else log_config.obstacle(said)
    if obstacle is None:
        return log_config.text(said)
    if said.jsonl:
        launch.warnings.add((f"NIM_JSONL_LOGGING covers the launcher's own log alone: {obstacle}",))
    return None


def _layout(launch: Launch) -> layout.Layout:
    chosen, target, draft = launch.decision.speculation, launch.target, launch.draft
    placement: layout.Placement | None = None
    if draft is not None and chosen.draft is not None:
        layout.refuse_hidden_file(chosen.draft.name, [entry.path for entry in target.entries], chosen.draft.origin)
        place = draft.checkpoint.place if draft.described is None else _within(draft)
        placement = layout.Placement(chosen.draft.name, place, chosen.draft.as_is)

    def changes_method(path: str) -> bool:
        return chosen.method is not None and methods.path_overrides_method(path, chosen.method) is not None

    found = launch.intake.places
    entries = layout.top_level([entry.path for entry in target.entries])
    return layout.arrange(found.workspace, target.folder, entries, placement, changes_method, found.scratch)


def _within(draft: Gathered) -> str:
    """The draft's own folder in its snapshot, which may be one below the snapshot's."""
    folder = draft.checkpoint.place
    described = draft.described
    assert described is not None
    inner = folder[len(described.folder) :] if folder.startswith(f"{described.folder}/") else ""
    return draft.folder + inner


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
    else:  # vLLM reads them from a file; its log masks what stands in the environment
        secrets |= {f"LAUNCHER_{number}_API_KEY": key for number, key in enumerate(keys, 1)}
    return secrets, keys


def _artifact(found: Gathered, name: str | None) -> Artifact:
    size = sum(entry.size for entry in found.entries)
    described = found.described
    if described is None:
        return Artifact(found.source.text, None, found.checkpoint.place, name, size, 0, "local folder")
    proof = described.proof or "not fetched yet"
    return Artifact(
        found.source.text, described.revision, described.folder, name, described.size, described.to_download(), proof
    )


def _manifest(found: Gathered) -> str | None:
    """The launcher's record of a fetched model's files."""
    described = found.described
    if described is None or described.proof != "manifest":
        return None
    return described.shelf.manifest(described.revision, aside=described.aside)


def _user_known() -> bool:
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _writable(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
