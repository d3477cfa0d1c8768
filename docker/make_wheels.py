"""Fill a folder with the wheels that the image needs: the locked dependencies, and the launcher itself.

    python3 docker/make_wheels.py FOLDER                       # for the Python that runs this
    python3 docker/make_wheels.py FOLDER --python-version 3.12 --platform manylinux_2_28_x86_64
    python3 docker/make_wheels.py FOLDER --only dependencies   # or: --only launcher

What is there already stays, so a build without network works once the folder was filled and copied over.  Dependencies
come by the hashes of docker/requirements.txt, the build backend by those of docker/build-requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEPENDENCIES = HERE / "requirements.txt"
BACKEND = HERE / "build-requirements.txt"
OURS = "specdec_launcher-*.whl"


def pip(*words: str) -> None:
    command = [sys.executable, "-B", "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise SystemExit(f"pip {words[0]} failed ({done.returncode})")


def dependencies(folder: Path, *target: str) -> None:
    """Download what the lock names, for this Python or for another one (``target``: pip's options for that)."""
    wanted = ["--only-binary=:all:", "--no-deps", "--require-hashes", f"--requirement={DEPENDENCIES}"]
    pip("download", f"--dest={folder}", *wanted, *target)


def launcher(folder: Path) -> None:
    """Build our wheel with the locked backend.  The same sources give the same bytes."""
    for old in folder.glob(OURS):
        old.unlink()
    with tempfile.TemporaryDirectory() as backend:
        pip("install", f"--target={backend}", "--no-deps", "--require-hashes", f"--requirement={BACKEND}")
        subprocess.run(
            [sys.executable, "-B", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
            cwd=HERE.parent,
            env={**os.environ, "PYTHONPATH": backend},
            stdout=subprocess.DEVNULL,
            check=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a folder with the wheels that the image needs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("dependencies", "launcher"))
    parser.add_argument("--unless-given", action="store_true", help="do nothing where our own wheel is there already")
    parser.add_argument("--python-version", help="of the base image, such as 3.12")
    parser.add_argument("--platform", action="append", default=[], help="of the base image; may be given several times")
    asked = parser.parse_args()
    folder: Path = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.unless_given and any(folder.glob(OURS)):
        return
    target = [f"--platform={platform}" for platform in asked.platform]
    if asked.python_version:
        target.append(f"--python-version={asked.python_version}")
    if asked.only != "launcher":
        dependencies(folder, *target)
    if asked.only != "dependencies":
        launcher(folder)


if __name__ == "__main__":
    main()
