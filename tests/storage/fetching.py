"""What the tests of the transfer engine share: content, a source made of plain addresses, and one call to fetch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.fetch.progress import Progress
from launcher.fetch.remote import Digest, Listing, Location, RemoteFile
from launcher.fetch.transfer import Job, Options, download

MIB = 1024 * 1024
OPTIONS = Options(connections=8, stall=2.0, retries=3, environ={})


def content(size: int, seed: int = 0) -> bytes:
    """The same bytes for the same arguments; none of them repeat."""
    return random.Random(seed).randbytes(size)


def described(path: str, data: bytes, *, digest: bool = True) -> RemoteFile:
    value = hashlib.sha256(data).hexdigest()
    return RemoteFile(path, len(data), value, Digest("sha256", value) if digest else None)


class Place:
    """A source whose files lie under one address.  ``links`` are the queries of one location after the other."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, links: Sequence[str] = ()) -> None:
        self.url = url
        self.headers = tuple((headers or {}).items())
        self.links = list(links)
        self.located = 0

    def listing(self) -> Listing:
        raise NotImplementedError

    def locate(self, file: RemoteFile) -> Location:
        link = f"?{self.links[min(self.located, len(self.links) - 1)]}" if self.links else ""
        self.located += 1
        return Location(f"{self.url}/{file.path}{link}", self.headers)


def job(place: Place, file: RemoteFile, folder: Path, label: str = "target") -> Job:
    name = file.path.replace("/", "_")
    return Job(place, file, str(folder / f"{name}.part"), str(folder / f"{name}.record"), label)


def fetch(place: Place, files: Sequence[RemoteFile], folder: Path, options: Options = OPTIONS) -> dict[str, bytes]:
    """Download the files; their content by path."""
    jobs = [job(place, file, folder) for file in files]
    download(jobs, options, Progress())
    return {one.file.path: Path(one.part).read_bytes() for one in jobs}
