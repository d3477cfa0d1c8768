"""Make launcher/vllm/dynamo.json: which arguments the vLLM worker of ai-dynamo takes.

    python tools/make_dynamo_table.py [--wheels FOLDER]    wheels that are not there are fetched with pip (some 135 MB)

The worker's own options are read from the source of its package: importing it wants a GPU's worth of dependencies.  All
else it hands to the parser of vLLM's engine arguments, which lacks the options of vLLM's HTTP server; which those are
is asked of the vLLM that the package pins (see make_tables.py for the environment that this needs).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from launcher.vllm import tables  # noqa: E402  # found whatever the working directory
from tools.make_tables import DATA, download, find_wheel, render, sha256, unpack  # noqa: E402

VERSION = "1.6.1"
WHEEL = f"ai_dynamo-{VERSION}-py3-none-any.whl"
TARGET = DATA.parent / "dynamo.json"
# Where the options of `python -m dynamo.vllm` are defined, and whether they are the worker's own or its router's.
_GROUPS = "dynamo/common/configuration/groups"
SOURCES = {
    "own": ("dynamo/vllm/backend_args.py", f"{_GROUPS}/runtime_args.py", f"{_GROUPS}/frontend_decoding_args.py"),
    "router": (f"{_GROUPS}/router_args.py", f"{_GROUPS}/kv_router_args.py"),
}
ADDERS = ("add_argument", "add_negatable_bool_argument")

ENGINE_OPTIONS = """
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser(add_help=False)
AsyncEngineArgs.add_cli_args(parser, async_args_only=False)
json.dump(sorted(parser._option_string_actions), open(sys.argv[1], "w"))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", metavar="FOLDER", help="where the wheels are, or are fetched to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dynamo-table-") as scratch:
        folder = Path(options.wheels or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        document = make(fetch(folder), folder, Path(scratch))
    TARGET.write_text(render(document), encoding="utf-8")
    print(f"{TARGET.name}: {len(document['own'])} options of its own, {len(document['not_taken'])} of vLLM's not taken")


def fetch(folder: Path) -> Path:
    """The wheel, which is small: fetched if it is not there."""
    wheel = folder / WHEEL
    if not wheel.exists():
        wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"ai-dynamo=={VERSION}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
    return wheel


def make(wheel: Path, folder: Path, scratch: Path) -> dict[str, Any]:
    pinned = pinned_vllm(wheel)
    engine = find_wheel(folder, pinned) or download(folder, pinned)
    if engine is None:
        raise SystemExit(f"no wheel of vLLM {pinned}")
    taken = engine_options(engine, scratch)
    table = tables.load(pinned)
    flags = {flag.name for flag in map(table.flag, table.flag_spellings()) if flag is not None}
    own = {kind: sorted(options_of(wheel, names)) for kind, names in SOURCES.items()}
    return {
        "version": VERSION,
        "wheel": wheel.name,
        "sha256": sha256(wheel),
        "vllm": pinned,
        **own,
        "not_taken": sorted(flags.difference(taken, own["own"])),
    }


def pinned_vllm(wheel: Path) -> str:
    """The version of vLLM that the package's extra asks for."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"ai_dynamo-{VERSION}.dist-info/METADATA").decode()
    line = next(line for line in metadata.splitlines() if line.startswith("Requires-Dist: vllm"))
    return line.partition("==")[2].partition(";")[0].strip()


def options_of(wheel: Path, names: tuple[str, ...]) -> set[str]:
    """Every option string that the source files of these names define, negating ones included."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            for call in calls(ast.parse(archive.read(name))):
                found |= set(spellings(call))
    return found


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of the functions that define an option."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ADDERS:
                yield node


def spellings(call: ast.Call) -> Iterator[str]:
    named = [word.value for word in call.keywords if word.arg in ("flag_name", "obsolete_flag")]
    texts = [node.value for node in (*call.args, *named) if isinstance(node, ast.Constant)]
    names = [text for text in texts if isinstance(text, str) and text.startswith("--")]
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    two_way = called == "add_negatable_bool_argument" or "BooleanOptionalAction" in ast.dump(call)
    yield from names
    if two_way:
        yield from (f"--no-{name[2:]}" for name in names)


def engine_options(wheel: Path, scratch: Path) -> set[str]:
    """The option strings of vLLM's engine arguments, asked of the unpacked package in a process of its own."""
    root, answer = scratch / "engine", scratch / "options.json"
    unpack(wheel, root)
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"}
    subprocess.run([sys.executable, "-c", ENGINE_OPTIONS, str(answer)], env=environment, check=True, cwd=scratch)
    return set(json.loads(answer.read_text()))


if __name__ == "__main__":
    main()
