"""What the image costs: layers over its base, and the time from the start of a container to the exec of vLLM.

    python -m tests.bench.image [--pairs 15]      # needs the tools of `make image-tools`, and root

Each pair is one container of the base, whose stand-in for ``vllm`` starts at once, and one of the image, whose launcher
starts it; the difference is the launcher's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.image.conftest import BASE, IMAGE, build_base, build_context
from tests.image.podman import Podman, lacking
from tests.models import write


def seconds(podman: Podman, image: str, *words: str, options: list[str]) -> float:
    """From the call of podman to the stand-in's answer."""
    began = time.monotonic()
    ran = podman.run(image, *words, options=options)
    took = time.monotonic() - began
    assert ran.executed, ran.err
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15)
    pairs: int = parser.parse_args().pairs
    if why := lacking():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        podman = Podman(folder / "storage")
        podman.folder.mkdir()
        try:
            _measure(podman, folder, pairs)
        finally:
            podman.close()


def _measure(podman: Podman, folder: Path, pairs: int) -> None:
    build_base(podman, folder / "base", BASE)
    podman.build(build_context(folder / "context"), "docker/Dockerfile", IMAGE, BASE_IMAGE=BASE)
    folder.chmod(0o755)
    model = [f"--volume={write('mtp', folder / 'model')}:/model:ro"]
    bare, ours = [], []
    for _ in range(pairs):
        bare.append(seconds(podman, BASE, "/model", options=model))
        ours.append(seconds(podman, IMAGE, "/model", options=model))
    added = [one - other for one, other in zip(ours, bare, strict=True)]
    print(f"base {statistics.median(bare):.3f} s, image {statistics.median(ours):.3f} s (median of {pairs} pairs)")
    print(f"the launcher's share: {statistics.median(added) * 1000:.0f} ms, least {min(added) * 1000:.0f} ms")
    print(f"layers over the stand-in: {(podman.size(IMAGE) - podman.size(BASE)) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
