"""Dispatch, and the one place that prints an error and exits.

``serve`` and ``plan`` take vLLM's words, so they are read by hand and imported alone: a warm start pays for nothing
else.  Every other command goes through click (`launcher.cli`).
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence

from launcher import logs, process, signals
from launcher.errors import ConfigurationError, LauncherError, NoSpaceError

# The action words of a container's command line, as NIM spells them and as this launcher does.
SERVE = ("serve", "nim-serve")
PLAN = ("plan",)
DOWNLOAD_MODEL = "download-model"
ACTIONS = ("list-model-profiles", "download-to-cache", "create-model-store", DOWNLOAD_MODEL)
COMMANDS = ("verify", "profiles", "download", "store", "cache", "report", "bench", "capture")
HEALTHCHECK = "healthcheck"
OWN_FLAGS = ("--help", "-h", "--version")
INSTEAD = {
    "mirror": "Use create-model-store and copy the folder that it makes",
    "nim-serve-ray": "Use nim-serve with NIM_NUM_COMPUTE_NODES, or with "
    "--distributed-executor-backend ray behind 'ray start' (docs/deployment.md)",
}


def run(words: Sequence[str]) -> int:
    """Carry out a command line; gives the exit code."""
    return guarded(lambda: dispatch(words))


def guarded(action: Callable[[], int]) -> int:
    """Run an action; turn every way of failing into one clear last line and a documented exit code."""
    try:
        code = action()
    except LauncherError as error:
        code = _refuse(error)
    except signals.Stopped as stopped:
        code = _say(f"stopped by {stopped.name} before vLLM was started; start again to go on", stopped.exit_code)
    except Exception as error:
        code = _bug(error)
    return code


def _refuse(error: LauncherError) -> int:
    for other in error.others:
        logs.error(_on_one_line(str(other)))
    return _say(f"{error} (exit code {error.code}: {error.title})", error.code)


def _say(sentence: str, code: int) -> int:
    """The last line, on stderr and where Kubernetes looks for it."""
    sentence = _on_one_line(sentence)
    logs.error(sentence)
    process.last_words(sentence)
    return code


def _on_one_line(sentence: str) -> str:
    """Texts of other libraries go into ours, and some are written over several lines."""
    return " ".join(line.strip() for line in sentence.splitlines() if line.strip())


def _bug(error: Exception) -> int:
    import traceback

    logs.debug("".join(traceback.format_exception(error)))
    last = traceback.extract_tb(error.__traceback__)[-1]
    sentence = (
        f"unexpected {type(error).__name__} in {last.filename.rpartition('/')[2]}:{last.lineno}: {error}. "
        "This is a bug in the launcher: run again with NIM_LOG_LEVEL=DEBUG and report what it prints."
    )
    return _say(sentence, 1)


def dispatch(words: Sequence[str]) -> int:
    """Choose the action from the first word."""
    first = words[0] if words else ""
    if first in SERVE:
        return _serve(words[1:])
    if first in PLAN:
        return _serve(words[1:], dry_run=True)
    if first == DOWNLOAD_MODEL:
        return _download_model(words[1:])
    if first not in OWN_FLAGS and (not words or first.startswith("-") or _is_model(first)):
        return _serve(words)
    _configure_log()
    if first == HEALTHCHECK:
        from launcher.commands.healthcheck import run  # run every few seconds: click would double its cost

        return run(os.environ)
    if first in OWN_FLAGS or first in ACTIONS or first in COMMANDS:
        return _click(words)
    if first in INSTEAD:
        raise ConfigurationError(f"the action {first!r} does not exist here", INSTEAD[first])
    return _run_program(words)


def _configure_log() -> None:
    """For what does not go through `launcher.commands.intake`, which does the same."""
    from launcher.settings.parse import early_log_setup

    logs.configure(*early_log_setup(os.environ))


def _is_model(word: str) -> bool:
    """A source (or what was meant as one), or an absolute path that is not an executable file."""
    if not word.startswith("/"):
        return "://" in word
    return not (os.path.isfile(word) and os.access(word, os.X_OK))


def _serve(words: Sequence[str], *, dry_run: bool = False) -> int:
    from launcher.commands.serve import run

    return run(words, os.environ, dry_run=dry_run)


def _download_model(words: Sequence[str]) -> int:
    from launcher.commands.serve import run_download_model

    return run_download_model(words, os.environ)


def _click(words: Sequence[str]) -> int:
    gc.enable()  # `launcher.__main__` switched it off for the sake of an exec that does not come here
    from launcher.cli import run

    try:
        code = run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader had enough
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
            raise
        _drop_output()  # what is written elsewhere names its file
        raise NoSpaceError(f"the output cannot be written: {error.strerror}", "Check what stdout leads to") from None
    return code


def _drop_output() -> None:
    """At interpreter exit, what is left in the buffer would cost a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run_program(words: Sequence[str]) -> int:
    """A program on PATH is run as it is, as people expect of a base image."""
    from shutil import which

    program = which(words[0])
    if program is None:
        raise _unknown_word(words[0])
    process.hand_over([program, *words[1:]], os.environ)


def _unknown_word(word: str) -> ConfigurationError:
    from launcher.settings.hints import nearest

    close = nearest(word, (*SERVE, *PLAN, *ACTIONS, *COMMANDS))
    hint = f"Did you mean {close!r}? " if close else ""
    repository = word if word.count("/") == 1 and all(word.split("/")) else "org/model"
    return ConfigurationError(
        f"{word!r} is neither an action, nor a model, nor a program on PATH",
        f"{hint}A model is an absolute path or a source such as hf://{repository}",
    )
