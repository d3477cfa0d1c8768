"""A download that is killed at any moment is finished by the next one, at the cost of a few bytes.

Client and server are processes of their own.  The everyday run is small; the full one, of the figures that the product
promises, is ``CRASH_TRIALS=100 CRASH_MEGABYTES=1000 python -m pytest tests/storage/test_crash.py`` (part of ``make
bench``).
"""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from launcher.cache.parts import Owner
from launcher.fetch.progress import Progress
from launcher.fetch.remote import Digest, RemoteFile
from launcher.fetch.transfer import Job, Options, download
from tests.storage.faults import die_with_parent
from tests.storage.fetching import Place

REPOSITORY = Path(__file__).parents[2]
TRIALS = int(os.environ.get("CRASH_TRIALS", "8"))
MEGABYTES = int(os.environ.get("CRASH_MEGABYTES", "320"))
SHARES = (0.35, 0.25, 0.2, 0.1, 0.05, 0.03, 0.0195, 0.0005)  # of the model, for each of its files
RATE = int(os.environ.get("CRASH_RATE", "60000000"))  # bytes a second that each connection gets
CONNECTIONS = min(16, max(4, 16 * MEGABYTES // 1000))  # what each holds when it is killed weighs more in a small model
MEDIAN, WORST = 0.03, 0.05  # of the model


class Model(NamedTuple):
    """Files on a server of their own."""

    url: str
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def served(self) -> int:
        """Bytes that the server has given away."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        connection.request("GET", "/-/served")
        number = int(connection.getresponse().read())
        connection.close()
        return number


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("model")
    files = []
    for number, share in enumerate(SHARES):
        path = folder / f"file-{number}"
        size = int(share * MEGABYTES * 1_000_000)
        with path.open("wb") as file:
            for start in range(0, size, 1 << 20):
                file.write(random.Random(number * 10000 + start).randbytes(min(1 << 20, size - start)))
        with path.open("rb") as file:
            value = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(RemoteFile(path.name, size, value, Digest("sha256", value)))
    command = [sys.executable, "-m", "tests.storage.faults", str(folder), str(RATE)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield Model(server.stdout.readline().strip(), tuple(files))
        server.kill()


def start(model: Model, folder: Path) -> subprocess.Popen[str]:
    """A downloader that says when it begins, and moves what is complete to its final name."""
    words = [f"{file.path}:{file.size}:{file.identity}" for file in model.files]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.storage.test_crash", model.url, str(folder), *words],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> None:
    with process:
        assert process.wait(120) == 0


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)


def check_whole(model: Model, folder: Path, *, complete: bool) -> None:
    """Under a final name there is only the right content."""
    for file in model.files:
        path = folder / file.path
        if complete or path.exists():
            with path.open("rb") as opened:
                assert hashlib.file_digest(opened, "sha256").hexdigest() == file.identity, file.path


def test_killed_once_and_finished(model: Model, tmp_path: Path) -> None:
    began = time.monotonic()
    finish(start(model, tmp_path / "whole"))
    whole = time.monotonic() - began
    lost = []
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        before = model.served()
        process = start(model, folder)
        kill_after(process, random.Random(trial).uniform(0.0, whole))
        check_whole(model, folder, complete=False)
        finish(start(model, folder))
        check_whole(model, folder, complete=True)
        assert not list((folder / "parts").iterdir())
        lost.append((model.served() - before - model.size) / model.size)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    print(f"fetched twice: median {statistics.median(lost):.2%}, worst {max(lost):.2%} of {MEGABYTES} MB")
    assert statistics.median(lost) <= MEDIAN
    assert max(lost) <= WORST


def test_killed_again_and_again(model: Model, tmp_path: Path) -> None:
    """Thirty times: the bytes are right in the end, and nothing incomplete ever has its final name."""
    before = model.served()
    for trial in range(30):
        process = start(model, tmp_path)
        kill_after(process, random.Random(trial).uniform(0.0, 0.4))
        check_whole(model, tmp_path, complete=False)
    finish(start(model, tmp_path))
    check_whole(model, tmp_path, complete=True)
    print(f"bytes served: {(model.served() - before) / model.size:.2f} x the model")


def fetch_all(url: str, folder: Path, words: list[str]) -> None:
    """What the downloading process does."""
    place = Place(url)
    with Owner(str(folder / "parts")) as owner:
        jobs: dict[Job, Path] = {}
        for word in words:
            name, size, value = word.split(":")
            if not (folder / name).exists():
                file = RemoteFile(name, int(size), value, Digest("sha256", value))
                part = owner.claim(file)
                jobs[Job(place, file, part.path, part.record)] = folder / name
        print("begins", flush=True)

        def settle(job: Job) -> None:
            Path(job.part).rename(jobs[job])
            Path(job.record).unlink(missing_ok=True)

        download(list(jobs), Options(connections=CONNECTIONS), Progress(), settle)
        for leftover in owner.leftovers():
            Path(leftover).unlink()


if __name__ == "__main__":
    die_with_parent()
    fetch_all(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
