"""NIM_WARMUP, inside a real HTTP server on the event loop that vLLM uses: nothing listens before the first answer."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.middleware.configuration import VARIABLE, Configuration, Model, to_json
from tests.integration.health import free_port
from tests.integration.standin import Installation

REPOSITORY = Path(__file__).parents[2]
# As vLLM builds its server: the middleware around a Starlette application, served by uvicorn on uvloop.
SERVER = """\
import asyncio, contextlib, logging, sys, uvicorn, uvloop
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from launcher.middleware.asgi import Middleware
logging.basicConfig(level="INFO", format="%(message)s")
answer, port = sys.argv[1], int(sys.argv[2])
async def completions(request):
    wanted = await request.json()
    key = request.headers.get("authorization")
    print("asked", wanted["model"], wanted["max_tokens"], key, request.app is app, flush=True)
    await asyncio.sleep(0.5)
    if answer == "raises":
        raise RuntimeError("the engine is dead")
    return JSONResponse({}, int(answer))
@contextlib.asynccontextmanager
async def lifespan(app):
    try:
        yield
    finally:
        print("closed", flush=True)
app = Starlette(routes=[Route("/v1/completions", completions, methods=["POST"]),
                        Route("/health", lambda request: JSONResponse({}))], lifespan=lifespan)
app.add_middleware(Middleware)
async def serve():
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port))
    task = asyncio.get_running_loop().create_task(server.serve())
    try:
        await task
    finally:
        print("engine down", flush=True)
uvloop.run(serve())
"""


def begin(answer: str, port: int) -> subprocess.Popen[str]:
    told = Configuration(launcher="1", models=(Model("target", "tiny", "/m"),), warmup=True)
    environ = {**os.environ, VARIABLE: to_json(told.document()), "VLLM_API_KEY": "client-key"}
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, answer, str(port)],
        env=environ, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def health(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


@pytest.mark.parametrize("answer", ["200", "404"])
def test_it_listens_after_the_first_answer(answer: str) -> None:
    port = free_port()
    with begin(answer, port) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "asked tiny 16 Bearer client-key True\n"
        assert health(port) is None
        end = time.monotonic() + 20
        while health(port) is None and time.monotonic() < end:
            time.sleep(0.05)
        assert health(port) == 200
        process.terminate()
        process.wait(10)
        log = process.stderr.read()
        said = "the first request was answered" if answer == "200" else "/v1/completions answers 404 here"
        assert f"NIM_WARMUP: {said}" in log


@pytest.mark.parametrize(("answer", "reason"), [("500", "it was answered with 500"), ("raises", "the engine is dead")])
def test_a_first_request_that_fails_ends_the_server(answer: str, reason: str) -> None:
    port = free_port()
    with begin(answer, port) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.wait(20) == 1
        assert health(port) is None
        assert process.stdout.read().splitlines()[1:] == ["closed", "engine down"]
        said = process.stderr.read()
        assert f"NIM_WARMUP: the first request failed, so the server does not start: {reason}" in said


def test_the_launcher_tells_the_middleware(launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), NIM_WARMUP="1")
    assert ran.code == 0 and ran.record is not None, ran.err
    if VARIABLE in ran.record["environ"]:
        assert json.loads(ran.record["environ"][VARIABLE])["warmup"] is True
    else:
        assert "NIM_WARMUP has no effect" in ran.err
