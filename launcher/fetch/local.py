"""A folder on this machine, as a source: listed and read in place, never written to."""

from __future__ import annotations

import errno
import os
import stat

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NotFoundError, shortened
from launcher.sources import Entry
from launcher.typing import NamedTuple

_DEEPEST = 32  # folders within folders; with the check for loops, a bound on any tree that links can make
_SHOWN = 3
_PERMISSION = "Make it readable for that user or its group (chmod -R g+rX), or run the container as its owner"
# Folders that tools leave behind; names that begin with a dot (.git, .cache, a volume's ..data) are left out as well.
_NO_PART = frozenset({"__pycache__", "lost+found"})


class LocalFolder(NamedTuple):
    """The files below ``path`` (absolute).  Symbolic links are followed: cache snapshots consist of them."""

    path: str

    def listing(self) -> tuple[Entry, ...]:
        """Every regular file, sorted by path.

        Raises NotFoundError, DeniedError, IntegrityError for links that lead nowhere, and ConfigurationError when the
        path is a file.
        """
        walk = _Walk(self.path, [], [])
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _unusable(self.path, error) from None
        _walk(walk, descriptor, "", ())
        if walk.dangling:
            raise _dangling(self.path, sorted(walk.dangling))
        return tuple(sorted(walk.entries))

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes of a file from ``offset``."""
        whole = f"{self.path}/{path}"
        try:
            descriptor = os.open(whole, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _pread(descriptor, offset, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unreadable(whole, error) from None


class _Walk(NamedTuple):
    root: str
    entries: list[Entry]
    dangling: list[str]


def _walk(walk: _Walk, descriptor: int, prefix: str, above: tuple[tuple[int, int], ...]) -> None:
    """Add what is in the folder ``descriptor`` (closed at the end); ``above`` identifies the folders it lies in."""
    try:
        here = os.fstat(descriptor)
        identity = (here.st_dev, here.st_ino)
        if identity in above or len(above) >= _DEEPEST:
            return
        add, entry = walk.entries.append, Entry._make
        for name in sorted(os.listdir(descriptor)):  # so that little is left to sort at the end
            try:
                status = os.stat(name, dir_fd=descriptor)
            except FileNotFoundError:
                walk.dangling.append(prefix + name)
                continue
            except OSError as error:
                raise _unreadable(f"{walk.root}/{prefix}{name}", error) from None
            if stat.S_ISREG(status.st_mode):
                add(entry((prefix + name, status.st_size, status.st_mtime_ns, status.st_ino)))
            elif stat.S_ISDIR(status.st_mode) and not name.startswith(".") and name not in _NO_PART:
                _walk(walk, _open_folder(walk, descriptor, prefix, name), f"{prefix}{name}/", (*above, identity))
    finally:
        os.close(descriptor)


def _open_folder(walk: _Walk, parent: int, prefix: str, name: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise _unreadable(f"{walk.root}/{prefix}{name}", error) from None


def _pread(descriptor: int, offset: int, length: int) -> bytes:
    data = os.pread(descriptor, length, offset)
    while 0 < len(data) < length:  # a network file system may give less than asked for
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _unusable(path: str, error: OSError) -> LauncherError:
    """Why ``path`` cannot be opened as a folder, and what to do."""
    if error.errno == errno.ENAMETOOLONG:
        return ConfigurationError(
            f"{shortened(path)} is no path: {len(path)} characters are too many, or one name in it is too long",
            "Check that it is a path, and not the content of a file",
        )
    if isinstance(error, FileNotFoundError):
        if os.path.islink(path):
            return _dangling(path, [""])
        parent = _existing_parent(path)
        return NotFoundError(
            f"{path} does not exist; the nearest existing parent is {parent}",
            "Is the volume mounted? Check the path and the mount",
        )
    if isinstance(error, NotADirectoryError):
        parent = _existing_parent(path)
        if os.path.isfile(path):
            return ConfigurationError(
                f"{path} is a file, not a model folder", f"Give the folder that holds it: {parent}"
            )
        return NotFoundError(f"{path} does not exist: {parent} is a file", "Check the path")
    return _unreadable(path, error)


def _existing_parent(path: str) -> str:
    parent = os.path.dirname(path)
    while parent != "/" and not os.path.exists(parent):
        parent = os.path.dirname(parent)
    return parent


def _unreadable(path: str, error: OSError) -> LauncherError:
    if isinstance(error, PermissionError):
        return DeniedError(f"{path} cannot be read by uid {os.getuid()}, gid {os.getgid()}{_mode(path)}", _PERMISSION)
    if isinstance(error, FileNotFoundError):
        return IntegrityError(f"{path} disappeared while it was read", "Start again once the folder is complete")
    return IntegrityError(f"{path} cannot be read: {error.strerror}", "Check the file system that it is on")


def _mode(path: str) -> str:
    """Owner and mode of the path, or of the nearest parent that can be looked at."""
    place = path
    while True:
        try:
            status = os.stat(place)
        except OSError:
            if place == "/":
                return ""
            place = os.path.dirname(place)
        else:
            return f" ({place} has owner {status.st_uid}:{status.st_gid} and mode {stat.S_IMODE(status.st_mode):04o})"


def _dangling(root: str, names: list[str]) -> IntegrityError:
    first = f"{root}/{names[0]}".rstrip("/")
    shown = ", ".join(names[:_SHOWN]) if len(names) > 1 else ""
    others = f"; {len(names)} links of the folder do ({shown}{', …' if len(names) > _SHOWN else ''})" if shown else ""
    try:
        goal = os.readlink(first)
    except OSError:
        goal = "its target"
    return IntegrityError(
        f"{first} is a link that leads nowhere ({goal} is not there){others}",
        "Mount the folder that holds the link's target as well (blobs/ for a hub cache), or copy with links followed",
    )
