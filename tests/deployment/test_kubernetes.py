"""The Kubernetes files: valid, restricted, and meaning to the launcher what they say."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.errors import TREE, AcceptanceError, BusyError, NetworkError
from launcher.settings.parse import parse_settings
from launcher.settings.variables import BY_NAME
from tests.deployment.conftest import OVERLAYS, ROOT, Render, Rendered, tool
from tests.integration.standin import Installation
from tests.models import write

LWS = "leaderworkerset.x-k8s.io/v1"
SECRETS = "/var/run/secrets/llm"


def validated(path: Path) -> list[str]:
    """What kubernetes-validate has to say of a file."""
    ran = tool("kubernetes-validate", "--strict", "--quiet", str(path))
    said = (ran.stdout + ran.stderr).splitlines()
    assert ran.returncode == 0, said
    return said


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_valid(overlay: str, render: Render, tmp_path: Path) -> None:
    rendered = render(overlay)
    known = [each for each in rendered.objects if each["apiVersion"] != LWS]
    # The template of a kind that the validator does not know is a pod all the same.
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in rendered.pods().values()]
    for pod in pods:
        pod["metadata"] = {**pod["metadata"], "name": "x"}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*known, *pods]))
    assert validated(tmp_path / "all.yaml") == []
    unknown = [each["kind"] for each in rendered.objects if each not in known]
    assert unknown == (["LeaderWorkerSet"] if overlay.endswith("several-nodes") else [])


def test_the_validator_would_see_a_misspelt_key(render: Render, tmp_path: Path) -> None:
    text = render("base").text.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    (tmp_path / "all.yaml").write_text(text)
    ran = tool("kubernetes-validate", "--strict", "--quiet", str(tmp_path / "all.yaml"))
    assert ran.returncode != 0
    assert "readOnlyRootFileSystem" in ran.stdout + ran.stderr


def test_the_leader_worker_set_has_the_fields_of_its_api(render: Render) -> None:
    found = render("overlays/several-nodes").one("LeaderWorkerSet")
    assert set(found["spec"]) == {"replicas", "leaderWorkerTemplate"}
    template = found["spec"]["leaderWorkerTemplate"]
    assert set(template) == {"size", "restartPolicy", "workerTemplate"}
    assert (template["size"], template["restartPolicy"]) == (2, "RecreateGroupOnPodRestart")


PODS = [
    (overlay, pod)
    for overlay, pods in (
        ("base", ("llm",)),
        ("overlays/air-gapped", ("llm",)),
        ("overlays/openshift", ("llm",)),
        ("overlays/several-nodes", ("llm",)),
        ("overlays/shared-cache", ("llm", "llm-warm-up")),
    )
    for pod in pods
]


def test_every_pod_is_looked_at(render: Render) -> None:
    assert [(overlay, pod) for overlay in OVERLAYS for pod in sorted(render(overlay).pods())] == PODS


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_pods_keep_to_the_restricted_profile(overlay: str, pod: str, render: Render) -> None:
    """Pod Security's "restricted", rule by rule, and what goes beyond it here."""
    spec = render(overlay).pods()[pod]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"].get("runAsUser", 1000) != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for volume in spec["volumes"]:
        assert set(volume) - {"name"} <= {"persistentVolumeClaim", "secret", "emptyDir"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert not any("hostPort" in port for port in container.get("ports", ()))
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert written <= {"/opt/nim/.cache", "/tmp", "/dev/shm"}
    assert {volume["name"] for volume in spec["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_the_launcher_knows_every_variable(overlay: str, pod: str, render: Render) -> None:
    environ = render(overlay).environment(pod)
    settings = parse_settings(
        {**environ, "NIM_STRICT": "1"}, lambda path: f"content of {path.rpartition('/')[2]}".replace(" ", "-")
    )
    assert not any("unexpanded" in warning for warning in settings.warnings)
    assert {row.name for row in BY_NAME.values() if row.secret} & set(environ) == set(), "a secret outside a file"
    files = {name: path for name, path in environ.items() if name.endswith("_FILE")}
    assert all(path.startswith(f"{SECRETS}/") for path in files.values())
    # Each file that is named is one that is mounted: a named file that is missing stops the start.
    (secret,) = [v["secret"] for v in render(overlay).pods()[pod]["spec"]["volumes"] if "secret" in v]
    mounted = [item["path"] for item in secret.get("items", ())] or ["hf-token", "api-key"]
    assert sorted(path.removeprefix(f"{SECRETS}/") for path in files.values()) == sorted(mounted)


def test_only_what_fetches_has_the_hubs_token(render: Render) -> None:
    holders = {(overlay, pod) for overlay, pod in PODS if "HF_TOKEN_FILE" in render(overlay).environment(pod)}
    assert holders == {
        ("base", "llm"),
        ("overlays/openshift", "llm"),
        ("overlays/shared-cache", "llm-warm-up"),
        ("overlays/several-nodes", "llm"),
    }


@pytest.mark.parametrize(("overlay", "pod"), [row for row in PODS if row[1] == "llm"])
def test_servers_are_probed_where_they_answer(overlay: str, pod: str, render: Render) -> None:
    (container,) = render(overlay).pods()[pod]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"api": 8000, "health": int(render(overlay).environment(pod)["NIM_HEALTH_PORT"])}
    probes = {name: container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {(name, probe["httpGet"]["path"], probe["httpGet"]["port"]) for name, probe in probes.items()} == {
        ("startupProbe", "/v1/health/ready", "health"),
        ("readinessProbe", "/v1/health/ready", "health"),
        ("livenessProbe", "/v1/health/live", "health"),
    }
    startup = probes["startupProbe"]
    patience = startup["periodSeconds"] * startup["failureThreshold"]
    assert patience == 2 * 60 * 60
    for each in render(overlay).objects:  # nor is a roll-out that still waits for it reported as failed
        assert each["kind"] != "Deployment" or each["spec"]["progressDeadlineSeconds"] > patience
    assert render(overlay).one("Service")["spec"]["ports"] == [{"name": "api", "port": 8000, "targetPort": "api"}]


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_who_asks_for_a_gpu_may_run_where_gpus_are(overlay: str, pod: str, render: Render) -> None:
    spec = render(overlay).pods()[pod]["spec"]
    asks = "nvidia.com/gpu" in spec["containers"][0]["resources"]["limits"]
    tolerated = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert (asks, spec.get("tolerations")) == ((True, tolerated) if pod == "llm" else (False, None))


@pytest.mark.parametrize(("overlay", "pod"), PODS)
def test_shared_memory_is_in_memory(overlay: str, pod: str, render: Render) -> None:
    spec = render(overlay).pods()[pod]["spec"]
    memory = [v["emptyDir"]["medium"] for v in spec["volumes"] if v["name"] == "shm"]
    assert memory == ([] if pod == "llm-warm-up" else ["Memory"])


def test_replicas_share_a_cache_that_only_the_job_writes(render: Render) -> None:
    rendered = render("overlays/shared-cache")
    assert rendered.one("PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteMany"]
    assert rendered.one("Deployment")["spec"]["replicas"] == 3
    mounts = {
        pod: [m.get("readOnly", False) for m in found["spec"]["containers"][0]["volumeMounts"] if m["name"] == "cache"]
        for pod, found in rendered.pods().items()
    }
    assert mounts == {"llm": [True], "llm-warm-up": [False]}
    assert rendered.environment("llm")["NIM_DISABLE_MODEL_DOWNLOAD"] == "1"
    shared = {k: v for k, v in rendered.environment("llm").items() if k in ("NIM_MODEL_PATH", "NIM_DRAFT_MODEL_PATH")}
    assert shared.items() <= rendered.environment("llm-warm-up").items()


def test_the_job_runs_a_command_that_the_image_has(render: Render) -> None:
    (container,) = render("overlays/shared-cache").pods()["llm-warm-up"]["spec"]["containers"]
    scripts: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert container["command"] == ["download-to-cache"]
    assert set(container["command"]) <= set(scripts)


def test_the_job_is_tried_again_only_where_that_helps(render: Render) -> None:
    """A network failure, busy, a stop and a killed process; a refusal stays one."""
    (rule,) = render("overlays/shared-cache").one("Job")["spec"]["podFailurePolicy"]["rules"]
    refusals = {kind.code for kind in TREE} - {NetworkError.code, BusyError.code, AcceptanceError.code}
    assert (rule["action"], set(rule["onExitCodes"]["values"])) == ("FailJob", refusals)


def test_the_air_gapped_pod_cannot_leave(render: Render) -> None:
    rendered = render("overlays/air-gapped")
    policy = rendered.one("NetworkPolicy")["spec"]
    labels = rendered.pods()["llm"]["metadata"]["labels"]
    assert policy == {"podSelector": {"matchLabels": labels}, "policyTypes": ["Egress"], "egress": []}
    assert rendered.environment("llm")["NIM_DISABLE_MODEL_DOWNLOAD"] == "1"
    (models,) = [v for v in rendered.pods()["llm"]["spec"]["volumes"] if v["name"] == "models"]
    assert models["persistentVolumeClaim"]["readOnly"] is True


def test_openshift_chooses_the_user(render: Render) -> None:
    pod = render("overlays/openshift").pods()["llm"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["spec"]["securityContext"])
    assert pod["metadata"]["annotations"] == {"openshift.io/required-scc": "restricted-v2"}


@pytest.mark.parametrize("index", [0, 1])
def test_what_the_leader_worker_set_starts(index: int, render: Render, launcher: Installation, tmp_path: Path) -> None:
    """The launcher under the environment of each pod, LeaderWorkerSet's part included."""
    rendered = render("overlays/several-nodes")
    environ = rendered.environment("llm")
    for name in [name for name in environ if name.endswith("_FILE")]:
        (tmp_path / name).write_text("a-long-enough-secret")
        environ[name] = str(tmp_path / name)
    ran = launcher.run(
        **environ
        | {
            "NIM_MODEL_PATH": str(write("mtp", tmp_path / "model")),
            "LWS_GROUP_SIZE": str(rendered.one("LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]["size"]),
            "LWS_WORKER_INDEX": str(index),
            "LWS_LEADER_ADDRESS": "llm-0.llm.default",
        }
    )
    assert ran.code == 0, ran.err
    words = " ".join(ran.argv[3:])
    assert f"--nnodes 2 --node-rank {index} --master-addr llm-0.llm.default" in words
    assert "--tensor-parallel-size 8 --pipeline-parallel-size 2" in words
    assert ("--headless" in ran.argv) == (index == 1)
    assert "a-long-enough-secret" not in words


def test_an_image_can_be_named_once(tmp_path: Path) -> None:
    """`kustomize edit set image`, on the kind that Kustomize does not know."""
    (tmp_path / "kubernetes").symlink_to(ROOT / "docker" / "kubernetes")
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [kubernetes/overlays/several-nodes]\n"
        "images: [{name: specdec-launcher, newName: registry.example.com/launcher, newTag: 1.2.3}]\n"
    )
    ran = tool("kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    images = {pod["spec"]["containers"][0]["image"] for pod in Rendered(ran.stdout).pods().values()}
    assert images == {"registry.example.com/launcher:1.2.3"}


def test_the_documented_overlay(tmp_path: Path) -> None:
    """What docs/deployment.md tells people to write, as it stands there."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    block = page.partition("An overlay of your own:\n\n")[2].partition("\n\n")[0]
    (tmp_path / "launcher").symlink_to(ROOT)
    own = tmp_path / "mine"
    own.mkdir()
    (own / "kustomization.yaml").write_text(textwrap.dedent(block))
    ran = tool("kubectl", "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(own))
    assert ran.returncode == 0, ran.stderr
    rendered = Rendered(ran.stdout)
    assert rendered.pods()["llm"]["spec"]["containers"][0]["image"] == "registry.example.com/specdec-launcher:0.1.0"
    environ = rendered.environment("llm")
    assert environ["NIM_MODEL_PATH"] == "hf://meta-llama/Llama-3.1-8B-Instruct"
    assert environ["NIM_SPECDEC_ENABLE"] == "1"  # of the base
    assert [name for name in OVERLAYS if f"| `{name}` |" not in page] == []
