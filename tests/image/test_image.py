"""The image as it ships: what is in it, as whom it runs, what it may not need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.image.podman import Podman
from tests.integration.standin import ATTACHED
from tests.models import files

STRANGER = 1_000_660_000  # as OpenShift hands them out
READ_ONLY = ("--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp")
RESTRICTED = ("--cap-drop=all", "--security-opt=no-new-privileges")
EAGLE3 = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'
COMMANDS = ("launcher", "nim-serve", "list-model-profiles", "download-to-cache", "create-model-store")


def mounted(models: Path, name: str = "plain", at: str = "/models/target") -> str:
    return f"--volume={models / name}:{at}:ro"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder for a cache as a volume gives it: owned by root, writable by group 0."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o775)
    return folder


def test_what_the_image_says_of_itself(podman: Podman, image: str) -> None:
    (config,) = json.loads(podman.call("image", "inspect", image).stdout)
    told = config["Config"]
    assert (told["Entrypoint"], told.get("Cmd") or []) == (["launcher"], [])  # nothing of the base's is inherited
    assert (told["User"], told["StopSignal"], told["WorkingDir"]) == ("1000:0", "SIGTERM", "/opt/nim")
    assert set(told["ExposedPorts"]) == {"8000/tcp"}
    assert told.get("Volumes") is None
    check = told.get("Healthcheck") or config["Healthcheck"]
    assert check["Test"] == ["CMD", "launcher", "healthcheck"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in told["Labels"].items()}
    said = (labels["title"], labels["licenses"], labels["base.name"])
    assert said == ("specdec-launcher", "Apache-2.0", "localhost/base")


def test_the_hand_over(podman: Podman, image: str, models: Path) -> None:
    """vLLM is process 1, gets the workspace, and nobody stands above it."""
    ran = podman.run(image, options=[mounted(models)], env={"NIM_MODEL_PATH": "/models/target"})
    assert ran.code == 0, ran.err
    served = ["/usr/local/bin/vllm", "serve", "/opt/nim/workspace", *ATTACHED, "--served-model-name", "target"]
    assert ran.argv == served
    assert (ran.record["pid"], ran.record["ids"], ran.record["term_default"]) == (1, [1000, 0], True)
    assert set(files("plain")) <= set(ran.record["files"])


def test_words_after_the_image_arrive_as_they_are(podman: Podman, image: str, models: Path) -> None:
    overrides = '{"a":{"b":"$(touch /tmp/pwned) `x` \\"q\\" é"}}'
    ran = podman.run(image, "/models/target", "--hf-overrides", overrides, options=[mounted(models)])
    assert ran.argv[-2:] == ["--hf-overrides", overrides]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_programs(command: str, podman: Podman, image: str) -> None:
    """NVIDIA's operator calls them as a pod's command, without the entrypoint."""
    ran = podman.run(image, "--help", options=[f"--entrypoint={command}"])
    assert "Traceback" not in ran.err
    assert ran.code in (0, 2)
    assert podman.run(image, "sh", "-c", f"command -v {command}").out == f"/usr/local/bin/{command}\n"


def test_a_program_of_the_image(podman: Podman, image: str) -> None:
    assert podman.run(image, "python3", "-c", "import launcher; print(launcher.__name__)").out == "launcher\n"


@pytest.mark.parametrize(
    ("user", "restrictions"),
    [
        ("0:0", ()),
        ("1000:0", ()),
        (f"{STRANGER}:0", ()),
        (f"{STRANGER}:0", (*RESTRICTED, *READ_ONLY)),
        ("12345:12345", ()),
        ("12345:12345", (*RESTRICTED, *READ_ONLY)),
    ],
)
def test_runs_as(user: str, restrictions: tuple[str, ...], podman: Podman, image: str, models: Path) -> None:
    """Every user, with target and draft mounted read-only; each cache that vLLM's libraries get can be written."""
    ran = podman.run(
        image,
        "--speculative-config",
        EAGLE3,
        options=[mounted(models), mounted(models, "eagle3", "/models/draft"), f"--user={user}", *restrictions],
        env={"NIM_MODEL_PATH": "/models/target", "NIM_DRAFT_MODEL_PATH": "/models/draft"},
    )
    assert ran.code == 0, ran.err
    assert ran.record["ids"] == [int(word) for word in user.split(":")]
    assert ran.speculative["method"] == "eagle3"
    assert ran.record["interfaces"] == ["lo"]
    environ, writable = ran.record["environ"], ran.record["writable"]
    assert writable[environ["HOME"]], environ
    chosen = {name: environ[name] for name in environ if name.endswith(("_CACHE_DIR", "_CACHE_ROOT", "_CACHE_HOME"))}
    assert all(writable[path] for path in chosen.values()), chosen
    if restrictions:
        assert (ran.record["capabilities"], ran.record["no_new_privileges"], writable["/"]) == (0, 1, False)


