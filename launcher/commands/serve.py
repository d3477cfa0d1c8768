"""``serve`` and ``plan``: from words and environment to vLLM, or to the plan's printed form."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launcher import logs
from launcher.commands.prepare import Prepared, prepare
from launcher.errors import ConfigurationError, LauncherError
from launcher.plan import LaunchPlan, document, refusal_document, to_json, to_text

USAGE = """\
Usage: launcher serve [--dry-run [--json]] [MODEL] [vLLM arguments...]
       launcher plan [--json] [MODEL] [vLLM arguments...]

MODEL is an absolute path or a source; it beats NIM_MODEL_PATH.  All other words are `vllm serve` arguments.
Speculative decoding is switched on with NIM_SPECDEC_ENABLE=1 or given with --speculative-config.
--dry-run (anywhere before --) prints what would run; --json and --help count only before the first of vLLM's words.
Variables: docs/variables.md.  Exit codes: docs/exit-codes.md.
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
        print(USAGE, end="")
        return 0
    if dry_run or own.dry_run:
        return _print_plan(own, environ)
    if own.json:
        raise ConfigurationError(
            "--json prints a plan, and nobody asked for one", "Add --dry-run, or use 'launcher plan --json'"
        )
    return _start(prepare(own.rest, environ))


def _print_plan(own: OwnWords, environ: Mapping[str, str]) -> int:
    warnings: list[str] = []
    try:
        plan = prepare(own.rest, environ, warnings).plan
    except LauncherError as error:
        if own.json:
            print(to_json(refusal_document(error, warnings)))
        raise
    print(to_json(document(plan)) if own.json else to_text(plan))
    if plan.error is not None:
        raise plan.error
    return 0


def _start(prepared: Prepared) -> int:
    """Build the workspace and become vLLM."""
    from launcher import places, process, workspace

    plan = prepared.plan
    if plan.error is not None:
        raise plan.error
    if not plan.engine.installed:
        raise ConfigurationError(
            "no vllm beside this Python or on PATH", "Install it: pip install 'specdec-launcher[vllm]'"
        )
    chosen = (plan.layout.workspace, *plan.environment.values())
    if any(path.startswith(f"{prepared.scratch}/") for path in chosen):
        places.make_private(prepared.scratch)
    claim = workspace.build(plan.layout)
    plan = plan.relocated(claim.layout)
    for path, text in prepared.private_files(plan.layout):
        workspace.write_private(path, text)
    environment = {**prepared.environment, **plan.environment, **prepared.secrets}
    _make_folders(plan.environment)
    _announce(plan)
    process.hand_over(plan.argv, environment)


def _make_folders(environment: Mapping[str, str]) -> None:
    """The child's HOME and caches, where we chose them."""
    for name, value in environment.items():
        if value.startswith("/") and name != "VLLM_CONFIG_ROOT":
            os.makedirs(value, exist_ok=True)


def _announce(plan: LaunchPlan) -> None:
    import shlex

    chosen = plan.speculation
    for step in chosen.considered:
        logs.info(f"{step.method}: {'chosen' if step.accepted else 'not chosen'}: {step.reason}")
    if chosen.enabled:
        logs.info(f"speculative decoding: {chosen.method}, num_speculative_tokens={chosen.tokens}: {chosen.reason}")
    else:
        logs.info(f"speculative decoding is off: {chosen.reason}")
    for name, value in plan.environment.items():
        logs.info(f"environment: {name}={value}")
    logs.info(f"exec: {shlex.join(plan.argv)}")
