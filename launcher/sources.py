"""Where a model comes from: the parsed source, and the port through which its files are listed and read."""

from __future__ import annotations

from launcher.errors import ConfigurationError, shortened
from launcher.typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

REMOTE_SCHEMES = ("ngc", "hf", "s3", "gs", "modelscope")
LOCAL_SCHEMES = ("local", "file")
_LONGEST = 4096  # what Linux takes for a path
_LONGEST_BUCKET = 255  # characters; old buckets of S3 have so many
_NOT_IN_REVISIONS = frozenset(" ~^:?*[\\")  # git's rule
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


class Patience:
    """How long this start has waited for the answers to brief questions, which share one limit."""

    def __init__(self) -> None:
        self.spent = 0.0  # seconds


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
        f"{origin}: unknown scheme {shown(scheme)} in {shown(text)}",
        _meant(scheme, rest) or f"Use an absolute path or one of {_schemes()}",
    )


def shown(text: str) -> str:
    """A source as a message shows it: quoted, without a password, and cut where it would drown the sentence."""
    scheme, separator, rest = text.partition("://")
    before, at, after = rest.rpartition("@")
    if separator and at and ":" in before:
        text = f"{scheme}://***@{after}"
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


def _meant(scheme: str, rest: str) -> str:
    """What a source of no known scheme was probably meant to be, or ""."""
    import difflib  # lazy: something is wrong

    host, _, path = rest.partition("/")
    if scheme in ("http", "https") and host == "huggingface.co":
        owner, _, name = path.partition("/")
        name, _, page = name.partition("/")
        revision = f":{page.removeprefix('tree/')}" if page.startswith("tree/") else ""
        return f"Write hf://{owner}/{name}{revision}" if _is_hub_name(f"{owner}/{name}{revision}") else ""
    near = difflib.get_close_matches(scheme.lower(), (*REMOTE_SCHEMES, *LOCAL_SCHEMES), 1)
    return f"Did you mean {shown(f'{near[0]}://{rest}')}?" if near else ""


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
    if not bucket:
        raise ConfigurationError(f"{origin}: {shown(text)} names no bucket", f"Write {scheme}://bucket/prefix")
    if len(bucket) > _LONGEST_BUCKET or not _bucket_characters(scheme, bucket).issuperset(bucket):
        todo = f"Write {scheme}://bucket/prefix; a bucket's name has letters, digits, '-', '_' and '.'"
        if "@" in rest:
            todo = f"{todo}, and credentials are given apart from it"
        raise ConfigurationError(f"{origin}: {shown(text)} has no possible name of a bucket", todo)
    if "\0" in prefix or any("\ud800" <= character <= "\udfff" for character in prefix):
        raise ConfigurationError(f"{origin}: {shown(text)} has a prefix that no object can have", "Write it in UTF-8")
    return ModelSource(scheme, f"{bucket}/{prefix.rstrip('/')}".rstrip("/"), None, text)


def _bucket_characters(scheme: str, bucket: str) -> frozenset[str]:
    """An access point of S3 can stand for a bucket, by its resource name."""
    return _NAME_CHARACTERS | {":"} if scheme == "s3" and bucket.startswith("arn:") else _NAME_CHARACTERS


def _repository(scheme: str, rest: str, text: str, origin: str) -> ModelSource:
    """A name, a revision, and after an NGC name the file that ``?file=`` selects, which stays with what precedes it."""
    rest, mark, query = rest.partition("?") if scheme == "ngc" else (rest, "", "")
    name, colon, revision = rest.partition(":")
    parts = name.strip("/").split("/")
    most = 3 if scheme == "ngc" else 2
    if not 2 <= len(parts) <= most or not all(_is_name(part) for part in parts):
        raise ConfigurationError(f"{origin}: {shown(text)} is not a repository name", _repository_form(scheme, parts))
    if colon and revision and not _is_revision(scheme, revision):
        raise ConfigurationError(
            f"{origin}: {shown(text)} names a revision that cannot exist",
            "Write the version as NGC lists it"
            if scheme == "ngc"
            else "Write a branch, a tag or a commit after the colon",
        )
    if mark and not (query.startswith("file=") and _is_path(query.removeprefix("file="))):
        raise ConfigurationError(
            f"{origin}: {shown(text)} asks for {query!r}", "Write ngc://org/team/model:version?file=NAME"
        )
    selected = mark + query
    return ModelSource(
        scheme,
        "/".join(parts) + ("" if revision else selected),
        f"{revision}{selected}" if revision else None,
        text,
    )


def _repository_form(scheme: str, parts: Sequence[str]) -> str:
    """What to write instead; ``@`` is how other tools set a revision apart."""
    name, at, revision = "/".join(parts).partition("@")
    if at and _is_hub_name(name) and _is_revision(scheme, revision):
        return f"Did you mean {scheme}://{name}:{revision}?"
    return f"Write {scheme}://{'org[/team]/model[:version]' if scheme == 'ngc' else 'org/model[:revision]'}"


def _is_name(part: str) -> bool:
    return bool(part.strip(".")) and _NAME_CHARACTERS.issuperset(part)


def _is_revision(scheme: str, revision: str) -> bool:
    """Whether it can be one: a word for NGC, and elsewhere what git takes for a reference.  It becomes a path, too."""
    if scheme == "ngc":
        return bool(revision.strip(".")) and (_NAME_CHARACTERS | {"+"}).issuperset(revision)
    return _is_path(revision) and not _NOT_IN_REVISIONS.intersection(revision)


def _is_path(text: str) -> bool:
    """Whether it leads to something below a folder, by printable names."""
    return text.isprintable() and all(part not in ("", ".", "..") for part in text.split("/"))
