"""Two nodes on one machine: the launcher's two roles with real vLLM, tensor parallel across its two processes.

vLLM's multi-node engine takes loopback for a network; what a GPU's own transport would do is not seen here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.engine.conftest import BIN
from tests.engine.server import FAST, Server, die_with_parent, inherited, start, survivors, tail
from tests.models.chain import continuation

LEFT_WITHIN = 30.0  # seconds for a worker to end after SIGTERM; vLLM grants its own processes ten
PROMPT = tuple(b"Please recite: ")
COUNT = 60


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def listening(session: int) -> set[int]:
    """The TCP ports on which the processes of a session listen."""
    inodes: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == session:
                links = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
                inodes |= {found[1] for link in links if (found := re.match(r"socket:\[(\d+)\]", link))}
        except OSError:
            continue
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


class Pair(NamedTuple):
    leader: Server
    worker: subprocess.Popen[bytes]
    log: Path  # the worker's
    port: int  # NIM_SERVER_PORT of both


@contextmanager
def pair(target: Path, folder: Path, *words: str) -> Iterator[Pair]:
    """A leader and a worker with one environment but for the rank and the folder of the links; one cache."""
    port = free_port()
    common = {
        **FAST,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",  # vLLM's multi-node engine runs each worker in a process of its own
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NIM_MODEL_PATH": str(target),
        "NIM_CACHE_PATH": f"{folder}/cache",
        "NIM_MAX_MODEL_LEN": "512",
        "NIM_DISABLE_CUDA_GRAPH": "1",
        "NIM_TENSOR_PARALLEL_SIZE": "2",
        "NIM_SERVER_PORT": port,
        "LWS_GROUP_SIZE": "2",
        "LWS_LEADER_ADDRESS": "127.0.0.1",
        "NIM_PASSTHROUGH_ARGS": f"--master-port {free_port()}",
    }
    command = [str(BIN / "launcher"), "serve", *words]
    log = folder / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**inherited(), **common, "LWS_WORKER_INDEX": "1", "NIM_WORKSPACE": f"{folder}/workspace-1"},
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    leads = {**common, "LWS_WORKER_INDEX": "0", "NIM_WORKSPACE": f"{folder}/workspace-0"}
    try:
        leader = start(command, leads, folder / "leader.log")
        try:
            yield Pair(leader, worker, log, int(port))
        finally:
            leader.stop()
    finally:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(LEFT_WITHIN)
        finally:
            for pid in survivors(worker.pid, 5.0):
                os.kill(int(pid.split()[0]), signal.SIGKILL)
            worker.wait()


def test_two_nodes_answer_as_one_and_speculate(models: Path, tmp_path: Path) -> None:
    with pair(models / "mtp", tmp_path, "--speculative-config", json.dumps({"method": "mtp"})) as nodes:
        assert nodes.leader.method() == "mtp"
        before = nodes.leader.counters()
        assert nodes.leader.complete(PROMPT, COUNT) == continuation(PROMPT[-1], COUNT)
        after = nodes.leader.counters()
        assert before is not None and after is not None
        assert (after - before).rate == 1.0
        assert nodes.leader.address in listening(nodes.leader.process.pid)
        assert nodes.port not in listening(nodes.worker.pid), "a worker serves no API"
        assert "this node works for a leader (--headless)" in nodes.log.read_text()
    assert nodes.worker.returncode == 0, tail(nodes.log)
