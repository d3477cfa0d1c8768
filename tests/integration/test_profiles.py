"""``list-model-profiles`` and ``launcher profiles``, and the wheel that brings them; no model, GPU or network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.standin import REPOSITORY, Installation, install
from tests.unit.test_profile_documents import GOOD

FP8 = "vllm-fp8-tp2-pp1-qwen3.8-27b"
# What nvidia-ml-py would say of two GPUs, one of them busy.
BINDING = """\
from types import SimpleNamespace as Space
class NVMLError(Exception): pass
NVML_ERROR_NOT_SUPPORTED, NVML_DEVICE_MIG_ENABLE = 3, 1
def nvmlInit(): pass
nvmlShutdown = nvmlInit
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(index): return "NVIDIA H100 PCIe"
def nvmlDeviceGetUUID(index): return f"GPU-{index}"
def nvmlDeviceGetPciInfo(index): return Space(pciDeviceId=0x233110DE)
def nvmlDeviceGetMemoryInfo(index): return Space(total=85 * 10**9, free=(85, 34)[index] * 10**9)
def nvmlDeviceGetCudaComputeCapability(index): return (9, 0)
def nvmlDeviceGetMigMode(index): raise NVMLError()
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv")


@pytest.fixture
def gpus(tmp_path: Path) -> Installation:
    """A machine with GPUs: the driver's device node and its binding are stand-ins."""
    installation = install(tmp_path / "venv", None)
    packages = next(installation.folder.glob("lib/python3.*/site-packages"))
    (packages / "pynvml.py").write_text(BINDING)
    (packages / "sitecustomize.py").write_text("import launcher.hardware as h\nh.CONTROL = '/dev/null'\n")
    return installation


def test_the_list_in_nims_layout(gpus: Installation) -> None:
    ran = gpus.run("list-model-profiles", "hf://Qwen/Qwen3.8-27B")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[:7] == [
        "SYSTEM INFO",
        "- Free GPUs:",
        "  -  [2331:10de] (0) NVIDIA H100 PCIe [current utilization: 0% of 85 GB]",
        "- Non-free GPUs:",
        "  -  [2331:10de] (1) NVIDIA H100 PCIe [current utilization: 60% of 85 GB]",
        "MODEL PROFILES",
        "- Compatible with system and runnable:",
    ]
    runs, low, none = ran.out.split("- Compatible")[1:] and (
        ran.out.split("- Compatible with system but")[0],
        ran.out.split("- Compatible with system but low memory:")[1].split("- Incompatible")[0],
        ran.out.split("- Incompatible with system:")[1],
    )
    assert "(vllm-bf16-tp1-pp1-qwen3.8-27b)" in runs and f"({FP8})" in runs
    assert "(vllm-bf16-tp2-pp1-qwen3.8-27b)" in runs  # 33.5 GB a GPU, of 34 that are free
    assert low.strip() == "<None>"
    assert "(vllm-bf16-tp4-pp1-qwen3.8-27b) [needs 4 GPUs, and there are 2 GPUs]" in none
    assert "(vllm-nvfp4-tp1-pp1-qwen3.8-27b) [is made for compute capability 10.0, and NVIDIA H100 PCIe has 9.0" in none


def test_low_memory_says_what_would_help(gpus: Installation) -> None:
    ran = gpus.run("profiles", "list", "hf://Qwen/Qwen3-32B", CUDA_VISIBLE_DEVICES="1")
    low = ran.out.split("- Compatible with system but low memory:")[1]
    assert "[requires >=83 GB/gpu, 34 GB are free, end what else uses the GPU]" in low


def test_a_plan_shares_the_model_among_the_gpus(gpus: Installation, tmp_path: Path) -> None:
    from tests.models import write

    plan = json.loads(gpus.run("plan", "--json", str(write("plain", tmp_path / "plain"))).out)
    assert plan["profile"]["reason"] == "no profile is made for this model; 2 of 2 GPUs share each layer"
    assert {"flag": "--tensor-parallel-size", "value": "2", "origin": "derived"} in plan["arguments"]
    one = json.loads(gpus.run("plan", "--json", str(tmp_path / "plain"), "--tensor-parallel-size", "1").out)
    assert one["profile"]["description"] == "vllm-bf16-tp1-pp1"
    assert [argument["value"] for argument in one["arguments"] if "parallel" in argument["flag"]] == ["1"]


def test_the_list_for_machines(launcher: Installation) -> None:
    found = json.loads(launcher.run("list-model-profiles", "--json").out)
    assert found["system"] == {"device": "cpu", "gpus": [], "unread": ""}
    (entry,) = [one for one in found["profiles"] if one["description"] == FP8]
    assert (entry["verdict"], entry["why"]) == ("does not run", "needs 2 GPUs, and this engine runs on the CPU")
    assert entry["sources"] == ["hf://Qwen/Qwen3.8-27B-FP8"] and entry["speculation"]["method"] == "mtp"
    assert len(found["profiles"]) > 400


