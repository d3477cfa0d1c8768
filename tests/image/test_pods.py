"""The pods of docker/kubernetes and of NVIDIA's operator, as containers of the image: users, mounts, commands, secrets.

podman plays the kubelet: what a pod template says is turned into its options, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.conftest import Render, render
from tests.image.podman import Podman, Ran
from tests.models import files
from tests.storage.hub import TOKEN, Hub
from tests.storage.test_operator import POD, PROBE

__all__ = ["render"]  # the fixture

API_KEY = "sk-a-key-for-clients"
STORE = "/model-store"
PROFILE = """\
schema: 1
family: tiny
models:
  - name: tiny
    variants: [{precision: bf16, sources: ["hf://org/model"]}]
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    hub.add("org/model", files("mtp"), gated=True)
    yield hub
    hub.close()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A claim's volume; fsGroup makes it writable for the pod."""
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "hf-token").write_text(TOKEN)
    (folder / "api-key").write_text(f"{API_KEY}\n")
    return folder


def played(
    podman: Podman, image: str, pod: Mapping[str, Any], environ: Mapping[str, str], volumes: Mapping[str, Path],
    network: str = "none",
) -> Ran:  # fmt: skip
    """A pod's one container, run to its end.  ``volumes`` are the folders behind claims and the secret, by name."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    rights, user = container["securityContext"], spec["securityContext"]
    options = [f"--cap-drop={name.lower()}" for name in rights["capabilities"]["drop"]]
    options += ["--security-opt=no-new-privileges"] if not rights["allowPrivilegeEscalation"] else []
    options += ["--read-only", "--read-only-tmpfs=false"] if rights["readOnlyRootFilesystem"] else []
    options += [f"--user={user['runAsUser']}:{user['runAsGroup']}"]
    kinds = {each["name"]: each for each in spec["volumes"]}
    for mount in container["volumeMounts"]:
        name, at = mount["name"], mount["mountPath"]
        secret = kinds[name].get("secret")
        if "emptyDir" in kinds[name]:
            options.append(f"--tmpfs={at}:exec,mode=1777")
        elif secret is None:
            read_only = mount.get("readOnly") or kinds[name]["persistentVolumeClaim"].get("readOnly")
            options.append(f"--volume={volumes[name]}:{at}{':ro' if read_only else ''}")
        else:
            keys = [item["key"] for item in secret.get("items", ())] or ["hf-token", "api-key"]
            options += [f"--volume={volumes[name] / key}:{at}/{key}:ro" for key in keys]
    command = container.get("command", [])
    options += [f"--entrypoint={command[0]}"] if command else []
    return podman.run(image, *command[1:], options=options, env=environ, network=network)


def test_the_air_gapped_pod(
    podman: Podman, image: str, models: Path, render: Render, volume: Path, secrets: Path, tmp_path: Path
) -> None:
    """Target and draft from the volume, no network, and the clients' key where only vLLM sees it."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "target").symlink_to("plain")
    (store / "draft").symlink_to("eagle3")
    for name in ("plain", "eagle3"):
        (store / name).mkdir()
        for file, data in files(name).items():
            (store / name / file).parent.mkdir(parents=True, exist_ok=True)
            (store / name / file).write_bytes(data)
    rendered = render("overlays/air-gapped")
    environ = rendered.environment("llm")
    volumes = {"cache": volume, "models": store, "secrets": secrets}
    ran = played(podman, image, rendered.pods()["llm"], environ, volumes)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "eagle3"
    assert ran.record["interfaces"] == ["lo"]
    assert (ran.record["capabilities"], ran.record["no_new_privileges"], ran.record["writable"]["/"]) == (0, 1, False)
    assert ran.record["environ"]["VLLM_API_KEY"] == API_KEY
    assert API_KEY not in ran.err + " ".join(ran.argv)


def test_the_warm_up_job_and_a_replica(
    podman: Podman, image: str, render: Render, volume: Path, secrets: Path, hub: Hub
) -> None:
    rendered = render("overlays/shared-cache")
    volumes = {"cache": volume, "secrets": secrets}

    def pod(name: str, network: str) -> Ran:
        environ = rendered.environment(name) | {"HF_ENDPOINT": hub.url}
        return played(podman, image, rendered.pods()[name], environ, volumes, network)

    early = pod("llm", "none")
    assert (early.code, early.executed) == (3, False), early.err
    job = pod("llm-warm-up", "host")
    assert job.code == 0, job.err
    assert TOKEN not in job.err + job.out
    replica = pod("llm", "none")
    assert replica.code == 0, replica.err
    assert replica.speculative["method"] == "mtp"
    assert "HF_TOKEN" not in replica.record["environ"]
    assert replica.record["writable"]["/opt/nim/.cache"] is False


