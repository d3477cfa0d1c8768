"""The capture under a real uvicorn, and whatever a disk and a client can do to it; and ``capture validate``."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher.middleware.configuration import VARIABLE, Capture, Configuration, to_json
from tests.integration.standin import REPOSITORY, Installation

CHAT = "/v1/chat/completions"

# An application that answers with what it was sent, piece by piece, and has vLLM's /health and /metrics.
SERVER = """\
import sys
import prometheus_client
import uvicorn
from launcher.middleware.asgi import Middleware

metrics = prometheus_client.make_asgi_app()

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    if scope["path"] == "/metrics":
        await metrics(scope, receive, send)
        return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for start in range(0, len(body), 1 << 20):
        await send({"type": "http.response.body", "body": body[start : start + (1 << 20)], "more_body": True})
    await send({"type": "http.response.body", "body": b""})

uvicorn.run(Middleware(app), fd=int(sys.argv[1]), log_level="info", loop="uvloop", backlog=2048, interface="asgi3")
"""


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def post(self, body: bytes, path: str = CHAT) -> bytes:
        return self._ask("POST", path, body)

    def counters(self) -> dict[str, int]:
        """The capture's counters that are not 0, by their short names, once nothing waits any more."""
        limit = time.monotonic() + 20
        while True:
            text = self._ask("GET", "/v1/metrics").decode()
            rows = re.findall(r'^launcher_capture_(\w+)_total(?:\{reason="(\w+)"\})? (\S+)$', text, re.MULTILINE)
            found = {reason or name: int(float(value)) for name, reason, value in rows if float(value)}
            for name in ("written_bytes", "writer_seconds"):
                found.pop(name, None)
            ended = sum(value for name, value in found.items() if name not in ("requests", "rotations"))
            if found.get("requests", 0) == ended or time.monotonic() > limit:
                return found
            time.sleep(0.05)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, {"Authorization": "Bearer key-1"})
            with connection.getresponse() as response:
                assert response.status == 200
                return response.read()

    def stop(self) -> None:
        """As a container runtime does; uvicorn ends in good order, and then by the very signal."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == -signal.SIGTERM
        assert "Finished server process" in self.log.read_text()


@contextmanager
def served(folder: Path, environ: Mapping[str, str] = {}, **told: Any) -> Iterator[Server]:
    configuration = Configuration(launcher="1", capture=Capture(**{"path": f"{folder}/requests.jsonl", **told}))
    log = folder.parent / f"{folder.name}.log"
    with socket.socket() as listening, log.open("wb") as output:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            cwd=REPOSITORY,
            env={**os.environ, **environ, VARIABLE: to_json(configuration.document())},
            stdout=output,
            stderr=output,
        )
        server = Server(process, listening.getsockname()[1], log)
    try:
        server.counters()  # answers once the server has started
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def chat(number: int, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": f"n {number}"}], **more}).encode()


def numbers(path: Path) -> list[int]:
    return [int(json.loads(row)["payload"]["messages"][0]["content"][2:]) for row in path.read_bytes().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "captures"
    made.mkdir()
    return made


def test_a_thousand_at_once(folder: Path) -> None:
    with served(folder) as server:
        with ThreadPoolExecutor(100) as pool:
            bodies = [chat(number) for number in range(1000)]
            assert list(pool.map(server.post, bodies)) == bodies
        assert server.counters() == {"requests": 1000, "written": 1000}
        server.stop()
        assert "launcher_capture" not in server.log.read_text()
    assert sorted(numbers(folder / "requests.jsonl")) == list(range(1000))
    stamps = [json.loads(row)["timestamp"] for row in (folder / "requests.jsonl").read_bytes().splitlines()]
    assert stamps == sorted(stamps)
    assert b"key-1" not in (folder / "requests.jsonl").read_bytes()


def test_a_large_body(folder: Path) -> None:
    """64 MB pass through whole and are not kept; 8 MB are kept."""
    with served(folder) as server:
        large = chat(1, padding="x" * (64 << 20))
        assert server.post(large) == large
        kept = chat(2, padding="y" * (8 << 20))
        assert server.post(kept) == kept
        assert server.counters() == {"requests": 2, "too_large": 1, "written": 1}
    assert numbers(folder / "requests.jsonl") == [2]


def test_bodies_that_are_no_json(folder: Path) -> None:
    with served(folder) as server:
        for body in (b"{", b"\xff\xfe", b"[]", b'{"a": NaN}', b""):
            assert server.post(body) == body
        server.post(chat(1))
        assert server.counters() == {"requests": 6, "unusable": 5, "written": 1}
    assert numbers(folder / "requests.jsonl") == [1]


def test_a_client_that_hangs_up(folder: Path) -> None:
    with served(folder) as server:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode())
        server.post(chat(1))
        limit = time.monotonic() + 10
        while server.counters().get("incomplete") != 20 and time.monotonic() < limit:
            time.sleep(0.05)
        assert server.counters() == {"requests": 21, "incomplete": 20, "written": 1}
    assert numbers(folder / "requests.jsonl") == [1]


def test_the_folder_is_taken_away_and_comes_back(folder: Path) -> None:
    path = folder / "requests.jsonl"
    with served(folder) as server:
        server.post(chat(1))
        assert server.counters() == {"requests": 1, "written": 1}
        moved = folder.rename(folder.parent / "moved")
        server.post(chat(2))
        assert server.counters() == {"requests": 2, "written": 1, "write_failed": 1}
        folder.mkdir()
        server.post(chat(3))
        assert server.counters() == {"requests": 3, "written": 2, "write_failed": 1}
        assert server.log.read_text().count("cannot be written") == 1
    assert (numbers(moved / path.name), numbers(path)) == ([1], [3])


def test_the_file_is_replaced(folder: Path) -> None:
    path = folder / "requests.jsonl"
    with served(folder) as server:
        server.post(chat(1))
        server.counters()
        path.rename(folder / "first.jsonl")
        server.post(chat(2))
        server.counters()
        (folder / "new").write_text("somebody else's\n")
        (folder / "new").replace(path)
        server.post(chat(3))
        assert server.counters() == {"requests": 3, "written": 2, "write_failed": 1}
    assert numbers(folder / "first.jsonl") == [1]
    assert path.read_text() == "somebody else's\n"


def test_a_full_disk(folder: Path) -> None:
    """A small tmpfs: what does not fit is counted, no line is torn, and all goes on once there is room."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False).returncode:
        if os.environ.get("LAUNCHER_CI") == "1":
            pytest.fail("no tmpfs can be mounted here")
        pytest.skip("no tmpfs can be mounted here")
    try:
        with served(folder) as server:
            filler = folder / "filler"
            server.post(chat(0))
            server.counters()
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
                while True:
                    file.write(b"x" * 1024)
            for number in range(1, 9):
                server.post(chat(number, padding="p" * 1000))
            found = server.counters()
            assert found["requests"] == 9
            assert found["written"] + found["write_failed"] == 9
            assert found["write_failed"] >= 4  # a page of the file's own had room for a few
            filler.unlink()
            server.post(chat(99))
            assert server.counters()["written"] == found["written"] + 1
            assert server.log.read_text().count("No space left on device") == 1
        rows = numbers(folder / "requests.jsonl")
        assert (rows[0], rows[-1], len(rows)) == (0, 99, found["written"] + 1)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_killed_server_leaves_a_valid_file(folder: Path) -> None:
    path = folder / "requests.jsonl"
    with served(folder) as server, ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(server.post, chat(number)) for number in range(200)]
        time.sleep(0.1)
        server.process.kill()
        for future in futures:
            future.exception()
    whole = len(path.read_bytes().splitlines())
    with path.open("ab") as file:
        file.write(b'{"timestamp": 1800000000000.1, "payl')  # what a crash of the machine leaves
    with served(folder) as server:
        server.post(chat(1000))
        server.stop()
    assert len(numbers(path)) == whole + 1


