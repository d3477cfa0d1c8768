"""Where a model comes from: the parsed source, and the port through which its files are listed and read."""

from __future__ import annotations

from launcher.errors import ConfigurationError, shortened
from launcher.typing import NamedTuple, Protocol

REMOTE_SCHEMES = ("ngc", "hf", "s3", "gs", "modelscope")
LOCAL_SCHEMES = ("local", "file")
_LONGEST = 4096  # what Linux takes for a path
_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


class ModelSource(NamedTuple):
    """A model reference as a user gives it, split but not resolved.

    ``name`` is an absolute path for a local source, ``bucket/prefix`` for s3 and gs (literal: no percent-decoding), and
    the repository for the others.  ``revision`` is what followed the last ``:`` of a hub or NGC name.
    """

    scheme: str  # "local" or one of REMOTE_SCHEMES
    name: str
    revision: str | None
    text: str  # as given

    @property
    def is_local(self) -> bool:
        return self.scheme == "local"


class Entry(NamedTuple):
    """One file of a source.  ``mtime_ns`` and ``inode`` are 0 where the source has none."""

    path: str  # relative, with "/"
    size: int  # bytes
    mtime_ns: int
    inode: int


class Source(Protocol):
    """What gathering needs of a source; the local folder, a cache entry and a remote store all provide it."""

    def listing(self) -> tuple[Entry, ...]:
        """Every file, sorted by path."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; shorter only at the end of the file."""


def is_source(word: str) -> bool:
    """Whether a command-line word is meant as a model (an absolute path or one of the schemes)."""
    scheme, separator, _ = word.partition("://")
    return word.startswith("/") or bool(separator and scheme in (*REMOTE_SCHEMES, *LOCAL_SCHEMES))


def parse_source(text: str, origin: str) -> ModelSource:
    """Split a model reference.  ``origin`` names the variable or argument for the error.

    Raises ConfigurationError for an unknown scheme, a relative path or a name that its scheme cannot have, and for what
    is too long to be either.
    """
    if len(text) > _LONGEST:
        raise ConfigurationError(
            f"{origin}: {shown(text)} has {len(text)} characters, more than any path or source",
            "Give an absolute path or a source, and not the content of a file",
        )
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.startswith("/"):
            raise ConfigurationError(
                f"{origin}: {shown(text)} is neither an absolute path nor a source",
                _instead(text),
            )
        return ModelSource("local", _folder(text), None, text)
    if scheme in LOCAL_SCHEMES:
        if not rest.startswith("/"):
            raise ConfigurationError(
                f"{origin}: {shown(text)} holds a relative path", f"Write {scheme}:///absolute/path"
            )
        return ModelSource("local", _folder(rest), None, text)
    if scheme in ("s3", "gs"):
        return _object_store(scheme, rest, text, origin)
    if scheme in REMOTE_SCHEMES:
        return _repository(scheme, rest, text, origin)
    raise ConfigurationError(
        f"{origin}: unknown scheme {shown(scheme)} in {shown(text)}", f"Use an absolute path or one of {_schemes()}"
    )


def shown(text: str) -> str:
    """A source as a message shows it: quoted, and cut where it would drown the sentence."""
    return repr(shortened(text))


def _instead(text: str) -> str:
    """What to write in place of something that is no source."""
    from launcher.settings.scalars import nothing  # lazy: something is wrong

    known = nothing(text.lower())
    if known:
        return known
    if text.startswith("~"):
        return "Write the home folder out: nothing expands ~ here"
    hub = f" (for the Hugging Face repository: hf://{text})" if _is_hub_name(text) else ""
    return f"Give an absolute path or one of {_schemes()}{hub}"


def _is_hub_name(text: str) -> bool:
    """``org/name``, with ``:revision`` or without."""
    owner, _, name = text.partition(":")[0].partition("/")
    return all(part and part[0] not in ".-" and _NAME_CHARACTERS.issuperset(part) for part in (owner, name))


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in (*REMOTE_SCHEMES, *LOCAL_SCHEMES))


def _folder(path: str) -> str:
    return path.rstrip("/") or "/"


def _object_store(scheme: str, rest: str, text: str, origin: str) -> ModelSource:
    bucket, _, prefix = rest.partition("/")
    if not bucket or "\0" in rest:
        raise ConfigurationError(f"{origin}: {shown(text)} names no bucket", f"Write {scheme}://bucket/prefix")
    return ModelSource(scheme, f"{bucket}/{prefix.rstrip('/')}".rstrip("/"), None, text)


def _repository(scheme: str, rest: str, text: str, origin: str) -> ModelSource:
    name, _, revision = rest.partition(":")
    parts = name.strip("/").split("/")
    most = 3 if scheme == "ngc" else 2
    if not 2 <= len(parts) <= most or not all(parts) or any(part in (".", "..") for part in parts):
        form = "org[/team]/model[:version]" if scheme == "ngc" else "org/model[:revision]"
        raise ConfigurationError(f"{origin}: {shown(text)} is not a repository name", f"Write {scheme}://{form}")
    return ModelSource(scheme, "/".join(parts), revision or None, text)
