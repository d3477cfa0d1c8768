"""The probe: what a driver says, told to it by a stand-in; what CUDA_VISIBLE_DEVICES leaves of it."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import pytest

from launcher import hardware
from launcher.machine import Gpu, Machine
from tests.unit.nvml import GB, Card, Library, cards

SLICES = (
    Card("NVIDIA H100 MIG 1g.10gb", 10 * GB, 9 * GB, uuid="MIG-aaaa"),
    Card("NVIDIA H100 MIG 2g.20gb", 20 * GB, 20 * GB, uuid="MIG-bbbb"),
)
DIVIDED = Card("NVIDIA H100", 80 * GB, 80 * GB, 0x233110DE, uuid="GPU-divided", slices=SLICES)


def seen(library: Library, **environ: str) -> list[str]:
    gpus, unread = hardware.visible_gpus(environ, library)
    assert unread == "" and library.open == 0  # whatever is opened is closed again
    return [gpu.uuid for gpu in gpus]


def test_everything_the_driver_says() -> None:
    library = Library([Card("NVIDIA H100 PCIe", 85 * GB, 80 * GB, 0x233110DE, (9, 0), "GPU-1")])
    machine = hardware.probe("cuda", (), {}, library)
    gpu = Gpu(0, "NVIDIA H100 PCIe", "2331:10de", 85 * GB, 80 * GB, (9, 0), "GPU-1", False)
    assert machine == Machine("cuda", None, (gpu,), "")


@pytest.mark.parametrize(
    ("wish", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("", []),
        ("-1", []),
        ("1,-1,2", [1]),  # the first word that means nothing ends the list
        ("0,9,1", [0]),
        ("1,1", [1]),
        ("NoDevFiles", []),
        ("GPU-00000002,GPU-00000000-0000", [2, 0]),
        ("GPU-0000000", []),  # the beginning of several
        ("²", []),
    ],
)
def test_what_cuda_visible_devices_leaves(wish: str | None, left: list[int]) -> None:
    four = cards(4, 80)
    environ = {} if wish is None else {"CUDA_VISIBLE_DEVICES": wish}
    assert seen(Library(four), **environ) == [four[position].uuid for position in left]


@pytest.mark.parametrize(
    ("wish", "left"),
    [
        (None, ["MIG-aaaa"]),  # CUDA shows one process a single slice
        ("0", ["MIG-aaaa"]),
        ("MIG-bbbb", ["MIG-bbbb"]),
        ("MIG-bbbb,MIG-aaaa", ["MIG-bbbb"]),
        ("MIG-cccc", []),
    ],
)
def test_slices_of_a_divided_gpu(wish: str | None, left: list[str]) -> None:
    environ = {} if wish is None else {"CUDA_VISIBLE_DEVICES": wish}
    assert seen(Library([DIVIDED]), **environ) == left


def test_a_slice_has_its_own_name_and_memory_and_its_gpus_identity() -> None:
    gpu = hardware.visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-bbbb"}, Library([DIVIDED]))[0][0]
    assert gpu == Gpu(0, "NVIDIA H100 MIG 2g.20gb", "2331:10de", 20 * GB, 20 * GB, (9, 0), "MIG-bbbb", True)


def test_whole_gpus_hide_slices_and_a_gpu_divided_into_nothing_is_none() -> None:
    whole = cards(1, 80)[0]
    assert seen(Library([DIVIDED, whole])) == [whole.uuid]
    assert seen(Library([DIVIDED._replace(slices=()), whole])) == [whole.uuid]
    assert seen(Library([DIVIDED._replace(slices=())])) == []


def test_memory_shared_with_the_processor() -> None:
    library = Library([Card("NVIDIA GB10", None, 0, 0x2E1210DE, (12, 1), "GPU-1")])
    gpu = hardware.visible_gpus({}, library)[0][0]
    pages = subprocess.run(["getconf", "_PHYS_PAGES"], capture_output=True, text=True, check=True)
    assert gpu.memory_total == pytest.approx(int(pages.stdout) * 4096, rel=0.01)
    assert 0 < gpu.memory_free <= gpu.memory_total


def test_a_driver_that_says_little_is_still_a_gpu() -> None:
    library = Library([Card("NVIDIA Next", 9 * GB, 9 * GB, capability=None)])
    assert hardware.visible_gpus({}, library)[0][0].capability is None


@pytest.mark.parametrize(
    ("driver", "unread"),
    [(True, "the NVIDIA driver does not answer: Driver/library version mismatch"), (False, "")],
)
def test_a_driver_that_does_not_answer(driver: bool, unread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "CONTROL", "/dev/null" if driver else "/nowhere")
    found = hardware.probe("cuda", (), {}, Library((), "Driver/library version mismatch"))
    assert found == Machine("cuda", None, (), unread)


def test_a_driver_without_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pynvml":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(hardware, "CONTROL", "/dev/null")
    machine = hardware.probe(None, (), {})
    assert machine.device == "cuda" and machine.gpus == ()
    assert machine.unread == "an NVIDIA driver is here, but the package nvidia-ml-py that reads it is not"


@pytest.mark.parametrize("device", ["cpu", None])
def test_a_cpu_machine_imports_nothing(device: str | None) -> None:
    code = (
        "import sys; from launcher import hardware; hardware.CONTROL = '/nowhere'; "
        f"print(hardware.probe({device!r}, (), {{}})); print(sorted({{'pynvml', 'ctypes'}} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [f"{Machine(device)}", "[]"]
