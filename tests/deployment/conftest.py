from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.integration.standin import Installation, install
from tests.missing import missing

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache" / "deployment-tools" / "bin"
KUBERNETES = ROOT / "docker" / "kubernetes"
OVERLAYS = ("base", *sorted(f"overlays/{folder.name}" for folder in (KUBERNETES / "overlays").iterdir()))

Render = Callable[[str], "Rendered"]


class Rendered(NamedTuple):
    """One overlay as Kustomize gives it."""

    text: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all(self.text))

    def one(self, kind: str, name: str = "llm") -> dict[str, Any]:
        (found,) = [o for o in self.objects if o["kind"] == kind and o["metadata"]["name"].startswith(name)]
        return found

    def pods(self) -> dict[str, dict[str, Any]]:
        """Every pod template by the name of its object."""
        found = {}
        for each in self.objects:
            name = each["metadata"]["name"]
            if each["kind"] in ("Deployment", "Job"):
                found[name] = each["spec"]["template"]
            elif each["kind"] == "LeaderWorkerSet":
                found[name] = each["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        return found

    def environment(self, pod: str) -> dict[str, str]:
        """What the pod's container gets; a field of the pod itself as ``$(path)``."""
        (container,) = self.pods()[pod]["spec"]["containers"]
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            found |= self.one("ConfigMap", source["configMapRef"]["name"])["data"]
        for variable in container.get("env", ()):
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[variable["name"]] = variable["value"] if field is None else f"$({field})"
        return found


def tool(name: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the tools that ``make`` installs; without it the test is skipped, or fails where it must not be."""
    path = TOOLS / name
    if not path.exists():
        missing(f"no {name}: run tools/install_deployment_tools.py")
    return subprocess.run([path, *words], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.fixture(scope="session")
def render() -> Render:
    """An overlay by its folder below docker/kubernetes."""
    seen: dict[str, Rendered] = {}

    def rendered(overlay: str) -> Rendered:
        if overlay not in seen:
            ran = tool("kubectl", "kustomize", str(KUBERNETES / overlay))
            assert ran.returncode == 0, ran.stderr
            seen[overlay] = Rendered(ran.stdout)
        return seen[overlay]

    return rendered


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    """A launcher beside a stand-in for the ordinary build of the pinned vLLM."""
    return install(tmp_path / "venv", "0.32.0")
