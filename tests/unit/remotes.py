"""Sources in memory, and a transfer that only writes bytes: what the cache's tests put in the network's place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from launcher.fetch.bring import bring
from launcher.fetch.describe import Described, describe
from launcher.fetch.incoming import Job
from launcher.fetch.options import FetchOptions
from launcher.fetch.peek import Peek
from launcher.fetch.progress import Progress
from launcher.fetch.remote import Digest, Listing, Location, Remote, RemoteFile
from launcher.sources import Entry, ModelSource, parse_source


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def remote_file(path: str, content: bytes, *, hub: bool = False) -> RemoteFile:
    """As an object store describes it (MD5), or as a hub does (sha256 of large files, else the git blob)."""
    if not hub:
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return RemoteFile(path, len(content), md5, Digest("md5", md5))
    if path.endswith((".safetensors", ".bin")):
        sha256 = hashlib.sha256(content).hexdigest()
        return RemoteFile(path, len(content), sha256, Digest("sha256", sha256))
    return RemoteFile(path, len(content), git_blob(content), Digest("sha1", git_blob(content)))


class MemoryRemote:
    """A source whose content is a dictionary.  ``failure`` is raised instead of a listing."""

    def __init__(self, source: str, content: Mapping[str, bytes], *, pinned: bool = False) -> None:
        self.source = source
        self.content = dict(content)
        self.pinned = pinned
        self.failure: Exception | None = None
        self.listings = 0
        self.fetched: list[str] = []

    @property
    def hub(self) -> bool:
        return self.source.startswith("hf://")

    @property
    def revision(self) -> str:
        text = repr(sorted(self.content.items())).encode()
        return hashlib.sha1(text, usedforsecurity=False).hexdigest()

    def listing(self) -> Listing:
        self.listings += 1
        if self.failure is not None:
            raise self.failure
        files = tuple(remote_file(path, self.content[path], hub=self.hub) for path in sorted(self.content))
        return Listing(self.source, self.revision, self.pinned, files)

    def locate(self, file: RemoteFile) -> Location:
        return Location(f"http://memory.invalid/{file.path}")

    def opener(self) -> Callable[[ModelSource, Mapping[str, str], str | None], Remote]:
        return lambda source, environ, override: self

    def transfer(self, jobs: Sequence[Job], progress: Progress) -> None:
        for job in jobs:
            remote = job.remote
            assert isinstance(remote, MemoryRemote)
            remote.fetched.append(job.file.path)
            Path(job.part).write_bytes(remote.content[job.file.path])


def options(cache: Path, **changes: object) -> FetchOptions:
    return FetchOptions(str(cache), (), {})._replace(**changes)  # type: ignore[arg-type]


def source(text: str) -> ModelSource:
    return parse_source(text, "test")


def tree(folder: str | Path) -> dict[str, bytes]:
    """Every file below a folder, links followed."""
    return {path: Path(folder, path).read_bytes() for path in _paths(Path(folder), "")}


def _paths(root: Path, below: str) -> Iterator[str]:
    for place in sorted((root / below).iterdir()):
        path = f"{below}/{place.name}" if below else place.name
        if place.is_dir():
            yield from _paths(root, path)
        else:
            yield path


def files_below(folder: Path) -> set[str]:
    """The path of everything below a folder that is no folder; links are not followed."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def look(remote: MemoryRemote, settings: FetchOptions, text: str | None = None) -> Described:
    """The first phase.  Access counts as checked: the memory has no address to read from."""
    found = describe(source(text or remote.source), settings, remote.opener())
    if isinstance(found.reader, Peek):
        found.reader.read_something = True
    return found


def fill(remote: MemoryRemote, settings: FetchOptions, text: str | None = None) -> Described:
    """Both phases."""
    return bring([look(remote, settings, text)], ["target"], settings, Progress(), remote.transfer)[0]


def entries(listing: tuple[Entry, ...]) -> list[tuple[str, int]]:
    return [(entry.path, entry.size) for entry in listing]
