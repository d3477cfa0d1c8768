"""Which files of a listing are fetched (pure).

Repositories often hold the same weights in several formats.  Where a folder has a complete set of safetensors, its
other formats are left out, unless a pattern of the user's asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from launcher.fetch.remote import RemoteFile
from launcher.typing import NamedTuple

SAFETENSORS = ".safetensors"
CONSOLIDATED = "consolidated"  # how the files of Mistral's own format begin
# Weights of other formats, and folders that hold them.
_OTHER_FORMATS = (".bin", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ot")
_OTHER_FOLDERS = ("original", "onnx", "metal")
_CONFIGS = ("config.json", "params.json")
_WEIGHTS = (".bin", ".pt", ".pth", ".gguf")
INCLUDE, EXCLUDE = "NIM_FETCH_INCLUDE", "NIM_FETCH_EXCLUDE"
_PICKLES = (".bin", ".pth", ".pt")


class Wishes(NamedTuple):
    """What a user wants of a source.  ``mistral``: Mistral's own weight files instead of the usual ones."""

    include: tuple[str, ...] = ()  # patterns: only what matches one is fetched, duplicates too; () = everything
    exclude: tuple[str, ...] = ()  # patterns: what matches one is not
    mistral: bool = False


class Choice(NamedTuple):
    """The files to fetch, and those left out as duplicates or because a pattern says so.  Both sorted by path."""

    files: tuple[RemoteFile, ...]
    skipped: tuple[RemoteFile, ...]
    notes: tuple[str, ...]  # worth a line each
    warnings: tuple[str, ...]


def choose(files: Sequence[RemoteFile], wishes: Wishes, source: str) -> Choice:
    """Divide a listing.  Duplicates are judged folder by folder: drafts lie in folders of their own."""
    included = _matcher(wishes.include)
    excluded = _matcher(wishes.exclude)
    wanted = [file for file in files if (not wishes.include or included(file.path)) and not excluded(file.path)]
    names = _by_folder(file.path for file in wanted)
    duplicates = {file.path for file in wanted if _is_duplicate(file.path, names, wishes) and not (included(file.path))}
    kept = tuple(file for file in wanted if file.path not in duplicates)
    paths = {file.path for file in kept}
    skipped = tuple(file for file in files if file.path not in paths)
    return Choice(
        kept, skipped, tuple(_notes(wanted, duplicates, source)), tuple(_warnings(kept, skipped, wishes, source))
    )


def patterns_that_miss(files: Sequence[RemoteFile], skipped: Sequence[RemoteFile], wishes: Wishes) -> str:
    """What the user's patterns leave out although a model needs it, as a sentence; "" where they do no such harm."""
    patterns = [name for name, given in ((INCLUDE, wishes.include), (EXCLUDE, wishes.exclude)) if given]
    lost = [_shallower(files, skipped, kind) for kind in (_is_config, _is_weights) if patterns]
    named = [path for path in lost if path]
    if not named:
        return ""
    verb = "leaves" if len(patterns) == 1 else "leave"
    return f"{' and '.join(patterns)} {verb} out {' and '.join(named)}"


def _shallower(files: Sequence[RemoteFile], skipped: Sequence[RemoteFile], wanted: Callable[[str], bool]) -> str:
    """A wanted path that is left out while none is kept that lies as high; "" where there is none."""
    above = min((file.path.count("/") for file in files if wanted(file.path)), default=math.inf)
    lost = [file.path for file in skipped if wanted(file.path) and file.path.count("/") < above]
    return min(lost, key=lambda path: (path.count("/"), path), default="")


def _is_config(path: str) -> bool:
    return path.rpartition("/")[2] in _CONFIGS


def _is_weights(path: str) -> bool:
    return path.endswith((SAFETENSORS, *_WEIGHTS))


def has_complete_set(names: Iterable[str]) -> bool:
    """Whether file names of one folder form a complete set of safetensors: one file, or all N of ``-i-of-N``."""
    sets: dict[tuple[str, int], set[int]] = {}
    single = False
    for name in names:
        if not name.endswith(SAFETENSORS) or name.startswith(CONSOLIDATED):
            continue
        numbered = _numbered(name)
        if numbered is None:
            single = single or name == f"model{SAFETENSORS}"
        else:
            stem, number, total = numbered
            sets.setdefault((stem, total), set()).add(number)
    return single or any(len(numbers) == total for (_, total), numbers in sets.items())


def _is_duplicate(path: str, names: Mapping[str, frozenset[str]], wishes: Wishes) -> bool:
    folder, _, name = path.rpartition("/")
    here = names[folder]
    if has_complete_set(here):
        if name.startswith(CONSOLIDATED):
            return not wishes.mistral
        if wishes.mistral and name.endswith(SAFETENSORS) and any(other.startswith(CONSOLIDATED) for other in here):
            return True
        if name.endswith(_OTHER_FORMATS):
            return True
        if name.endswith(tuple(f"{ending}.index.json" for ending in _OTHER_FORMATS)):
            return True
    return any(_is_format_folder(above) and has_complete_set(names.get(_parent(above), ())) for above in _above(folder))


def _above(folder: str) -> Iterable[str]:
    while folder:
        yield folder
        folder = _parent(folder)


def _is_format_folder(folder: str) -> bool:
    return folder.rpartition("/")[2] in _OTHER_FOLDERS


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]


def _by_folder(paths: Iterable[str]) -> Mapping[str, frozenset[str]]:
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, set()).add(name)
    return {folder: frozenset(names) for folder, names in folders.items()}


def _numbered(name: str) -> tuple[str, int, int] | None:
    """``model-00002-of-00007.safetensors`` as ("model", 2, 7)."""
    stem, of, total = name.removesuffix(SAFETENSORS).rpartition("-of-")
    stem, dash, number = stem.rpartition("-")
    if not (of and dash and number.isdecimal() and total.isdecimal()):
        return None
    return stem, int(number), int(total)


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a path matches one of the patterns; ``*`` matches ``/`` too, and ``folder/`` all below it."""
    if not patterns:
        return lambda path: False
    from fnmatch import fnmatchcase

    whole = tuple(f"{pattern}*" if pattern.endswith("/") else pattern for pattern in patterns)
    return lambda path: any(fnmatchcase(path, pattern) for pattern in whole)


def _notes(wanted: Sequence[RemoteFile], duplicates: set[str], source: str) -> Iterable[str]:
    if duplicates:
        saved = sum(file.size for file in wanted if file.path in duplicates)
        shown = ", ".join(sorted(duplicates)[:3])
        more = f" and {len(duplicates) - 3} more" if len(duplicates) > 3 else ""
        yield (
            f"{source}: {len(duplicates)} duplicates of the safetensors weights are left out, {saved} bytes: "
            f"{shown}{more} (NIM_FETCH_INCLUDE brings them)"
        )


def _warnings(kept: Sequence[RemoteFile], skipped: Sequence[RemoteFile], wishes: Wishes, source: str) -> Iterable[str]:
    missing = patterns_that_miss(kept, skipped, wishes)
    if missing:
        yield f"{source}: {missing}, which a model needs"
    top = [file.path for file in kept if "/" not in file.path]
    pickles = sorted(path for path in top if path.endswith(_PICKLES))
    if pickles and not any(path.endswith((SAFETENSORS, ".gguf")) for path in top):
        yield f"{source} has no safetensors: its pickle weights are used ({pickles[0]}), which can run code when loaded"
