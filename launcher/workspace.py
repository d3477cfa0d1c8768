"""The workspace on disk: links to the target's files and to the draft, safe when several launchers share it.

Two advisory locks guard it.  *guard* is held for the moment of a change; *used* is held, shared, for the life of the
server: its descriptor survives exec, so the kernel itself says whether a workspace belongs to a running vLLM.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Mapping

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError
from launcher.layout import API_KEYS, LOGGING, OWN_PREFIX, Layout, Link
from launcher.places import make_private, make_shared, why_not_writable
from launcher.typing import NamedTuple

GUARD = f"{OWN_PREFIX}guard"
USED = f"{OWN_PREFIX}used"
GUARD_LIMIT = 30.0  # seconds; a change takes milliseconds, so a longer holder is stuck
MOST_WORKSPACES = 1000
FILES = (API_KEYS, LOGGING)
NOTHING: Mapping[str, str] = {}
_LARGEST_RECORD = 1 << 26  # bytes; some 100,000 links


class Claim(NamedTuple):
    """A workspace that holds the layout's links.  ``used`` is the inheritable lock, or None without lock support."""

    layout: Layout
    used: int | None


def build(layout: Layout, private: Mapping[str, str] = NOTHING) -> Claim:
    """Make the links of ``layout``, in its own workspace or in the first ``<workspace>.<n>`` that is free.

    ``private`` holds name and text of files of ours beside the links.  A workspace is shared only by launches that want
    exactly the same of it.

    Raises DeniedError when no folder can be written, ConfigurationError when one of ours was filled by somebody else.
    """
    for number in range(1, MOST_WORKSPACES):
        path = layout.workspace if number == 1 else f"{layout.workspace}.{number}"
        claim = _claim(layout.relocated(path), private)
        if claim is not None:
            if number > 1:
                logs.info(f"{layout.workspace} is in use or not ours; the workspace is {path}")
            if claim.layout.neutral is not None:
                _neutral_link(claim.layout.neutral)
            return claim
    raise DeniedError(
        f"{MOST_WORKSPACES} workspaces beside {layout.workspace} are all taken",
        "Remove the unused ones, or set NIM_WORKSPACE",
    )


def _claim(layout: Layout, private: Mapping[str, str]) -> Claim | None:
    """The claim on this very folder, or None when it is somebody else's."""
    folder = _open_folder(layout.workspace)
    try:
        if not _is_ours(folder):
            return None
        guard = _open_lock(folder, GUARD, layout.workspace)
        try:
            _wait_for(guard, layout.workspace)
            return _claim_guarded(folder, layout, private)
        finally:
            os.close(guard)
    finally:
        os.close(folder)


def _is_ours(folder: int) -> bool:
    """Whether the launcher made what is in the folder, or nobody put anything there."""
    return os.access(GUARD, os.F_OK, dir_fd=folder) or not os.listdir(folder)


def _claim_guarded(folder: int, layout: Layout, private: Mapping[str, str]) -> Claim | None:
    used = _open_lock(folder, USED, layout.workspace)
    locking = True
    try:
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except OSError as error:
        logs.warning(f"{layout.workspace} cannot be locked ({error.strerror}): do not start two servers on it")
        free, locking = True, False
    intact = os.pread(used, _LARGEST_RECORD, 0) == _record(folder, layout.links)
    wrong, stale = ([], []) if intact else _differences(folder, layout.links)
    secret = {name: private.get(name) for name in FILES if _text(folder, name) != private.get(name)}
    if not free and (wrong or stale or secret):
        os.close(used)
        return None
    _relink(folder, layout.workspace, wrong, stale, secret)
    if not intact or secret:
        _keep(used, _record(folder, layout.links))
    if not locking:
        os.close(used)
        return Claim(layout, None)
    # Nobody can slip in between: whoever takes the lock for itself holds the guard first.
    fcntl.flock(used, fcntl.LOCK_SH)
    os.set_inheritable(used, True)
    return Claim(layout, used)


def _record(folder: int, links: tuple[Link, ...]) -> bytes:
    """What the lock file holds once the links are made: all of them, and when the folder last changed.

    The kernel moves a folder's time whenever a name in it comes, goes or is replaced, so an equal record means intact
    links without a look at each.
    """
    words = [str(os.fstat(folder).st_mtime_ns), *[word for link in links for word in link]]
    return "\0".join(words).encode("utf-8", "surrogateescape")


def _keep(used: int, record: bytes) -> None:
    """Write the record in place, which leaves the folder's own time alone.  Without it the links are compared."""
    try:
        os.ftruncate(used, 0)
        os.pwrite(used, record, 0)
    except OSError:
        return


def _differences(folder: int, links: tuple[Link, ...]) -> tuple[list[Link], list[str]]:
    """The links to make anew, and the names of links that are no longer wanted."""
    present, wanted = _links(folder), dict(links)
    if present == wanted:
        return [], []
    wrong = [link for link in links if present.get(link.name) != link.to]
    return wrong, [name for name in present if name not in wanted]


