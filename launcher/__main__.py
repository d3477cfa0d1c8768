"""The entry points.

Garbage collection is switched off before anything else is imported: nothing that a start allocates becomes garbage
before the exec, and looking for some would cost a tenth of a floor (docs/performance.md).
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """The umbrella command, and the image's entrypoint."""
    return _dispatch()


def serve() -> int:
    return _dispatch("serve")


def list_model_profiles() -> int:
    return _dispatch("list-model-profiles")


def download_to_cache() -> int:
    return _dispatch("download-to-cache")


def create_model_store() -> int:
    return _dispatch("create-model-store")


def _dispatch(*action: str) -> int:
    gc.disable()
    try:
        _open_missing_descriptors()
        from launcher import signals
    except KeyboardInterrupt:
        return 130
    signals.install()
    try:
        from launcher.dispatch import run

        return run((*action, *sys.argv[1:]))
    except signals.Stopped as stopped:  # while the rest was being imported
        return stopped.exit_code


def _open_missing_descriptors() -> None:
    """Where 0, 1 or 2 is closed, the next file that is opened would take its place, and vLLM would write into it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
