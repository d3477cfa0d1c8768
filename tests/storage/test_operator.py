"""NVIDIA's NIM operator, played: its environment, the commands of its jobs, its manifest probe, a service on the cache.

The names and values are those of its published source.  The image here is a model-free one; what the operator does with
one that has a manifest (``--profiles``, ``--all``) is in tests/image/test_pods.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.settings.names import unknown_names
from tests.integration.standin import Installation, install
from tests.models import files
from tests.storage.hub import Hub
from tests.storage.registry import PERSONAL, Registry

BIN = Path(sys.executable).parent
# Of every pod of a NIMService; the port is the service's.
POD = {
    "OUTLINES_CACHE_DIR": "/tmp/outlines",
    "NIM_SERVER_PORT": "8123",
    "NIM_HTTP_API_PORT": "8123",
    "NIM_JSONL_LOGGING": "1",
    "NIM_LOG_LEVEL": "INFO",
}
# Of a multi-node service besides.
SEVERAL_NODES = {
    "NIM_MULTI_NODE": "1",
    "NIM_NUM_COMPUTE_NODES": "2",
    "NIM_TENSOR_PARALLEL_SIZE": "8",
    "NIM_PIPELINE_PARALLEL_SIZE": "2",
    "NIM_MPI_ALLOW_RUN_AS_ROOT": "0",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=20",
    "GPUS_PER_NODE": "8",
    "CLUSTER_START_TIMEOUT": "300",
    "CLUSTER_SIZE": "2",
    "GROUP_INDEX": "0",
    # What LeaderWorkerSet adds to each pod itself.
    "LWS_GROUP_SIZE": "2",
    "LWS_LEADER_ADDRESS": "meta-0.meta.nim-service",
}
PROBE = """\
if [ -f /opt/nim/etc/default/model_manifest.yaml ]; then cat /opt/nim/etc/default/model_manifest.yaml; \
elif [ -f /etc/nim/config/model_manifest.yaml ]; then cat /etc/nim/config/model_manifest.yaml; \
else echo "model_manifest.yaml not found"; fi
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/plain", files("plain"))
    yield hub
    hub.close()


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv", "0.32.0", clients=True)


def pod(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """A pod whose ``command`` replaces the image's entrypoint: a program on PATH, and nothing of ours in between."""
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/", **environ}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_model_free_image_has_no_manifest(launcher: Installation) -> None:
    """The probe runs a shell of the image; this text is how it recognises a model-free one."""
    ran = launcher.run("sh", "-c", PROBE)
    assert (ran.code, ran.out) == (0, "model_manifest.yaml not found\n")


def test_its_job_fills_the_cache_and_its_service_serves_from_it(
    hub: Hub, launcher: Installation, tmp_path: Path
) -> None:
    store = tmp_path / "model-store"
    store.mkdir()
    job = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "NIM_CACHE_PATH": str(store)}
    home = {"HF_HOME": f"{store}/huggingface/hub"}
    manifest = store / "model_manifest.json"
    ran = pod(
        ["download-to-cache", "--model-uri", "hf://org/plain", "--manifest-file", str(manifest)], **POD | job | home
    )
    assert ran.returncode == 0, ran.stderr
    snapshot = Path(ran.stdout.split()[1])
    assert snapshot.is_relative_to(store)
    assert (snapshot / "model.safetensors").read_bytes() == files("plain")["model.safetensors"]
    listed = {file["path"]: file["size"] for file in json.loads(manifest.read_text())["files"]}
    assert listed == {name: len(data) for name, data in files("plain").items()}
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    told = [line["message"] for line in lines if line["level"] in ("WARNING", "ERROR")]
    assert all(text.startswith("NIM_JSONL_LOGGING") for text in told), told
    hub.close()  # the service has no key, and needs no hub
    served = launcher.run(**POD, NIM_CACHE_PATH=str(store), NIM_MODEL_PATH="hf://org/plain", HF_HUB_OFFLINE="1")
    assert served.code == 0, served.err
    assert served.argv[served.argv.index("--port") + 1] == "8123"
    assert served.record is not None and served.record["environ"]["OUTLINES_CACHE_DIR"] == "/tmp/outlines"


def test_its_job_writes_a_store(tmp_path: Path) -> None:
    registry = Registry()
    registry.add("acme", "model", "1", files("plain"), team="team")
    store = tmp_path / "model-store"
    try:
        ran = pod(
            ["create-model-store", "--model-repo", "ngc://acme/team/model:1", "--model-store", str(store)],
            **POD | registry.environ(NGC_API_KEY=PERSONAL, NIM_CACHE_PATH=f"{tmp_path}/cache"),
        )
    finally:
        registry.close()
    assert ran.returncode == 0, ran.stderr
    assert (store / "model.safetensors").read_bytes() == files("plain")["model.safetensors"]
    assert PERSONAL not in ran.stdout + ran.stderr


@pytest.mark.parametrize(("rank", "role"), [("0", "1"), ("1", "0")])
def test_its_several_nodes(rank: str, role: str, hub: Hub, launcher: Installation) -> None:
    ran = launcher.run(
        **POD | SEVERAL_NODES,
        NIM_NODE_RANK=rank,
        LWS_WORKER_INDEX=rank,
        NIM_LEADER_ROLE=role,
        NIM_MODEL_PATH="hf://org/plain",
        HF_ENDPOINT=hub.url,
    )
    assert ran.code == 0, ran.err
    words = " ".join(ran.argv)
    assert f"--nnodes 2 --node-rank {rank} --master-addr meta-0.meta.nim-service" in words
    assert ("--port 8123" in words, "--headless" in words) == (rank == "0", rank == "1")


def test_strict_or_not_its_variables_are_known(hub: Hub, launcher: Installation) -> None:
    extras = {"NIM_SDK_USE_NATIVE_TLS": "1", "NIM_GRPC_API_PORT": "50051", "NIM_TRITON_METRICS_PORT": "8002"}
    assert unknown_names({**POD, **SEVERAL_NODES, **extras}, ()) == ()
    ran = launcher.run(**POD, **extras, NIM_STRICT="1", NIM_MODEL_PATH="hf://org/plain", HF_ENDPOINT=hub.url)
    assert ran.code == 0, ran.err


def test_the_programs_are_on_the_path() -> None:
    for name in ("nim-serve", "list-model-profiles", "download-to-cache", "create-model-store"):
        assert os.access(BIN / name, os.X_OK), name
