"""What the middleware costs: on the request path, measured on the ASGI callable, and on a real server.

    python -m tests.bench.middleware            # the callable: a few seconds
    python -m tests.bench.middleware --server   # and two real servers, with and without it, in interleaved pairs

On the callable each figure is the median over rounds of what a variant takes longer than the bare application in the
same round.  "loop" is the processor time of the event loop's thread, "wall" what passes on the clock while the
capture's thread works beside it; that thread's own processor time is given apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from launcher.middleware import metrics
from launcher.middleware.asgi import Middleware
from launcher.middleware.configuration import VARIABLE, Capture, Configuration, to_json
from tests.engine.server import FAST, Server, inherited, start
from tests.integration.standin import ATTACHED
from tests.models import write

PASSED, CAPTURED = 2.0, 15.0  # microseconds a request: the bounds
RATIO = 0.98  # of the throughput without: the bound, unless the interval holds 1
CHUNKS = 66  # of an answer of 64 tokens
REQUESTS = 1000  # of the callable, to a round
STREAMS, EACH, TOKENS = 16, 2, 32  # of the server, to a run
PATH = "/v1/chat/completions"
BODY = json.dumps({"model": "plain", "messages": [{"role": "user", "content": "a" * 940}], "stream": True}).encode()
HEADERS = [
    (b"host", b"localhost:8000"),
    (b"user-agent", b"python-httpx/0.28"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"content-type", b"application/json"),
    (b"authorization", b"Bearer some-key"),
    (b"content-length", str(len(BODY)).encode()),
]
App = Callable[[Any, Any, Any], Awaitable[None]]


class Cost(NamedTuple):
    """Microseconds a request beyond the bare application's."""

    loop: float
    wall: float


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and streams an answer, with nothing between."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(CHUNKS):
        await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": number < CHUNKS - 1})


async def one_round(app: App) -> Cost:
    """Microseconds a request."""
    message = {"type": "http.request", "body": BODY, "more_body": False}

    async def receive() -> Any:
        return message

    async def send(message: Any) -> None:
        return None

    scope = {"type": "http", "method": "POST", "path": PATH, "root_path": "", "headers": HEADERS}
    wall, loop = time.perf_counter(), time.thread_time()
    for _ in range(REQUESTS):
        await app(scope, receive, send)
    spent = Cost(time.thread_time() - loop, time.perf_counter() - wall)
    return Cost(spent.loop / REQUESTS * 1e6, spent.wall / REQUESTS * 1e6)


def made(configuration: Configuration) -> Middleware:
    os.environ[VARIABLE] = to_json(configuration.document())
    return Middleware(application)


async def on_the_callable(rounds: int, folder: Path) -> dict[str, Cost]:
    capturing = made(Configuration(capture=Capture(path=f"{folder}/requests.jsonl")))
    variants: dict[str, App] = {"bare": application, "passed through": made(Configuration()), "captured": capturing}
    found: dict[str, list[Cost]] = {name: [] for name in variants}
    for _ in range(rounds + 1):
        for name in random.sample(list(variants), len(variants)):
            found[name].append(await one_round(variants[name]))
            await asyncio.sleep(0.1)  # the capture's thread ends its work: it is not to fall on the next variant
    capturing.close()
    bare = found["bare"][1:]
    return {
        name: Cost(
            statistics.median(cost.loop - base.loop for cost, base in zip(costs[1:], bare, strict=True)),
            statistics.median(cost.wall - base.wall for cost, base in zip(costs[1:], bare, strict=True)),
        )
        for name, costs in found.items()
        if name != "bare"
    }


def print_callable(rounds: int) -> bool:
    before = metrics.capture().seconds._value.get()
    with tempfile.TemporaryDirectory() as folder:
        costs = asyncio.run(on_the_callable(rounds, Path(folder)))
    writer = (metrics.capture().seconds._value.get() - before) / ((rounds + 1) * REQUESTS) * 1e6
    print(f"ASGI callable, body of {len(BODY)} B, {rounds} rounds of {REQUESTS} requests, microseconds a request:")
    good = True
    for name, bound in (("passed through", PASSED), ("captured", CAPTURED)):
        good &= costs[name].loop <= bound
        print(f"  {name:15} loop {costs[name].loop:5.1f}   wall {costs[name].wall:5.1f}   bound {bound:.0f}")
    print(f"  the capture's thread, apart: {writer:.1f}")
    return good


# -- the real server


def throughput(server: Server) -> float:
    """Tokens per second of a run of streams."""
    body = {
        "model": "plain",
        "messages": [{"role": "user", "content": "the quick brown fox " * 45}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }

    def one(_: int) -> None:
        for _ in range(EACH):
            assert server.ask(PATH, body).status == 200

    begin = time.perf_counter()
    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(one, range(STREAMS)))
    return STREAMS * EACH * TOKENS / (time.perf_counter() - begin)


@contextmanager
def servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    """The same vLLM with the middleware, which captures, and without."""
    launcher = str(Path(sys.executable).parent / "launcher")
    environment = {
        **FAST,
        "NIM_MODEL_PATH": str(write("plain", folder / "plain")),
        "NIM_CACHE_PATH": str(folder / "cache"),
        "NIM_WORKSPACE": str(folder / "workspace"),
        "NIM_MAX_MODEL_LEN": "2048",
        "NIM_DISABLE_CUDA_GRAPH": "1",
        "NIM_CAPTURE_ENABLE": "1",
        "NIM_CAPTURE_ARGS": json.dumps({"path": f"{folder}/requests.jsonl"}),
    }
    planned = subprocess.run(
        [launcher, "plan", "--json"], env={**inherited(), **environment}, capture_output=True, text=True, check=True
    )
    plan = json.loads(planned.stdout)
    assert plan["argv"][3:5] == ATTACHED
    bare = [*plan["argv"][:3], *plan["argv"][5:]]
    child = {name: value for name, value in plan["environment"].items() if name != VARIABLE}
    with ExitStack() as stack:
        first = start([launcher, "serve"], environment, folder / "with.log")
        stack.enter_context(first.stopped_cleanly())
        second = start(bare, {**FAST, **child}, folder / "without.log")
        stack.enter_context(second.stopped_cleanly())
        yield first, second


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by resampling."""
    drawn = random.Random(1)
    medians = sorted(statistics.median(drawn.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[-101]


def print_server(pairs: int) -> bool:
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as both:
        ratios, speeds = [], []
        for number in range(pairs + 2):
            order = random.sample((0, 1), 2)
            run = {which: throughput(both[which]) for which in order}
            if number >= 2:  # the first runs compile and fill caches
                ratios.append(run[0] / run[1])
                speeds.append(run[1])
        lines = (Path(folder) / "requests.jsonl").read_bytes().count(b"\n")
        assert lines == (pairs + 2) * STREAMS * EACH, f"{lines} requests captured"
    low, high = interval(ratios)
    median, speed = statistics.median(ratios), statistics.median(speeds)
    print(f"real server, {STREAMS} streams of {TOKENS} tokens, {pairs} interleaved pairs, capture on against nothing:")
    print(f"  throughput ratio {median:.3f} (95 %: {low:.3f} to {high:.3f}), without {speed:.0f} tokens/s")
    return median >= RATIO or low <= 1 <= high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--pairs", type=int, default=21)
    chosen = parser.parse_args()
    good = print_callable(chosen.rounds)
    if chosen.server:
        good &= print_server(chosen.pairs)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