def test_two_servers_with_one_path(folder: Path) -> None:
    with served(folder) as one, served(folder) as other:
        one.post(chat(1))
        other.post(chat(2))
        assert one.counters() == other.counters() == {"requests": 1, "written": 1}
    assert (numbers(folder / "requests.jsonl"), numbers(folder / "requests.2.jsonl")) == ([1], [2])


# -- launcher capture validate


def test_validate_passes_what_was_captured(launcher: Installation, folder: Path) -> None:
    path = folder / "requests.jsonl"
    with served(folder) as server:
        for number in range(5):
            server.post(chat(number))
        server.stop()
    ran = launcher.run("capture", "validate", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert "5 requests for m over" in ran.err
    assert "nothing would stop a replay as mooncake_payload" in ran.err
    packed = folder / "requests.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert launcher.run("capture", "validate", str(packed)).code == 0


def test_validate_names_every_bad_line(launcher: Installation, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    good = '{"timestamp": 1, "payload": {"messages": []}}'
    path.write_text(f'{good}\n{{"timestamp": 2, "payload": {{}}}}\n\n{good}\n{{"payload": {{"a": 1}}}}\n{good[:20]}')
    ran = launcher.run("capture", "validate", str(path))
    assert ran.code == 7
    assert [line.partition(": ")[0] for line in ran.out.splitlines()] == [f"{path}:{number}" for number in (2, 5, 6)]
    assert "3 of 5 lines would stop a replay" in ran.last_line


@pytest.mark.parametrize(
    ("content", "words", "code", "said"),
    [
        (None, (), 3, "does not exist"),
        ("", (), 7, "holds no request"),
        ("\n\n", (), 7, "holds no request"),
        ('{"messages": []}\n', (), 0, "nothing would stop a replay as raw_payload"),
        ('{"messages": []}\n', ("--format", "mooncake_payload"), 0, "as mooncake_payload"),
        ('{"prompt": "x"}\n', ("--format", "raw_payload"), 7, "1 of 1 lines"),
        ('{"messages": []}\n', ("--format", "jsonl"), 2, "--format"),
    ],
)
def test_validate_and_other_files(
    content: str | None, words: tuple[str, ...], code: int, said: str, launcher: Installation, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    if content is not None:
        path.write_text(content)
    ran = launcher.run("capture", "validate", str(path), *words)
    assert ran.code == code, ran.err
    assert said in ran.err


def test_validate_and_a_folder_or_a_cut_archive(launcher: Installation, tmp_path: Path) -> None:
    ran = launcher.run("capture", "validate", str(tmp_path))
    assert ran.code == 7
    assert f"cat {tmp_path}/*.jsonl > trace.jsonl" in ran.last_line
    cut = tmp_path / "t.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"messages": []}\n' * 100)[:-10])
    ran = launcher.run("capture", "validate", str(cut))
    assert (ran.code, "no whole gzip file" in ran.last_line) == (7, True)
    # A damaged block: neither an end too early nor a wrong sum at the end.
    whole = bytearray(gzip.compress(b'{"messages": []}\n' * 100))
    whole[10] = 0xFF
    cut.write_bytes(whole)
    ran = launcher.run("capture", "validate", str(cut))
    assert (ran.code, "no whole gzip file" in ran.last_line) == (7, True)


def test_validate_counts_as_people_do(launcher: Installation, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"payload": {"model": "m", "messages": []}}\n')
    assert ": 1 request for m: nothing would stop a replay" in launcher.run("capture", "validate", str(path)).err


# -- what the launcher says before the start


def test_the_launcher_warns_of_a_path_that_cannot_be_written(launcher: Installation, models: Path) -> None:
    ran = launcher.run(
        "serve", str(models / "plain"), NIM_CAPTURE_ENABLE="1", NIM_CAPTURE_ARGS='{"path": "/nowhere/at/all.jsonl"}'
    )
    assert ran.code == 0
    assert "/nowhere/at/all.jsonl cannot be written, so no request will be recorded: the folder /nowhere/at" in ran.err
    assert ran.record is not None
    assert json.loads(ran.record["environ"][VARIABLE])["capture"]["path"] == "/nowhere/at/all.jsonl"
    ran = launcher.run("serve", str(models / "plain"), NIM_CAPTURE_ENABLE="1", NIM_CAPTURE_ARGS='{"path": "/dev/null"}')
    assert ran.code == 0 and "/dev/null cannot be written, so no request will be recorded: it is no regular" in ran.err


def test_wrong_arguments_stop_the_start(launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), NIM_CAPTURE_ENABLE="1", NIM_CAPTURE_ARGS='{"fromat": "x"}')
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_CAPTURE_ARGS holds the unknown key 'fromat'. Did you mean format?" in ran.last_line
