"""The commands that are not ``serve``: help, version, and whatever takes options of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import click

from launcher import __version__
from launcher.errors import ConfigurationError
from launcher.typing import Any


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


@launcher.command("healthcheck", help="Exit with 0 when the server of this container is ready, for HEALTHCHECK.")
def _healthcheck() -> None:
    """Shown in the help only: it is asked every few seconds, and click would double what it costs."""


@launcher.command(
    "download-model", help="Fetch a model and build its workspace: launcher download-model [MODEL] [...]."
)
def _download_model() -> None:
    """Shown in the help only, like ``serve``."""


_PROFILES = click.option(
    "-p",
    "--profile",
    "--profiles",
    "profiles",
    multiple=True,
    help="A profile, by id or description; further ones follow.",
)


_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _download(
    model_uri: str | None,
    draft_uri: str | None,
    everything: bool,
    profiles: tuple[str, ...],
    manifest_file: str | None,
    verify_checksums: bool,
    more: tuple[str, ...],
) -> int:
    """Fill the cache with the model (and the draft), so that it can be served without a network.

    Prints where each lies.  Of profiles that are named, fetches the models, and with NIM_SPECDEC_ENABLE=1 the drafts.
    """
    from launcher.commands import download

    wanted = download.Wanted(model_uri, draft_uri, manifest_file, verify_checksums, _several(profiles, more))
    return download.run(wanted, os.environ)


def _store(model_repo: str | None, model_store: str, mirror: bool, profiles: tuple[str, ...]) -> int:
    """Write a model as a plain folder to carry over, or as a mirror for NIM_REPOSITORY_OVERRIDE."""
    from launcher.commands import store

    if len(profiles) > 1:
        raise ConfigurationError("a store holds the model of one profile", "Give each profile a store of its own")
    return store.run(store.Wanted(model_store, model_repo, mirror, profiles[0] if profiles else None), os.environ)


def _several(profiles: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """NIM's ``--profiles A B C``: what follows the option belongs to it."""
    if more and not profiles:
        raise ConfigurationError(
            f"{more[0]!r} is not understood", "Name the model with --model-uri, or give --profiles"
        )
    return (*profiles, *more)


_DOWNLOAD_OPTIONS = (
    click.option("--model-uri", help="The model; else NIM_MODEL_PATH."),
    click.option("--draft-uri", help="The draft model; else NIM_DRAFT_MODEL_PATH."),
    click.option(
        "--all",
        "everything",
        is_flag=True,
        help="Every profile of this image's own manifest: without one, the model that is named.",
    ),
    _PROFILES,
    click.option("--manifest-file", help="Also write the model's manifest there."),
    click.option("--verify-checksums", is_flag=True, help="Also check the digests of what was there already."),
    click.argument("more", nargs=-1, metavar=""),
)
_STORE_OPTIONS = (
    click.option("--model-repo", "--model-uri", "model_repo", help="The model; else NIM_MODEL_PATH."),
    click.option("-m", "--model-store", required=True, help="The folder to write."),
    click.option("--mirror", is_flag=True, help="Write SCHEME/NAME/REVISION below the folder, with manifest.json."),
    _PROFILES,
)


def _add(
    name: str, function: Callable[..., int], options: Sequence[Callable[[Callable[..., int]], Callable[..., int]]]
) -> None:
    for option in reversed(options):
        function = option(function)
    launcher.command(name)(function)


def _copy_of(function: Callable[..., int]) -> Callable[..., int]:
    """click keeps the options in the function: a command of another name needs a function of its own."""

    def same(**words: Any) -> int:
        return function(**words)

    same.__doc__ = function.__doc__
    return same


for _name in ("download", "download-to-cache"):
    _add(_name, _copy_of(_download), _DOWNLOAD_OPTIONS)
for _name in ("store", "create-model-store"):
    _add(_name, _copy_of(_store), _STORE_OPTIONS)


@launcher.command("verify")
@click.argument("path", required=False)
@click.option(
    "--level",
    type=click.Choice(["names", "sizes", "structure", "digests"]),
    default="digests",
    show_default=True,
    help="How deeply to compare; each level includes those before it.",
)
@click.option("--manifest-file", help="Compare PATH with this manifest.")
def _verify(path: str | None, level: str, manifest_file: str | None) -> int:
    """Compare a folder, a source in the cache, or the whole cache with what it should hold.  Needs no network."""
    from launcher.commands import verify

    if manifest_file and not path:
        raise ConfigurationError("--manifest-file needs the folder to compare", "Give it as PATH")
    return verify.run(path, level, manifest_file, os.environ)


