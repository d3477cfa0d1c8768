"""The middleware in real vLLM: its routes, what is streamed through it, what is captured, and the watch."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from launcher.middleware.configuration import VARIABLE
from tests.engine.conftest import BIN, Launch
from tests.engine.server import FAST, Server, inherited, start
from tests.integration.standin import ATTACHED
from tests.models import write

OPEN = ("/v1/health/live", "/v1/health/ready", "/v1/metrics", "/v1/version", "/v1/license")
GUARDED = ("/v1/metadata", "/v1/manifest")
CHAT = "/v1/chat/completions"
DOORS = ("/invocations", "/tokenize")  # vLLM's own check of keys covers neither
KEY = "clients-key-1"
EAGLE3 = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'
ENDPOINTS = "^/v1/(chat/)?completions$"


class Surface(NamedTuple):
    """A server with all of the middleware at work, and the same vLLM without it."""

    with_it: Server
    without: Server
    captured: Path


def ask(server: Server, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
    """Status, headers and body of an answer; ``body`` may be bytes."""
    assert isinstance(server.address, int)
    with closing(http.client.HTTPConnection("127.0.0.1", server.address, timeout=120)) as connection:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        words = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **(headers or {})}
        connection.request("GET" if data is None else "POST", path, data, words)
        with connection.getresponse() as response:
            return response.status, dict(response.getheaders()), response.read()


def chat(number: int = 0, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"say {number}"}]
    return {"model": "plain", "messages": messages, "temperature": 0, "max_tokens": 8, **more}


@pytest.fixture(scope="module")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surface]:
    folder = tmp_path_factory.mktemp("surface")
    target = write("plain", folder / "plain")
    (target / "LICENSE").write_text("Do as you like.\n")
    captured = folder / "captures" / "requests.jsonl"
    captured.parent.mkdir()
    environment = {
        **FAST,
        "NIM_MODEL_PATH": str(target),
        "NIM_DRAFT_MODEL_PATH": str(write("eagle3-forgetful", folder / "eagle3")),
        "NIM_CACHE_PATH": str(folder / "cache"),
        "NIM_WORKSPACE": str(folder / "workspace"),
        "NIM_MAX_MODEL_LEN": "512",
        "NIM_DISABLE_CUDA_GRAPH": "1",
        "NIM_CAPTURE_ENABLE": "1",
        "NIM_CAPTURE_ARGS": json.dumps({"path": str(captured), "endpoint_pattern": ENDPOINTS}),
        "NIM_SPECDEC_MIN_ACCEPTANCE": "0.95",  # more than this draft can do
        "NIM_CORS_ALLOW_ORIGINS": "https://a.example",
        "NIM_CORS_EXPOSE_HEADERS": "X-Request-Id",
        "NIM_CORS_MAX_AGE": "7",
        "VLLM_API_KEY": KEY,
    }
    words = ["--speculative-config", EAGLE3, "--per-request-spec-decode-metrics", "summary"]
    planned = subprocess.run(
        [BIN / "launcher", "plan", "--json", *words],
        env={**inherited(), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    plan = json.loads(planned.stdout)
    assert plan["argv"][3:5] == ATTACHED
    bare = [*plan["argv"][:3], *plan["argv"][5:]]
    child = {name: value for name, value in plan["environment"].items() if name not in (VARIABLE, "VLLM_API_KEY")}
    first = start([str(BIN / "launcher"), "serve", *words], environment, folder / "with.log")
    with first.stopped_cleanly():
        # The first server holds the workspace; the second only reads it.
        second = start(bare, {**FAST, **child, "VLLM_API_KEY": KEY}, folder / "without.log")
        with second.stopped_cleanly():
            yield Surface(first, second, captured)


def test_routes_with_a_key(surface: Surface) -> None:
    server = surface.with_it
    bare = {"Authorization": ""}
    assert {path: ask(server, path, headers=bare)[0] for path in OPEN} == dict.fromkeys(OPEN, 200)
    guarded = (*GUARDED, "/v1/models")
    assert {path: ask(server, path, headers=bare)[0] for path in guarded} == dict.fromkeys(guarded, 401)
    assert {path: ask(server, path)[0] for path in guarded} == dict.fromkeys(guarded, 200)
    assert ask(server, CHAT, chat(), bare)[0] == 401
    text = {"model": "plain", "prompt": "Hello"}
    assert {path: ask(server, path, text, bare)[0] for path in DOORS} == dict.fromkeys(DOORS, 401)
    assert {path: ask(server, path, text)[0] for path in DOORS} == dict.fromkeys(DOORS, 200)
    assert {path: ask(surface.without, path, text, bare)[0] for path in DOORS} == dict.fromkeys(DOORS, 200)
    assert KEY not in server.log.read_text()


def test_metadata_of_a_real_launch(surface: Surface) -> None:
    found = json.loads(ask(surface.with_it, "/v1/metadata")[2])
    target, draft = found["modelInfo"]
    assert (target["shortName"], target["license"], draft["role"]) == ("plain", "LICENSE", "draft")
    assert target["digest"].startswith("sampled-sha256:") and draft["digest"] != target["digest"]
    assert found["engine"] == {"name": "vllm", "version": "0.32.0+cpu"}
    spoken = found["speculation"]
    assert (spoken["method"], spoken["num_speculative_tokens"], spoken["model"]) == ("eagle3", 3, draft["modelUrl"])
    licence = json.loads(ask(surface.with_it, "/v1/license")[2])
    assert (licence["name"], licence["content"]) == ("LICENSE", "Do as you like.\n")
    manifest = yaml.safe_load(json.loads(ask(surface.with_it, "/v1/manifest")[2])["manifest_file"])
    (profile,) = manifest["profiles"]
    assert profile["id"] == found["selectedModelProfileId"] and profile["tags"]["tp"] == "1"
    assert {"config.json", "model.safetensors", "LICENSE"} <= set(profile["workspace"]["files"])
    assert [model["role"] for model in manifest["models"]] == ["target", "draft"]


def test_metrics_are_vllms_and_ours(surface: Surface) -> None:
    text = ask(surface.with_it, "/v1/metrics")[2].decode()
    assert "vllm:spec_decode_num_drafts_total{" in text
    assert "launcher_capture_requests_total " in text
    assert "launcher_speculation_expected 1.0" in text
    assert "launcher_speculation_fallback 0.0" in text
    assert ask(surface.with_it, "/metrics")[0] == 200


def events(answer: bytes) -> list[Any]:
    """The events of a stream; what differs from request to request is taken out."""
    found = []
    for event in answer.decode().split("\n\n"):
        if event in ("", "data: [DONE]"):
            found.append(event)
            continue
        document = json.loads(event.removeprefix("data: "))
        document.pop("id")
        document.pop("created")
        found.append(document)
    return found


def pieces(server: Server, body: object, headers: Mapping[str, str]) -> list[bytes]:
    """The chunks of an answer, as they were sent."""
    assert isinstance(server.address, int)
    data = json.dumps(body).encode()
    head = {"Host": "x", "Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
    lines = [f"POST {CHAT} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    lines += [f"Content-Length: {len(data)}", "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", server.address), 120) as client, client.makefile("rb") as answer:
        client.sendall("\r\n".join(lines).encode() + data)
        while answer.readline() not in (b"\r\n", b""):
            pass
        found = []
        while size := int(answer.readline(), 16):
            found.append(answer.read(size))
            answer.readline()
        return found


@pytest.mark.parametrize(
    "headers", [{}, {"X-Request-Id": "r-1", "Origin": "https://a.example"}], ids=["plain", "named"]
)
def test_a_stream_is_byte_equal_with_and_without(headers: dict[str, str], surface: Surface) -> None:
    body = chat(1, stream=True, max_tokens=40, stream_options={"include_usage": True}, logprobs=True)
    one, other = (pieces(server, body, headers) for server in (surface.with_it, surface.without))
    assert len(one) > 10
    assert [events(piece) for piece in one] == [events(piece) for piece in other]
    assert one[-1] == other[-1] == b"data: [DONE]\n\n"


def test_a_request_id_is_in_header_body_and_log(surface: Surface) -> None:
    status, headers, body = ask(surface.with_it, CHAT, chat(2), {"X-Request-Id": "trace-42"})
    assert (status, headers["x-request-id"]) == (200, "trace-42")
    assert json.loads(body)["id"] == "chatcmpl-trace-42"
    time.sleep(0.2)
    (line,) = [text for text in surface.with_it.log.read_text().splitlines() if "trace-42" in text]
    assert re.fullmatch(r"INFO .*\] \[trace-42\] .*POST /v1/chat/completions HTTP/1.1.* 200.*", line)


def test_cors_headers_that_vllm_lacks(surface: Surface) -> None:
    origin = {"Origin": "https://a.example"}
    status, headers, _ = ask(surface.with_it, CHAT, chat(3), origin)
    assert (status, headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert headers["access-control-expose-headers"] == "X-Request-Id"
    assert isinstance(surface.with_it.address, int)
    with closing(http.client.HTTPConnection("127.0.0.1", surface.with_it.address, timeout=30)) as connection:
        connection.request("OPTIONS", CHAT, headers={**origin, "Access-Control-Request-Method": "POST"})
        with connection.getresponse() as response:
            assert (response.status, response.headers["access-control-max-age"]) == (200, "7")


def test_probes_leave_no_line_in_the_access_log(surface: Surface) -> None:
    for path in OPEN[:3]:
        ask(surface.with_it, path)
    ask(surface.with_it, "/v1/models")
    time.sleep(0.2)
    log = surface.with_it.log.read_text()
    assert '"GET /v1/models HTTP/1.1" 200' in log
    assert "/v1/health/ready" not in log and '"GET /v1/metrics' not in log


def captured_by(surface: Surface, mark: str) -> list[Any]:
    """The captured requests whose user is ``mark``, once nothing waits."""
    time.sleep(1.0)
    rows = [json.loads(row) for row in surface.captured.read_bytes().splitlines()]
    return [row for row in rows if row["payload"].get("user") == mark]


def test_sixteen_streams_at_once_are_each_captured_once_in_order(surface: Surface) -> None:
    bodies = [chat(number, stream=True, max_tokens=30, user="sixteen") for number in range(48)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: ask(surface.with_it, CHAT, body), bodies))
    assert [answer[0] for answer in answers] == [200] * 48
    rows = captured_by(surface, "sixteen")
    key = json.dumps
    assert sorted(key(row["payload"]) for row in rows) == sorted(map(key, bodies))
    stamps = [row["timestamp"] for row in rows]
    assert stamps == sorted(stamps)
    assert KEY not in surface.captured.read_text()


def test_another_endpoint_has_a_file_of_its_own(surface: Surface) -> None:
    body = {"model": "plain", "prompt": [5, 6], "max_tokens": 2, "temperature": 0}
    assert ask(surface.with_it, "/v1/completions", body)[0] == 200
    time.sleep(1.0)
    other = surface.captured.with_name("requests.v1-completions.jsonl")
    assert [json.loads(row)["payload"] for row in other.read_bytes().splitlines()][-1] == body


def test_what_clients_do_wrong_costs_nothing(surface: Surface) -> None:
    """Refused keys are not recorded; no JSON, a body beyond measure and a hang-up are served as ever."""
    server = surface.with_it
    before = len(captured_by(surface, "wrong"))
    assert ask(server, CHAT, chat(user="wrong"), {"Authorization": "Bearer no"})[0] == 401
    assert ask(server, CHAT, b"{")[0] in (400, 422)
    assert ask(server, CHAT, json.dumps(chat(padding="x" * (64 << 20))).encode())[0] in (200, 400)
    assert isinstance(server.address, int)
    body = json.dumps(chat(stream=True, max_tokens=400, ignore_eos=True, user="wrong")).encode()
    with socket.create_connection(("127.0.0.1", server.address), 60) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert ask(server, CHAT, chat(user="wrong"))[0] == 200
    assert len(captured_by(surface, "wrong")) == before + 2
    found = dict(re.findall(r'^launcher_capture_dropped_total\{reason="(\w+)"\} (\S+)', metrics(server), re.MULTILINE))
    assert (float(found["unusable"]), float(found["too_large"]), float(found["write_failed"])) == (1, 1, 0)


def metrics(server: Server) -> str:
    return str(ask(server, "/v1/metrics")[2].decode())


def test_the_counters_add_up_and_the_file_is_valid(surface: Surface) -> None:
    time.sleep(0.5)
    found = re.findall(
        r"^launcher_capture_(requests|written|dropped)_total(?:\{\S+\})? (\S+)", metrics(surface.with_it), re.M
    )
    totals = {name: sum(float(value) for other, value in found if other == name) for name, _ in found}
    assert totals["requests"] == totals["written"] + totals["dropped"] > 0
    validated = subprocess.run(
        [BIN / "launcher", "capture", "validate", surface.captured], capture_output=True, text=True, env=inherited()
    )
    assert (validated.returncode, validated.stdout) == (0, ""), validated.stderr


def test_the_watch(surface: Surface) -> None:
    server = surface.with_it
    assert "speculation is active: eagle3, 3 tokens" in server.log.read_text()
    assert "launcher_speculation_active 1.0" in metrics(server)
    body = {
        "model": "plain",
        "prompt": list(b"Please recite: "),
        "max_tokens": 400,
        "temperature": 0,
        "ignore_eos": True,
    }
    limit = time.monotonic() + 60
    while "launcher_speculation_below_floor 1.0" not in metrics(server) and time.monotonic() < limit:
        ask(server, "/v1/completions", body)
    assert "launcher_speculation_below_floor 1.0" in metrics(server)
    (line,) = re.findall(r".*speculation is likely costing time.*", server.log.read_text())
    assert "less than NIM_SPECDEC_MIN_ACCEPTANCE=0.95" in line


GUARD = """\
class Guard:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/v1/version":
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.app(scope, receive, send)
"""


def test_two_keys_a_fallback_and_a_middleware_of_the_users(launch: Launch, models: Path, tmp_path: Path) -> None:
    """Keys in a file of ours; a server without the speculation that was asked for says so; another's guard counts."""
    (tmp_path / "house_guard.py").write_text(GUARD)
    config = json.dumps({"method": "eagle3", "model": f"{models}/eagle3-vocab", "num_speculative_tokens": 3})
    words = ("--api-key", "another-key-2", KEY, "--speculative-config", config, "--middleware", "house_guard.Guard")
    modules = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with launch(models / "plain", *words, NIM_SPECDEC_POLICY="fallback", PYTHONPATH=modules) as server:
        bare = {"Authorization": ""}
        assert {path: ask(server, path, headers=bare)[0] for path in OPEN[:3]} == dict.fromkeys(OPEN[:3], 200)
        assert ask(server, "/v1/version")[0] == 418
        assert {path: ask(server, path, headers=bare)[0] for path in GUARDED} == dict.fromkeys(GUARDED, 401)
        assert {path: ask(server, path)[0] for path in GUARDED} == dict.fromkeys(GUARDED, 200)
        assert "launcher_speculation_fallback 1.0" in metrics(server)
        assert "SPECULATION IS OFF, and was asked for" in server.log.read_text()
        assert "vllm:spec_decode" not in metrics(server)


def test_two_api_servers_without_a_key(launch: Launch, models: Path, tmp_path: Path) -> None:
    """Each process writes a file of its own; the counters are those of both."""
    told = {"NIM_CAPTURE_ENABLE": "1", "NIM_CAPTURE_ARGS": json.dumps({"path": f"{tmp_path}/r.jsonl"})}
    with launch(models / "plain", "--api-server-count", "2", **told) as server:
        paths = (*OPEN[:4], *GUARDED)
        bare = {"Authorization": ""}
        assert {path: ask(server, path, headers=bare)[0] for path in paths} == dict.fromkeys(paths, 200)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: ask(server, CHAT, chat(number))[0], range(40)))
        assert answers == [200] * 40
        time.sleep(1.0)
        assert "launcher_capture_written_total 40.0" in metrics(server)
        files = sorted(tmp_path.glob("r*.jsonl"))
        assert [path.name for path in files] == ["r.2.jsonl", "r.jsonl"]
        rows = [json.loads(row)["payload"] for path in files for row in path.read_bytes().splitlines()]
        assert sorted(row["messages"][0]["content"] for row in rows) == sorted(f"say {number}" for number in range(40))
