"""docker/compose.yaml, as Compose itself reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from launcher.settings.parse import parse_settings
from launcher.settings.variables import BY_NAME
from tests.deployment.conftest import ROOT, tool

SERVICES = ("server", "warm-up", "server-0", "server-1", "sealed-server")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "docker" / "compose.yaml", tmp_path)
    (tmp_path / "llm.env").write_text("NIM_MODEL_PATH=hf://org/model\nNIM_SPECDEC_ENABLE=1\n")
    return tmp_path


def read(project: Path, *words: str) -> dict[str, Any]:
    ran = tool("docker-compose", *words, "config", "--format", "json", cwd=project)
    assert ran.returncode == 0, ran.stderr
    services: dict[str, Any] = json.loads(ran.stdout)["services"]
    return services


@pytest.mark.parametrize("profile", [(), ("--profile", "shared"), ("--profile", "air-gapped")])
def test_it_is_valid(profile: tuple[str, ...], project: Path) -> None:
    ran = tool("docker-compose", *profile, "config", "-q", cwd=project)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_it_is_valid_without_an_environment_file(project: Path) -> None:
    """Then the launcher itself says that no model is named."""
    (project / "llm.env").unlink()
    assert set(read(project)) == {"server"}


def test_the_profiles(project: Path) -> None:
    assert set(read(project)) == {"server"}
    assert set(read(project, "--profile", "shared")) == {"server", "warm-up", "server-0", "server-1"}
    assert set(read(project, "--profile", "air-gapped")) == {"server", "sealed-server"}


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_can_do_more_than_it_must(service: str, project: Path) -> None:
    found = read(project, "--profile", "*")[service]
    assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "user", "network_mode", "ipc", "pid"} & set(found)
    environ = found["environment"]
    parse_settings({**environ, "NIM_STRICT": "1"}, lambda path: path.rpartition("/")[2])
    assert {row.name for row in BY_NAME.values() if row.secret} & set(environ) == set(), "a secret outside a file"
    named = {path for name, path in environ.items() if name.endswith("_FILE")}
    assert named == {secret["target"] for secret in found["secrets"]}
    published = {port.get("host_ip") for port in found.get("ports", ())}
    assert published <= {"127.0.0.1"}, "open to the world unless somebody decides so"


def test_replicas_wait_for_the_cache_and_only_read_it(project: Path) -> None:
    services = read(project, "--profile", "shared")
    assert services["warm-up"]["command"] == ["download-to-cache"]
    for number, name in enumerate(("server-0", "server-1")):
        found = services[name]
        assert found["depends_on"]["warm-up"]["condition"] == "service_completed_successfully"
        assert [volume["read_only"] for volume in found["volumes"]] == [True]
        assert found["environment"]["NIM_DISABLE_MODEL_DOWNLOAD"] == "1"
        assert found["gpus"][0]["device_ids"] == [str(number)]
        assert found["environment"]["NIM_MODEL_PATH"] == services["warm-up"]["environment"]["NIM_MODEL_PATH"]


@pytest.mark.parametrize(("said", "path"), [(None, "/run/secrets/hf-token"), ("", "")])
def test_a_model_that_needs_no_token(
    said: str | None, path: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HF_TOKEN_FILE= in front of the command: empty is unset, for the launcher."""
    monkeypatch.delenv("HF_TOKEN_FILE", raising=False)
    if said is not None:
        monkeypatch.setenv("HF_TOKEN_FILE", said)
    services = read(project, "--profile", "shared")
    assert {services[name]["environment"]["HF_TOKEN_FILE"] for name in ("server", "warm-up")} == {path}


def test_the_sealed_server_has_no_way_out_and_no_hub(project: Path) -> None:
    ran = tool("docker-compose", "--profile", "air-gapped", "config", "--format", "json", cwd=project)
    whole = json.loads(ran.stdout)
    found = whole["services"]["sealed-server"]
    assert list(found["networks"]) == ["sealed"]
    assert whole["networks"]["sealed"]["internal"] is True
    assert "ports" not in found and "HF_TOKEN_FILE" not in found["environment"]
    assert found["environment"]["NIM_DISABLE_MODEL_DOWNLOAD"] == "1"
    assert [(volume["target"], volume["read_only"]) for volume in found["volumes"]] == [("/models", True)]
