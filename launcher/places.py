"""Where the launcher may write: the cache, the workspace, a private scratch folder.

Probes the file system without creating anything, so that a dry run leaves no trace.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from launcher.errors import DeniedError

IMAGE_CACHE = "/opt/nim/.cache"
IMAGE_WORKSPACE = "/opt/nim/workspace"


class Places(NamedTuple):
    """Resolved folders (absolute).  None of them need exist yet."""

    cache: str
    workspace: str
    scratch: str  # private to this user
    state: str  # writable: the cache when it is, else the scratch folder
    notes: tuple[str, ...]  # one line for each fallback


def can_make(path: str) -> bool:
    """Whether ``path`` is a writable folder or could be created as one."""
    here = _existing(path)
    return os.path.isdir(here) and os.access(here, os.W_OK | os.X_OK)


def scratch_folder(environ: Mapping[str, str]) -> str:
    """This user's private folder under TMPDIR; the same for every launch, so that plans repeat."""
    return f"{environ.get('TMPDIR') or '/tmp'}/specdec-launcher-{os.getuid()}".replace("//", "/")


def find_places(environ: Mapping[str, str], cache: str | None, workspace: str | None) -> Places:
    """Resolve all folders; ``cache`` and ``workspace`` are the user's own wishes, or None.

    A wish is taken as it is (an unwritable one is an error where it is written to); only the defaults fall back.
    """
    notes: list[str] = []
    scratch = scratch_folder(environ)
    chosen_cache = cache or _first_usable(_default_caches(environ), scratch)
    if cache is None and chosen_cache != IMAGE_CACHE:
        notes.append(f"{IMAGE_CACHE} cannot be written, the cache is {chosen_cache} (set NIM_CACHE_PATH to choose)")
    chosen_workspace = workspace or _first_usable((IMAGE_WORKSPACE,), f"{scratch}/workspace")
    if workspace is None and chosen_workspace != IMAGE_WORKSPACE:
        notes.append(
            f"{IMAGE_WORKSPACE} cannot be written, the workspace is {chosen_workspace} (set NIM_WORKSPACE to choose)"
        )
    state = chosen_cache if can_make(chosen_cache) else scratch
    return Places(chosen_cache, chosen_workspace, scratch, state, tuple(notes))


def _existing(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while path != "/" and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _default_caches(environ: Mapping[str, str]) -> tuple[str, ...]:
    home = environ.get("HOME", "")
    user_cache = environ.get("XDG_CACHE_HOME") or (f"{home.rstrip('/')}/.cache" if home not in ("", "/") else "")
    return (IMAGE_CACHE, *((f"{user_cache}/specdec-launcher",) if user_cache.startswith("/") else ()))


def _first_usable(paths: tuple[str, ...], otherwise: str) -> str:
    return next((path for path in paths if can_make(path)), otherwise)


def make_private(path: str) -> None:
    """Create a folder that only this user can enter; refuse one that somebody else put there.

    Raises DeniedError.  Needed because TMPDIR is usually shared.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, mode=0o700)
        status = os.lstat(path)
    except OSError as error:
        raise DeniedError(
            f"cannot create the folder {path}: {error.strerror}", "Set TMPDIR to a writable folder"
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise DeniedError(
            f"{path} belongs to user id {status.st_uid}, this is user id {os.getuid()}",
            "Remove it, or set TMPDIR to a folder of your own",
        )


def why_not_writable(path: str) -> str:
    """The facts an operator needs about a folder that refuses to be written: owner, mode, and who asked."""
    here = _existing(path)
    status = os.stat(here)
    mode = stat.S_IMODE(status.st_mode)
    return (
        f"{here} belongs to {status.st_uid}:{status.st_gid} with mode {mode:04o}; this process runs as "
        f"{os.getuid()}:{os.getgid()}"
    )
