"""What another try may mend, how long to wait before it, and what an answer's status means (pure).

A `Hindrance` is a failure of one attempt.  It carries the error that it becomes when all attempts are used up.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from http.client import responses
from urllib.parse import urlsplit

from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds; doubled from try to try
PATIENCE = 60.0  # seconds without progress for which the network is tried again
LONGEST_ASKED = 120.0  # seconds of a server's Retry-After that are honoured; a longer wish ends the attempts

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524})
_CROWDED = frozenset({429, 503})
_CHANGED = frozenset({409, 412, 416})
_TRY_LATER = "Check the network and try again: what has arrived is kept"
_LISTED_AGAIN = "Start again, so that the source is listed anew"


class Hindrance(Exception):
    """One attempt failed and another may succeed.

    ``wait``: seconds that the server asked for, or None.  ``crowded``: it asks for fewer requests, not only later ones.
    """

    def __init__(self, error: LauncherError, *, wait: float | None = None, crowded: bool = False) -> None:
        super().__init__(error.what)
        self.error = error
        self.wait = wait
        self.crowded = crowded


class Refused(Hindrance):
    """401 or 403: the link or the credentials may have expired, and a new location may be let in."""


def wait_before(attempt: int, asked: float | None = None) -> float:
    """Seconds to wait after failed attempt number ``attempt`` (from 1).

    Random by half, so that many that failed together do not come back together; never less than the server asked for.
    """
    grown = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1))
    return (asked or 0.0) + grown * random.uniform(0.5, 1.0)


def is_hopeless(error: LauncherError, attempts: int, seconds: float, most: int) -> bool:
    """Whether to give up after ``attempts`` without progress, which began to fail ``seconds`` ago.

    A store may be down for a while, so its network is judged by time as well; wrong content is not going to mend.
    """
    return attempts > most and (seconds > PATIENCE or not isinstance(error, NetworkError))


def check_status(status: int, headers: Mapping[str, str], name: str, url: str) -> None:
    """Raise unless ``status`` is 200 or 206.

    ``headers`` have lower-case names; ``name`` is the file and ``url`` where it was asked for.  Raises
    Hindrance for what may pass, and otherwise NotFoundError, IntegrityError or NetworkError.
    """
    if status in (200, 206):
        return
    what = f"{shown(url)} answered {status} {responses.get(status, '')}".rstrip() + f" for {name}"
    if status in (401, 403):
        raise Refused(DeniedError(what, "Check the credentials for this source, and its licence or access terms"))
    if status in _TRANSIENT:
        asked = retry_after(headers)
        error = NetworkError(what, _TRY_LATER)
        if asked is not None and asked > LONGEST_ASKED:
            raise NetworkError(f"{what} and asks to wait {asked:.0f} s", "Try again later: what has arrived is kept")
        raise Hindrance(error, wait=asked, crowded=status in _CROWDED)
    if status in (404, 410):
        raise NotFoundError(what, f"It was listed a moment ago: was it removed? {_LISTED_AGAIN}")
    if status in _CHANGED:
        raise changed(name, f"the server answered {status} {responses.get(status, '')}")
    raise NetworkError(what, "Check the address of the source and what answers there")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from a Retry-After header, which holds a number or a date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdecimal():
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def changed(name: str, how: str) -> IntegrityError:
    """The object is no longer the one that was listed."""
    return IntegrityError(f"{name} changed while it was fetched: {how}", _LISTED_AGAIN)


def broken_off(name: str, url: str, reason: str) -> Hindrance:
    """The connection could not be made, or failed."""
    return Hindrance(NetworkError(f"{name} could not be fetched from {shown(url)}: {reason}", _TRY_LATER))


def wrong_size(name: str, url: str, how: str) -> Hindrance:
    """The answer is too short or too long; an error page of a proxy may pass, a damaged object will not."""
    error = IntegrityError(f"{name} from {shown(url)} has the wrong size: {how}", "Check the object at its source")
    return Hindrance(error)


def shown(url: str) -> str:
    """``url`` without query and password: both can be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
