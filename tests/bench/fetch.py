"""The transfer engine beside other clients, on loopback: wall and processor seconds, and memory, as medians.

    python -m tests.bench.fetch [GROUP ...] [--rounds N] [--megabytes N]

Groups: ``big`` and ``small`` (nginx), ``capped`` (nginx, 50 MB/s a connection), ``s3`` (SeaweedFS), ``hf`` (our hub),
``gs`` (fake-gcs-server).  Within a round every client runs once, one after the other, so that the noise of a busy
machine falls on all; caches of the disk are written back before each.  nginx is taken from PATH (Debian: nginx-light),
stores and peers from ``tools/install_storage_tools.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.bench.fetch_peers import BUCKET
from tests.storage.faults import die_with_parent
from tests.storage.servers import ACCESS_KEY, SECRET_KEY, fake_gcs, free_ports, running, weed

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache"
PEERS = CACHE / "storage-peers" / "bin"
KSERVE = CACHE / "storage-kserve" / "bin"
KEYS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip
MIB = 1 << 20
CAP = 50_000_000  # bytes a second
_LARGE = 512 * MIB  # bytes of a run's files


class Client(NamedTuple):
    """One way to fetch a group's files.  ``{out}`` in its words is an empty folder."""

    name: str
    words: Sequence[str]
    environ: Mapping[str, str] = {}


class Run(NamedTuple):
    wall: float  # seconds
    processor: float  # seconds
    memory: float  # MiB, at most


