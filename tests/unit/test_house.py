"""The rules of the house that a machine can hold: imports point downwards, and the serve path stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "launcher"

# From the roof to the ground.  A module may import from its own floor's packages and from any floor below.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("dispatch", "cli"),
    ("commands",),
    ("bench",),
    ("report",),
    (
        "process",
        "health",
        "workspace",
        "places",
        "shared_memory",
        "fetch",
        "cache",
        "hardware",
        "gather",
        "facts",
        "surface",
    ),
    ("plan",),
    ("arguments", "speculation", "served_name", "adapters", "tls", "engine_config", "memory", "nodes", "nim_manifest"),
    ("profiles", "checkpoint", "tensors", "vllm", "machine", "kv_cache", "layout"),
    ("engine_log",),
    ("settings", "sources"),
    ("signals",),
    ("errors", "logs"),
    ("middleware",),  # runs in vLLM's process, and imports none of what the launcher needs before that
    ("offered",),  # the text of a manifest, which both the launcher and vLLM's process write
    ("typing",),
    ("",),  # the package itself: its version
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """``launcher.settings.parse`` is in the room ``settings``."""
    return module.split(".")[1] if "." in module else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name == "launcher" or name.startswith("launcher.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path))
def test_imports_point_downwards(path: Path) -> None:
    here = room(module_name(path))
    rooms = {room(name) for name in imports(path)} & set(FLOOR_OF)
    upwards = {other for other in rooms if other != here and FLOOR_OF[other] <= FLOOR_OF[here]}
    # On one floor, effects may use each other's leaves; a circle would show as an import error.
    same = {other for other in upwards if FLOOR_OF[other] == FLOOR_OF[here]}
    assert upwards - same == set(), f"{here} imports from above: {sorted(upwards)}"


def test_every_room_has_a_floor() -> None:
    assert {room(module_name(path)) for path in MODULES} - set(FLOOR_OF) == set()


def test_settings_and_checkpoint_open_nothing() -> None:
    for name in ("checkpoint", "plan", "layout", "sources"):
        assert not {"os", "pathlib"} & {
            alias.name
            for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }


def test_the_package_itself_imports_nothing() -> None:
    """vLLM's own process imports it for the middleware."""
    code = "import sys; before = set(sys.modules); import launcher; print(sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['launcher']"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path))
def test_annotations_cost_nothing(path: Path) -> None:
    """They are never evaluated, and what they need of `typing` comes from its stand-in (docs/performance.md)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    froms = {
        node.module: {alias.name for alias in node.names} for node in tree.body if isinstance(node, ast.ImportFrom)
    }
    functions = any(isinstance(node, ast.FunctionDef | ast.AnnAssign) for node in ast.walk(tree))
    assert "annotations" in froms.get("__future__", set()) or not functions
    if module_name(path) == "launcher.profiles.schema":  # its annotations are evaluated: they are the schema
        return
    assert "typing" not in froms
