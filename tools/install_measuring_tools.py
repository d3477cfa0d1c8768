"""Install what the tests of ``report``, ``bench`` and the dashboard measure with: AIPerf and Prometheus.

They live below ``.cache``, made once and made anew when the versions here change:

    python tools/install_measuring_tools.py               # both
    python tools/install_measuring_tools.py prometheus    # one of them: aiperf or prometheus

AIPerf (1.2 GB, some minutes) gets a virtual environment of its own, because its requirements are none of the product's.
Prometheus is Debian's package, unpacked and not installed: no service, no root.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.install_storage_tools import CACHE, STAMP, install  # noqa: E402

AIPERF = CACHE / "aiperf"
AIPERF_REQUIREMENTS = ("aiperf==0.13.0",)  # other versions know other dataset types: docs/benchmarking.md
PROMETHEUS = CACHE / "prometheus"
PROMETHEUS_BINARIES = ("prometheus", "promtool")


def install_prometheus() -> bool:
    """Unpack Debian's package and keep its two programs.  False if they are there."""
    if (PROMETHEUS / STAMP).is_file():
        return False
    shutil.rmtree(PROMETHEUS, ignore_errors=True)
    PROMETHEUS.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=scratch, check=True)
        (package,) = Path(scratch).glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, f"{scratch}/unpacked"], check=True)
        for name in PROMETHEUS_BINARIES:
            shutil.copy2(Path(scratch, "unpacked", "usr", "bin", name), PROMETHEUS / name)
    (PROMETHEUS / STAMP).touch()
    return True


def main() -> None:
    tools: dict[str, tuple[Path, Callable[[], bool]]] = {
        "aiperf": (AIPERF, lambda: install(AIPERF, AIPERF_REQUIREMENTS)),
        "prometheus": (PROMETHEUS, install_prometheus),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("which", nargs="*", help=f"any of: {', '.join(tools)} (default: both)")
    for name in parser.parse_args().which or list(tools):
        if name not in tools:
            parser.error(f"{name!r} is none of: {', '.join(tools)}")
        folder, bring = tools[name]
        print(f"{name}: {'installed in' if bring() else 'ready in'} .cache/{folder.name}")


if __name__ == "__main__":
    main()
