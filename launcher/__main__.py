"""Dispatch, and the one place that prints an error and exits.

``serve`` and ``plan`` take vLLM's words, so they are read by hand and imported alone: a warm start pays for nothing
else.  Every other command goes through click (`launcher.cli`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence

from launcher import logs, process
from launcher.errors import ConfigurationError, LauncherError

PROGRAM = "launcher"
# The action words of a container's command line, as NIM spells them and as this launcher does.
SERVE = ("serve", "nim-serve")
PLAN = ("plan",)
ACTIONS = ("list-model-profiles", "download-to-cache", "create-model-store", "download-model")
COMMANDS = ("verify", "profiles", "download", "store", "cache", "report", "bench", "capture")
INSTEAD = {
    "mirror": "Use create-model-store and copy the folder that it makes",
    "nim-serve-ray": "Use nim-serve with NIM_NUM_COMPUTE_NODES",
}


def main() -> int:
    """The umbrella command, and the image's entrypoint."""
    return guarded(lambda: dispatch(sys.argv[1:]))


def serve() -> int:
    return guarded(lambda: _serve(sys.argv[1:]))


def list_model_profiles() -> int:
    return guarded(lambda: _click(["list-model-profiles", *sys.argv[1:]]))


def download_to_cache() -> int:
    return guarded(lambda: _click(["download-to-cache", *sys.argv[1:]]))


def create_model_store() -> int:
    return guarded(lambda: _click(["create-model-store", *sys.argv[1:]]))


def guarded(action: Callable[[], int]) -> int:
    """Run an action; turn every way of failing into one clear last line and a documented exit code."""
    process.install_signals()
    try:
        code = action()
    except LauncherError as error:
        code = _refuse(error)
    except process.Stopped as stopped:
        logs.info("stopped by a signal")
        code = stopped.exit_code
    except BrokenPipeError:
        code = 0  # the reader had enough: `launcher plan | head -1`
    except Exception as error:
        code = _bug(error)
    _finish_output()
    return code


def _finish_output() -> None:
    """Flush here: at interpreter exit, a reader that went away would cost a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _refuse(error: LauncherError) -> int:
    for other in error.others:
        logs.error(str(other))
    logs.error(f"{error} (exit code {error.code}: {error.title})")
    process.last_words(str(error))
    return error.code


def _bug(error: Exception) -> int:
    import traceback

    logs.debug("".join(traceback.format_exception(error)))
    last = traceback.extract_tb(error.__traceback__)[-1]
    sentence = (
        f"unexpected {type(error).__name__} in {last.filename.rpartition('/')[2]}:{last.lineno}: {error}. "
        "This is a bug in the launcher: run again with NIM_LOG_LEVEL=DEBUG and report what it prints."
    )
    logs.error(sentence)
    process.last_words(sentence)
    return 1


def dispatch(words: Sequence[str]) -> int:
    """Choose the action from the first word."""
    first = words[0] if words else ""
    if first in SERVE:
        return _serve(words[1:])
    if first in PLAN:
        return _serve(words[1:], dry_run=True)
    if first in ("--help", "-h", "--version") or first in ACTIONS or first in COMMANDS:
        return _click(words)
    if first in INSTEAD:
        raise ConfigurationError(f"the action {first!r} does not exist here", INSTEAD[first])
    if not words or first.startswith("-") or _is_model(first):
        return _serve(words)
    return _run_program(words)


def _is_model(word: str) -> bool:
    """A source, or an absolute path that is not an executable file."""
    from launcher.sources import is_source

    if not is_source(word):
        return False
    return not (word.startswith("/") and os.path.isfile(word) and os.access(word, os.X_OK))


def _serve(words: Sequence[str], *, dry_run: bool = False) -> int:
    # Nothing that a start allocates becomes garbage before the exec; looking for some would cost a tenth of the time.
    gc.disable()
    from launcher.commands.serve import run

    return run(words, os.environ, dry_run=dry_run)


def _click(words: Sequence[str]) -> int:
    from launcher.cli import run

    return run(words)


def _run_program(words: Sequence[str]) -> int:
    """A program on PATH is run as it is, as people expect of a base image."""
    from shutil import which

    program = which(words[0])
    if program is None:
        from launcher.settings.hints import nearest

        known = (*SERVE, *PLAN, *ACTIONS, *COMMANDS)
        close = nearest(words[0], known)
        hint = f"Did you mean {close!r}? " if close else ""
        raise ConfigurationError(
            f"{words[0]!r} is neither an action, nor a model, nor a program on PATH",
            f"{hint}A model is an absolute path or a source such as hf://org/model",
        )
    process.hand_over([program, *words[1:]], os.environ)


if __name__ == "__main__":
    sys.exit(main())
