"""``serve`` and ``plan``: from words and environment to vLLM, or to the plan's printed form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from errno import ENOSPC

from launcher import logs
from launcher.arguments.merge import effective
from launcher.commands import engine
from launcher.commands.assembly import Prepared
from launcher.commands.fetching import fetched
from launcher.commands.prepare import prepare
from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NoSpaceError, gathered
from launcher.plan import LaunchPlan, document, environment_words, refusal_document, shell_line, to_json, to_text
from launcher.settings.parse import early_health_port, early_log_setup
from launcher.settings.values import DYNAMO, VLLM
from launcher.typing import TYPE_CHECKING, NamedTuple, NoReturn
from launcher.vllm import installed

if TYPE_CHECKING:
    from launcher.health.listener import Listener

HEALTH_PORT = "NIM_HEALTH_PORT"

USAGE = """\
Usage: launcher serve [--dry-run [--json]] [MODEL] [vLLM arguments...]
       launcher plan [--json] [MODEL] [vLLM arguments...]

MODEL is an absolute path or a source; it beats NIM_MODEL_PATH.  All other words are `vllm serve` arguments.
Speculative decoding is switched on with NIM_SPECDEC_ENABLE=1 or given with --speculative-config.
--dry-run (anywhere before --) prints what would run; --json and --help count only before the first of vLLM's words.
Variables: docs/variables.md.  Exit codes: docs/exit-codes.md.
"""


USAGE_OF_DOWNLOAD = """\
Usage: launcher download-model [--workspace-path FOLDER] [MODEL] [vLLM arguments...]

Fetches the model, and the draft that `serve` would use with the same words and variables; builds the workspace and
prints its folder.
FOLDER beats NIM_WORKSPACE.  --dry-run prints what `serve` would run.
"""


class OwnWords(NamedTuple):
    """Our own options, taken out of a command line that is otherwise vLLM's."""

    rest: tuple[str, ...]
    dry_run: bool
    json: bool
    help: bool


def own_words(words: Sequence[str]) -> OwnWords:
    """Take out ``--dry-run`` (anywhere before ``--``), and ``--json`` and ``--help`` where they lead."""
    end = words.index("--") if "--" in words else len(words)
    dry_run = "--dry-run" in words[:end]
    rest = [word for position, word in enumerate(words) if word != "--dry-run" or position >= end]
    asked = set()
    while rest and rest[0] in ("--json", "--help", "-h"):
        asked.add(rest.pop(0))
    return OwnWords(tuple(rest), dry_run, "--json" in asked, bool(asked & {"--help", "-h"}))


def run(words: Sequence[str], environ: Mapping[str, str], *, dry_run: bool) -> int:
    """Serve (does not return), or print the plan and return its exit code."""
    own = own_words(words)
    if own.help:
        _print(USAGE)
        return 0
    if "--json" in own.rest:
        raise ConfigurationError("--json stands behind a word of vLLM's", "Put it right behind 'plan' or 'serve'")
    if dry_run or own.dry_run:
        return _print_plan(own, environ)
    if own.json:
        raise ConfigurationError(
            "--json prints a plan, and nobody asked for one", "Add --dry-run, or use 'launcher plan --json'"
        )
    listener = _listener(environ)
    try:
        prepared = fetched(_prepared(own.rest, environ), listener.progress if listener else None)
        _start(prepared, listener)
    except BaseException:
        if listener is not None:
            listener.end()
        raise


