"""The second phase of a start: target and draft into the cache, in one download."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from launcher.cache.building import note
from launcher.fetch.describe import Described
from launcher.fetch.options import FetchOptions
from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.fetch.filling import Transfer
    from launcher.fetch.progress import Progress


def bring(
    wanted: Sequence[Described],
    labels: Sequence[str],
    options: FetchOptions,
    progress: Progress,
    transfer: Transfer | None = None,
) -> tuple[Described, ...]:
    """The same sources, each with a complete snapshot.  Where all are complete, nothing of it is loaded.

    ``labels`` name them in the progress ("target", "draft").  Raises DeniedError (cache not writable; a source that may
    be listed but not read), NoSpaceError before the first byte where that can be known, and whatever the transfer
    raises; ``progress.blamed`` is then the label of the source that it came from, where it came from one.  What has
    arrived is kept for the next start.
    """
    if not all(described.is_complete for described in wanted):
        from launcher.fetch.filling import fill

        wanted = fill(wanted, labels, options, progress, transfer)
    for described in wanted:
        with suppress(OSError):  # a read-only cache is complete as it is
            note(described.shelf, described.asked, described.revision)
    return tuple(wanted)
