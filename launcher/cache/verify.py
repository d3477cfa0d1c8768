"""Comparing a folder with what it should hold, without any network, as deeply as asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from launcher.errors import IntegrityError, LauncherError
from launcher.fetch.remote import Digest, RemoteFile
from launcher.tensors import LENGTH_BYTES, check_shards, header_length, parse_header, parse_index
from launcher.typing import NamedTuple

NAMES, SIZES, STRUCTURE, DIGESTS = "names", "sizes", "structure", "digests"
LEVELS = (NAMES, SIZES, STRUCTURE, DIGESTS)  # each includes those before it
_INDEX = ".safetensors.index.json"
_FIRST_READ = 64 * 1024
_BLOCK = 1024 * 1024
_AT_ONCE = 8  # files whose digest is computed at the same time; the interpreter stays out of their way
_SHOWN = 10


class Report(NamedTuple):
    """What was compared.  ``differences`` are phrases without full stop, one a file."""

    files: int
    bytes: int
    differences: tuple[str, ...]
    without_digest: int  # files whose source never said a digest

    def settle(self, what: str, todo: str) -> None:
        """Raise IntegrityError when there are differences; ``todo`` says how to get rid of them."""
        if not self.differences:
            return
        rest = len(self.differences) - _SHOWN
        more = f"; and {rest} more" if rest > 0 else ""
        raise IntegrityError(
            f"{what}: {len(self.differences)} of {self.files} files differ: "
            + "; ".join(self.differences[:_SHOWN])
            + more,
            todo,
        )


def compare(folder: str, files: Sequence[RemoteFile], level: str) -> Report:
    """Compare ``folder`` with ``files``.  What else lies in the folder does not matter."""
    depth = LEVELS.index(level)
    faults = _in_parallel(folder, files) if level == DIGESTS else [_fault(folder, file, depth) for file in files]
    differences = [f"{file.path} {fault}" for file, fault in zip(files, faults, strict=True) if fault]
    if depth >= LEVELS.index(STRUCTURE) and not differences:
        differences += _absent_shards(folder, [file.path for file in files])
    unknown = sum(file.digest is None for file in files) if level == DIGESTS else 0
    return Report(len(files), sum(file.size for file in files), tuple(differences), unknown)


def faulty(folder: str, files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """Those of ``files`` that are not in ``folder`` with their size, and their digest where there is one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        right = list(pool.map(lambda file: _has_content(f"{folder}/{file.path}", file), files))
    return [file for file, is_right in zip(files, right, strict=True) if not is_right]


def _has_content(path: str, file: RemoteFile) -> bool:
    try:
        if os.stat(path).st_size != file.size:
            return False
        return file.digest is None or digest_of(path, file.digest, file.size) == file.digest.value
    except OSError:
        return False


def digest_of(path: str, digest: Digest, size: int) -> str:
    """The digest of the file at ``path``, of the kind that ``digest`` is; ``size`` is the file's.  Raises OSError."""
    from launcher.fetch.digests import running

    state = running(digest, size)
    buffer = memoryview(bytearray(_BLOCK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()


def faults_of_structure(folder: str) -> tuple[str, ...]:
    """What is wrong with the weight files of a folder that nothing else describes."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    faults = [fault for name in names if (fault := _broken(f"{folder}/{name}"))]
    return (*faults, *(() if faults else _absent_shards(folder, names)))


def _in_parallel(folder: str, files: Sequence[RemoteFile]) -> list[str]:
    from concurrent.futures import ThreadPoolExecutor

    deepest = len(LEVELS) - 1
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda file: _fault(folder, file, deepest), files))


def _fault(folder: str, file: RemoteFile, depth: int) -> str:
    path = f"{folder}/{file.path}"
    try:
        size = os.stat(path).st_size
    except OSError as error:
        if os.path.islink(path):
            return f"is a link that leads nowhere ({os.readlink(path)})"
        return "is missing" if isinstance(error, FileNotFoundError | NotADirectoryError) else str(error.strerror)
    if depth >= LEVELS.index(SIZES) and size != file.size:
        return f"has {size} bytes instead of {file.size}"
    if depth >= LEVELS.index(STRUCTURE):
        fault = _broken(path)
        if fault:
            return f"is damaged ({fault})"
    if depth >= LEVELS.index(DIGESTS) and file.digest is not None:
        try:
            found = digest_of(path, file.digest, file.size)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        if found != file.digest.value:
            return f"has the {file.digest.algorithm} {found} instead of {file.digest.value}"
    return ""


def _broken(path: str) -> str:
    """What is wrong inside a safetensors file, or ""; other files have no structure that is known."""
    if not path.endswith(".safetensors"):
        return ""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(min(size, _FIRST_READ))
            whole = LENGTH_BYTES + header_length(first, size, path)
            parse_header(first + file.read(max(0, whole - len(first))), size, path)
    except LauncherError as error:
        return error.what
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _absent_shards(folder: str, paths: Iterable[str]) -> Iterator[str]:
    """Indexes that name files which are not there."""
    present = set(paths)
    for path in sorted(present):
        if path.endswith(_INDEX):
            above = path.rpartition("/")[0]
            here = {other.rpartition("/")[2] for other in present if other.rpartition("/")[0] == above}
            try:
                with open(f"{folder}/{path}", "rb") as file:
                    shards = set(parse_index(file.read(), path).values())
                check_shards(shards, here, path)
            except IntegrityError as error:
                yield error.what
