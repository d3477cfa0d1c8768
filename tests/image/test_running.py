"""Containers in their life: health, shared memory, denied folders, and ``docker stop`` at every phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.podman import Container, Podman
from tests.image.test_image import READ_ONLY, STRANGER, mounted
from tests.models import files
from tests.storage.hub import Hub
from tests.storage.web import Fault
from tests.unit.certificates import Authority

MODEL = "hf://org/plain"


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/plain", files("plain", shards=2))
    yield hub
    hub.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache as a volume gives it: root's, and group 0 may write."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o775)
    return folder


def ready(container: Container, within: float = 10.0, every: float = 0.1) -> str:
    """Wait until the image's own health check is content; what it said.  A check costs half a second of a core."""
    limit = time.monotonic() + within
    while (said := container.execute("launcher", "healthcheck")).code:
        assert time.monotonic() < limit, said.out + container.logs()
        assert container.inspect("{{.State.Running}}") == "true", container.logs()
        time.sleep(every)
    return said.out.strip()


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        ((), {}),
        ((), {"NIM_SERVER_PORT": "9001"}),
        (("--port", "9002"), {"NIM_SERVER_PORT": "9001"}),
        ((), {"NIM_PASSTHROUGH_ARGS": "--port=9003"}),
        ((), {"NIM_HEALTH_PORT": "9004"}),
    ],
    ids=["default", "variable", "word", "passthrough", "health port"],
)
def test_the_health_check_finds_the_server(
    words: tuple[str, ...], environ: dict[str, str], podman: Podman, image: str, models: Path
) -> None:
    environ = {"STANDIN_SERVE": "1", **environ}
    with podman.started(image, "/models/target", *words, options=[mounted(models)], env=environ) as container:
        assert ready(container) == "ready"
        assert container.stop()[0] == 0


TLS = {"NIM_SSL_KEY_PATH": "/tls/server.key", "NIM_SSL_CERTS_PATH": "/tls/server.crt"}


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (("--ssl-certfile", "/tls/server.crt", "--ssl-keyfile", "/tls/server.key"), {}),
        ((), {**TLS, "NIM_SSL_MODE": "TLS", "NIM_JSONL_LOGGING": "1", "NIM_HEALTH_PORT": "9004"}),
        ((), {**TLS, "NIM_SSL_MODE": "MTLS", "NIM_SSL_CA_CERTS_PATH": "/tls/authority.pem"}),
    ],
    ids=["words", "variables, JSON lines and a health port", "client certificates"],
)
def test_the_health_check_over_tls(
    words: tuple[str, ...], environ: dict[str, str], podman: Podman, image: str, models: Path, tmp_path: Path
) -> None:
    Authority(tmp_path, "authority").sign("server").key.chmod(0o644)
    tmp_path.chmod(0o755)
    options = [mounted(models), f"--volume={tmp_path}:/tls:ro"]
    environ = {"STANDIN_SERVE": "1", **environ}
    with podman.started(image, "/models/target", *words, options=options, env=environ) as container:
        assert ready(container) == "ready"


def test_a_server_that_does_not_listen_is_not_healthy(podman: Podman, image: str, models: Path) -> None:
    options = [mounted(models), f"--user={STRANGER}:0", *READ_ONLY]
    with podman.started(image, "/models/target", options=options, env={"STANDIN_WAIT": "1"}) as container:
        container.wait_for('{"argv"')
        said = container.execute("launcher", "healthcheck")
        assert (said.code, said.err) == (1, "")
        assert said.out.startswith("vLLM does not listen yet")


@pytest.mark.parametrize(("parallel", "size", "warned"), [("2", "64m", True), ("2", "2g", False), ("1", "64m", False)])
def test_little_shared_memory(parallel: str, size: str, warned: bool, podman: Podman, image: str, models: Path) -> None:
    environ = {"NIM_TENSOR_PARALLEL_SIZE": parallel}
    ran = podman.run(image, "/models/target", options=[mounted(models), f"--shm-size={size}"], env=environ)
    assert ran.executed, ran.err
    assert ("WARNING" in ran.err and "--shm-size=16g" in ran.err and "emptyDir" in ran.err) is warned, ran.err


