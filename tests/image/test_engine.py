"""Real vLLM, as the image's own interpreter sees it, in a container that may do as little as possible."""

from __future__ import annotations

import json
import re
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server import FAST, READY_WITHIN, parse_counters
from tests.image import base
from tests.image.podman import Container, Podman
from tests.image.test_image import READ_ONLY, RESTRICTED, STRANGER, mounted
from tests.image.test_running import ready
from tests.missing import missing

SITE = Path(sysconfig.get_path("purelib"))
DOCKERFILE = f"""\
FROM localhost/launcher
USER 0
RUN rm -r /{base.PACKAGES}/vllm-*.dist-info && echo /engine > /{base.PACKAGES}/engine.pth
COPY vllm /usr/local/bin/vllm
USER 1000:0
"""
CONSOLE_SCRIPT = """\
#!/usr/local/bin/python3
import sys
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
# -D: the traced program stays process 1.  --seccomp-bpf: it stops at these calls alone, not at each of an import's.
TRACED = ("-D", "-f", "--seccomp-bpf", "-qq", "-o", "/trace/calls", "-e", "trace=connect,sendto,sendmsg,sendmmsg")
ASK = """\
import sys, urllib.request
body = sys.argv[2].encode() if len(sys.argv) > 2 else None
request = urllib.request.Request("http://127.0.0.1:8000" + sys.argv[1], body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=120).read().decode())
"""


@pytest.fixture(scope="module")
def engine_image(podman: Podman, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image with the real engine in the place of the stand-in; its packages are mounted."""
    if not (SITE / "vllm").is_dir():
        missing("the engine is not installed here: make setup")
    folder = tmp_path_factory.mktemp("engine")
    (folder / "vllm").write_text(CONSOLE_SCRIPT)
    (folder / "vllm").chmod(0o755)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return podman.build(folder, folder / "Dockerfile", "localhost/engine")


def ask(container: Container, path: str, body: dict[str, Any] | None = None) -> str:
    """From inside: there is no network to ask through."""
    said = container.execute("python3", "-c", ASK, path, *([json.dumps(body)] if body else []))
    assert said.code == 0, said.err + container.logs()
    return said.out


def test_a_completion_with_speculation_in_a_container_that_may_do_nothing(
    podman: Podman, engine_image: str, models: Path, tmp_path: Path
) -> None:
    """Air-gapped, read-only root, random user, no capability.  No packet leaves, by the kernel's own account."""
    options = [
        mounted(models, "mtp"), f"--volume={SITE}:/engine:ro", f"--user={STRANGER}:0", "--shm-size=256m",
        *RESTRICTED, *READ_ONLY,
    ]  # fmt: skip
    environ = {name: value for name, value in FAST.items() if name not in ("VLLM_CACHE_ROOT", "HF_HUB_OFFLINE")}
    environ |= {"NIM_MODEL_PATH": "/models/target", "NIM_SPECDEC_ENABLE": "1"}
    environ |= {"NIM_MAX_MODEL_LEN": "512", "NIM_DISABLE_CUDA_GRAPH": "1"}
    tmp_path.chmod(0o777)
    options += [f"--volume={tmp_path}:/trace", "--entrypoint=strace"]
    with podman.started(engine_image, *TRACED, "launcher", options=options, env=environ) as container:
        began = time.monotonic()
        assert ready(container, READY_WITHIN, every=2.0) == "ready"
        took = time.monotonic() - began
        body = {"model": "target", "prompt": "Hello", "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        answer = json.loads(ask(container, "/v1/completions", body))
        assert answer["usage"]["completion_tokens"] == 16
        counters = parse_counters(ask(container, "/metrics"))
        assert counters is not None and counters.drafts > 0
        assert counters.accepted == counters.draft_tokens  # the embedded head is always right
        code, stopped = container.stop(grace=60)
        print(f"\nready after {took:.0f} s, {counters}, stopped within {stopped:.1f} s with {code}")
        assert code == 0, container.logs()
    calls = (tmp_path / "calls").read_text()
    assert "connect(" in calls  # it saw something: sockets of this machine
    assert attempts(calls) == []


def attempts(calls: str) -> list[str]:
    """What was addressed to another machine."""
    here = re.compile(r'inet_addr\("(127\.|0\.0\.0\.0)|inet_pton\(AF_INET6, "(::1|::|::ffff:127\.[^"]*)"')
    return [line for line in calls.splitlines() if re.search(r"AF_INET6?\b", line) and not here.search(line)]
