"""Where the launcher may write: the cache, the workspace, a private scratch folder.

Probes the file system without creating anything, so that a dry run leaves no trace.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

from launcher.errors import ConfigurationError, DeniedError
from launcher.typing import NamedTuple

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


def refusal(path: str) -> OSError:
    """What stands in the way where `can_make` says no: a file, a read-only file system, or permissions."""
    here = _existing(path)
    if not os.path.isdir(here):
        number = errno.ENOTDIR
    elif os.statvfs(here).f_flag & os.ST_RDONLY:
        number = errno.EROFS
    else:
        number = errno.EACCES
    return OSError(number, os.strerror(number))


def scratch_folder(environ: Mapping[str, str]) -> str:
    """This user's private folder under TMPDIR; the same for every launch, so that plans repeat."""
    wish = environ.get("TMPDIR", "").strip()
    parent = os.path.normpath(wish) if wish.startswith("/") else "/tmp"
    return f"{parent.rstrip('/')}/specdec-launcher-{os.getuid()}"


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
    if state != chosen_cache:
        notes.append(
            f"{chosen_cache} cannot be written: nothing is remembered there, and what vLLM caches goes to {state}"
        )
    return Places(chosen_cache, chosen_workspace, scratch, state, tuple(notes))


def check_workspace(path: str) -> None:
    """Raise what `launcher.workspace` would raise for a folder that can never become the workspace, without writing.

    A folder of ours that cannot be written passes: it may already hold the plan.
    """
    here = _existing(path)
    if not os.path.isdir(here):
        raise ConfigurationError(
            f"the workspace {path} cannot be made: {here} is not a folder", "Set NIM_WORKSPACE to a folder"
        )
    if not can_make(path) and not (here == path and os.listdir(path)):
        raise DeniedError(
            f"cannot write the workspace {path}: {why_not_writable(path)}",
            "Make it writable, or set NIM_WORKSPACE to a writable folder",
        )


def unwritable_capture(path: str) -> tuple[str, ...]:
    """A warning where captured requests cannot be written to ``path``: serving goes on without them."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        why = f"the folder {folder} does not exist: mount or create it"
    elif os.path.isdir(path):
        why = "it is a folder: name a file in it"
    elif os.path.exists(path) and not os.path.isfile(path):
        why = "it is no regular file"
    elif os.path.exists(path):
        why = "" if os.access(path, os.R_OK | os.W_OK) else why_not_writable(path)
    else:
        why = "" if os.access(folder, os.W_OK | os.X_OK) else why_not_writable(folder)
    return (f"capture: {path} cannot be written, so no request will be recorded: {why}",) if why else ()


def make_shared(path: str) -> None:
    """Create a folder that others of our group may use too, as containers with any user id and group 0 do."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent != path:
            make_shared(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        try:
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o775)  # keeps what was inherited, such as setgid
        except OSError:  # a file system without modes
            return


def let_group_write(descriptor: int) -> None:
    """Whatever the umask: others of our group go on with this file.  Somebody else's is left as it is."""
    try:
        os.fchmod(descriptor, 0o664)
    except OSError:
        return


def make_writable(path: str, variable: str) -> None:
    """Create a folder that ``variable`` points vLLM at.  Raises DeniedError when it cannot be used."""
    try:
        make_shared(path)
    except OSError as error:
        reason = f"{error.strerror}; {why_not_writable(path)}"
    else:
        if os.access(path, os.W_OK | os.X_OK):
            return
        reason = why_not_writable(path)
    raise DeniedError(f"{variable}={path} cannot be written: {reason}", f"Make it writable, or set {variable} yourself")


def _existing(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while path not in ("/", "") and not os.path.exists(path):
        path = os.path.dirname(path)
    return path or "/"


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
        try:
            os.mkdir(path, mode=0o700)
        except FileExistsError:
            pass
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
