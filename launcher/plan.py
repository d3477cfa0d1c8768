"""The launch plan: one immutable value that says what would run, and its two renderings (pure).

Everything that decides the launch is in the value, with its reason; ``serve`` carries it out, ``plan`` prints it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from launcher import __version__, logs
from launcher.arguments.merge import emit
from launcher.arguments.values import Argument, Merged, compact
from launcher.errors import LauncherError, gathered
from launcher.layout import Layout
from launcher.memory import Estimate
from launcher.middleware.configuration import VARIABLE
from launcher.speculation.values import Check, Decision, Speculation
from launcher.typing import Any, NamedTuple, Self

SCHEMA = 1
SPECULATIVE_FLAG = "--speculative-config"
HEADLESS = "--headless"
# With these a plan is still possible: it shows which check failed.
PLANNED_REFUSALS = (8, 9)
_SHELL_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-")


class EngineFacts(NamedTuple):
    """What would run: ``start`` are the words before the model.

    ``worker`` is the version of ai-dynamo, when its worker runs vLLM; empty when that is not installed.
    """

    start: tuple[str, ...]
    version: str  # of vLLM
    installed: bool  # all that is needed to run it
    worker: str | None = None


class Artifact(NamedTuple):
    """A model as the plan shows it: where it comes from and how sure its completeness is.  Sizes are bytes."""

    source: str
    revision: str | None
    snapshot: str | None
    served_name: str | None
    bytes: int
    to_download: int
    proof: str


class PlannedProfile(NamedTuple):
    """The profile of the launch, and why this one."""

    id: str
    description: str
    reason: str


class PlannedArgument(NamedTuple):
    flag: str
    value: str | bool | tuple[str, ...]
    origin: str


class LaunchPlan(NamedTuple):
    """What would run.  ``error`` is the first failing check, or None when the launch may go on."""

    engine: EngineFacts
    model: Artifact
    draft: Artifact | None
    profile: PlannedProfile
    decision: Decision
    merged: Merged
    rest: tuple[str, ...]
    layout: Layout
    environment: Mapping[str, str]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    error: LauncherError | None
    memory: Estimate | None = None

    @property
    def speculation(self) -> Speculation:
        return self.decision.speculation

    @property
    def speculative_config(self) -> Mapping[str, Any] | None:
        """The one JSON object that vLLM gets, or None when speculation is off."""
        chosen = self.speculation
        if not chosen.enabled:
            return None
        path = {"model": self.layout.draft} if self.layout.draft is not None else {}
        return {"method": chosen.method, **path, **chosen.config}

    @property
    def argv(self) -> tuple[str, ...]:
        """The exact list to exec."""
        words = emit(self.merged, self.speculative_config, self.rest)
        return (*self.engine.start, self.layout.model, *words)

    @property
    def serves_clients(self) -> bool:
        """Whether this vLLM has an API at all: a worker among several nodes has none."""
        return not any(argument.flag == HEADLESS and not argument.negated for argument in self.merged.arguments)

    def relocated(self, layout: Layout) -> Self:
        """The same plan in the workspace that was really taken."""
        if layout == self.layout:
            return self
        moved = tuple(
            argument._replace(
                values=tuple(_moved(word, self.layout, layout) for word in argument.values),
                words=tuple(_moved(word, self.layout, layout) for word in argument.words),
            )
            for argument in self.merged.arguments
        )
        environment = {name: _moved(value, self.layout, layout) for name, value in self.environment.items()}
        return self._replace(layout=layout, merged=self.merged._replace(arguments=moved), environment=environment)


def _moved(word: str, old: Layout, new: Layout) -> str:
    prefix = f"{old.workspace}/"
    return f"{new.workspace}/{word[len(prefix) :]}" if word.startswith(prefix) else word


def failure(checks: Sequence[Check]) -> LauncherError | None:
    """The failing check that decides the exit code, with the others, or None."""
    errors = [check.error for check in checks if check.error is not None]
    return gathered(errors) if errors else None


def planned_arguments(plan: LaunchPlan) -> tuple[PlannedArgument, ...]:
    """Every argument with its origin, in the order of argv, the speculative configuration last."""
    shown = [PlannedArgument(a.flag, _shown_value(a), a.origin) for a in plan.merged.arguments]
    config = plan.speculative_config
    if config is not None:
        origins = sorted(set(plan.speculation.origins.values()))
        shown.append(PlannedArgument(SPECULATIVE_FLAG, compact(config), ", ".join(origins) or "automatic choice"))
    return tuple(shown)


def _shown_value(argument: Argument) -> str | bool | tuple[str, ...]:
    if not argument.values:
        return not argument.negated
    return argument.values[0] if len(argument.values) == 1 else argument.values


def document(plan: LaunchPlan) -> dict[str, Any]:
    """The plan as plain values under stable keys; no secret in it."""
    chosen = plan.speculation
    shown: dict[str, Any] = {
        "schema": SCHEMA,
        "launcher": __version__,
        "vllm": _engine(plan.engine),
        "model": plan.model._asdict(),
        "draft": plan.draft._asdict() if plan.draft else None,
        "profile": plan.profile._asdict(),
        "speculation": {
            "enabled": chosen.enabled,
            "method": chosen.method,
            "num_speculative_tokens": chosen.tokens,
            "model": plan.layout.draft if chosen.enabled else None,
            "reason": chosen.reason,
            "considered": [step._asdict() for step in chosen.considered],
        },
        "memory": _memory(plan.memory),
        "arguments": [argument._asdict() for argument in planned_arguments(plan)],
        "argv": logs.mask_words(plan.argv),
        "environment": dict(plan.environment),
        "checks": [_check(check) for check in plan.decision.checks],
        "warnings": list(plan.warnings),
        "unknown": list(plan.unknown),
    }
    if plan.error is not None:
        shown["error"] = error_document(plan.error)
    return masked_document(shown)


def _memory(found: Estimate | None) -> dict[str, Any] | None:
    """Bytes on each GPU; ``available`` and what depends on it are null where no GPU is known."""
    if found is None:
        return None
    shown = found._asdict()
    for name in ("least", "unknown"):
        del shown[name]
    return {**shown, "advice": list(found.advice), "total": found.total, "fits": found.fits}


def _engine(engine: EngineFacts) -> dict[str, Any]:
    found: dict[str, Any] = {"version": engine.version, "installed": engine.installed}
    return found if engine.worker is None else {**found, "worker": {"package": "ai-dynamo", "version": engine.worker}}


def _check(check: Check) -> dict[str, Any]:
    error = check.error
    return {"name": check.name, "ok": error is None, "code": error.code if error else 0, "message": check.message}


def error_document(error: LauncherError) -> dict[str, Any]:
    return {"code": error.code, "message": error.what, "hint": error.todo}


def refusal_document(error: LauncherError, warnings: Sequence[str]) -> dict[str, Any]:
    """What ``plan --json`` prints when no plan is possible."""
    shown = {"schema": SCHEMA, "launcher": __version__, "error": error_document(error), "warnings": list(warnings)}
    return masked_document(shown)


def to_json(shown: Mapping[str, Any]) -> str:
    return json.dumps(shown, indent=2, ensure_ascii=False)


def masked_document(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A document without secrets, whatever road they came by."""
    return {key: _masked(value) for key, value in shown.items()}


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return logs.mask(value)
    if isinstance(value, Mapping):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(item) for item in value]
    return value


