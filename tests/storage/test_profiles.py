"""Profiles over a hub on loopback: the published draft, what is fetched and what is not, and filling a cache."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from launcher.commands import known
from launcher.errors import ConfigurationError, HardwareError
from launcher.nim_manifest import of_profile, read, source_of, wanted
from launcher.offered import Offered, to_yaml
from launcher.profiles import compiled
from launcher.settings.parse import parse_settings
from tests.engine.test_profiles import PROFILE
from tests.integration.standin import Installation, install
from tests.models import files, write
from tests.storage.hub import Hub


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("org/plain", files("plain"))
    hub.add("org/mtp", files("mtp"))
    hub.add("org/eagle3", files("eagle3"))
    return hub


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv", clients=True)


@pytest.fixture
def knowing(hub: Hub, tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(PROFILE)
    return {"NIM_PROFILES_PATH": str(folder), "HF_ENDPOINT": hub.url}


def drafts_asked(hub: Hub) -> int:
    return len(hub.ledger.asked("eagle3")) + len(hub.storage.ledger.asked("eagle3"))


def test_the_published_draft_is_chosen_fetched_and_said(
    launcher: Installation, hub: Hub, knowing: dict[str, str]
) -> None:
    plan = json.loads(launcher.run("plan", "--json", "hf://org/plain", NIM_SPECDEC_ENABLE="1", **knowing).out)
    commit = hub.models["org/eagle3"].branches["main"]
    assert plan["profile"]["description"] == "vllm-bf16-tp1-pp1-tiny-plain"
    assert plan["profile"]["reason"] == f"made for hf://org/plain ({knowing['NIM_PROFILES_PATH']}/tiny.yaml)"
    chosen = plan["speculation"]
    assert (chosen["method"], chosen["num_speculative_tokens"]) == ("eagle3", 2)
    assert chosen["reason"] == "hf://org/eagle3 was published as the eagle3 draft of this model"
    assert {"flag": "--max-num-seqs", "value": "16", "origin": "profile vllm-bf16-tp1-pp1-tiny-plain"} in plan[
        "arguments"
    ]
    assert plan["arguments"][-1]["origin"] == "automatic choice, profile"
    assert [f"NIM_DRAFT_MODEL_PATH=hf://org/eagle3:{commit} pins it" in text for text in plan["warnings"]] == [True]
    ran = launcher.run("serve", "hf://org/plain", NIM_SPECDEC_ENABLE="1", **knowing)
    assert ran.code == 0, ran.err
    assert ran.speculative["num_speculative_tokens"] == 2
    assert (launcher.folder / "workspace" / "eagle3" / "model.safetensors").read_bytes() == files("eagle3")[
        "model.safetensors"
    ]


@pytest.mark.parametrize(
    ("words", "environ", "asked"),
    [
        (("hf://org/plain",), {}, False),
        (("hf://org/plain",), {"NIM_SPECDEC_ENABLE": "0"}, False),
        (("hf://org/mtp",), {"NIM_SPECDEC_ENABLE": "1"}, False),
        (("hf://org/plain",), {"NIM_SPECDEC_ENABLE": "1", "NIM_SPECDEC_ARGS": '{"speculative_config": "none"}'}, False),
        (("hf://org/plain", "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'), {}, False),
        (("hf://org/plain", "--speculative-config", '{"method": "eagle3"}'), {}, True),  # named, and its draft is not
        (("hf://org/plain",), {"NIM_SPECDEC_ENABLE": "1"}, True),
    ],
)
def test_when_the_draft_is_asked_for(
    words: tuple[str, ...],
    environ: dict[str, str],
    asked: bool,
    launcher: Installation,
    hub: Hub,
    knowing: dict[str, str],
) -> None:
    ran = launcher.run("serve", *words, **environ, **knowing)
    assert ran.code == 0, ran.err
    assert bool(drafts_asked(hub)) == asked


def test_a_draft_of_the_users_own_beats_it(
    launcher: Installation, hub: Hub, knowing: dict[str, str], tmp_path: Path
) -> None:
    own = write("eagle3", tmp_path / "own")
    ran = launcher.run("hf://org/plain", NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH=str(own), **knowing)
    assert (Path(ran.speculative["model"]) / "config.json").resolve() == own / "config.json"
    assert drafts_asked(hub) == 0


def test_a_draft_that_cannot_be_had_costs_only_itself(
    launcher: Installation, hub: Hub, knowing: dict[str, str]
) -> None:
    del hub.models["org/eagle3"]
    ran = launcher.run("hf://org/plain", NIM_SPECDEC_ENABLE="1", **knowing)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "ngram"
    assert "eagle3: not chosen: the published draft cannot be had: " in ran.err


def test_a_hub_that_does_not_answer_costs_five_seconds(
    launcher: Installation, knowing: dict[str, str], tmp_path: Path
) -> None:
    """Nobody named the draft: a start that can do without it does not wait as long as for what was asked for."""
    own = write("plain", tmp_path / "own")
    (own / "README.md").write_text("# org/plain\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        ran = launcher.run(str(own), NIM_SPECDEC_ENABLE="1", **{**knowing, "HF_ENDPOINT": address})
        took = time.monotonic() - began
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "ngram"
    assert "the published draft cannot be had: " in ran.err and f"cannot be reached at {address}/api" in ran.err
    assert 4.5 < took < 15


def test_a_model_of_the_same_shape_gets_no_draft(
    launcher: Installation, hub: Hub, knowing: dict[str, str], tmp_path: Path
) -> None:
    own = write("plain", tmp_path / "tune")
    (own / "README.md").write_text("---\nbase_model: org/plain\n---\n")
    plan = json.loads(launcher.run("plan", "--json", str(own), NIM_SPECDEC_ENABLE="1", **knowing).out)
    assert plan["speculation"]["method"] == "ngram"
    (eagle3,) = [step for step in plan["speculation"]["considered"] if step["method"] == "eagle3"]
    assert eagle3["reason"] == (
        "no EAGLE3 draft is at hand; its model card: a derivative of org/plain, whose published draft hf://org/eagle3 "
        "was not made for it: name it as NIM_DRAFT_MODEL_PATH to use it all the same"
    )
    assert drafts_asked(hub) == 0
    (own / "README.md").write_text("# org/plain\n")
    itself = json.loads(launcher.run("plan", "--json", str(own), NIM_SPECDEC_ENABLE="1", **knowing).out)
    assert itself["speculation"]["method"] == "eagle3"


def test_a_cache_is_filled_by_profile(launcher: Installation, hub: Hub, knowing: dict[str, str]) -> None:
    name = "vllm-bf16-tp1-pp1-tiny-plain"
    ran = launcher.run("download-to-cache", "--profiles", name, **knowing)
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()] == ["target"] and drafts_asked(hub) == 0
    both = launcher.run("download-to-cache", "--profiles", name, NIM_SPECDEC_ENABLE="1", **knowing)
    assert [line.split()[0] for line in both.out.splitlines()] == ["target", "draft"]
    hub.close()
    offline = launcher.run(NIM_MODEL_PROFILE=name, NIM_SPECDEC_ENABLE="1", HF_HUB_OFFLINE="1", **knowing)
    assert offline.code == 0, offline.err
    assert offline.speculative["method"] == "eagle3"
    assert launcher.run("download-to-cache", "--profiles", "vllm-bf16-tp1-pp1-tiny-plane", **knowing).code == 9
    assert launcher.run("download-to-cache", "--all", **knowing).code == 2


def test_a_pinned_manifest_names_every_file(launcher: Installation, hub: Hub, knowing: dict[str, str]) -> None:
    ran = launcher.run("profiles", "manifest", "--pin", "-p", "vllm-bf16-tp1-pp1-tiny-plain", **knowing)
    assert ran.code == 0, ran.err
    path = launcher.folder / "model_manifest.yaml"
    path.write_text(ran.out)
    (one,) = read(str(path))
    commit = hub.models["org/plain"].branches["main"]
    assert one.files["config.json"] == f"hf://org/plain:{commit}?file=config.json"
    assert set(one.files) == set(files("plain"))
    assert source_of(one, str(path)) == f"hf://org/plain:{commit}"
    settings = parse_settings({}, lambda path: "")
    implied = known.implied_model(settings, (str(path),))
    assert implied is not None and implied.source == f"hf://org/plain:{commit}" and implied.offered == one
    assert [meant.source for meant in known.meant((), settings, (str(path),))] == [f"hf://org/plain:{commit}"]


def test_a_manifest_of_ours_is_read_back_as_it_was(tmp_path: Path) -> None:
    store = compiled.load()
    assert store is not None
    offered = [of_profile(profile, {}) for profile in store.all()]
    path = tmp_path / "model_manifest.yaml"
    path.write_text(to_yaml(offered))
    assert list(read(str(path))) == offered
    assert {key: type(value) for key, value in offered[0].tags.items()} == dict.fromkeys(offered[0].tags, str)


FOREIGN = """\
schema_version: 2.0.0
profiles:
  - id: aaaa
    tags: {llm_engine: vllm, precision: fp8, tp: "2", pp: "1"}
    workspace: {files: {config.json: {uri: "ngc://org/team/m:1?file=config.json"}}}
  - id: bbbb
    tags: {llm_engine: sglang, precision: fp8, tp: "2"}
    workspace: {files: {config.json: {uri: "ngc://org/team/m:1?file=config.json"}}}
