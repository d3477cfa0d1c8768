"""A real server as a child of the test run: started, asked, measured and stopped."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

ROOT = Path(__file__).resolve().parents[2]
READY_WITHIN = 240.0  # seconds: the first start on a slow machine inspects the model classes and compiles small kernels
STOP_WITHIN = 60.0
LINGER = 5.0  # Python's own helper processes notice the end of their parent a moment later
REQUEST_WITHIN = 180.0
PR_SET_PDEATHSIG = 1

# One process for worker and engine, one thread, no graph compilation: what starts fastest for models of this size.
FAST = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CACHE_ROOT": str(ROOT / ".cache" / "vllm"),  # keeps what vLLM learns about model classes from run to run
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
FAST_FLAGS = ("--enforce-eager", "--max-model-len", "512")


class Counters(NamedTuple):
    """vLLM's speculative counters at one moment, or the difference of two."""

    drafts: int
    draft_tokens: int
    accepted: int
    per_position: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Accepted tokens per drafted token."""
        return self.accepted / self.draft_tokens

    @property
    def length(self) -> float:
        """Mean number of tokens that one step of the target yields."""
        return 1 + self.accepted / self.drafts

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in zip(self.per_position, earlier.per_position, strict=True)),
        )


def parse_counters(metrics: str) -> Counters | None:
    """The counters in a Prometheus text; None when the server exports none, which is so when speculation is off."""
    pattern = re.compile(r"^vllm:spec_decode_num_(\w+)_total\{([^}]*)\} (\S+)$", re.MULTILINE)
    totals: dict[str, int] = {}
    positions: dict[int, int] = {}
    for name, labels, value in pattern.findall(metrics):
        position = re.search(r'position="(\d+)"', labels)
        if position:
            positions[int(position[1])] = int(float(value))
        else:
            totals[name] = int(float(value))
    if not totals:
        return None
    per_position = tuple(count for _, count in sorted(positions.items()))
    return Counters(totals["drafts"], totals["draft_tokens"], totals["accepted_tokens"], per_position)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file: reaches a server in a network namespace of its own."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.body))


class Server(NamedTuple):
    """A running server.  ``address`` is a port on 127.0.0.1 or the path of a socket file."""

    process: subprocess.Popen[bytes]
    address: int | str
    log: Path
    ready_after: float  # seconds from the start of the process to the first healthy answer

    def ask(self, path: str, body: object = None, *, timeout: float = REQUEST_WITHIN) -> Answer:
        """GET, or POST when there is a body."""
        return _ask(self.address, path, body, timeout)

    def model(self) -> str:
        """The served name."""
        return cast("str", self.ask("/v1/models").document["data"][0]["id"])

    def complete(self, prompt: str | Sequence[int], count: int) -> list[int]:
        """Exactly ``count`` greedy tokens."""
        body = {"model": self.model(), "prompt": prompt, "max_tokens": count, "temperature": 0}
        answer = self.ask("/v1/completions", body | {"ignore_eos": True, "return_token_ids": True})
        assert answer.status == 200, f"{answer.body.decode()}\n{tail(self.log)}"
        return cast("list[int]", answer.document["choices"][0]["token_ids"])

    def chat(self, text: str) -> dict[str, Any]:
        """The first choice of an answer to one message, everything else as a client leaves it."""
        body = {"model": self.model(), "messages": [{"role": "user", "content": text}]}
        answer = self.ask("/v1/chat/completions", body)
        assert answer.status == 200, f"{answer.body.decode()}\n{tail(self.log)}"
        return cast("dict[str, Any]", answer.document["choices"][0])

    def counters(self) -> Counters | None:
        return parse_counters(self.ask("/metrics").body.decode())

    def method(self) -> str | None:
        """The speculative method that vLLM runs with, by its own account; None when it does not speculate."""
        found = re.search(r"speculative_config=(?:None|SpeculativeConfig\(method='(\w+)')", self.log.read_text())
        assert found, f"vLLM did not say how it runs:\n{tail(self.log)}"
        return found[1]

    def stop(self) -> int:
        """End it as a container runtime does, and return its exit code; none of its processes may be left."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_WITHIN)
            left = survivors(self.process.pid, LINGER)
            assert not left, f"still running after SIGTERM: {left}\n{tail(self.log)}"
        finally:
            _kill_session(self.process.pid)
            self.process.wait()
        return code

    @contextmanager
    def stopped_cleanly(self) -> Iterator[None]:
        """Stop it at the end of the block, whatever happened there; after a good block it must have exited with 0."""
        try:
            yield
        except BaseException:
            self.stop()
            raise
        code = self.stop()
        assert code == 0, f"exit code {code} after SIGTERM:\n{tail(self.log)}"


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    isolated: str | None = None,
    healthy: Callable[[], bool] | None = None,
) -> Server:
    """Start ``command``, which must take ``--port`` or ``--uds``, and wait until it is healthy.

    ``environment`` comes on top of `inherited`.  ``healthy`` replaces the question whether it is, which is otherwise
    asked of ``/health`` over plain HTTP.
    ``isolated`` is the path of a socket file: the server then has a network of its own with nothing but loopback.
    """
    address: int | str = isolated or _free_port()
    words = [*command, "--uds", isolated] if isolated else [*command, "--port", str(address)]
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**inherited(), **environment},
            start_new_session=True,
            preexec_fn=_leave_network if isolated else die_with_parent,
        )
    try:
        _wait_until_healthy(process, healthy or (lambda: _ask(address, "/health", None, 5).status == 200), log)
    except BaseException:
        _kill_session(process.pid)
        process.wait()
        raise
    return Server(process, address, log, time.monotonic() - begin)