def _links(folder: int) -> dict[str, str]:
    """The links in the folder, less our own files, and where they point."""
    found = {}
    for name in sorted(os.listdir(folder)):  # in the order in which they were made, which is the quickest
        if not name.startswith(OWN_PREFIX):
            try:
                found[name] = os.readlink(name, dir_fd=folder)
            except OSError:
                continue  # something else: not ours to touch
    return found


def _text(folder: int, name: str) -> str | None:
    """The content of a file of ours, or None without one that we can read."""
    try:
        with open(os.open(name, os.O_RDONLY, dir_fd=folder), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _write_file(folder: int, name: str, text: str) -> None:
    """Write a file of ours, replacing an older one whole; keys can be read by this user alone."""
    aside = f"{OWN_PREFIX}new-{os.getpid()}"
    _remove(aside, folder)  # a leftover of a killed process with our id
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if name != API_KEYS:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask: another user of our group may share the workspace
    os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)


def _relink(folder: int, workspace: str, wrong: list[Link], stale: list[str], secret: Mapping[str, str | None]) -> None:
    try:
        for name in stale:
            os.unlink(name, dir_fd=folder)
        for name, text in secret.items():
            if text is None:
                _remove(name, folder)
            else:
                _write_file(folder, name, text)
        aside = f"{OWN_PREFIX}new-{os.getpid()}"
        for link in wrong:
            _refuse_foreign(folder, link.name, workspace)
            _remove(aside, folder)
            os.symlink(link.to, aside, dir_fd=folder)
            os.replace(aside, link.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        raise DeniedError(
            f"cannot link into the workspace {workspace}: {error.strerror}; {why_not_writable(workspace)}",
            "Make it writable, or set NIM_WORKSPACE to a writable folder",
        ) from None


def _remove(name: str, folder: int | None = None) -> None:
    """Remove a name that need not be there."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _refuse_foreign(folder: int, name: str, workspace: str) -> None:
    """Never replace what is not a link of ours."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISLNK(mode):
        raise ConfigurationError(
            f"the workspace {workspace} holds {name!r}, which the launcher did not put there",
            "Move it away, or set NIM_WORKSPACE to an empty folder",
        )


def _open_folder(path: str) -> int:
    try:
        make_shared(path)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise ConfigurationError(f"the workspace {path} is not a folder", "Set NIM_WORKSPACE to a folder") from None
    except OSError as error:
        raise DeniedError(
            f"cannot create the workspace {path}: {error.strerror}; {why_not_writable(path)}",
            "Make it writable, or set NIM_WORKSPACE to a writable folder",
        ) from None


def _open_lock(folder: int, name: str, workspace: str) -> int:
    """A lock file.  One that cannot be written is enough to lock, for a workspace that already holds the plan."""
    try:
        try:
            return os.open(name, os.O_RDWR, dir_fd=folder)
        except FileNotFoundError:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o664, dir_fd=folder)
            os.fchmod(descriptor, 0o664)  # whatever the umask: any user of our group may start the next server
            return descriptor
        except OSError:
            return os.open(name, os.O_RDONLY, dir_fd=folder)
    except OSError as error:
        raise DeniedError(
            f"cannot write to the workspace {workspace}: {error.strerror}; {why_not_writable(workspace)}",
            "Make it writable, or set NIM_WORKSPACE to a writable folder",
        ) from None


def _wait_for(guard: int, workspace: str) -> None:
    """Take the guard lock; after the limit go on without it, since links are replaced atomically anyway."""
    deadline = time.monotonic() + GUARD_LIMIT
    announced = False
    while True:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                logs.warning(
                    f"another launcher has held {workspace} for {GUARD_LIMIT:.0f} s; going on without the lock"
                )
                return
            if not announced:
                logs.info(f"waiting for another launcher that is changing {workspace}")
                announced = True
            time.sleep(0.02)
        except OSError:
            return  # no lock support: reported once, by the caller's own lock


def _neutral_link(link: Link) -> None:
    """Make the link outside the workspace; its folder may be shared, so somebody else's link is never followed."""
    parent = os.path.dirname(link.name)
    if not os.path.exists(parent):
        make_private(parent)
    try:
        status = os.lstat(link.name)
    except FileNotFoundError:
        status = None
    if status is not None and (not stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid()):
        raise DeniedError(
            f"{link.name} exists and is not ours", "Remove it, or set NIM_WORKSPACE to a path without 'eagle' in it"
        )
    if status is not None and os.readlink(link.name) == link.to:
        return
    aside = f"{link.name}.{os.getpid()}"
    _remove(aside)
    os.symlink(link.to, aside)
    os.replace(aside, link.name)
