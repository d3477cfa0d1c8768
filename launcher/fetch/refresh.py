"""Whether a source is asked what it holds, and what follows from its answer (pure)."""

from __future__ import annotations

from launcher.cache.snapshots import Damaged, Known
from launcher.errors import IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.remote import Listing
from launcher.typing import NamedTuple

NOT, BRIEFLY, PATIENTLY = "not", "briefly", "patiently"
BRIEF = 5.0  # seconds for a listing in all, where a complete snapshot is at hand


class Outcome(NamedTuple):
    """What to go on with: the recorded snapshot, or (None) the listing; and what to warn about."""

    known: Known | None
    warnings: tuple[str, ...] = ()


def asking(known: Known | Damaged | None, pinned: bool, refresh: str, offline: str, source: str) -> str:
    """How a source is asked: NOT, BRIEFLY or PATIENTLY.

    ``offline`` is the variable that forbids the network, or "".  Raises NotFoundError when it is needed, IntegrityError
    when it would be needed to repair what is there.
    """
    if isinstance(known, Known):
        if pinned or offline or refresh == "never":
            return NOT
        return PATIENTLY if refresh == "required" else BRIEFLY
    if not offline:
        return PATIENTLY
    if known is not None:
        raise IntegrityError(
            f"{source} is cached in {known.folder}, but {len(known.files)} of its files are missing or changed, such "
            f"as {known.files[0]}; {offline} forbids fetching them",
            f"Restore them, or unset {offline} once",
        )
    raise NotFoundError(
        f"{source} is not complete in the cache, and {offline} forbids fetching it",
        f"Fill the cache with download-to-cache where there is a network, or unset {offline}",
    )


def after(known: Known | Damaged | None, answer: Listing | LauncherError, refresh: str, source: str) -> Outcome:
    """What to go on with once the source was asked.

    Raises the error of the answer, unless a recorded snapshot may stand in for a network that failed.
    """
    if isinstance(answer, LauncherError):
        if not isinstance(known, Known) or not isinstance(answer, NetworkError) or refresh == "required":
            raise answer
        stale = (
            f"{source} could not be asked for changes ({answer.what}): serving revision {known.revision[:12]}, "
            f"which was complete on {known.date}"
        )
        return Outcome(known, (stale,))
    if isinstance(known, Known) and known.revision == answer.revision:
        return Outcome(known)
    if isinstance(known, Damaged):
        lost = f"{known.folder} has lost {len(known.files)} files, such as {known.files[0]}: they are fetched again"
        return Outcome(None, (lost,))
    return Outcome(None)