@pytest.mark.parametrize("user", ["12345:12345", "1000:0"])
def test_a_cache_that_cannot_be_written(user: str, podman: Podman, image: str, hub: Hub, cache: Path) -> None:
    """As Docker makes the folder of a mount that is not there: root's alone.  Said before a byte is fetched."""
    cache.chmod(0o755)
    options = [f"--volume={cache}:/opt/nim/.cache", f"--user={user}"]
    ran = podman.run(image, MODEL, options=options, env={"HF_ENDPOINT": hub.url}, network="host")
    assert (ran.code, ran.executed) == (4, False), ran.err
    assert f"/opt/nim/.cache belongs to 0:0 with mode 0755; this process runs as {user}" in ran.last_line
    assert "Traceback" not in ran.err
    assert list(cache.iterdir()) == []
    # Of the weights, only the headers were read.
    assert {asked.headers["range"] for asked in hub.storage.ledger.asked("model-0000")} == {"bytes=0-65535"}


def test_stop_during_a_download(podman: Podman, image: str, hub: Hub, cache: Path) -> None:
    """Exit code 143 within two seconds, and what was fetched is not fetched again."""
    hub.ledger.faults.append(Fault("tokenizer.json", times=100, delay=60.0))
    options = [f"--volume={cache}:/opt/nim/.cache"]
    environ = {"HF_ENDPOINT": hub.url, "STANDIN_WAIT": "1"}
    with podman.started(image, MODEL, options=options, env=environ, network="host") as container:
        container.wait_for("(99 %)")
        code, took = container.stop()
        assert (code, took < 2.5) == (143, True), (code, took)  # half a second of them is podman's own
        assert "stopped by SIGTERM before vLLM was started; start again to go on" in container.logs()
    hub.ledger.faults.clear()
    before = len(hub.storage.ledger.asked("model-0000"))
    ran = podman.run(image, MODEL, options=options, env={"HF_ENDPOINT": hub.url}, network="host")
    assert ran.code == 0, ran.err
    assert {"model-00001-of-00002.safetensors", "tokenizer.json"} <= set(ran.record["files"])
    # The weights are there: of them only the headers are read, to decide what is started.
    assert {asked.headers["range"] for asked in hub.storage.ledger.asked("model-0000")[before:]} == {"bytes=0-65535"}


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("plan",),
        ("download-to-cache",),
        ("create-model-store", "--model-repo", MODEL, "--model-store", "/tmp/store"),
    ],
)
def test_stop_while_the_hub_does_not_answer(
    words: tuple[str, ...], podman: Podman, image: str, hub: Hub, cache: Path
) -> None:
    """Before anything is known of the model, whatever the action."""
    hub.ledger.faults.append(Fault("/api/models", times=100, delay=60.0))
    environ = {"HF_ENDPOINT": hub.url, "NIM_MODEL_PATH": MODEL}
    options = [f"--volume={cache}:/opt/nim/.cache"]
    with podman.started(image, *words, options=options, env=environ, network="host") as container:
        limit = time.monotonic() + 10
        while not hub.ledger.asked() and time.monotonic() < limit:
            time.sleep(0.05)
        assert hub.ledger.asked(), container.logs()
        code, took = container.stop()
        assert (code, took < 2.5) == (143, True), (code, took, container.logs())


def test_stop_of_vllm_is_its_own(podman: Podman, image: str, models: Path) -> None:
    """The signal reaches it as process 1, and its exit code is the container's."""
    with podman.started(image, "/models/target", options=[mounted(models)], env={"STANDIN_WAIT": "1"}) as container:
        container.wait_for('{"argv"')
        code, took = container.stop()
        assert (code, took < 2.5) == (0, True)
        assert "got SIGTERM" in container.logs()


def test_its_exit_code_is_the_containers(podman: Podman, image: str, models: Path) -> None:
    ran = podman.run(image, "/models/target", options=[mounted(models)], env={"STANDIN_EXIT": "37"})
    assert ran.code == 37


def test_a_volume_without_the_right_to_write_is_no_matter_for_local_models(
    podman: Podman, image: str, models: Path, cache: Path
) -> None:
    cache.chmod(0o555)
    options = [mounted(models), f"--volume={cache}:/opt/nim/.cache:ro", f"--user={STRANGER}:{STRANGER}"]
    ran = podman.run(image, "/models/target", options=options)
    assert ran.code == 0, ran.err
    assert list(cache.iterdir()) == []
