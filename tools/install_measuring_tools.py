"""Install what the tests of ``report``, ``bench`` and the dashboard measure with: AIPerf, Prometheus and cairo.

The first two live below ``.cache``, made once and made anew when the versions here change:

    python tools/install_measuring_tools.py               # all
    python tools/install_measuring_tools.py prometheus    # one of them: aiperf, cairo or prometheus

AIPerf (1.2 GB, some minutes) gets a virtual environment of its own, because its requirements are none of the product's.
Prometheus is Debian's package, unpacked and not installed: no service, no root.  The library cairo, which draws a PNG,
is Debian's package too; it is installed where it is absent, apt-get is there and this is root.
"""

from __future__ import annotations

import argparse
import ctypes
import os
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
CAIRO, CAIRO_PACKAGE = "libcairo.so.2", "libcairo2"


def apt_get(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", *words], env=environment, stdout=subprocess.DEVNULL, check=True)


def install_prometheus() -> bool:
    """Unpack Debian's package and keep its two programs.  False if they are there."""
    if (PROMETHEUS / STAMP).is_file():
        return False
    shutil.rmtree(PROMETHEUS, ignore_errors=True)
    PROMETHEUS.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        download = ["apt-get", "download", "-q", "prometheus"]
        if subprocess.run(download, cwd=scratch).returncode:
            apt_get("update")  # a fresh image of Debian has no lists of packages
            subprocess.run(download, cwd=scratch, check=True)
        (package,) = Path(scratch).glob("prometheus_*.deb")
        subprocess.run(["dpkg", "-x", package, f"{scratch}/unpacked"], check=True)
        for name in PROMETHEUS_BINARIES:
            shutil.copy2(Path(scratch, "unpacked", "usr", "bin", name), PROMETHEUS / name)
    (PROMETHEUS / STAMP).touch()
    return True


def has_cairo() -> bool:
    try:
        ctypes.CDLL(CAIRO)
    except OSError:
        return False
    return True


def install_cairo() -> str:
    """Bring the library.  Without root or apt-get it stays away, and the tests that need it say so."""
    if has_cairo():
        return "ready"
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return f"not to be had without root and apt-get: install {CAIRO_PACKAGE} to draw PNGs"
    try:
        apt_get("update")
        apt_get("install", "-y", "--no-install-recommends", CAIRO_PACKAGE)
    except subprocess.CalledProcessError as error:
        return f"not to be had: apt-get ended with {error.returncode}"
    return "installed" if has_cairo() else f"{CAIRO_PACKAGE} is installed, and {CAIRO} is still not found"


def below_cache(folder: Path, bring: Callable[[], bool]) -> str:
    return f"{'installed in' if bring() else 'ready in'} .cache/{folder.name}"


def main() -> None:
    tools: dict[str, Callable[[], str]] = {
        "aiperf": lambda: below_cache(AIPERF, lambda: install(AIPERF, AIPERF_REQUIREMENTS)),
        "prometheus": lambda: below_cache(PROMETHEUS, install_prometheus),
        "cairo": install_cairo,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("which", nargs="*", help=f"any of: {', '.join(tools)} (default: all)")
    for name in parser.parse_args().which or list(tools):
        if name not in tools:
            parser.error(f"{name!r} is none of: {', '.join(tools)}")
        print(f"{name}: {tools[name]()}")


if __name__ == "__main__":
    main()
