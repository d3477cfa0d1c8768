"""A whole start with models that have to be fetched first: serve, plan, offline, read-only, and what goes wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.standin import Installation, install
from tests.models import files, write
from tests.storage.hub import TOKEN, Hub

EAGLE3 = '{"method": "eagle3", "model": "eagle3_draft", "num_speculative_tokens": 3}'


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("org/plain", files("plain"))
    hub.add("org/mtp", files("mtp"))
    hub.add("org/eagle3", files("eagle3"))
    hub.add("org/other", files("eagle3-hidden"))
    hub.add("org/gated", files("eagle3"), gated=True)
    return hub


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv", clients=True)


def test_target_and_draft_from_the_hub(launcher: Installation, hub: Hub) -> None:
    """The guide's command, as typed."""
    ran = launcher.run(
        "--speculative-config",
        EAGLE3,
        NIM_MODEL_PATH="hf://org/plain",
        NIM_DRAFT_MODEL_PATH="hf://org/eagle3",
        HF_ENDPOINT=hub.url,
    )
    assert ran.code == 0, ran.err
    commit = hub.models["org/plain"].branches["main"]
    snapshot = launcher.folder / "cache/huggingface/hub/models--org--plain/snapshots" / commit
    workspace = launcher.folder / "workspace"
    assert (workspace / "config.json").readlink() == snapshot / "config.json"
    assert (workspace / "model.safetensors").read_bytes() == files("plain")["model.safetensors"]
    assert ran.speculative["model"] == f"{workspace}/eagle3_draft"
    assert (workspace / "eagle3_draft" / "model.safetensors").read_bytes() == files("eagle3")["model.safetensors"]
    assert ran.argv[ran.argv.index("--served-model-name") + 1] == "org/plain"
    assert ran.record is not None and ran.record["environ"]["HF_HUB_OFFLINE"] == "1"


def test_plan_fetches_no_weights_and_says_what_serve_would(launcher: Installation, hub: Hub) -> None:
    words = ("plan", "--json", "hf://org/mtp")
    ran = launcher.run(*words, HF_ENDPOINT=hub.url, NIM_SPECDEC_ENABLE="1")
    plan = json.loads(ran.out)
    size = sum(len(data) for data in files("mtp").values())
    assert plan["speculation"]["method"] == "mtp"
    assert (plan["model"]["bytes"], plan["model"]["to_download"]) == (size, size)
    assert plan["model"]["revision"] == hub.models["org/mtp"].branches["main"]
    assert hub.content < size / 10
    assert not (launcher.folder / "cache" / "huggingface").exists()
    served = launcher.run("serve", "hf://org/mtp", HF_ENDPOINT=hub.url, NIM_SPECDEC_ENABLE="1")
    assert served.argv == plan["argv"]
    after = json.loads(launcher.run(*words, HF_ENDPOINT=hub.url, NIM_SPECDEC_ENABLE="1").out)
    assert (after["model"]["to_download"], after["model"]["proof"]) == (0, "manifest")