def test_the_operators_probe_finds_a_model_free_image(podman: Podman, image: str) -> None:
    ran = podman.run(image, "-c", PROBE, options=["--entrypoint=sh"])
    assert (ran.code, ran.out) == (0, "model_manifest.yaml not found\n")


@pytest.fixture
def manifested(podman: Podman, image: str, hub: Hub, tmp_path: Path) -> tuple[str, str]:
    """An image for one model by NIM's manifest alone, as docs/derived-images.md says, and the id of its profile."""
    folder = tmp_path / "manifested"
    (folder / "profiles").mkdir(parents=True)
    (folder / "profiles" / "tiny.yaml").write_text(PROFILE)
    words = ("profiles", "manifest", "--pin", "--profile", "vllm-bf16-tp1-pp1-tiny")
    environ = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "NIM_PROFILES_PATH": "/profiles"}
    options = [f"--volume={folder / 'profiles'}:/profiles:ro"]
    written = podman.run(image, *words, options=options, env=environ, network="host")
    assert written.code == 0, written.err
    (folder / "model_manifest.yaml").write_text(written.out)
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY model_manifest.yaml /opt/nim/etc/default/\n")
    (offered,) = yaml.safe_load(written.out)["profiles"]
    return podman.build(folder, folder / "Dockerfile", "localhost/manifested"), offered["id"]


def test_the_operator_and_an_image_for_one_model(
    podman: Podman, manifested: tuple[str, str], volume: Path, hub: Hub
) -> None:
    """It reads the manifest, fills the cache by profile, or with all, and starts the service without naming a model."""
    own, profile = manifested
    probed = podman.run(own, "-c", PROBE, options=["--entrypoint=sh"])
    assert [one["id"] for one in yaml.safe_load(probed.out)["profiles"]] == [profile]
    options = ["--user=2000:2000", "--cap-drop=all", "--security-opt=no-new-privileges", f"--volume={volume}:{STORE}"]
    environ = {**POD, "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "NIM_CACHE_PATH": STORE}
    for words in (("--profiles", profile), ("--all",)):
        job = [*options, "--entrypoint=download-to-cache"]
        filled = podman.run(own, *words, options=job, env=environ, network="host")
        assert filled.code == 0, filled.err
        assert filled.out.startswith(f"target {STORE}/")
    other = podman.run(own, "--profiles", "0" * 64, options=job, env=environ, network="host")
    assert other.code == 9, other.err
    service = podman.run(own, options=options, env={**POD, "NIM_CACHE_PATH": STORE})
    assert service.code == 0, service.err
    assert service.argv[service.argv.index("--served-model-name") + 1] == "org/model"
    assert set(files("mtp")) <= set(service.record["files"])


def test_the_operators_job_and_service(podman: Podman, image: str, volume: Path, hub: Hub) -> None:
    """Under a user and a group that the image does not know."""
    options = ["--user=2000:2000", "--cap-drop=all", "--security-opt=no-new-privileges", f"--volume={volume}:{STORE}"]
    fetching = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": f"{STORE}/huggingface/hub", "HF_TOKEN": TOKEN}
    job = podman.run(
        image,
        "--model-uri", "hf://org/model", "--manifest-file", f"{STORE}/model_manifest.json",
        options=[*options, "--entrypoint=download-to-cache"],
        env={**POD, **fetching, "NIM_CACHE_PATH": STORE},
        network="host",
    )  # fmt: skip
    assert job.code == 0, job.err
    assert (volume / "model_manifest.json").is_file()
    service = podman.run(
        image, options=options, env={**POD, "NIM_CACHE_PATH": STORE, "NIM_MODEL_PATH": "hf://org/model"}
    )
    assert service.code == 0, service.err
    assert service.argv[service.argv.index("--port") + 1] == "8123"
    assert service.argv[service.argv.index("--served-model-name") + 1] == "org/model"
