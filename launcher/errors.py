"""The error tree: every way in which a launch is refused, with its exit code.

An error carries two sentences: what happened (with the value and where it came from) and what to do.  Exit codes are
part of the product's interface: they are stable, documented in docs/exit-codes.md and generated from this module.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST = 500  # characters of a value that a message shows: most paths, no pasted file


class LauncherError(Exception):
    """Base of all refusals.

    ``what`` says what happened, ``todo`` what to do about it; both are whole sentences without the final full stop.
    ``others`` holds further problems found in the same pass: all are shown, this one decides the exit code.
    ``secrets`` are what the place of the problem held besides; no text here shows one, and no other may.
    """

    code = 1
    title = "unexpected"
    when = "a bug in the launcher; the message says how to report it"

    def __init__(self, what: str, todo: str = "", *, others: Sequence[LauncherError] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.todo = todo
        self.others = tuple(others)
        self.secrets: tuple[str, ...] = ()

    def named_by(self, origin: str) -> LauncherError:
        """The same error, with the setting in front that led to it."""
        prefix = "" if self.what.startswith(origin) else f"{origin}: "
        named = type(self)(f"{prefix}{self.what}", self.todo, others=self.others)
        named.secrets = self.secrets
        return named

    def reworded(self, change: Callable[[str], str]) -> LauncherError:
        """The same error and the others, every text changed, as masking does."""
        others = [other.reworded(change) for other in self.others]
        reworded = type(self)(change(self.what), change(self.todo), others=others)
        reworded.secrets = self.secrets
        return reworded

    def __str__(self) -> str:
        return f"{_ended(self.what)} {_ended(self.todo)}" if self.todo else _ended(self.what)


class ConfigurationError(LauncherError):
    """A setting, action, argument or speculative key that cannot be read or does not exist."""

    code = 2
    title = "configuration"
    when = (
        "unreadable or unknown setting, action, flag or speculative key (also one that this vLLM lacks), no model, "
        "two models, a bare draft name that names nothing, a relative path, a scheme that cannot be fetched, no vllm"
    )


class NotFoundError(LauncherError):
    """A folder, repository, revision, bucket or prefix that is not there."""

    code = 3
    title = "not found"
    when = "missing folder, repository, revision or bucket, empty prefix, offline and not cached"


class DeniedError(LauncherError):
    """Access refused: by a remote (401, 403, gated, licence) or by the file system."""

    code = 4
    title = "denied"
    when = "401 or 403, gated repository, licence not accepted, cache or workspace not writable, model not readable"


class NetworkError(LauncherError):
    """The network failed after all retries; running again may work."""

    code = 5
    title = "network"
    when = "DNS, TLS, stalled transfer, 5xx or 429 after all retries (worth trying again)"


class NoSpaceError(LauncherError):
    """The disk is too small for what must be fetched."""

    code = 6
    title = "no space"
    when = "not enough disk space, before the first byte where it can be known"


class IntegrityError(LauncherError):
    """Files that are not what they claim to be."""

    code = 7
    title = "integrity"
    when = (
        "wrong size or digest, truncated or foreign file, absent shard, dangling link, unusable file name, "
        "a difference found by verify"
    )


class IncompatibleError(LauncherError):
    """Target, draft, method and arguments that do not fit together."""

    code = 8
    title = "incompatible"
    when = (
        "draft and target do not fit, token count against the head, draft tensor parallelism, method against the "
        "draft's kind, an asked-for head without tensors, a draft without weights, an option that this vLLM refuses "
        "with speculation"
    )


class HardwareError(LauncherError):
    """The machine or the profile cannot run what was asked for."""

    code = 9
    title = "hardware or profile"
    when = "no such profile, weights cannot fit, a method that this device cannot run"


class BusyError(LauncherError):
    """Another process holds what this one needs for itself."""

    code = 10
    title = "busy"
    when = "another process holds a store or a prune that needs sole use (never a download)"


class AcceptanceError(LauncherError):
    """Speculation works, but below the floor that was asked for."""

    code = 11
    title = "acceptance"
    when = "acceptance below the asked floor (report, bench)"


# In the order of precedence: when several checks fail, the first of these decides the exit code.
TREE: tuple[type[LauncherError], ...] = (
    ConfigurationError,
    NotFoundError,
    DeniedError,
    NetworkError,
    NoSpaceError,
    IntegrityError,
    IncompatibleError,
    HardwareError,
    BusyError,
    AcceptanceError,
)
INTERRUPTED = 130
TERMINATED = 143


def shortened(value: str, longest: int = _LONGEST) -> str:
    """A value as a message shows it: cut where it would drown the sentence."""
    return value if len(value) <= longest else f"{value[: longest - 1]}…"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(("?", "!")) else f"{sentence}."


def gathered(problems: Sequence[LauncherError]) -> LauncherError:
    """The problem that decides the exit code, carrying the others in their order of discovery."""
    first = min(problems, key=lambda problem: problem.code)
    first.others = tuple(problem for problem in problems if problem is not first)
    first.secrets = tuple(secret for problem in problems for secret in problem.secrets)
    return first
