"""An interpreter of its own with a stand-in ``vllm`` beside it.

The launcher looks for the ``vllm`` next to its own Python and reads the version from the folder names on sys.path, so
a test gives it a virtual environment with exactly that.  The stand-in records what it was started with and waits for a
signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[2]

# The words by which vLLM gets the launcher's middleware, in front of all other arguments.
ATTACHED = ["--middleware", "launcher.middleware.asgi.Middleware"]

VLLM = """\
#!{python}
import json, os, signal, sys, time
handled = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGPIPE)
record = dict(argv=sys.argv, environ=dict(os.environ), pid=os.getpid(), parent=os.getppid())
record["term_default"] = handled[0] is signal.SIG_DFL
path = os.environ["STANDIN_RECORD"]
if os.environ.get("STANDIN_WAIT"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(path + ".new", "w") as file:
    json.dump(record, file)
os.replace(path + ".new", path)
end = time.monotonic() + 120
while os.environ.get("STANDIN_WAIT") and time.monotonic() < end:
    time.sleep(0.05)
sys.exit(int(os.environ.get("STANDIN_EXIT", "0")))
"""


class Ran(NamedTuple):
    """A finished launch.  ``record`` is what the stand-in saw, or None when nothing was executed."""

    code: int
    out: str
    err: str
    record: Mapping[str, Any] | None

    @property
    def argv(self) -> list[str]:
        assert self.record is not None, self.err
        found: list[str] = self.record["argv"]
        return found

    @property
    def speculative(self) -> Any:
        """The decoded --speculative-config that reached vLLM, or None when there was none."""
        positions = [i for i, word in enumerate(self.argv) if word == "--speculative-config"]
        assert len(positions) <= 1, self.argv
        return json.loads(self.argv[positions[0] + 1]) if positions else None

    @property
    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


class Installation(NamedTuple):
    """A virtual environment whose ``vllm`` is the stand-in."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """A clean environment: nothing of the tester's own NIM_*, HF_* or VLLM_* settings."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "NIM_CACHE_PATH": str(self.folder / "cache"),
            "NIM_WORKSPACE": str(self.folder / "workspace"),
            "STANDIN_RECORD": str(self.folder / "record.json"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **extra,
        }

    def command(self, words: Sequence[str]) -> list[str]:
        return [str(self.python), "-m", "launcher", *words]

    def run(self, *words: str, **environ: str) -> Ran:
        """Run the launcher to its end.  ``environ`` adds to (or, with an empty value, blanks) the clean environment."""
        record = self.folder / "record.json"
        record.unlink(missing_ok=True)
        done = subprocess.run(
            self.command(words), env=self.environment(environ), capture_output=True, text=True, timeout=60, check=False
        )
        seen = json.loads(record.read_text()) if record.exists() else None
        return Ran(done.returncode, done.stdout, done.stderr, seen)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """Start the launcher with a stand-in that keeps running until SIGTERM; wait until it was executed."""
        record = Path({**self.environment({}), **environ}["STANDIN_RECORD"])
        record.unlink(missing_ok=True)
        process = subprocess.Popen(
            self.command(words),
            env=self.environment({"STANDIN_WAIT": "1", **environ}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while not record.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return process


def stop(process: subprocess.Popen[str]) -> int:
    """End a started launch; its exit code."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    return process.returncode


def install(
    folder: Path, version: str | None = "0.32.0+cpu", *, clients: bool = False, dynamo: str | None = None
) -> Installation:
    """Make an environment.

    ``version`` None leaves vLLM out, ``clients`` brings what fetching needs, ``dynamo`` is the version of an ai-dynamo
    whose worker is the stand-in too.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python3.*/site-packages"))
    # The dependencies (click, msgspec, yaml) come from the environment that runs the tests, without its vllm metadata.
    import click
    import msgspec
    import yaml

    for module in (click, msgspec, yaml):
        origin = Path(str(module.__file__)).parent
        (packages / origin.name).symlink_to(origin)
    behind = f"{Path(str(click.__file__)).parents[1]}\n" if clients else ""
    (packages / "launcher.pth").write_text(f"{REPOSITORY}\n{behind}")
    if version is not None:
        (packages / f"vllm-{version}.dist-info").mkdir()
        script = folder / "bin" / "vllm"
        script.write_text(VLLM.format(python=folder / "bin" / "python"))
        script.chmod(0o755)
    if dynamo is not None:
        (packages / f"ai_dynamo-{dynamo}.dist-info").mkdir()
        worker = packages / "dynamo" / "vllm"
        worker.mkdir(parents=True)
        (worker / "__main__.py").write_text(VLLM.format(python=folder / "bin" / "python"))
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return Installation(folder)
