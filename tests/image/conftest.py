"""Images: the shipped Dockerfiles on a stand-in base, built once for the whole run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from tests.image import base
from tests.image.podman import Podman, lacking
from tests.missing import missing
from tests.models import NAMES, write

ROOT = Path(__file__).resolve().parents[2]
BASE = "localhost/base"
IMAGE = "localhost/launcher"
CONTEXT = (
    ".dockerignore", "LICENSE", "README.md", "docker", "hatch_build.py", "launcher", "profiles", "pyproject.toml",
    "tools",
)  # fmt: skip


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """A storage of images and containers that is gone afterwards."""
    if why := lacking():
        missing(why)
    storage = Podman(Path(tempfile.mkdtemp(prefix="image-")))
    yield storage
    storage.close()


def locked_wheels() -> Path:
    """The locked dependencies for this Python; fetched once, and again when the lock changes."""
    lock = sha256((ROOT / "docker/requirements.txt").read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / "wheels" / f"{base.PYTHON}-{lock}"
    done = folder / "complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _make_wheels(ROOT, folder, "dependencies")
        done.touch()
    return folder


def build_context(folder: Path) -> Path:
    """A build context in ``folder``: this tree, and every wheel, so that no network is needed."""
    folder.mkdir()
    for name in CONTEXT:
        if (ROOT / name).is_dir():
            # Without what the wheel's build must make by itself.
            unwanted = shutil.ignore_patterns("__pycache__", "*.whl", "profiles.json")
            shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder / name)
    for wheel in locked_wheels().glob("*.whl"):
        shutil.copy(wheel, folder / "docker/wheels")
    _make_wheels(folder, folder / "docker/wheels", "launcher")
    return folder


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_context(tmp_path_factory.mktemp("context") / "tree")


def _make_wheels(tree: Path, folder: Path, which: str) -> None:
    subprocess.run([sys.executable, str(tree / "docker/make_wheels.py"), str(folder), "--only", which], check=True)


@pytest.fixture(scope="session")
def base_image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in for vllm/vllm-openai."""
    return build_base(podman, tmp_path_factory.mktemp("base"), BASE)


def build_base(podman: Podman, folder: Path, tag: str) -> str:
    root = base.write(folder / "root")
    (folder / "Dockerfile").write_text(base.DOCKERFILE)
    podman.build(root, folder / "Dockerfile", tag)
    shutil.rmtree(folder)
    return tag


def build_variant(
    podman: Podman,
    base_image: str,
    folder: Path,
    tag: str,
    *,
    versions: Mapping[str, str],
    records: Sequence[Path] = (),
) -> str:
    """The stand-in with further distributions, or other versions, by their records."""
    base.write_records(folder / "packages", versions, records)
    replaced = " ".join(f"/{base.PACKAGES}/{name.replace('-', '_')}-*.dist-info" for name in versions)
    (folder / "Dockerfile").write_text(f"FROM {base_image}\nRUN rm -rf {replaced}\nCOPY packages /{base.PACKAGES}\n")
    return podman.build(folder, folder / "Dockerfile", tag)


@pytest.fixture(scope="session")
def image(podman: Podman, base_image: str, context: Path) -> str:
    """The product: docker/Dockerfile on the stand-in base."""
    return podman.build(context, "docker/Dockerfile", IMAGE, BASE_IMAGE=base_image)


@pytest.fixture(scope="session")
def derived_image(podman: Podman, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """docker/Dockerfile.derived.example with a model that has an MTP head, and the profile of its page."""
    page = (ROOT / "docs/derived-images.md").read_text(encoding="utf-8")
    profile = page.partition("so name that among its sources:\n\n")[2].partition("\n\n")[0]
    folder = tmp_path_factory.mktemp("derived")
    write("mtp", folder / "model")
    (folder / "profiles").mkdir()
    (folder / "profiles" / "own.yaml").write_text(textwrap.dedent(profile))
    return podman.build(folder, ROOT / "docker/Dockerfile.derived.example", "localhost/derived", LAUNCHER_IMAGE=image)


@pytest.fixture(scope="session")
def models() -> Iterator[Path]:
    """Every embedded checkpoint in a folder of its name, readable by any user."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for member in NAMES:
            write(member, folder / member)
        yield folder
