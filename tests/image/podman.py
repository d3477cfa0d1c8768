"""Images built by buildah and containers run by podman, on machines that have neither a Docker engine nor cgroups.

    podman = Podman(folder)
    podman.build(context, "docker/Dockerfile", "localhost/launcher", BASE_IMAGE="localhost/base")
    ran = podman.run("localhost/launcher", "--version")                     # to its end
    with podman.started("localhost/launcher", env={"STANDIN_WAIT": "1"}) as container:
        container.stop()

Three workarounds, none of which hurts elsewhere: limits are capped by our own (raising them needs a capability that a
sandbox lacks), /sys/fs/cgroup is hidden by an empty mount in a namespace of its own (crun refuses some layouts even
when it is told to use no cgroups), and the runtime is crun.  Health checks are off: podman leaves them to systemd.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = ("podman", "buildah", "crun", "unshare")
_HIDDEN = 'mount -t tmpfs -o ro,size=4k none /sys/fs/cgroup 2>/dev/null; exec "$@"'


def lacking() -> str | None:
    """Why no container can be run here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (python tools/install_image_tools.py)"
    return None if os.getuid() == 0 else "images are built and run as root here"


class Ran(NamedTuple):
    """A container that has ended."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """What the stand-in for vLLM saw."""
        found = record(self.out)
        assert found is not None, self.err or self.out
        return found

    @property
    def executed(self) -> bool:
        return record(self.out) is not None

    @property
    def argv(self) -> list[str]:
        argv: list[str] = self.record["argv"]
        return argv

    @property
    def speculative(self) -> Any:
        """The decoded --speculative-config that reached vLLM, or None."""
        positions = [i for i, word in enumerate(self.argv) if word == "--speculative-config"]
        assert len(positions) <= 1, self.argv
        return json.loads(self.argv[positions[0] + 1]) if positions else None

    @property
    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def record(text: str) -> dict[str, Any] | None:
    """The stand-in's line in an output that holds other lines too."""
    for line in text.splitlines():
        if line.startswith('{"argv"'):
            found: dict[str, Any] = json.loads(line)
            return found
    return None


class Container(NamedTuple):
    """A container that was started in the background."""

    podman: Podman
    name: str

    def logs(self) -> str:
        """stdout and stderr together."""
        done = self.podman.call("logs", self.name)
        return done.stdout + done.stderr

    def wait_for(self, text: str, within: float = 30.0) -> str:
        """Wait until the log holds ``text``; the log."""
        limit = time.monotonic() + within
        while text not in (log := self.logs()):
            assert time.monotonic() < limit, f"no {text!r} within {within} s:\n{log}"
            assert self.inspect("{{.State.Running}}") == "true", f"ended before {text!r}:\n{log}"
            time.sleep(0.1)
        return log

    def inspect(self, template: str) -> str:
        return self.podman.call("inspect", "--format", template, self.name).stdout.strip()

    def execute(self, *words: str) -> Ran:
        """Run a program inside; its exit code and what it printed."""
        done = self.podman.call("exec", self.name, *words, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    def stop(self, grace: int = 10) -> tuple[int, float]:
        """SIGTERM to process 1, as ``docker stop`` does; its exit code and the seconds that it took."""
        begin = time.monotonic()
        self.podman.call("stop", "--time", str(grace), self.name)
        took = time.monotonic() - begin
        return int(self.inspect("{{.State.ExitCode}}")), took


class Podman(NamedTuple):
    """A storage of images and containers of its own, in ``folder``."""

    folder: Path

    def command(self, *words: str) -> list[str]:
        """The full command line for podman's ``words``."""
        hidden = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _HIDDEN, "sh"]
        return [*hidden, "podman", *self._storage(), "--cgroup-manager", "cgroupfs", "--runtime", "crun", *words]

    def call(self, *words: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=timeout, check=False, env=self._environment()
        )
        assert not check or done.returncode == 0, f"podman {words[0]}: {done.stderr}"
        return done

    def build(
        self, context: Path, dockerfile: str | Path, tag: str, *, timestamp: int | None = None, cache: bool = True,
        **arguments: str,
    ) -> str:  # fmt: skip
        """Build an image without network and without pulling; returns ``tag``.  ``arguments`` are build arguments."""
        done = self.built(context, dockerfile, tag, timestamp=timestamp, cache=cache, **arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return tag

    def built(
        self, context: Path, dockerfile: str | Path, tag: str, *, timestamp: int | None = None, cache: bool = True,
        **arguments: str,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """The same for a build that may fail.  ``timestamp`` is given to every file that the build writes."""
        words = ["--isolation", "chroot", "--pull-never", "--format", "docker", "--tag", tag, "--file", str(dockerfile)]
        words += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        words += [f"--timestamp={timestamp}"] if timestamp is not None else []
        words += ["--layers"] if cache else ["--no-cache"]
        return subprocess.run(
            ["unshare", "--net", "buildah", *self._storage(), "bud", *words, str(context)],
            capture_output=True, text=True, timeout=300, check=False, cwd=context, env=self._environment(),
        )  # fmt: skip

    def run(
        self, image: str, *words: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None,
        network: str = "none", timeout: float = 60,
    ) -> Ran:  # fmt: skip
        """``podman run --rm OPTIONS IMAGE WORDS`` to its end."""
        given = self._options(options, env, network)
        done = self.call("run", "--rm", *given, image, *words, check=False, timeout=timeout)
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(
        self, image: str, *words: str, options: Sequence[str] = (), env: Mapping[str, str] | None = None,
        network: str = "none",
    ) -> Iterator[Container]:  # fmt: skip
        """The same in the background; the container is removed at the end of the block, whatever happened."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.call("run", "--detach", "--name", name, *self._options(options, env, network), image, *words)
        try:
            yield Container(self, name)
        finally:
            self.call("rm", "--force", "--time", "0", name, check=False)

    def size(self, image: str) -> int:
        """Bytes of all layers of an image."""
        return int(self.call("image", "inspect", "--format", "{{.Size}}", image).stdout)

    def close(self) -> None:
        """Remove every container, image and mount of this storage."""
        self.call("rm", "--all", "--force", "--time", "0", check=False)
        # A build that failed leaves its own mounts, the last ones on top.
        mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in reversed([path for path in mounted if path.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "-q", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _options(self, options: Sequence[str], env: Mapping[str, str] | None, network: str) -> list[str]:
        capped = [_limit("nofile", resource.RLIMIT_NOFILE, 20000), _limit("nproc", resource.RLIMIT_NPROC, 4096)]
        variables = [f"--env={name}={value}" for name, value in (env or {}).items()]
        return ["--cgroups=disabled", "--no-healthcheck", f"--network={network}", *capped, *variables, *options]

    def _storage(self) -> list[str]:
        places = ["--root", str(self.folder / "store"), "--runroot", str(self.folder / "run")]
        return [*places, "--storage-driver", "overlay"]

    def _environment(self) -> dict[str, str]:
        """buildah and podman put their large temporary files into TMPDIR."""
        return {**os.environ, "TMPDIR": str(self.folder)}


def _limit(name: str, kind: int, most: int) -> str:
    hard = resource.getrlimit(kind)[1]
    value = most if hard == resource.RLIM_INFINITY else min(hard, most)
    return f"--ulimit={name}={value}:{value}"
