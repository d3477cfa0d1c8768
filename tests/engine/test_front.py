"""What stands around real vLLM: the health listener, the log, TLS with and without certificates of clients."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.middleware.configuration import VARIABLE, Configuration, Model, to_json
from tests.engine.conftest import BIN, Launch
from tests.engine.server import FAST, FAST_FLAGS, Server, start
from tests.integration.health import ask, free_port, is_gone, until
from tests.unit.certificates import Authority, Pair

SECRET = "hf_neverneverneverneverseen"
# What libraries write past every logging configuration: before there is one, from C++, and at the very end.
STRANGERS = re.compile(
    r"\[W\d|\[transformers\]|Triton is|nanobind| - |See https://nanobind|/.*resource_tracker|  warn|$"
)


def by_its_listener(port: int, seen: list[str]) -> Callable[[], bool]:
    """Health as the listener tells it; ``seen`` receives each new phase."""

    def healthy() -> bool:
        answer = ask(port)
        if answer is not None and seen[-1:] != [answer.document["phase"]]:
            seen.append(answer.document["phase"])
        return answer is not None and answer.status == 200

    return healthy


def listener_of(server: Server) -> int:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    (found,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "health-listener\n")
    return int(found)


def test_health_and_json_lines(launch: Launch, models: Path) -> None:
    port, phases = free_port(), list[str]()
    environ = {"NIM_HEALTH_PORT": str(port), "NIM_JSONL_LOGGING": "1", "NIM_WARMUP": "1", "OTHERS_PASSWORD": SECRET[3:]}
    with launch(models / "plain", healthy=by_its_listener(port, phases), **environ) as server:
        assert phases[-2:] == ["loading", "ready"]
        listener = listener_of(server)
        assert server.complete("a", 4)
        server.ask(f"/v1/models?token={SECRET[3:]}")
        server.ask("/nowhere")
        answer = ask(port)
        assert answer is not None and answer.status == 200
    until(lambda: is_gone(listener), 5)
    text = server.log.read_text()
    assert SECRET[3:] not in text
    lines = [line for line in text.splitlines() if not STRANGERS.match(line)]
    records = [json.loads(line) for line in lines]
    assert "NIM_WARMUP: the first request was answered" in text
    assert {tuple(record) for record in records} == {("timestamp", "level", "file", "line", "message")}
    assert [record["timestamp"] for record in records[:3]] == sorted(record["timestamp"] for record in records[:3])
    messages = "\n".join(record["message"] for record in records)
    assert "exec: " in messages  # the launcher's own
    assert "(EngineCore pid=" in messages  # another process of vLLM's
    assert re.search(r'"POST /v1/completions HTTP/1.1" 200', messages)  # uvicorn's
    assert re.search(r'"GET /v1/models\?[^ ]* HTTP/1.1" 200', messages)
    assert "Loading safetensors checkpoint shards" not in text  # a progress bar


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


def secured(pair: Pair, mode: str, ca: Path | None = None) -> dict[str, str]:
    variables = {"NIM_SSL_MODE": mode, "NIM_SSL_KEY_PATH": str(pair.key), "NIM_SSL_CERTS_PATH": str(pair.certificate)}
    return variables | ({"NIM_SSL_CA_CERTS_PATH": str(ca)} if ca else {})


def status(server: Server, path: str, authority: Path, own: Pair | None = None) -> int:
    """Over TLS, checking the server's certificate; OSError where the server turns us away."""
    assert isinstance(server.address, int)
    context = ssl.create_default_context(cafile=str(authority))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    connection = http.client.HTTPSConnection("localhost", server.address, timeout=30, context=context)
    try:
        connection.request("GET", path, headers={"Origin": "https://page.example"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_and_the_text_layout(launch: Launch, models: Path, authority: Authority) -> None:
    port, pair = free_port(), authority.sign("server")
    variables = secured(pair, "TLS") | {"NIM_HEALTH_PORT": str(port)}
    with launch(models / "plain", healthy=by_its_listener(port, []), **variables) as server:
        assert status(server, "/v1/models", authority.path) == 200
        assert isinstance(server.address, int)
        plain = http.client.HTTPConnection("localhost", server.address, timeout=10)
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.request("GET", "/health")
            plain.getresponse()
        plain.close()
    layout = re.compile(r"(DEBUG|INFO|WARNING|ERROR) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [\w.]+:\d+\] ")
    lines = server.log.read_text().splitlines()
    ours = [line for line in lines if layout.match(line)]
    assert any("httptools_impl.py" in line and '"GET /v1/models HTTP/1.1" 200' in line for line in ours)
    assert not [line for line in lines if line.startswith(("(APIServer", "(EngineCore", "INFO:"))]


@pytest.mark.parametrize("signed_by", ["the clients' authority", "another"])
def test_mtls(signed_by: str, launch: Launch, models: Path, authority: Authority, tmp_path: Path) -> None:
    clients = authority if signed_by == "the clients' authority" else Authority(tmp_path, "clients")
    port, pair, client = free_port(), authority.sign("server"), clients.sign("client")
    variables = secured(pair, "MTLS", clients.path) | {"NIM_HEALTH_PORT": str(port)}
    with launch(models / "plain", healthy=by_its_listener(port, []), **variables) as server:
        assert status(server, "/health", authority.path, client) == 200
        for stranger in (None, Authority(tmp_path, "strangers").sign("stranger")):
            with pytest.raises((OSError, http.client.HTTPException)):
                status(server, "/health", authority.path, stranger)


@pytest.mark.parametrize(
    ("target", "speculation"),
    [
        # A draft of another width passes vLLM's load and its health.
        pytest.param("plain", {"method": "eagle3", "model": "eagle3-hidden", "num_speculative_tokens": 3}, id="width"),
        # vLLM's kernels for acceptance that is set are a GPU's.
        pytest.param(
            "mtp",
            {
                "method": "mtp",
                "num_speculative_tokens": 1,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 1.5,
            },
            id="synthetic",
        ),
    ],
)
def test_a_first_request_that_kills_the_engine_is_a_failed_start(
    target: str, speculation: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    """vLLM itself, without the launcher's checks, which refuse both."""
    told = Configuration(launcher="1", models=(Model("target", "tiny", str(models / target)),), warmup=True)
    if "model" in speculation:
        speculation = {**speculation, "model": str(models / speculation["model"])}
    command = [str(BIN / "vllm"), "serve", str(models / target), "--served-model-name", "tiny", *FAST_FLAGS]
    command += ["--middleware", "launcher.middleware.asgi.Middleware"]
    command += ["--speculative-config", json.dumps(speculation)]
    log = tmp_path / "log"
    with pytest.raises(AssertionError, match="the server ended with 1 before it was ready"):
        start(command, {**FAST, VARIABLE: to_json(told.document())}, log)
    assert "NIM_WARMUP: the first request failed, so the server does not start" in log.read_text()
    assert "Application startup complete" not in log.read_text()
