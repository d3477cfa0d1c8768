"""Images: the shipped Dockerfiles on a stand-in base, built once for the whole run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image import base
from tests.image.podman import Podman, lacking
from tests.missing import missing
from tests.models import NAMES, write

ROOT = Path(__file__).resolve().parents[2]
BASE = "localhost/base"
IMAGE = "localhost/launcher"
CONTEXT = ("docker", "launcher", "tools", "pyproject.toml", "README.md", "LICENSE", ".dockerignore")


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """A storage of images and containers that is gone afterwards."""
    if why := lacking():
        missing(why)
    storage = Podman(Path(tempfile.mkdtemp(prefix="image-")))
    yield storage
    storage.close()


@pytest.fixture(scope="session")
def wheels() -> Path:
    """The locked dependencies for this Python; fetched once, and again when the lock changes."""
    from hashlib import sha256

    lock = sha256((ROOT / "docker/requirements.txt").read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / "wheels" / f"{base.PYTHON}-{lock}"
    done = folder / "complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _make_wheels(ROOT, folder, "dependencies")
        done.touch()
    return folder


@pytest.fixture(scope="session")
def context(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build context: what .dockerignore lets through of this tree, and every wheel, so that no network is needed."""
    folder = tmp_path_factory.mktemp("context")
    for name in CONTEXT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
        else:
            shutil.copy(ROOT / name, folder / name)
    for wheel in wheels.glob("*.whl"):
        shutil.copy(wheel, folder / "docker/wheels")
    _make_wheels(folder, folder / "docker/wheels", "launcher")
    return folder


def _make_wheels(tree: Path, folder: Path, which: str) -> None:
    subprocess.run([sys.executable, str(tree / "docker/make_wheels.py"), str(folder), "--only", which], check=True)


@pytest.fixture(scope="session")
def base_image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in for vllm/vllm-openai."""
    return build_base(podman, tmp_path_factory.mktemp("base"), BASE)


def build_base(podman: Podman, folder: Path, tag: str, **options: list[Path]) -> str:
    root = base.write(folder / "root", **options)
    (folder / "Dockerfile").write_text(base.DOCKERFILE)
    podman.build(root, folder / "Dockerfile", tag)
    shutil.rmtree(folder)
    return tag


@pytest.fixture(scope="session")
def image(podman: Podman, base_image: str, context: Path) -> str:
    """The product: docker/Dockerfile on the stand-in base."""
    return podman.build(context, "docker/Dockerfile", IMAGE, BASE_IMAGE=base_image)


@pytest.fixture(scope="session")
def models() -> Iterator[Path]:
    """Every embedded checkpoint in a folder of its name, readable by any user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for member in NAMES:
            write(member, folder / member)
        yield folder
