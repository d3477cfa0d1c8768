"""A launcher as a process of its own, with a cache of its own, for tests of what happens between processes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from launcher.__main__ import main
from tests.storage.web import Server

REPOSITORY = Path(__file__).parents[2]
UID = 1_000_660_000
# What a launcher loads only when it needs it.
NEEDED = (
    *("launcher.cli", "launcher.fetch.schemes", "launcher.fetch.hf", "launcher.fetch.peek", "launcher.cache.verify"),
    *("launcher.commands.download", "launcher.commands.verify", "launcher.fetch.digests", "concurrent.futures.thread"),
    *("encodings.idna", "encodings.utf_8_sig", "_strptime", "shlex", "fnmatch", "random", "email.utils"),
    *("launcher.commands.cache", "launcher.fetch.bring", "launcher.fetch.filling", "launcher.fetch.incoming"),
    *("launcher.fetch.transfer", "encodings.ascii", "shutil", "ctypes", "anycrc"),
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Launcher(NamedTuple):
    """A launcher with a cache and an environment of its own."""

    environ: Mapping[str, str]

    def with_(self, **more: str) -> Launcher:
        return Launcher({**self.environ, **more})

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "launcher", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=dict(self.environ), cwd="/", text=True, stdout=pipe, stderr=pipe)

    def run(self, *words: str) -> Ran:
        return finished(self.start(*words))

    def run_as_stranger(self, *words: str) -> Ran:
        """In a forked child that gives up root: another user may not even reach this Python's files."""
        for name in NEEDED:
            importlib.import_module(name)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.dup2(out.fileno(), 1)
                    os.dup2(err.fileno(), 2)
                    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                    os.environ.clear()
                    os.environ.update(self.environ)
                    sys.argv = ["launcher", *words]
                    os.setgroups([])
                    os.setresgid(0, 0, 0)
                    os.setresuid(UID, UID, UID)
                    code = main()
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            out.seek(0)
            err.seek(0)
            return Ran(os.waitstatus_to_exitcode(status), out.read(), err.read())


def finished(process: subprocess.Popen[str]) -> Ran:
    with process:
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return Ran(process.returncode, out, err)


def folder_of(ran: Ran, label: str = "target") -> Path:
    assert ran.code == 0, ran.err
    lines = dict(line.split(" ", 1) for line in ran.out.splitlines())
    return Path(lines[label])


def launcher_in(place: Path, **environ: str) -> Launcher:
    """A launcher whose cache and home are in ``place``."""
    return Launcher(
        {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NIM_CACHE_PATH": str(place / "cache"),
            "HOME": str(place),
            **environ,
        }
    )


def broken_locks(place: Path) -> str:
    """A PYTHONPATH under which every flock fails as it does on some network file systems."""
    site = place / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import errno, fcntl\n"
        "def refuse(*words):\n"
        "    raise OSError(errno.ENOLCK, 'No locks available')\n"
        "fcntl.flock = refuse\n"
    )
    return f"{site}:{REPOSITORY}"


def wait_for_request(server: Server, part: str) -> None:
    end = time.monotonic() + 20
    while not server.ledger.asked(part):
        assert time.monotonic() < end
        time.sleep(0.02)
