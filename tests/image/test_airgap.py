"""No network and no key: shown by a network namespace that is empty, and by the system calls that were made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.podman import Podman, Ran
from tests.image.test_image import EAGLE3, READ_ONLY, RESTRICTED, STRANGER, mounted
from tests.models import files
from tests.storage.hub import Hub

TRACED = "connect,sendto,sendmsg,sendmmsg,execve"
BOTH = {"NIM_MODEL_PATH": "hf://org/plain", "NIM_DRAFT_MODEL_PATH": "hf://org/eagle3"}


@pytest.fixture(scope="module")
def carried(podman: Podman, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``cache`` and ``store``, filled by the image's own commands while there was a hub; the hub is gone."""
    folder = tmp_path_factory.mktemp("carried")
    for name in ("cache", "store"):
        (folder / name).mkdir()
        (folder / name).chmod(0o775)
    hub = Hub()
    hub.add("org/plain", files("plain"))
    hub.add("org/eagle3", files("eagle3"))
    options = [f"--volume={folder / 'cache'}:/opt/nim/.cache", f"--volume={folder / 'store'}:/store"]
    environ = {"HF_ENDPOINT": hub.url, **BOTH}
    filled = podman.run(image, "download-to-cache", options=options, env=environ, network="host")
    assert filled.code == 0, filled.err
    words = ("create-model-store", "--model-repo", "hf://org/plain", "--model-store", "/store/plain")
    stored = podman.run(image, *words, options=options, env=environ, network="host")
    assert stored.code == 0, stored.err
    hub.close()
    yield folder


def traced(podman: Podman, image: str, *words: str, options: list[str], env: dict[str, str], tmp_path: Path) -> Ran:
    """Run under strace, without network; nothing may have been sent, or tried to be, outside this machine."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace").chmod(0o777)
    everything = [*options, f"--volume={tmp_path / 'trace'}:/trace", "--entrypoint=strace"]
    command = ("-f", "-qq", "-o", "/trace/calls", "-e", f"trace={TRACED}", "launcher", *words)
    ran = podman.run(image, *command, options=everything, env=env)
    calls = (tmp_path / "trace" / "calls").read_text().splitlines()
    assert any("/usr/local/bin/vllm" in line for line in calls if "execve" in line), ran.err  # it saw what happened
    assert outward(calls) == []
    return ran


def outward(calls: list[str]) -> list[str]:
    """The calls that name an internet address."""
    return [line for line in calls if re.search(r"AF_INET6?\b", line)]


def test_the_trace_would_show_an_attempt(podman: Podman, image: str, tmp_path: Path) -> None:
    """A check that cannot fail shows nothing."""
    tmp_path.chmod(0o777)
    attempt = "import socket; socket.socket().connect_ex(('192.0.2.1', 443))"
    options = [f"--volume={tmp_path}:/trace", "--entrypoint=strace"]
    words = ("-f", "-qq", "-o", "/trace/calls", "-e", f"trace={TRACED}", "python3", "-c", attempt)
    assert podman.run(image, *words, options=options).code == 0
    assert len(outward((tmp_path / "calls").read_text().splitlines())) == 1


def test_target_and_draft_mounted_read_only(podman: Podman, image: str, models: Path, tmp_path: Path) -> None:
    ran = traced(
        podman, image, "--speculative-config", EAGLE3,
        options=[mounted(models), mounted(models, "eagle3", "/models/draft"), f"--user={STRANGER}:0", *RESTRICTED,
                 *READ_ONLY],
        env={"NIM_MODEL_PATH": "/models/target", "NIM_DRAFT_MODEL_PATH": "/models/draft"},
        tmp_path=tmp_path,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "eagle3"
    assert ran.record["environ"]["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("offline", [{"HF_HUB_OFFLINE": "1"}, {"NIM_DISABLE_MODEL_DOWNLOAD": "1"}])
def test_a_read_only_cache(offline: dict[str, str], podman: Podman, image: str, carried: Path, tmp_path: Path) -> None:
    options = [f"--volume={carried / 'cache'}:/opt/nim/.cache:ro", f"--user={STRANGER}:0", *RESTRICTED, *READ_ONLY]
    words = ("--speculative-config", EAGLE3)
    ran = traced(podman, image, *words, options=options, env={**BOTH, **offline}, tmp_path=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "eagle3"
    assert set(files("plain")) <= set(ran.record["files"])


def test_a_read_only_cache_of_moving_branches_without_a_word_of_being_offline(
    podman: Podman, image: str, carried: Path
) -> None:
    """The hub is asked whether the branch moved; nobody answers, and the start goes on within seconds."""
    options = [f"--volume={carried / 'cache'}:/opt/nim/.cache:ro", *READ_ONLY]
    ran = podman.run(image, "--speculative-config", EAGLE3, options=options, env=BOTH, timeout=30)
    assert ran.code == 0, ran.err
    assert "WARNING" in ran.err
    assert set(files("plain")) <= set(ran.record["files"])


def test_a_model_store(podman: Podman, image: str, carried: Path, tmp_path: Path) -> None:
    options = [f"--volume={carried / 'store'}:/store:ro", f"--user={STRANGER}:0", *RESTRICTED, *READ_ONLY]
    environ = {"NIM_MODEL_PATH": "/store/plain", "NIM_SPECDEC_ENABLE": "1"}
    ran = traced(podman, image, options=options, env=environ, tmp_path=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "ngram"
    assert podman.run(image, "verify", "/store/plain", "--level", "digests", options=options).code == 0


PUBLISHED = """\
schema: 1
family: plain
models:
  - name: plain
    architectures: [LlamaForCausalLM]
    speculation:
      draft:
        source: hf://org/eagle3
        revision: null
        licence: Apache-2.0
        method: eagle3
        tokens: 3
        evidence: {url: "https://host/page", date: 2026-01-31}
    variants: [{precision: bf16, sources: ["hf://org/plain"]}]
"""


def test_a_published_draft_is_not_asked_for_where_nothing_is_to_be_fetched(
    podman: Podman, image: str, carried: Path, tmp_path: Path
) -> None:
    """A profile recognises the store by its manifest and knows a draft for it, which is on a hub."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "plain.yaml").write_text(PUBLISHED)
    options = [f"--volume={carried / 'store'}:/store:ro", f"--volume={tmp_path / 'profiles'}:/profiles:ro", *READ_ONLY]
    environ = {"NIM_MODEL_PATH": "/store/plain", "NIM_SPECDEC_ENABLE": "1", "NIM_PROFILES_PATH": "/profiles"}
    offline = environ | {"NIM_DISABLE_MODEL_DOWNLOAD": "1"}
    ran = traced(podman, image, options=options, env=offline, tmp_path=tmp_path)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "ngram"
    asking = podman.run(
        image, options=options, env=environ
    )  # without a word of being offline the start goes on as well
    assert (asking.code, asking.speculative["method"]) == (0, "ngram"), asking.err
    plan = json.loads(podman.run(image, "plan", "--json", options=options, env=offline).out)
    (rejected,) = [way for way in plan["speculation"]["considered"] if way["method"] == "eagle3"]
    assert (rejected["accepted"], "hf://org/eagle3" in rejected["reason"]) == (False, True), rejected


def test_offline_and_not_there(podman: Podman, image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    options = [f"--volume={tmp_path}:/opt/nim/.cache"]
    ran = podman.run(image, "hf://org/absent", options=options, env={"HF_HUB_OFFLINE": "1"})
    assert (ran.code, ran.executed) == (3, False)
    assert "hf://org/absent" in ran.last_line