_FORMAT = click.option(
    "--format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="How to print."
)
_PICTURE = click.option("--picture", metavar="FILE", help="Also draw it: a path that ends in .svg or .png.")
_MIN_ACCEPTANCE = click.option(
    "--min-acceptance", metavar="RATE",
    help="Exit with 11 where less is accepted, such as 0.3; else NIM_SPECDEC_MIN_ACCEPTANCE.",
)  # fmt: skip


@launcher.group("cache")
def _cache() -> None:
    """See what is in the cache, or remove what is not needed."""


@_cache.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _ls(as_json: bool) -> int:
    """List the models in the cache."""
    from launcher.commands import cache

    return cache.run_list(os.environ, as_json=as_json)


@_cache.command("prune")
@click.argument("sources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove every model.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def _prune(sources: tuple[str, ...], everything: bool, dry_run: bool) -> int:
    """Remove old revisions and unfinished files; of the SOURCES named, everything."""
    from launcher.commands import cache

    return cache.run_prune(sources, os.environ, everything=everything, dry_run=dry_run)


@launcher.command("report")
@click.argument("sources", metavar="[PATH]...", nargs=-1)
@click.option("--url", metavar="URL", help="A running server; the key is VLLM_API_KEY.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 86400),
    default=10.0,
    show_default=True,
    help="Seconds between two looks at it; 0: only what happened since its start.",
)
@click.option("--watch", is_flag=True, help="Print a line for each interval until stopped.")
@click.option("--lines", type=click.IntRange(1), help="Stop watching after so many lines.")
@click.option("--scrapes", nargs=2, metavar="BEFORE AFTER", help="Two saved metrics pages of one server.")
@click.option("--compare", nargs=2, metavar="OFF ON", help="Results without and with speculation: the speed-up.")
@click.option("--bundle", metavar="OUT.tar.gz", help="Write plan, versions, settings and logs there, for a bug report.")
@click.option("--log", "logs", metavar="FILE", multiple=True, help="With --bundle: a log whose end goes in.")
@_FORMAT
@_PICTURE
@_MIN_ACCEPTANCE
def _report(bundle: str | None, logs: tuple[str, ...], **words: Any) -> int:
    """Show acceptance rate, mean acceptance length, acceptance by position and throughput.

    PATH is a folder with AIPerf's artifacts (or one that holds such folders), the file that 'vllm bench serve
    --save-result' writes, what 'launcher bench' wrote, or a saved metrics page.  With --bundle, PATH is the model,
    as for 'launcher plan', where NIM_MODEL_PATH does not name it.
    """
    if bundle is not None:
        from launcher.commands import bundle as packing

        return packing.run(packing.Wanted(bundle, words["url"], logs, words["sources"]), os.environ)
    if logs:
        raise ConfigurationError("--log goes with --bundle", "Name the archive with --bundle OUT.tar.gz")
    from launcher.commands import report

    return report.run(report.Wanted(**words), os.environ)


@launcher.group("profiles")
def _profiles() -> None:
    """What is known of models and engines."""


@_profiles.command("keys")
@click.option("--engine", type=click.Choice(["vllm", "dynamo-vllm"]), default="vllm", show_default=True)
@click.option("--version", "version", help="The version of vLLM; else the installed one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def _keys(engine: str, version: str | None, as_json: bool) -> int:
    """List the keys that NIM_ENGINE_CONFIG takes for an engine and its version."""
    from launcher.commands import keys

    return keys.run(engine, version, os.environ, as_json=as_json)


@launcher.command("bench")
@click.argument("words", metavar="[-- MODEL [vLLM arguments...]]", nargs=-1, type=click.UNPROCESSED)
@click.option("--off", metavar="URL", help="A running server without speculation ...")
@click.option("--on", metavar="URL", help="... and one with it; else two are started here, one after the other.")
@click.option("--speed-bench", metavar="FILE", help="Ask the questions of this SPEED-Bench file.")
@click.option("--trace", metavar="FILE", help="Replay this captured trace.")
@click.option("--ignore-times", is_flag=True, help="Send its requests as fast as --concurrency allows.")
@click.option("--category", "categories", multiple=True, help="Only this category of questions; may be repeated.")
@click.option("--requests", type=click.IntRange(1), help="The first so many of each category; else all.")
@click.option("--concurrency", type=click.IntRange(1, 1024), help="Requests at once; else 16.")
@click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True, help="Of the questions.")
@click.option("--model", metavar="NAME", help="The served name to ask; else the first that the server lists.")
@click.option(
    "--client",
    type=click.Choice(["auto", "aiperf", "built-in"]),
    default="auto",
    show_default=True,
    help="What sends the requests; auto: AIPerf where it is on PATH.",
)
@click.option("--aiperf", metavar="PATH", help="The program aiperf.")
@click.option("--tokenizer", metavar="DIR", help="For AIPerf: a folder with the model's tokenizer.")
@click.option("--output", metavar="DIR", help="Keep the results there; else in a new temporary folder.")
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=3600.0,
    show_default=True,
    help="Seconds for a server to be ready, and for AIPerf to be done.",
)
@_FORMAT
@_PICTURE
@_MIN_ACCEPTANCE
def _bench(**words: Any) -> int:
    """Measure the same traffic with speculation off and on, and print the speed-up and the acceptance.

    Without --off and --on, the words behind -- are those of 'launcher serve' (or NIM_MODEL_PATH names the model): the
    first server gets them with speculation switched off, the second as they are.  Without --speed-bench and --trace, a
    small set of questions of our own is asked.
    """
    from launcher.commands import bench

    return bench.run(bench.Wanted(**words), os.environ)


