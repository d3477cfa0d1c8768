"""The values between a remote source and the transfer engine, and the port that every scheme implements."""

from __future__ import annotations

import math
from contextvars import ContextVar

from launcher.typing import NamedTuple, Protocol

# When the answers to this thread's questions come too late, on time.monotonic(): whoever asks again after a failure
# gives up before that, so that its reason is heard.
TOO_LATE: ContextVar[float] = ContextVar("too_late", default=math.inf)


class Digest(NamedTuple):
    """What a source says about a file's content.  ``value`` is lower-case hex.

    ``algorithm`` is one of "sha256", "sha1" (a git blob id: over ``blob <size>\\0`` and the content), "md5", "crc32c",
    "crc64nvme", "crc32".
    """

    algorithm: str
    value: str


class RemoteFile(NamedTuple):
    """One file of a repository or prefix at one revision.

    ``identity`` changes when the content does (ETag, generation, blob id): parts of a download are bound to it.
    """

    path: str  # relative, with "/", already checked to be a safe file name
    size: int  # bytes
    identity: str
    digest: Digest | None
    xet: str = ""  # set where only the Hugging Face hub's Xet storage serves the file: see launcher/fetch/xet.py


class Location(NamedTuple):
    """Where to GET a file's bytes.  ``headers`` may carry credentials: they never follow a redirect to another host."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()


class Listing(NamedTuple):
    """A source at one revision.

    ``revision`` is a commit, a version, or for s3 and gs a digest of the listing itself.  ``pinned`` says that the user
    named it: such a listing never changes.
    """

    source: str  # canonical text of the source, without revision: "hf://org/model", "s3://bucket/prefix"
    revision: str
    pinned: bool
    files: tuple[RemoteFile, ...]  # sorted by path


class Remote(Protocol):
    """A source that must be fetched.  Both methods raise LauncherErrors with the documented exit codes."""

    def listing(self) -> Listing:
        """List everything, to the last page."""

    def locate(self, file: RemoteFile) -> Location:
        """Where the bytes are; asked again when a link was refused as expired (401, 403)."""