def run_download_model(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """``download-model``: all that `serve` does before vLLM is started.  Prints the workspace, for a later start.

    It takes the words of `serve`, for they decide which draft belongs to the model, and needs no vLLM.
    """
    workspace, rest = _workspace_path(words)
    own = own_words(rest)
    if own.help:
        _print(USAGE_OF_DOWNLOAD)
        return 0
    if workspace is not None:
        environ = {**environ, "NIM_WORKSPACE": os.path.abspath(workspace)}
    if own.dry_run:
        return _print_plan(own, environ)
    prepared = prepare(own.rest, environ)
    if prepared.plan.error is not None:
        raise prepared.plan.error
    _print(f"{_workspace(fetched(prepared)).layout.workspace}\n")
    return 0


def _workspace_path(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--workspace-path``, and the other words."""
    rest, path = list(words), None
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--workspace-path":
            path = value if equals else next(iter(words[number + 1 :]), "")
            if not path:
                raise ConfigurationError("--workspace-path names no folder", "Give one")
            del rest[number : number + (1 if equals else 2)]
            break
    return path, rest


def _listener(environ: Mapping[str, str]) -> Listener | None:
    """The health listener, where one is asked for: before anything that takes time, or that starts a thread."""
    if not environ.get(HEALTH_PORT, "").strip():
        return None
    from launcher.health.listener import listen  # lazy: few starts have a health port

    logs.configure(*early_log_setup(environ))
    port = early_health_port(environ)
    return port and listen(port)


def _print_plan(own: OwnWords, environ: Mapping[str, str]) -> int:
    warnings: list[str] = []
    try:
        plan = prepare(own.rest, environ, warnings).plan
    except LauncherError as error:
        if own.json:
            _print(to_json(refusal_document(error, warnings)) + "\n")
        raise
    _print((to_json(document(plan)) if own.json else to_text(plan)) + "\n")
    if plan.error is not None:
        raise plan.error
    return 0


def _print(text: str) -> None:
    """Write to stdout, whatever its encoding; a reader that had enough is no error.

    Raises NoSpaceError when the disk behind it is full, DeniedError when it cannot be written for another reason.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return
    except OSError as error:
        kind = NoSpaceError if error.errno == ENOSPC else DeniedError
        raise kind(f"the output cannot be written: {error.strerror}", "Check what stdout leads to") from None


def _prepared(words: Sequence[str], environ: Mapping[str, str]) -> Prepared:
    """A plan to carry out.  Without vLLM that is a refusal of its own, beside whatever else is wrong."""
    try:
        prepared = prepare(words, environ)
    except LauncherError as error:
        absent = engine.missing(VLLM, installed.find(environ))
        if absent is not None:
            raise gathered([absent, error, *error.others]) from None
        raise
    if prepared.plan.error is not None:
        raise prepared.plan.error
    if not prepared.plan.engine.installed:
        absent = engine.missing(prepared.launch.intake.settings.engine_name, prepared.launch.intake.engine)
        assert absent is not None, "something is not installed"
        raise absent
    return prepared


def _workspace(prepared: Prepared) -> LaunchPlan:
    """Build the workspace; the plan as it is there."""
    from launcher import places, workspace

    plan = prepared.plan
    chosen = (plan.layout.workspace, *plan.environment.values())
    if any(path.startswith(f"{prepared.scratch}/") for path in chosen):
        places.make_private(prepared.scratch)
    _keep_snapshots(prepared)
    claim = workspace.build(plan.layout, prepared.private_files())
    return plan.relocated(claim.layout)


def _start(prepared: Prepared, listener: Listener | None) -> NoReturn:
    """Build the workspace and become vLLM."""
    from launcher import places, process

    plan = _workspace(prepared)
    for name, value in plan.environment.items():
        if value.startswith("/") and not value.startswith(f"{plan.layout.workspace}/"):
            places.make_writable(value, name)
    _announce(plan)
    if listener is not None:
        _pass_to_vllm(listener, prepared, plan)
    process.hand_over(plan.argv, {**prepared.environment, **plan.environment, **prepared.secrets})


def _pass_to_vllm(listener: Listener, prepared: Prepared, plan: LaunchPlan) -> None:
    """Let the listener follow vLLM, or end where vLLM wants the port for itself."""
    from launcher.health.state import status_port, upstream_of  # lazy: few starts have a health port

    followed = upstream_of(effective(plan.merged))
    if prepared.launch.intake.settings.engine_name == DYNAMO:
        followed = status_port(prepared.environment.get("DYN_SYSTEM_PORT", ""))
    if followed.port == listener.port and followed.socket is None:
        logs.info(f"health: port {listener.port} is vLLM's own; it answers there again once it serves")
        listener.end()
    else:
        listener.follow(followed)


def _keep_snapshots(prepared: Prepared) -> None:
    """Hold the snapshots for as long as vLLM lives: its process inherits the locks, and a prune leaves them alone.

    Raises IntegrityError for one that a prune removed since this start found it complete.
    """
    for model in (prepared.launch.target, prepared.launch.draft):
        if model is not None and model.described is not None:
            from launcher.cache import locks  # lazy: local models need none of it

            locks.share(model.described.shelf.used)
            if not os.path.isdir(model.described.folder):
                raise IntegrityError(
                    f"{model.described.source.text} was removed from the cache during this start", "Start again"
                )


def _announce(plan: LaunchPlan) -> None:
    chosen = plan.speculation
    logs.info(f"profile: {plan.profile.description}: {plan.profile.reason}")
    for step in chosen.considered:
        logs.info(f"{step.method}: {'chosen' if step.accepted else 'not chosen'}: {step.reason}")
    if chosen.enabled:
        logs.info(f"speculative decoding: {chosen.method}, num_speculative_tokens={chosen.tokens}: {chosen.reason}")
    else:
        logs.info(f"speculative decoding is off: {chosen.reason}")
    if not plan.serves_clients:
        logs.info("this node works for a leader (--headless): clients are served there, and no port is opened here")
    logs.info("environment: " + " ".join(environment_words(plan)))
    logs.info(f"exec: {shell_line(plan.argv)}")
