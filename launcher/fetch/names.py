"""From the keys of a remote source to names of files: which keys are files, and which could harm this machine (pure).

Object stores know no folders.  A key that ends in ``/``, or an empty object that has others below it, only stands for a
folder; a key that climbs out of its folder is an attack or an accident, and nothing of such a source is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from launcher.errors import IntegrityError
from launcher.fetch.remote import RemoteFile

_LONGEST_NAME = 255  # bytes of one path component, on every file system that a cache may be on
_LONGEST_PATH = 3072  # bytes; leaves room below the kernel's 4096 for the cache's own folders
_HEX = frozenset("0123456789abcdef")
_DIGITS = {"hf": (40,), "modelscope": (40, 64)}  # of a revision: a commit, or a digest of the listing
_ADVICE = "Rename or remove it at the source; nothing was fetched"


def checked(files: Iterable[RemoteFile], source: str) -> tuple[RemoteFile, ...]:
    """The real files among ``files``, sorted by path.  ``path`` is the key below the source's prefix.

    Raises IntegrityError for a key that cannot be a file here, and for one that is both a file and a folder.
    """
    kept = [file for file in files if file.path and not file.path.endswith("/")]
    for file in kept:
        refuse_unsafe(file.path, source)
    folders = {folder for file in kept for folder in _parents(file.path)}
    real = [file for file in kept if file.size > 0 or file.path not in folders]
    both = [file.path for file in real if file.path in folders]
    if both:
        raise IntegrityError(f"{source}: {_shown(both[0])} is both a file and a folder", _ADVICE)
    unique = {file.path: file for file in real}
    return tuple(unique[path] for path in sorted(unique))


def refuse_unsafe(path: str, source: str) -> None:
    """Raise IntegrityError unless ``path`` is a relative path that stays below its folder."""
    reason = _fault(path)
    if reason:
        raise IntegrityError(f"{source}: the file name {_shown(path)} {reason}", _ADVICE)


def is_safe(path: str) -> bool:
    return not _fault(path)


def is_component(name: str) -> bool:
    """Whether ``name`` can be the name of one file or folder: it leads nowhere else."""
    return "/" not in name and not _fault(name)


def is_hex(text: str, *lengths: int) -> bool:
    """Whether ``text`` is lower-case hexadecimal of one of these lengths, as commits and digests are."""
    return len(text) in lengths and set(text) <= _HEX


def is_revision(scheme: str, revision: str) -> bool:
    """Whether ``revision`` is one that a source of ``scheme`` can have."""
    lengths = _DIGITS.get(scheme)
    return is_hex(revision, *lengths) if lengths else is_component(revision)


def _fault(path: str) -> str:
    """Why ``path`` cannot be the name of a file here, or ""."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if "\0" in path:
        return "holds a NUL character"
    if path.startswith("/"):
        return "is absolute"
    parts = path.split("/")
    if "" in parts or "." in parts:
        return "has an empty part"
    # A backslash is an ordinary character here, and a separator where the cache may be copied to.
    climbing = path.replace("\\", "/").split("/")
    if ".." in climbing:
        return "leaves its folder"
    if "\\" in path and (not climbing[0] or climbing[0].endswith(":")):
        return "is absolute where a backslash separates"
    if len(encoded) > _LONGEST_PATH or any(len(part.encode("utf-8")) > _LONGEST_NAME for part in parts):
        return "is too long for a file name"
    return ""


def _parents(path: str) -> Iterator[str]:
    """Every folder that ``path`` lies in."""
    cut = path.rfind("/")
    while cut > 0:
        path = path[:cut]
        yield path
        cut = path.rfind("/")


def _shown(path: str) -> str:
    return ascii(path if len(path) <= 200 else f"{path[:200]}…")
