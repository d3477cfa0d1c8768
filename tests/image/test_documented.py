"""Every ``docker run`` of our own documents and of NVIDIA's guide, run as written but for image, folders and GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.image.commands import Command, commands
from tests.image.conftest import ROOT
from tests.image.podman import Podman
from tests.models import files
from tests.storage.hub import TOKEN, Hub
from tests.storage.registry import PERSONAL, Registry
from tests.storage.small_s3 import SmallS3
from tests.storage.web import Server

DOCUMENTS = ("README.md", "docs/image.md", "docs/derived-images.md", "docs/migration.md", "docs/drafts.md")
OURS = [(name, command) for name in DOCUMENTS for command in commands((ROOT / name).read_text(encoding="utf-8"))]
DEPLOYMENT = list(commands((ROOT / "docs/deployment.md").read_text(encoding="utf-8")))
GUIDE = list(commands((Path(__file__).parent / "data" / "guide.txt").read_text(encoding="utf-8")))
# What the guide and the migration page leave open.
OPEN = {
    "<org>/<model>:<tag>": "acme/mtp:1.0",
    "<org>/<your-eagle3-draft>": "acme/draft",
    "ngc://org/team/model:version": "ngc://acme/mtp:1.0",
}
GUIDE_METHODS = ["mtp", "ngram", "ngram", "mtp", "eagle3", "eagle3", "mtp"]


@pytest.fixture(scope="module")
def services() -> Iterator[Mapping[str, str]]:
    """A hub, a registry and a store with the models that the documents name; the environment that leads to them."""
    hub, registry = Hub(), Registry()
    hub.add("meta-llama/Llama-3.1-8B-Instruct", files("plain"))
    hub.add("acme/draft", files("eagle3"))
    hub.add("org/model", files("plain"))
    hub.add("org/draft", files("eagle3"))
    registry.add("acme", "mtp", "1.0", files("mtp"))
    store = Server(SmallS3({f"eagle3-draft/{name}": data for name, data in files("eagle3").items()}, "bucket"))
    yield {
        **registry.environ(HF_ENDPOINT=hub.url, AWS_ENDPOINT_URL=store.url),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    store.close()
    registry.close()
    hub.close()


@pytest.fixture
def folders(models: Path, tmp_path: Path) -> Mapping[str, Path]:
    """The host folders that the documents name."""
    made = {name: tmp_path / name for name in ("cache", "captures", "store")}
    (tmp_path / "hf-token").write_text(f"{TOKEN}\n")
    for folder in made.values():
        folder.mkdir()
        folder.chmod(0o775)
    return {
        "/data/models/llama-3.1-8b": models / "plain",
        "/data/models/eagle3-draft": models / "eagle3",
        "/data/models/target": models / "plain",
        "/data/models/draft": models / "eagle3",
        "/data/captures": made["captures"],
        "./store": made["store"],
        "./hf-token": tmp_path / "hf-token",
        **dict.fromkeys(("/tmp/nim_cache", "~/.cache/nim", "/data/cache", "llm-cache"), made["cache"]),
    }


def method(words: tuple[str, ...]) -> str | None:
    """What a command asks for in so many words."""
    given: Any = dict(pairwise(words)).get("--speculative-config")
    return json.loads(given)["method"] if given else None


def filled_in(command: Command, folders: Mapping[str, Path]) -> tuple[list[str], str]:
    """podman's options and the network, with models that are there."""
    options, network = command.here(folders)
    for placeholder, value in OPEN.items():
        options = [option.replace(placeholder, value) for option in options]
    return options, network


@pytest.mark.parametrize(
    ("document", "command"), OURS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(OURS)]
)
def test_our_own_documents(
    document: str,
    command: Command,
    podman: Podman,
    image: str,
    derived_image: str,
    services: Mapping[str, str],
    folders: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NGC_API_KEY", PERSONAL)  # "-e NGC_API_KEY" takes it from here
    assert command.image in ("specdec-launcher", "my-model", "$IMG"), f"{document} names another image"
    options, network = filled_in(command, folders)
    chosen = derived_image if command.image == "my-model" else image
    ran = podman.run(chosen, *command.words, options=options, env=services, network=network)
    assert ran.code == 0, ran.err
    if ran.executed and (asked := method(command.words)):
        assert ran.speculative["method"] == asked
    if "NIM_SPECDEC_ENABLE=1" in command.options:
        assert ran.speculative is not None


def test_the_page_on_deployment(
    podman: Podman, image: str, services: Mapping[str, str], folders: Mapping[str, Path]
) -> None:
    """In the order of the page: one command writes the store that the next one serves from."""
    assert [command.image for command in DEPLOYMENT] == ["IMAGE"] * 6
    methods = []
    for command in DEPLOYMENT:
        options, network = command.here(folders)
        # A container without network asks nobody, and has no credentials either.
        ran = podman.run(
            image, *command.words, options=options, env={} if network == "none" else services, network=network
        )
        assert ran.code == 0, (command, ran.err)
        assert TOKEN not in ran.err
        methods.append((ran.speculative or {}).get("method") if ran.executed else "")
    assert methods == ["ngram", "", "", "", "eagle3", None]


def test_the_readme_has_examples() -> None:
    assert sum(name == "README.md" for name, _ in OURS) >= 3


@pytest.mark.parametrize("number", range(len(GUIDE_METHODS)))
def test_nvidias_guide(
    number: int,
    podman: Podman,
    image: str,
    derived_image: str,
    services: Mapping[str, str],
    folders: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NGC_API_KEY", PERSONAL)
    command = GUIDE[number]
    options, network = filled_in(command, folders)
    # An image that was made for one model is a derived image here.
    chosen = image if any("NIM_MODEL_PATH" in option for option in options) else derived_image
    ran = podman.run(chosen, *command.words, options=options, env=services, network=network)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == GUIDE_METHODS[number]
    assert PERSONAL not in ran.err
    if command.words:
        asked = json.loads(command.words[-1])
        assert {**ran.speculative, "model": asked.get("model")} == {"model": None, **asked}