def test_an_unknown_model_and_a_profile_in_full(launcher: Installation) -> None:
    assert (
        "no profile is made for hf://org/own: it gets a generic one"
        in launcher.run("list-model-profiles", "hf://org/own").out
    )
    shown = json.loads(launcher.run("profiles", "show", FP8, "--json").out)
    assert [entry["description"] for entry in shown["profiles"]] == [FP8]
    by_source = launcher.run("profiles", "show", "hf://openai/gpt-oss-120b").out
    assert "  licence: NVIDIA Open Model License" in by_source and "  revision: none" in by_source
    lost = launcher.run("profiles", "show", "qwen3.8-72b")
    assert lost.code == 9 and "The nearest model is qwen3.8-27b" in lost.last_line


def test_the_list_of_a_folder_that_its_card_identifies(launcher: Installation, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    card = tmp_path / "model" / "README.md"
    card.write_text("# Qwen/Qwen3-8B\n")
    assert "(vllm-bf16-tp1-pp1-qwen3-8b)" in launcher.run("list-model-profiles", str(card.parent)).out
    card.write_text("---\nbase_model: Qwen/Qwen3-8B\n---\n# Qwen/Qwen3-8B\n")
    assert "- no profile is made for " in launcher.run("list-model-profiles", str(card.parent)).out


def test_profiles_of_the_users_own(launcher: Installation, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(GOOD)
    ran = launcher.run("profiles", "check", str(folder))
    assert (ran.code, ran.out) == (0, f"3 profiles of 1 model in {folder}\n")
    listed = json.loads(launcher.run("profiles", "list", "hf://org/tiny", "--json", NIM_PROFILES_PATH=str(folder)).out)
    assert {entry["origin"] for entry in listed["profiles"]} == {str(folder / "tiny.yaml")}
    for wrong, what in (
        (GOOD.replace("max_num_seqs", "max_num_seq"), "max_num_seq"),
        (
            GOOD.replace("tokens: 2", "settings: {draft_tensor_paralel_size: 1}"),
            "Did you mean draft_tensor_parallel_size?",
        ),
    ):
        (folder / "tiny.yaml").write_text(wrong)
        refused = launcher.run("profiles", "check", str(folder))
        assert refused.code == 2 and what in refused.last_line and "tiny.yaml: tiny-1b: " in refused.last_line
    (folder / "tiny.yaml").write_text(GOOD.replace("tokens:", "token:"))
    for words in (("profiles", "check", str(folder)), ("list-model-profiles",), ("plan", "/nowhere")):
        broken = launcher.run(*words, NIM_PROFILES_PATH=str(folder))
        if words[0] != "plan":  # a model that is not there comes first
            assert broken.code == 2, broken.err
            assert (
                f"{folder}/tiny.yaml:14: models[0].speculation.draft takes no key token. Did you mean"
                in broken.last_line
            )
    assert launcher.run("list-model-profiles", NIM_PROFILES_PATH="/nowhere").code == 3
    assert launcher.run("list-model-profiles", NIM_PROFILES_PATH="relative").code == 2


def test_a_named_profile_that_does_not_exist(launcher: Installation) -> None:
    ran = launcher.run("plan", NIM_MODEL_PROFILE="vllm-bf16-tp1-pp1-qwen3-9b")
    assert ran.code == 9
    assert "NIM_MODEL_PROFILE: no profile is called vllm-bf16-tp1-pp1-qwen3-9b. The nearest is " in ran.last_line


def test_the_built_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """The wheel compiles the profiles itself: built from a copy without launcher/profiles.json."""
    copy = tmp_path / "copy"
    for name in ("launcher", "profiles"):
        ignored = shutil.ignore_patterns("__pycache__", "profiles.json")
        shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored if name == "launcher" else None)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(REPOSITORY / name, copy / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(copy)], check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.read("launcher/profiles.json")
        assert not any(name.endswith(".yaml") for name in archive.namelist())
    assert inside == (REPOSITORY / "launcher" / "profiles.json").read_bytes()
    installation = install(tmp_path / "venv", None)
    packages = next(installation.folder.glob("lib/python3.*/site-packages"))
    (packages / "launcher.pth").unlink()
    to = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(packages), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *to], check=True, timeout=120)
    listed = subprocess.run(
        [str(installation.python), "-m", "launcher", "list-model-profiles", "--json"],
        env=installation.environment({}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(listed.stdout)["profiles"]) > 400
