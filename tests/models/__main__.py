"""``python -m tests.models OUTDIR [NAME…]``: write checkpoints, by default all, each into a folder of its name."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.models import NAMES, write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description="Write the embedded checkpoints.")
    parser.add_argument("folder", type=Path, help="where to; each checkpoint gets a folder of its name in it")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which; all of them when none is named: {', '.join(NAMES)}"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in NAMES]
    if unknown:
        parser.error(f"no checkpoint is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        print(write(name, arguments.folder / name))


if __name__ == "__main__":
    main()
