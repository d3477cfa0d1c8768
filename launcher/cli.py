"""The commands that are not ``serve``: help, version, and the actions that follow in later versions."""

from __future__ import annotations

from collections.abc import Sequence

import click

from launcher import __version__
from launcher.errors import ConfigurationError

LATER = {
    "list-model-profiles": "list the profiles that fit this machine",
    "download-to-cache": "fill the cache",
    "create-model-store": "copy a model out of the cache into a folder",
    "download-model": "fetch a model and build its workspace",
    "verify": "check a model folder against its manifest",
    "profiles": "work with model profiles",
    "download": "fetch a model",
    "store": "write a model store",
    "cache": "look into the cache",
    "report": "report acceptance",
    "bench": "compare speculation on and off",
    "capture": "check captured traffic",
}


@click.group(
    name="launcher",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="All other first words: a model (serve it), a vLLM flag (serve), or a program on PATH (run it as it is).",
)
@click.version_option(__version__, prog_name="specdec-launcher")
def launcher() -> None:
    """Start vLLM with the right speculative decoding, or say in a second why not."""


@launcher.command("serve", help="Serve a model: launcher serve [MODEL] [vLLM arguments...].")
def _serve() -> None:
    """Shown in the help only: the words of ``serve`` are vLLM's and never reach click."""


@launcher.command("plan", help="Print what serve would run: launcher plan [--json] [MODEL] [vLLM arguments...].")
def _plan() -> None:
    """Shown in the help only, like ``serve``."""


def _refusal(name: str) -> click.Command:
    def refuse() -> None:
        raise ConfigurationError(
            f"the action {name!r} is not available in version {__version__}",
            "Models are served from local folders: see 'launcher serve --help'",
        )

    context = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["-h", "--help"]}
    return click.Command(name, callback=refuse, help=f"Not available yet: {LATER[name]}.", context_settings=context)


for _name in LATER:
    launcher.add_command(_refusal(_name))


def run(words: Sequence[str]) -> int:
    """Run click on ``words``; its own usage errors become ours, so that exit codes stay ours."""
    try:
        code = launcher.main(args=list(words), prog_name="launcher", standalone_mode=False)
    except click.ClickException as error:
        raise ConfigurationError(error.format_message().rstrip("."), "See 'launcher --help'") from None
    return code if isinstance(code, int) else 0