def test_a_restart_needs_no_hub_and_no_write(launcher: Installation, hub: Hub) -> None:
    environ = {"NIM_MODEL_PATH": "hf://org/plain", "NIM_DRAFT_MODEL_PATH": "hf://org/eagle3"}
    words = ("--speculative-config", EAGLE3)
    first = launcher.run(*words, **environ, HF_ENDPOINT=hub.url)
    served = hub.content
    again = launcher.run(*words, **environ, HF_ENDPOINT=hub.url)
    assert (again.code, hub.content) == (0, served)
    hub.close()
    offline = launcher.run(*words, **environ, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
    assert offline.argv == first.argv, offline.err
    down = launcher.run(*words, **environ, HF_ENDPOINT=hub.url)
    assert down.argv == first.argv, down.err
    assert "WARNING" in down.err


def test_with_the_toggle_off_no_draft_byte_is_fetched(launcher: Installation, hub: Hub) -> None:
    ran = launcher.run(
        NIM_MODEL_PATH="hf://org/plain",
        NIM_DRAFT_MODEL_PATH="hf://org/eagle3",
        NIM_SPECDEC_ENABLE="0",
        HF_ENDPOINT=hub.url,
    )
    assert ran.code == 0, ran.err
    assert not [asked for asked in hub.ledger.asked() if "eagle3" in asked.path]


def test_a_draft_that_does_not_fit_is_refused_before_any_weight(launcher: Installation, hub: Hub) -> None:
    ran = launcher.run(
        "hf://org/plain", "--speculative-config", EAGLE3, NIM_DRAFT_MODEL_PATH="hf://org/other", HF_ENDPOINT=hub.url
    )
    assert (ran.code, ran.record) == (8, None), ran.err
    assert "the hidden size of the draft hf://org/other is " in ran.last_line
    assert "that of the target hf://org/plain is " in ran.last_line
    assert str(launcher.folder / "cache") not in ran.last_line
    assert hub.content < len(files("plain")["model.safetensors"]) / 3  # configurations and headers


def test_a_plan_speaks_of_sources(launcher: Installation, hub: Hub) -> None:
    """Before anything is fetched, and once it lies in the cache."""
    environ = {"HF_ENDPOINT": hub.url, "NIM_MODEL_PATH": "hf://org/mtp", "NIM_SPECDEC_ENABLE": "1"}
    before = json.loads(launcher.run("plan", "--json", **environ).out)
    assert launcher.run(**environ).code == 0
    for plan in (before, json.loads(launcher.run("plan", "--json", **environ).out)):
        assert "hf://org/mtp" in plan["speculation"]["reason"]
        said = [plan["speculation"], plan["checks"], plan["warnings"], plan["unknown"]]
        assert str(launcher.folder / "cache") not in json.dumps(said)


@pytest.mark.parametrize(
    ("environ", "patterns"),
    [
        ({"NIM_FETCH_EXCLUDE": "*.safetensors"}, "NIM_FETCH_EXCLUDE=*.safetensors"),
        ({"NIM_FETCH_INCLUDE": "*.json,*.txt"}, "NIM_FETCH_INCLUDE=*.json,*.txt"),
    ],
)
def test_patterns_that_leave_no_weights_are_the_error(
    launcher: Installation, hub: Hub, environ: dict[str, str], patterns: str
) -> None:
    variable = patterns.partition("=")[0]
    ran = launcher.run("hf://org/plain", HF_ENDPOINT=hub.url, **environ)
    assert (ran.code, ran.record) == (8, None), ran.err
    said = f"{variable} leaves out model.safetensors, so hf://org/plain holds no weights. Change {patterns}."
    assert said in ran.last_line
    drafted = launcher.run(
        *("hf://org/plain", "--speculative-config", EAGLE3),
        **{"HF_ENDPOINT": hub.url, "NIM_DRAFT_MODEL_PATH": "hf://org/eagle3", variable: environ[variable]},
    )
    assert drafted.code == 8
    assert f"{variable} leaves out model.safetensors, so the draft hf://org/eagle3 holds no weights" in drafted.err


@pytest.mark.parametrize(("policy", "code"), [("required", 4), ("fallback", 0)])
def test_a_gated_draft(policy: str, code: int, launcher: Installation, hub: Hub) -> None:
    environ = {"NIM_DRAFT_MODEL_PATH": "hf://org/gated", "NIM_SPECDEC_POLICY": policy, "HF_ENDPOINT": hub.url}
    ran = launcher.run("hf://org/plain", "--speculative-config", EAGLE3, **environ)
    assert ran.code == code, ran.err
    if code:
        assert "NIM_DRAFT_MODEL_PATH" in ran.last_line and "HF_TOKEN" in ran.err
    else:
        assert "--speculative-config" not in ran.argv
        assert "SPECULATION IS OFF" in ran.err
    with_token = launcher.run("hf://org/plain", "--speculative-config", EAGLE3, **environ, HF_TOKEN=TOKEN)
    assert with_token.speculative["method"] == "eagle3"
    assert TOKEN not in with_token.err + json.dumps(with_token.argv)


@pytest.mark.parametrize(
    ("source", "environ", "code"),
    [
        ("hf://org/none", {"HF_TOKEN": TOKEN}, 3),
        ("hf://org/none", {}, 4),  # without a token the hub does not say which of private and missing it is
        ("hf://org/plain:nope", {}, 3),
        ("hf://org/plain", {"HF_HUB_OFFLINE": "1"}, 3),
        ("hf://org/plain", {"NIM_DISABLE_MODEL_DOWNLOAD": "1"}, 3),
        ("hf://org/gated", {"HF_TOKEN": "hf_badbadbadbadbadbad"}, 4),
    ],
)
def test_refusals(source: str, environ: dict[str, str], code: int, launcher: Installation, hub: Hub) -> None:
    ran = launcher.run(NIM_MODEL_PATH=source, HF_ENDPOINT=hub.url, **environ)
    assert (ran.code, ran.record) == (code, None), ran.err
    assert "NIM_MODEL_PATH" in ran.last_line
    assert "Traceback" not in ran.err


def test_a_draft_inside_the_target_repository(launcher: Installation, hub: Hub) -> None:
    inside = {f"speculator/tuned/{name}": data for name, data in files("eagle3").items()}
    hub.add("org/both", {**files("plain"), **inside})
    ran = launcher.run("hf://org/both", NIM_SPECDEC_ENABLE="1", HF_ENDPOINT=hub.url)
    assert ran.code == 0, ran.err
    assert ran.speculative["method"] == "eagle3"
    assert (Path(ran.speculative["model"]) / "model.safetensors").read_bytes() == files("eagle3")["model.safetensors"]


def test_a_mixture_of_folder_and_hub(launcher: Installation, hub: Hub, tmp_path: Path) -> None:
    target = write("plain", tmp_path / "target")
    ran = launcher.run(str(target), NIM_SPECDEC_ENABLE="1", NIM_DRAFT_MODEL_PATH="hf://org/eagle3", HF_ENDPOINT=hub.url)
    assert ran.speculative["method"] == "eagle3"


def test_a_copied_cache_serves_elsewhere(launcher: Installation, hub: Hub, tmp_path: Path) -> None:
    first = launcher.run("hf://org/plain", HF_ENDPOINT=hub.url)
    assert first.code == 0, first.err
    shutil.copytree(launcher.folder / "cache", tmp_path / "carried", symlinks=True)
    ran = launcher.run("hf://org/plain", NIM_CACHE_PATH=f"{tmp_path}/carried", HF_HUB_OFFLINE="1")
    assert ran.code == 0, ran.err
    assert (Path(ran.argv[2]) / "config.json").read_bytes() == files("plain")["config.json"]
