"""Which vLLM would run: its executable, its version, its device.  Touches the file system, imports nothing of it.

The version is the name of a ``vllm-<version>.dist-info`` folder, the record that vLLM's own console script asks for;
reading it through importlib.metadata would cost more than the rest of a warm start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launcher.typing import NamedTuple

NAME = "vllm"
# Hundreds of names, none of them a package's record.
_STANDARD_LIBRARY = (os.path.dirname(os.__file__), f"{os.path.dirname(os.__file__)}/lib-dynload")


class Engine(NamedTuple):
    """The vLLM that would be exec'd.

    ``version`` is empty where no ``vllm-*.dist-info`` belongs to the executable: such a vLLM dies at once, because its
    console script asks for that record.  ``own`` says that it runs in our own interpreter's environment.  Of another
    one ``python`` is the interpreter (empty where the script names none) and ``packages`` the folders of its packages.
    """

    executable: str  # absolute
    version: str  # with its local part, "0.32.0+cpu"
    own: bool
    device: str | None  # "cpu" for a CPU build, else None: the version says no more
    python: str = ""
    packages: tuple[str, ...] = ()


def find(
    environ: Mapping[str, str], interpreter: str = sys.executable, modules: Sequence[str] | None = None
) -> Engine | None:
    """The ``vllm`` beside our interpreter, else the first one on PATH; None without any.

    ``modules`` is where our interpreter finds packages: sys.path unless given.
    """
    beside = os.path.join(os.path.dirname(interpreter), NAME)
    executable = beside if _is_program(beside) else _on_path(environ.get("PATH", ""))
    if executable is None:
        return None
    other = _script_interpreter(executable, environ)
    own = executable == beside if other is None else _same_environment(other, interpreter)
    folders = tuple((sys.path if modules is None else modules) if own else _foreign_folders(executable, other))
    version = newest_record(NAME, folders)
    device = "cpu" if "cpu" in version else None
    return Engine(executable, version, own, device, *(() if own else (other or "", folders)))


def _on_path(path: str) -> str | None:
    folders = (folder for folder in path.split(os.pathsep) if os.path.isabs(folder))
    return next((name for folder in folders if _is_program(name := os.path.join(folder, NAME))), None)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _script_interpreter(script: str, environ: Mapping[str, str]) -> str | None:
    """The Python that a console script names in its first line; None if it names none.

    Installers write a shell line in front where the path is too long for the kernel or holds a space.
    """
    try:
        with open(script, "rb") as stream:
            head = stream.read(4096).decode("utf-8", "replace").splitlines()[:2]
    except OSError:
        return None
    if not head or not head[0].startswith("#!"):
        return None
    words = head[0][2:].split()
    if len(head) == 2 and head[1].startswith("'''exec' "):
        command = head[1].removeprefix("'''exec' ")
        words = [command.split('"')[1] if command.startswith('"') else command.split()[0]]
    if words and os.path.basename(words[0]) == "env":
        name = next((word for word in words[1:] if not word.startswith("-")), "")
        folders = environ.get("PATH", "").split(os.pathsep)
        words = [path for folder in folders if _is_program(path := os.path.join(folder, name))]
    return words[0] if words and "python" in os.path.basename(words[0]) else None


def _same_environment(one: str, other: str) -> bool:
    """Whether two interpreters share their packages.

    Those of a virtual environment are links to a Python elsewhere, so the folder counts as well as what they are.
    """
    return _folder(one) == _folder(other) and os.path.realpath(one) == os.path.realpath(other)


def _folder(path: str) -> str:
    return os.path.realpath(os.path.dirname(path))


def _foreign_folders(script: str, interpreter: str | None) -> Iterator[str]:
    """Where the packages of another environment are: around the script (a user's own come first), then the Python."""
    python = os.path.realpath(interpreter) if interpreter else ""
    prefixes = [os.path.dirname(_folder(script))]
    if interpreter:
        prefixes += [os.path.dirname(_folder(interpreter)), os.path.dirname(os.path.dirname(python))]
    if "/usr" in prefixes:
        prefixes.append("/usr/local")
    for prefix in dict.fromkeys(prefixes):
        for library in ("lib", "lib64"):
            yield from _package_folders(os.path.join(prefix, library), os.path.basename(python))


def _package_folders(library: str, python: str) -> Iterator[str]:
    """The package folders of one ``lib``, those of ``python`` ("python3.12") first."""
    versions = sorted(name for name in _names(library) if name.startswith("python3"))
    for version in sorted(versions, key=lambda name: name != python):
        for kind in ("site-packages", "dist-packages"):
            yield os.path.join(library, version, kind)


def newest_record(package: str, folders: Iterable[str]) -> str:
    """The version of ``package`` recorded in the first of these folders that knows it; empty if none does."""
    for folder in folders:
        if folder in _STANDARD_LIBRARY:
            continue
        records = [name for name in _names(folder) if name.startswith(f"{package}-") and name.endswith(".dist-info")]
        if records:
            return max((name[len(package) + 1 : -len(".dist-info")] for name in records), key=_age)
    return ""


def _age(version: str) -> tuple[list[int], bool, str]:
    """What orders versions: the numbers, then a final release after its candidates.

    Two records beside each other are an old one that an interrupted upgrade left behind, and the right one.
    """
    numbers: list[int] = []
    public = version.partition("+")[0]
    for part in public.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            return numbers, part.startswith("post"), version
        numbers.append(int(digits))
        if digits != part:
            return numbers, False, version
    return numbers, True, version


def _names(folder: str) -> list[str]:
    """The names in a folder; none if it cannot be listed (a zip file on the path, for one)."""
    try:
        return os.listdir(folder)
    except OSError:
        return []