class Data(NamedTuple):
    """Where the files lie: ``bench/big`` and ``bench/small`` below ``root``."""

    root: Path
    big: tuple[str, ...]  # below bench/
    small: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("groups", nargs="*", default=["big", "small", "capped", "s3", "hf", "gs"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=2048, help="MiB of the four big files together")
    arguments = parser.parse_args()
    scratch = CACHE / "bench" / "fetch"
    data = make(scratch / "data", arguments.megabytes)
    for group in arguments.groups:
        with globals()[f"{group}_clients"](data, scratch) as clients:
            report(group, clients, measure(clients, scratch / "out", arguments.rounds))
    shutil.rmtree(scratch / "out", ignore_errors=True)


def measure(clients: Sequence[Client], out: Path, rounds: int) -> dict[str, list[Run]]:
    """Every run gets an empty folder of its own below ``out``.

    What a run left is removed at once only where it is large.  Many small files stay until the end: for minutes, ext4
    passes over each inode that was just freed when it looks for a new one, which costs more than the download.
    """
    found: dict[str, list[Run]] = {client.name: [] for client in clients}
    shutil.rmtree(out, ignore_errors=True)
    for number in range(rounds):
        for place, client in enumerate(clients):
            folder = out / f"{number}-{place}"
            folder.mkdir(parents=True)
            os.sync()
            found[client.name].append(run(client, folder))
            if sum(path.stat().st_size for path in folder.rglob("*")) > _LARGE:
                shutil.rmtree(folder)
    return found


def run(client: Client, out: Path) -> Run:
    """One process from start to end, its children included."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(out.parent), "PYTHONPATH": str(REPOSITORY), **client.environ}
    words = [word.replace("{out}", str(out)) for word in client.words]
    began = time.perf_counter()
    process = subprocess.Popen(
        words, env=environ, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=die_with_parent
    )
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(f"{client.name} ended with {process.returncode}:\n{told.decode(errors='replace')[-2000:]}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def report(group: str, clients: Sequence[Client], found: Mapping[str, Sequence[Run]]) -> None:
    medians = {name: _median(runs) for name, runs in found.items()}
    ours = medians[clients[0].name]
    print(f"\n{group}: medians of {len(found[clients[0].name])}; ratio = our wall time / theirs")
    print(f"{'client':<34}{'wall s':>9}{'least':>8}{'cpu s':>8}{'MiB':>6}{'ratio':>8}")
    for client in clients:
        one, least = medians[client.name], min(run.wall for run in found[client.name])
        ratio = ours.wall / one.wall
        numbers = f"{one.wall:9.2f}{least:8.2f}{one.processor:8.2f}{one.memory:6.0f}{ratio:8.2f}"
        print(f"{client.name:<34}{numbers}", flush=True)


def _median(runs: Sequence[Run]) -> Run:
    return Run(*(statistics.median(column) for column in zip(*runs, strict=True)))


def make(root: Path, megabytes: int) -> Data:
    """The files, made once: four big ones and 2,000 of 1 to 64 KiB."""
    chance = random.Random(0)
    sizes = {f"big/{number}": megabytes * MIB // 4 for number in range(4)}
    sizes |= {f"small/{number:04d}": chance.randint(1024, 65536) for number in range(2000)}
    for path, size in sizes.items():
        file = root / BUCKET / path
        if not file.exists() or file.stat().st_size != size:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as opened:
                for start in range(0, size, MIB):
                    opened.write(os.urandom(min(MIB, size - start)))
    for folder in ("big", "small"):
        describe(root / BUCKET / folder)
    one = root / BUCKET / "one" / "whole"
    one.parent.mkdir(exist_ok=True)
    if not one.exists() or one.stat().st_size != megabytes * MIB:
        with one.open("wb") as opened:
            for number in range(4):
                with (root / BUCKET / "big" / str(number)).open("rb") as quarter_of_it:
                    shutil.copyfileobj(quarter_of_it, opened, MIB)
    describe(one.parent)
    quarter = root / BUCKET / "quarter"
    quarter.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (quarter / "0").hardlink_to(root / BUCKET / "big" / "0")
    describe(quarter)
    big, small = (tuple(path for path in sorted(sizes) if path.startswith(folder)) for folder in ("big", "small"))
    return Data(root, big, small)


def describe(folder: Path) -> None:
    """Write down the files' digests beside them."""
    rows = [row(path) for path in sorted(folder.iterdir()) if path.suffix == ""]
    (folder / "files.json").write_text(json.dumps(rows))


def row(path: Path) -> tuple[str, int, str]:
    with path.open("rb") as file:
        return path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def ours(source: str, *options: str, **environ: str) -> Client:
    name = " ".join(("launcher", *options))
    return Client(name, (sys.executable, "-m", "tests.bench.fetch_ours", source, "{out}", *options), environ)


def peer(name: str, endpoint: str, threads: int, keys: Sequence[str], python: Path = PEERS, **environ: str) -> Client:
    script = str(REPOSITORY / "tests" / "bench" / "fetch_peers.py")
    words = (str(python / "python"), script, name, endpoint, "{out}", str(threads), *keys)
    return Client(f"{name}, {threads} threads" if threads > 1 else name, words, {**KEYS, **environ})


def s5cmd(endpoint: str, keys: Sequence[str], scratch: Path, *options: str) -> Client:
    batch = scratch / "s5cmd.txt"
    batch.write_text("".join(f"cp s3://{BUCKET}/{key} {Path(key).name}\n" for key in keys))
    return Client("s5cmd", (str(PEERS / "s5cmd"), *options, "--endpoint-url", endpoint, "run", str(batch)), KEYS)


def curl(url: str, keys: Sequence[str], scratch: Path) -> Client:
    batch = scratch / f"curl-{len(keys)}.txt"
    batch.write_text("".join(f"url={url}/{key}\noutput={Path(key).name}\n" for key in keys))
    return Client(
        "curl, 4 at once, no digest", ("curl", "-sSfZ", "--no-progress-meter", "--parallel-max", "4", "-K", str(batch))
    )


@contextmanager
def nginx(data: Data, scratch: Path, cap: int = 0) -> Iterator[str]:
    """The address of an nginx that serves the files as fast as the kernel can, or with a cap for each connection."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise SystemExit("nginx is missing (Debian: apt-get install nginx-light)")
    (port,) = free_ports(1)
    folder = scratch / "nginx"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;"
        "events { worker_connections 512; }"
        f"http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; {temporary}"
        f"server {{ listen 127.0.0.1:{port}; root {data.root}; location = /ready {{ return 200; }}"
        f"{f'limit_rate {cap};' if cap else ''} }} }}"
    )
    words = [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with running(words, port, "/ready", folder / "log"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def big_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    with nginx(data, scratch) as url:
        yield [
            ours(f"{url}/{BUCKET}/big"),
            ours(f"{url}/{BUCKET}/big", "size"),
            curl(f"{url}/{BUCKET}", data.big, scratch),
            s5cmd(url, data.big, scratch, "--no-sign-request"),
            peer("obstore_http", url, 4, data.big),
            peer("boto3_download_file", url, 1, data.big),
        ]


@contextmanager
def small_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    with nginx(data, scratch) as url:
        yield [
            ours(f"{url}/{BUCKET}/small"),
            Client("cp -r", ("cp", "-r", str(data.root / BUCKET / "small"), "{out}")),
            curl(f"{url}/{BUCKET}", data.small, scratch),
            peer("obstore_http", url, 16, data.small),
            peer("boto3_download_file", url, 1, data.small),
        ]


@contextmanager
def capped_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    """One file over as many connections as pay, and a quarter of it over one, which takes a quarter of the time.

    So the speed-up is four divided by the ratio.
    """
    with nginx(data, scratch, CAP) as url:
        yield [ours(f"{url}/{BUCKET}/one"), ours(f"{url}/{BUCKET}/quarter", "digest", "1")]


@contextmanager
def s3_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        folder = scratch / "weed"
        shutil.rmtree(folder, ignore_errors=True)
        server = stack.enter_context(weed(folder))
        upload(server.url, data)
        yield [
            ours(f"s3://{BUCKET}/big", AWS_ENDPOINT_URL_S3=server.url, **KEYS),
            s5cmd(server.url, data.big, scratch),
            peer("obstore_s3", server.url, 4, data.big),
            peer("boto3_download_file", server.url, 1, data.big),
            *([peer("kserve", server.url, 1, data.big, KSERVE)] if KSERVE.exists() else []),
        ]
        shutil.rmtree(folder, ignore_errors=True)


def upload(endpoint: str, data: Data) -> None:
    batch = "".join(f"cp {data.root}/{BUCKET}/{key} s3://{BUCKET}/{key}\n" for key in data.big)
    environ = {**os.environ, **KEYS}
    for text in (f"mb s3://{BUCKET}\n", batch):
        words = [str(PEERS / "s5cmd"), "--endpoint-url", endpoint, "run"]
        subprocess.run(words, input=text.encode(), env=environ, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def hf_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    repository = scratch / "hub" / "org" / "model"
    shutil.rmtree(repository.parent, ignore_errors=True)
    repository.mkdir(parents=True)
    for key in data.big:
        (repository / f"{Path(key).name}.safetensors").hardlink_to(data.root / BUCKET / key)
    words = [sys.executable, "-m", "tests.storage.hub", str(scratch / "hub")]
    with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent) as hub:
        assert hub.stdout is not None
        url = hub.stdout.readline().strip()
        yield [
            ours("hf://org/model", HF_ENDPOINT=url),
            *(peer("snapshot_download", url, threads, ["org/model"]) for threads in (4, 8)),
        ]
        hub.kill()


@contextmanager
def gs_clients(data: Data, scratch: Path) -> Iterator[list[Client]]:
    with fake_gcs(scratch / "gcs") as server:
        fill_gcs(server.url, data)
        yield [
            ours(f"gs://{BUCKET}/big", STORAGE_EMULATOR_HOST=server.url),
            peer("transfer_manager", server.url, 4, data.big),
        ]


def fill_gcs(url: str, data: Data) -> None:
    code = (
        "import sys; from google.cloud import storage; from google.auth.credentials import AnonymousCredentials as A;"
        "c = storage.Client(credentials=A(), project='bench'); b = c.create_bucket(sys.argv[1]);"
        "[b.blob(k).upload_from_filename(f'{sys.argv[2]}/{k}', timeout=600) for k in sys.argv[3:]]"
    )
    words = [str(PEERS / "python"), "-c", code, BUCKET, str(data.root / BUCKET), *data.big]
    subprocess.run(words, env={**os.environ, "STORAGE_EMULATOR_HOST": url}, check=True)


if __name__ == "__main__":
    main()
