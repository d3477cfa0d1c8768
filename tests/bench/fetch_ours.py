"""The launcher's engine as a bench runs it: ``python -m tests.bench.fetch_ours SOURCE FOLDER [VERIFY] [CONNECTIONS]``.

SOURCE is what the launcher takes (``s3://…``), or the address of a web server's folder that holds ``files.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from launcher import logs
from launcher.cache.parts import Owner, Part
from launcher.fetch.progress import Progress
from launcher.fetch.remote import Digest, Listing, Location, Remote, RemoteFile
from launcher.fetch.transfer import Job, Options, download


class Web:
    """Files of a web server, with the digests that were written down beside them."""

    def __init__(self, url: str) -> None:
        self.url = url

    def listing(self) -> Listing:
        from urllib.request import urlopen

        with urlopen(f"{self.url}/files.json") as answer:
            rows = json.load(answer)
        files = tuple(RemoteFile(path, size, value, Digest("sha256", value)) for path, size, value in rows)
        return Listing(self.url, "", True, files)

    def locate(self, file: RemoteFile) -> Location:
        return Location(f"{self.url}/{file.path}")


def remote_of(source: str) -> Remote:
    if source.startswith("http"):
        return Web(source)
    from launcher.fetch.schemes import open_remote
    from launcher.sources import parse_source

    return open_remote(parse_source(source, "the bench"), dict(os.environ))


def main() -> None:
    source, folder, verify, connections = [*sys.argv[1:], *("digest", "16")[len(sys.argv) - 3 :]]
    logs.configure("ERROR")
    remote = remote_of(source)
    destination = Path(folder)
    with Owner(f"{folder}/parts") as owner:
        jobs: list[Job] = []
        places: dict[str, tuple[Part, str]] = {}
        for file in remote.listing().files:
            final = destination / file.path
            final.parent.mkdir(parents=True, exist_ok=True)
            part = owner.claim(file)
            jobs.append(Job(remote, file, part.path, part.record))
            places[part.path] = part, str(final)

        def settle(job: Job) -> None:
            part, final = places[job.part]
            part.settle(final)

        options = Options(int(connections), verify, environ=dict(os.environ))
        download(jobs, options, Progress(), settle)


if __name__ == "__main__":
    main()