def inherited() -> dict[str, str]:
    """The test run's environment without what would steer launcher or engine."""
    steering = ("NIM_", "VLLM_", "HF_")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}


def tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _wait_until_healthy(process: subprocess.Popen[bytes], healthy: Callable[[], bool], log: Path) -> None:
    limit = time.monotonic() + READY_WITHIN
    while time.monotonic() < limit:
        code = process.poll()
        assert code is None, f"the server ended with {code} before it was ready:\n{tail(log)}"
        try:
            if healthy():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not ready after {READY_WITHIN:.0f} s:\n{tail(log)}")


def _ask(address: int | str, path: str, body: object, timeout: float) -> Answer:
    connection = (
        http.client.HTTPConnection("127.0.0.1", address, timeout=timeout)
        if isinstance(address, int)
        else _UnixConnection(address, timeout)
    )
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])


def die_with_parent() -> None:
    """In the child: a clean end when the test run dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _leave_network() -> None:
    """In the child: a network namespace with loopback alone."""
    die_with_parent()
    enter_empty_network()


def enter_empty_network() -> None:
    """Move this process into a network namespace with loopback alone.  OSError where the kernel does not allow it."""
    import fcntl
    import struct

    new_user, new_network = 0x10000000, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_network) and libc.unshare(new_user | new_network):
        raise OSError(ctypes.get_errno(), "no network namespace")
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(control, get_flags, request), 16)
        fcntl.ioctl(control, set_flags, struct.pack("16sH14x", b"lo", flags | up))


def _processes() -> Iterator[tuple[int, int, str]]:
    """Process id, session and name of all that run (the dead that nobody has waited for yet left out)."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if fields[0] != "Z":
            yield int(entry.name), int(fields[3]), name


def survivors(session: int, patience: float = 0.0) -> list[str]:
    """The processes of a session that still run after ``patience`` seconds, as "pid name"."""
    limit = time.monotonic() + patience
    while True:
        left = [f"{pid} {name}" for pid, owner, name in _processes() if owner == session]
        if not left or time.monotonic() >= limit:
            return left
        time.sleep(0.05)


def _kill_session(session: int) -> None:
    for pid, owner, _ in _processes():
        if owner == session:
            os.kill(pid, signal.SIGKILL)