"""


def test_an_images_own_manifest(tmp_path: Path) -> None:
    path = tmp_path / "model_manifest.yaml"
    path.write_text(FOREIGN)
    offered = read(str(path))
    assert [one.description for one in offered] == ["vllm-fp8-tp2-pp1"]  # other engines' profiles are not ours
    for wish in (None, "aaaa", "vllm-fp8-tp2-pp1", "aaaa (vllm-fp8-tp2-pp1)"):
        assert wanted(offered, wish, "NIM_MODEL_PROFILE", str(path)).id == "aaaa"
    assert source_of(offered[0], str(path)) == "ngc://org/team/m:1"
    with pytest.raises(HardwareError, match="offers no profile cccc"):
        wanted(offered, "cccc", "NIM_MODEL_PROFILE", str(path))
    with pytest.raises(HardwareError, match="offers 2 profiles with files, and none is named"):
        wanted((*offered, Offered("dddd", {}, {"a": "ngc://b"})), None, "NIM_MODEL_PROFILE", str(path))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", "model_manifest.yaml:1 cannot be read as a model manifest"),
        ("[]", "is no model manifest of schema_version 2"),
        ("schema_version: 1.0.0", "is no model manifest of schema_version 2"),
        ("schema_version: 2.0.0", "has no list of profiles"),
        ("schema_version: 2.0.0\nprofiles: [{}]", "profiles[0] has no id"),
        (FOREIGN.replace("uri", "url"), "the file config.json has no uri"),
    ],
)
def test_a_manifest_that_is_none(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "model_manifest.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read(str(path))
    assert what in str(caught.value)


def test_files_of_several_sources_are_refused() -> None:
    two = Offered("a", {}, {"x": "ngc://a:1?file=x", "y": "ngc://b:1?file=y"})
    with pytest.raises(ConfigurationError, match="come from 2 sources"):
        source_of(two, "m")
    with pytest.raises(ConfigurationError, match="has another name in its source"):
        source_of(Offered("a", {}, {"x": "ngc://a:1?file=z"}), "m")
