"""Install the launcher into the interpreter that runs vLLM, and prove that nothing of the engine moved.

    python3 docker/install.py WHEELS     # as root, inside an image build; WHEELS is a folder of wheel files

The launcher's middleware is loaded by vLLM, so it must be importable by vLLM's own Python; a virtual environment of our
own would not do.  Every distribution that is there already is pinned to its version while pip works, and the list is
compared afterwards: a build in which one of them changed or went fails.  No network is used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DISTRIBUTION = "specdec-launcher"
PACKAGE = "launcher"
COMMANDS = ("launcher", "nim-serve", "list-model-profiles", "download-to-cache", "create-model-store")
USER, UID, GID = "nim", 1000, 0
HOME = Path("/opt/nim")
# Where a container writes: any user id may, as long as its group is 0.
WRITABLE = (HOME, HOME / ".cache", HOME / "workspace")


def engine_python() -> str:
    """The interpreter that the console script ``vllm`` names in its first line."""
    script = shutil.which("vllm")
    if script is None:
        raise SystemExit("the base image has no vllm on PATH: it is no base for the launcher")
    with Path(script).open("rb") as file:
        first = file.readline().decode("utf-8", "replace")
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not words or "python" not in Path(words[-1]).name:
        raise SystemExit(f"{script} does not say which Python runs it")
    python = shutil.which(words[-1])  # by its name, too: "#!/usr/bin/env python3"
    if python is None:
        raise SystemExit(f"{script} names {words[-1]}, which is not there")
    return python


def pip(*words: str) -> str:
    """Run this interpreter's pip without the settings of the base and without leaving bytecode; its output."""
    command = [sys.executable, "-B", "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pip {words[0]} failed ({done.returncode})\n{done.stdout}")
    return done.stdout


def distributions() -> dict[str, str]:
    """Name and version of everything that this interpreter can import."""
    listed = json.loads(pip("list", "--format=json"))
    return {entry["name"]: entry["version"] for entry in listed}


def moved(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """One sentence for each distribution that changed its version or went."""
    return [
        f"{name} was {version} and is now {after.get(name, 'gone')}"
        for name, version in sorted(before.items())
        if after.get(name) != version
    ]


def install(wheels: Path) -> None:
    """Install from ``wheels`` alone, under constraints made of what is there."""
    before = distributions()
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch) / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in before.items()), encoding="utf-8")
        pip(
            "install", "--no-index", "--no-compile", "--break-system-packages",
            "--root-user-action=ignore", f"--find-links={wheels}", f"--constraint={constraints}", DISTRIBUTION,
        )  # fmt: skip
    after = distributions()
    if changes := moved(before, after):
        raise SystemExit("the engine would not be the base's any more: " + "; ".join(changes))
    for name in sorted(after.keys() - before.keys()):
        print(f"added {name} {after[name]}")
    print(f"unchanged: {len(before)} distributions")


def precompile() -> None:
    """Compile our own package, and nothing else.

    Unchecked: the files of an image do not change, and comparing hashes at each import would cost the warm start.
    """
    code = (
        f"import compileall, {PACKAGE} as p, py_compile, sys; "
        "sys.exit(not compileall.compile_dir(p.__path__[0], quiet=1, "
        "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH))"
    )
    subprocess.run([sys.executable, "-B", "-c", code], cwd="/", check=True)


def check_commands() -> None:
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"not on PATH: {', '.join(missing)}")


def add_user(accounts: Path = Path("/etc/passwd")) -> None:
    """An entry for the image's user.  Written here because ``useradd`` leaves the day of the build behind."""
    lines = accounts.read_text(encoding="utf-8").splitlines()
    if any(line.split(":")[2:3] == [str(UID)] for line in lines):
        return
    name = USER if not any(line.startswith(f"{USER}:") for line in lines) else f"{USER}{UID}"
    entry = f"{name}:x:{UID}:{GID}::{HOME}:/usr/sbin/nologin"
    accounts.write_text("\n".join([*lines, entry]) + "\n", encoding="utf-8")


def make_folders() -> None:
    for folder in WRITABLE:
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, UID, GID)
        folder.chmod(0o775)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: install.py WHEELS")
    python = engine_python()
    if os.environ.get("LAUNCHER_INSTALLING") != python:
        os.environ["LAUNCHER_INSTALLING"] = python
        os.execv(python, [python, "-B", *sys.argv])
    install(Path(sys.argv[1]))
    precompile()
    check_commands()
    add_user()
    make_folders()


if __name__ == "__main__":
    main()
