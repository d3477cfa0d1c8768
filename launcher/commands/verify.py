"""``launcher verify``: compare what is on this machine with its manifest.  Needs no network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from launcher import logs
from launcher.cache import inventory, snapshots
from launcher.cache import manifest as manifests
from launcher.cache.layout import shelf
from launcher.cache.manifest import Manifest, Newer
from launcher.cache.snapshots import Damaged
from launcher.cache.verify import DIGESTS, Report, compare, faults_of_structure
from launcher.commands.download import fetch_again
from launcher.commands.setting_up import SetUp, set_up
from launcher.commands.store import STORE_MANIFEST
from launcher.errors import ConfigurationError, IntegrityError, LauncherError, NotFoundError, gathered
from launcher.fetch.local import LocalFolder
from launcher.fetch.override import MANIFEST
from launcher.fetch.progress import counted, readable
from launcher.fetch.remote import Digest, RemoteFile
from launcher.sources import REMOTE_SCHEMES, is_source, parse_source
from launcher.typing import NamedTuple

_ALGORITHMS = {40: "sha1", 64: "sha256"}  # how long the name of a blob is that is its digest
_BLOBS = "the names of its blobs"
_CONFIGS = ("config.json", "params.json", "model_index.json")
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
_ELSEWHERE = "Bring it here again from where it came"
_SUPERSEDED = "Remove it with 'launcher cache prune': nothing leads to this revision any more"
_STORE = "Write it again with create-model-store, and carry it here again if it was written elsewhere"


class Subject(NamedTuple):
    """A folder and what it should hold; ``files`` None: nothing says what, only its structure can be checked."""

    name: str
    folder: str
    files: tuple[RemoteFile, ...] | None
    basis: str  # what it is compared with
    todo: str  # how to get rid of differences


def run(path: str | None, level: str, manifest_file: str | None, environ: Mapping[str, str]) -> int:
    """Compare, and print a line for each folder.  Raises IntegrityError when there are differences."""
    ready = set_up(environ)
    if path is not None and not path.strip():
        raise ConfigurationError("the path to verify is empty", "Give a folder or a source, or nothing for all models")
    problems: list[LauncherError] = [] if path else list(_unreadable(ready))
    for subject in _subjects(path, manifest_file, ready):
        try:
            print(_verified(subject, level))
        except LauncherError as error:
            problems.append(error)
    if problems:
        raise gathered(problems)
    return 0


def _verified(subject: Subject, level: str) -> str:
    if not subject.files:
        if level == DIGESTS:
            logs.warning(f"{subject.name}: nothing says what its files should hold, so no digests were compared")
        return _structure_alone(subject)
    report = compare(subject.folder, subject.files, level)
    report.settle(subject.name, subject.todo)
    if subject.basis == _BLOBS:
        _refuse_hollow(subject)
    if report.without_digest:
        logs.warning(f"{subject.name}: the digests of {report.without_digest} files are unknown and were not compared")
    verb = "agrees" if report.files == 1 else "agree"
    return f"ok {subject.name}: {_counted(report)} {verb} with {subject.basis} at level {level}"


def _counted(report: Report) -> str:
    silent = f" ({report.without_digest} without a digest)" if report.without_digest else ""
    return f"{counted(report.files)}{silent}, {readable(report.bytes)},"


def _structure_alone(subject: Subject) -> str:
    faults = faults_of_structure(subject.folder)
    if faults:
        raise IntegrityError(f"{subject.name}: {'; '.join(faults)}", subject.todo)
    _refuse_hollow(subject)
    return f"ok {subject.name}: no manifest; its weight files are whole, and all that its index names are there"


def _refuse_hollow(subject: Subject) -> None:
    """Raise IntegrityError for a folder that is no model at all, where nothing else says what it should hold."""
    paths = [entry.path for entry in LocalFolder(subject.folder).listing()]
    names = {path.rpartition("/")[2] for path in paths}
    has_weights = any(path.endswith(_WEIGHTS) for path in paths)
    if not has_weights:
        raise IntegrityError(f"{subject.name} holds no weights", subject.todo)
    if names.isdisjoint(_CONFIGS) and not any(path.endswith(".gguf") for path in paths):
        raise IntegrityError(f"{subject.name} holds no config.json", subject.todo)


def _subjects(path: str | None, manifest_file: str | None, ready: SetUp) -> Iterator[Subject]:
    if path is None:
        yield from _everything(ready)
    elif is_source(path) and not path.startswith("/"):
        yield from _of_source(path, ready)
    else:
        yield from _of_folder(os.path.abspath(path), manifest_file, ready)


def _unreadable(ready: SetUp) -> Iterator[IntegrityError]:
    for entry in inventory.entries(ready.options.cache):
        for path in entry.unreadable:
            yield IntegrityError(
                f"{entry.source}: the manifest {path} cannot be read, so its snapshot does not count",
                "Fetch the model again with download-to-cache: what is still there is used",
            )


def _everything(ready: SetUp) -> Iterator[Subject]:
    found = False
    for entry in inventory.entries(ready.options.cache):
        found = found or bool(entry.unreadable)
        for snapshot in entry.snapshots:
            found = True
            name = f"{entry.source} at {snapshot.manifest.revision[:12]}"
            todo = fetch_again(entry.source, snapshot.manifest.revision) if snapshot.current else _SUPERSEDED
            yield Subject(name, snapshot.folder, snapshot.manifest.files, "its manifest", todo)
    if not found:
        raise NotFoundError(f"the cache {ready.options.cache} holds no complete model", "Give a folder to verify")


def _of_source(text: str, ready: SetUp) -> Sequence[Subject]:
    source = parse_source(text, "the command line")
    if source.is_local:
        return _of_folder(source.name, None, ready)
    place = shelf(ready.options.cache, source.scheme, source.name)
    known = snapshots.recorded(place, source.revision, ready.options.hubs, ready.options.wishes)
    if known is None:
        raise NotFoundError(f"{text} is not in the cache {ready.options.cache}", "Fetch it with download-to-cache")
    if isinstance(known, Damaged):
        aside = known.folder != place.snapshot(known.revision)
        manifest = manifests.read(place.manifest(known.revision, aside=aside and not place.is_hub))
        files = manifest.files if isinstance(manifest, Manifest) else ()
        return [Subject(text, known.folder, files, "its manifest", fetch_again(text))]
    todo = fetch_again(text) if known.folder.startswith(f"{ready.options.cache}/") else _ELSEWHERE
    return [Subject(text, known.folder, known.files or None, f"its {known.proof}", todo)]


def _of_folder(folder: str, manifest_file: str | None, ready: SetUp) -> Sequence[Subject]:
    if manifest_file is not None:
        return [Subject(folder, folder, _files_of(manifest_file), manifest_file, _ELSEWHERE)]
    for name in (STORE_MANIFEST, MANIFEST):
        found = manifests.read(f"{folder}/{name}")
        if isinstance(found, Manifest):
            return [Subject(folder, folder, found.files, name, _STORE)]
    mirrored = list(_of_mirror(folder))
    if mirrored:
        return mirrored
    real = os.path.realpath(folder)
    for entry in inventory.entries(ready.options.cache):
        for snapshot in entry.snapshots:
            if os.path.realpath(snapshot.folder) == real:
                todo = fetch_again(entry.source, snapshot.manifest.revision) if snapshot.current else _SUPERSEDED
                return [Subject(folder, folder, snapshot.manifest.files, "its manifest", todo)]
    listed = LocalFolder(folder).listing()  # says so when it is not there, or a link leads nowhere
    return [Subject(folder, folder, _by_blobs(folder, [entry.path for entry in listed]), _BLOBS, _ELSEWHERE)]


def _of_mirror(root: str) -> Iterator[Subject]:
    """Every model of a mirror, each in ``SCHEME/NAME/REVISION`` below its root."""
    for scheme in REMOTE_SCHEMES:
        for folder, below, names in os.walk(f"{root}/{scheme}"):
            below.sort()
            found = manifests.read(f"{folder}/{MANIFEST}") if MANIFEST in names else None
            if isinstance(found, Manifest):
                below.clear()
                yield Subject(folder, folder, found.files, MANIFEST, _STORE)


def _files_of(path: str) -> tuple[RemoteFile, ...]:
    found = manifests.read(path)
    if found is None:
        raise NotFoundError(f"--manifest-file: {path} is no manifest that can be read", "Check the path")
    if isinstance(found, Newer):
        raise ConfigurationError(
            f"--manifest-file: {path} has format {found.format}, which is newer than this launcher",
            "Use a newer launcher",
        )
    return found.files


def _by_blobs(folder: str, paths: Sequence[str]) -> tuple[RemoteFile, ...] | None:
    """The files of a snapshot in a hub cache: each is a link to a blob, which is called by its digest."""
    files = []
    for path in paths:
        blob = os.path.basename(os.path.realpath(f"{folder}/{path}"))
        algorithm = _ALGORITHMS.get(len(blob))
        if not os.path.islink(f"{folder}/{path}") or algorithm is None or set(blob) - set("0123456789abcdef"):
            return None
        files.append(RemoteFile(path, os.stat(f"{folder}/{path}").st_size, blob, Digest(algorithm, blob)))
    return tuple(files) or None


DEFAULT_LEVEL = DIGESTS