def to_text(plan: LaunchPlan) -> str:
    """The plan for people."""
    shown = document(plan)
    rows = [
        _row("vllm", _engine_text(plan.engine)),
        _row("model", _artifact_text(plan.model)),
        _row("draft", _artifact_text(plan.draft) if plan.draft else "none"),
        _row("profile", f"{plan.profile.description}: {plan.profile.reason}"),
        _row("speculation", _speculation_text(plan.speculation)),
    ]
    rows += [_row("", f"{'+' if s.accepted else '-'} {s.method}: {s.reason}") for s in plan.speculation.considered]
    rows += [_row("memory", _memory_text(plan.memory))] if plan.memory else []
    rows += _section("arguments", [_argument_text(argument) for argument in planned_arguments(plan)])
    rows += _section("environment", environment_words(plan))
    rows += _section(
        "checks", [f"{'ok  ' if c['ok'] else 'FAIL'} {c['name']}: {c['message']}" for c in shown["checks"]]
    )
    rows += _section("warnings", shown["warnings"])
    rows += _section("not known", shown["unknown"])
    rows += _section("command", [shell_line(shown["argv"])])
    return logs.mask("\n".join(rows))


def environment_words(plan: LaunchPlan) -> list[str]:
    """What the child gets, for people: the middleware's configuration is our own affair, and long."""
    return [f"{name}={'{...}' if name == VARIABLE else value}" for name, value in plan.environment.items()]


def shell_line(words: Sequence[str]) -> str:
    """Words as one line for a POSIX shell: what `shlex.join` gives, which compiles a pattern at its import."""
    return " ".join(word if word and _SHELL_SAFE.issuperset(word) else _quoted(word) for word in words)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _row(name: str, text: str) -> str:
    return f"{name:<12} {text}".rstrip()


def _memory_text(found: Estimate) -> str:
    parts = [f"weights {human_bytes(found.weights)}"]
    parts += [f"draft {human_bytes(found.draft_weights)}"] if found.draft_weights else []
    if found.kv_cache is not None and found.kv_bytes_per_token is not None:
        rate = human_bytes(found.kv_bytes_per_token)
        parts.append(f"KV cache {human_bytes(found.kv_cache)} for {found.tokens} tokens ({rate} a token)")
    parts += [f"speculation {human_bytes(found.speculation)}"] if found.speculation else []
    ranks = found.tensor_parallel * found.pipeline_parallel
    each = f"on each of {ranks} GPUs, " if ranks > 1 else ""
    there = "" if found.available is None else f"; {found.gpu} has {human_bytes(found.available)}"
    return f"{each}{', '.join(parts)}: {human_bytes(found.total)}{there}"


def _engine_text(engine: EngineFacts) -> str:
    worker = "" if engine.worker is None else f", in the worker of ai-dynamo {engine.worker}".rstrip()
    return f"{engine.version}{worker}" + ("" if engine.installed else " (not installed here)")


def _section(name: str, lines: Sequence[str]) -> list[str]:
    return [_row(name if position == 0 else "", line) for position, line in enumerate(lines)]


def _artifact_text(artifact: Artifact) -> str:
    name = f", served as {artifact.served_name}" if artifact.served_name else ""
    return f"{artifact.source} ({human_bytes(artifact.bytes)}{name}; {artifact.proof})"


def _speculation_text(chosen: Speculation) -> str:
    if not chosen.enabled:
        return f"off: {chosen.reason}"
    tokens = f"{chosen.tokens} token{'' if chosen.tokens == 1 else 's'}"
    return f"{chosen.method}, {tokens}: {chosen.reason}"


def _argument_text(argument: PlannedArgument) -> str:
    if isinstance(argument.value, bool):
        value = "" if argument.value else " (off)"
    else:
        value = " " + (argument.value if isinstance(argument.value, str) else " ".join(argument.value))
    return f"{argument.flag}{value}  [{argument.origin}]"


def human_bytes(size: int) -> str:
    """A size for people, in decimal units as object stores and disks are sold."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
