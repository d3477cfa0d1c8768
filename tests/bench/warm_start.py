"""How long the launcher takes before vLLM is executed, as a multiple of an empty interpreter in the same run.

Each figure is the median of alternated pairs: one run of ``python -c pass``, one of the launcher, in turn, so that the
noise of a busy machine falls on both; what 1,800 files more cost is measured so too, against the start with 200.  The
``vllm`` that gets executed is /bin/true.

    python -m tests.bench.warm_start [--pairs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.integration.standin import REPOSITORY, Installation, install

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
SCRIPT = "#!{python}\nimport sys\nfrom launcher.__main__ import main\nsys.exit(main())\n"


class Figure(NamedTuple):
    """One scenario: medians in milliseconds, and the ratio of the medians."""

    name: str
    floor: float
    launch: float

    @property
    def ratio(self) -> float:
        return self.launch / self.floor


def shard(names: list[str]) -> bytes:
    """A safetensors file of one-element tensors."""
    header = {name: {"dtype": "BF16", "shape": [1], "data_offsets": [2 * i, 2 * i + 2]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(2 * len(names))


def checkpoint(folder: Path, shards: int, tensors_each: int) -> Path:
    """A model folder of ``shards`` safetensors files with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    index: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        names = [f"model.layers.{number % 4}.mlp.experts.{number}.{i}.weight" for i in range(tensors_each)]
        (folder / name).write_bytes(shard(names))
        index |= dict.fromkeys(names, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


class Command(NamedTuple):
    words: list[str]
    environment: dict[str, str]


def timed(command: Command) -> float:
    """Wall time of one process in milliseconds."""
    start = time.perf_counter()
    subprocess.run(
        command.words, env=command.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return (time.perf_counter() - start) * 1e3


def pairs(name: str, floor: Command, launch: Command, count: int) -> Figure:
    """Alternate both commands; the first pair warms caches (and the launcher's memory) and is not counted."""
    floors, launches = [], []
    for number in range(count + 1):
        measured = timed(floor), timed(launch)
        if number:
            floors.append(measured[0])
            launches.append(measured[1])
    return Figure(name, statistics.median(floors), statistics.median(launches))


def compiled() -> bool:
    return any((REPOSITORY / "launcher" / "__pycache__").glob("plan.*.pyc"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=31)
    count: int = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as scratch:
        report(Path(scratch), count)


def report(scratch: Path, count: int) -> None:
    installation = install(scratch / "venv")
    true = installation.folder / "bin" / "vllm"
    true.unlink()
    true.symlink_to("/bin/true")
    script = installation.folder / "bin" / "launcher"
    script.write_text(SCRIPT.format(python=installation.python))
    script.chmod(0o755)
    folders = {
        "200 files": checkpoint(scratch / "200", 198, 1),
        "2,000 files": checkpoint(scratch / "2000", 1998, 1),
        "60-tensor index": checkpoint(scratch / "60", 6, 10),
        "92,000-tensor index": checkpoint(scratch / "92000", 6, 15334),
    }
    figures = {name: _warm(installation, script, folder, name, count) for name, folder in folders.items()}
    refused = _measure(
        installation, script, [str(folders["200 files"]), "--speculative-config", '{"method": "mtp"}'], "refusal", count
    )
    print(f"own code compiled: {'yes' if compiled() else 'NO'}; {count} pairs; Python {sys.version.split()[0]}")
    for figure in (*figures.values(), refused):
        print(f"{figure.name:<22} {figure.launch:7.1f} ms  {figure.ratio:5.2f} x of {figure.floor:.1f} ms")
    few, many = (_command(installation, script, [str(folders[name])], name) for name in ("200 files", "2,000 files"))
    grown = pairs("1,800 files more", few, many, count)
    growth = (grown.launch - grown.floor) / 18
    index = figures["92,000-tensor index"].ratio - figures["60-tensor index"].ratio
    print(f"per 100 files          {growth:7.2f} ms       (bound 0.5)")
    print(f"92,000-tensor index    {index:+7.2f} x        (bound +0.5, second start)")
    print(f"200 files              {figures['200 files'].ratio:7.2f} x        (bound 4, stretch 3)")
    print(f"refusal                {refused.ratio:7.2f} x        (bound 10)")


def _warm(installation: Installation, script: Path, folder: Path, name: str, count: int) -> Figure:
    return _measure(installation, script, [str(folder)], name, count)


def _measure(installation: Installation, script: Path, words: list[str], name: str, count: int) -> Figure:
    launch = _command(installation, script, words, name)
    return pairs(name, launch._replace(words=[str(installation.python), "-c", "pass"]), launch, count)


def _command(installation: Installation, script: Path, words: list[str], name: str) -> Command:
    environment = installation.environment({"NIM_SPECDEC_ENABLE": "1"})
    del environment["PYTHONDONTWRITEBYTECODE"]
    environment["NIM_WORKSPACE"] = str(installation.folder / f"workspace-{name.split()[0]}")
    return Command([str(script), "serve", *words], environment)


if __name__ == "__main__":
    main()