@launcher.command("list-model-profiles")
@click.argument("model", required=False)
@_JSON
def _list_model_profiles(model: str | None, as_json: bool) -> int:
    """List the profiles that fit this machine, of MODEL or of all models.  Needs no GPU and no network."""
    from launcher.commands import profiles

    return profiles.run_list(model, os.environ, as_json=as_json)


@_profiles.command("list")
@click.argument("model", required=False)
@_JSON
def _list_profiles(model: str | None, as_json: bool) -> int:
    """List the profiles that fit this machine, of MODEL or of all models."""
    from launcher.commands import profiles

    return profiles.run_list(model, os.environ, as_json=as_json)


@_profiles.command("show")
@click.argument("word", metavar="PROFILE|MODEL|SOURCE")
@_JSON
def _show_profile(word: str, as_json: bool) -> int:
    """Show all that is known of a profile (by id or description) or of a model, with where it comes from."""
    from launcher.commands import profiles

    return profiles.run_show(word, os.environ, as_json=as_json)


@_profiles.command("manifest")
@_PROFILES
@click.option("--output", help="Write it there instead of printing it.")
@click.option("--pin", is_flag=True, help="List each source over the network, and pin its files.")
@click.argument("more", nargs=-1, metavar="")
def _manifest(profiles: tuple[str, ...], output: str | None, pin: bool, more: tuple[str, ...]) -> int:
    """Write NIM's model manifest (version 2) of these profiles, or of all."""
    from launcher.commands import profiles as commands

    return commands.run_manifest(_several(profiles, more), output, os.environ, pin=pin)


@_profiles.command("check")
@click.argument("folder")
def _check_profiles(folder: str) -> int:
    """Check a folder of profile files, as NIM_PROFILES_PATH would read it."""
    from launcher.commands import profiles

    return profiles.run_check(folder)


@launcher.group("capture")
def _capture() -> None:
    """Work with captured requests (docs/capture.md)."""


@_capture.command("validate")
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mooncake_payload", "raw_payload"]),
    help="What FILE is to be replayed as; else as its first line is.",
)
def _validate(path: str, form: str | None) -> int:
    """Find every line of FILE that would stop a replay by AIPerf.  Exit code 7 when there is one."""
    from launcher.commands import capture

    return capture.validate(path, form)


def run(words: Sequence[str]) -> int:
    """Run click on ``words``; its own usage errors become ours, so that exit codes stay ours."""
    try:
        code = launcher.main(args=list(words), prog_name="launcher", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a command
        known = (
            ", ".join(error.ctx.command.list_commands(error.ctx)) if isinstance(error.ctx.command, click.Group) else ""
        )
        raise ConfigurationError(f"{error.ctx.command_path} needs a command", f"It has: {known}") from None
    except click.UsageError as error:
        place = error.ctx.command_path if error.ctx else "launcher"
        raise ConfigurationError(error.format_message().rstrip("."), f"See '{place} --help'") from None
    except click.ClickException as error:
        raise ConfigurationError(error.format_message().rstrip("."), "See 'launcher --help'") from None
    return code if isinstance(code, int) else 0
