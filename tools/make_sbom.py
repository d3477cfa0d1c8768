"""Write what the image adds to its base as a CycloneDX document, out of a folder of wheels.

    python tools/make_sbom.py docker/wheels dist/sbom.json

The wheels are installed into an environment of their own, which cyclonedx-bom reads.  The base's packages stay out.
Equal wheels give equal documents.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GENERATOR = ROOT / ".cache" / "image-tools" / "bin" / "cyclonedx-py"
DISTRIBUTION = "specdec-launcher"


def make(wheels: Path, goal: Path) -> None:
    goal.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "environment"
        venv.create(environment, with_pip=False, symlinks=True)
        python = environment / "bin" / "python"
        install = ["install", "--quiet", "--no-index", "--no-compile", f"--find-links={wheels}", DISTRIBUTION]
        subprocess.run([sys.executable, "-m", "pip", f"--python={python}", *install], check=True)
        words = ["environment", "--output-reproducible", f"--output-file={goal}", str(environment)]
        subprocess.run([str(GENERATOR), *words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a CycloneDX document of the image's own packages.")
    parser.add_argument("wheels", type=Path)
    parser.add_argument("goal", type=Path)
    asked = parser.parse_args()
    make(asked.wheels.resolve(), asked.goal.resolve())


if __name__ == "__main__":
    main()