def test_a_cache_volume_of_group_0(podman: Podman, image: str, models: Path, shared: Path) -> None:
    """A random user writes it; the next one reads, and writes beside."""
    volume = f"--volume={shared}:/opt/nim/.cache"
    for user in (f"{STRANGER}:0", f"{STRANGER + 1}:0", "1000:0"):
        ran = podman.run(image, "/models/target", options=[mounted(models), f"--user={user}", volume])
        assert ran.code == 0, ran.err
        assert ran.record["writable"]["/opt/nim/.cache"]
        assert "cannot be written" not in ran.err


def test_an_unknown_user_has_a_name(podman: Podman, image: str, models: Path, tmp_path: Path) -> None:
    """podman adds an entry to /etc/passwd by itself; other runtimes do not, so the file is mounted as it was."""
    (tmp_path / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    options = [mounted(models), f"--user={STRANGER}:0", f"--volume={tmp_path / 'passwd'}:/etc/passwd:ro"]
    ran = podman.run(image, "/models/target", options=options)
    assert ran.code == 0, ran.err
    environ = ran.record["environ"]
    assert environ["USER"] == environ["LOGNAME"] == "launcher"
    assert environ["TORCHINDUCTOR_CACHE_DIR"]


def test_without_a_home(podman: Podman, image: str, models: Path) -> None:
    """``env -i``: what a runtime that knows nothing of the image's environment leaves."""
    words = ("PATH=/usr/local/bin:/usr/bin:/bin", "NIM_MODEL_PATH=/models/target", "launcher")
    ran = podman.run(
        image, "-i", *words, options=[mounted(models), f"--user={STRANGER}:0", "--entrypoint=env", *READ_ONLY]
    )
    assert ran.code == 0, ran.err
    environ = ran.record["environ"]
    assert environ["HOME"].startswith("/tmp/") and ran.record["writable"][environ["HOME"]]


def test_the_profiles_are_in_it(podman: Podman, image: str, models: Path) -> None:
    """Compiled by the build of the wheel: the context that the image was built from has none."""
    listed = podman.run(image, options=["--entrypoint=list-model-profiles", f"--user={STRANGER}:0", *READ_ONLY])
    assert listed.code == 0, listed.err
    assert "(vllm-bf16-tp1-pp1-qwen3-8b)" in listed.out
    unknown = podman.run(
        image, "/models/target", options=[mounted(models)], env={"NIM_MODEL_PROFILE": "vllm-bf16-tp1-pp1-qwen3-8"}
    )
    assert (unknown.code, unknown.executed) == (9, False), unknown.err
    assert "vllm-bf16-tp1-pp1-qwen3-8b" in unknown.last_line  # the nearest


def test_nothing_lies_below_root(podman: Podman, image: str) -> None:
    assert podman.run(image, "find", "/root", "-mindepth", "1", options=["--user=0:0"]).out == ""
    closed = podman.run(image, "find", "/opt", "/usr/local", "!", "-perm", "-o=r", options=["--user=0:0"])
    assert closed.out == ""


def test_a_cache_that_the_user_chose_stays(podman: Podman, image: str, models: Path) -> None:
    options = [mounted(models), f"--user={STRANGER}:0", *READ_ONLY]
    chosen = {"TRITON_CACHE_DIR": "/tmp/mine", "VLLM_CACHE_ROOT": "/tmp/own"}
    ran = podman.run(image, "/models/target", options=options, env=chosen)
    assert ran.code == 0, ran.err
    environ = ran.record["environ"]
    assert {name: environ[name] for name in chosen} == chosen
    assert environ["NUMBA_CACHE_DIR"].startswith("/tmp/")
