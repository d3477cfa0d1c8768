"""Where a source lies in the cache (path maths: touches no file).

    <cache>/huggingface/hub/models--org--name/    a hub's standard layout: blobs, snapshots, refs, trees
    <cache>/<scheme>/<name>-<hash>/<revision>/    the files of all other sources, as they are
    <cache>/manifests/<scheme>/<name>-<hash>/     what each complete snapshot consists of
    <cache>/locks/                                one file a source

What a source calls its revisions and files becomes names here, so each is checked once more: IntegrityError is raised
for one that would lead out of its folder.

What is unfinished lies beside the snapshots, on the same file system, in folders whose names begin with a dot.
"""

from __future__ import annotations

from hashlib import sha256

from launcher.errors import IntegrityError
from launcher.fetch.names import is_component, is_safe
from launcher.sources import REMOTE_SCHEMES
from launcher.typing import NamedTuple

FORMAT = 1  # of manifests and of this layout; docs/decisions.md says when it is raised
HUB = "huggingface/hub"
OWN_FOLDERS = ("huggingface", "manifests", "locks", *REMOTE_SCHEMES)  # of a cache
NEWEST = "newest"  # how the record of a source without a revision is called

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_READABLE = 80  # characters of a name that are kept for people
_HASH = 32  # hexadecimal digits: two sources never share a folder by chance


class Shelf(NamedTuple):
    """One source's places in a cache.  ``source`` is its canonical text, without revision."""

    cache: str
    scheme: str
    source: str
    key: str  # "<scheme>/<name>-<hash>"
    folder: str  # absolute: of the repository or prefix

    @property
    def is_hub(self) -> bool:
        return self.scheme == "hf"

    @property
    def blobs(self) -> str:
        """Of a hub's repository: the files, by digest."""
        return f"{self.folder}/blobs"

    def blob(self, name: str) -> str:
        """Of a hub's repository: the file whose digest is ``name``."""
        return f"{self.blobs}/{_component(name)}"

    @property
    def parts(self) -> str:
        return f"{self.folder}/.parts"

    @property
    def manifests(self) -> str:
        return f"{self.cache}/manifests/{self.key}"

    @property
    def lock(self) -> str:
        """Held while the source is fetched."""
        return f"{self.cache}/locks/{self.key.replace('/', '-')}.lock"

    @property
    def used(self) -> str:
        """Held, shared, by whoever serves from a snapshot of the source."""
        return f"{self.cache}/locks/{self.key.replace('/', '-')}.used"

    def snapshot(self, revision: str, *, aside: bool = False) -> str:
        """The folder of a complete revision.  ``aside``: the proper one belongs to a newer format of the cache."""
        if self.is_hub:
            return f"{self.folder}/snapshots/{_component(revision)}"
        return f"{self.folder}/{_revision_name(revision, aside)}"

    def building(self, revision: str, *, aside: bool = False) -> str:
        """Where a revision is put together, as deep as the finished one: relative links hold in both."""
        return f"{self.folder}/.building/{_revision_name(revision, aside)}"

    def manifest(self, revision: str, *, aside: bool = False) -> str:
        return f"{self.manifests}/{_revision_name(revision, aside)}.json"

    def record(self, asked: str | None) -> str:
        """The file that says to which revision a mutable reference led last."""
        return f"{self.manifests}/{_component(_file_name(asked or NEWEST))}.current"

    def reference(self, asked: str | None) -> str:
        """The same for other tools that share a hub's repository."""
        name = asked or "main"
        if not is_safe(name):
            raise _leading_out(name)
        return f"{self.folder}/refs/{name}"

    def tree(self, revision: str) -> str:
        return f"{self.folder}/trees/{_component(revision)}.json"


def shelf(cache: str, scheme: str, name: str) -> Shelf:
    """Where ``scheme://name`` lies below ``cache`` (absolute)."""
    source = f"{scheme}://{name}"
    digest = sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    entry = f"{_readable(name)}-{digest}"
    folder = f"{cache}/{HUB}/{repository_folder(name)}" if scheme == "hf" else f"{cache}/{scheme}/{entry}"
    return Shelf(cache, scheme, source, f"{scheme}/{entry}", folder)


def in_hub(place: Shelf, hub: str) -> Shelf:
    """The same repository in another hub cache, which is only read."""
    return place._replace(folder=f"{hub}/{repository_folder(place.source.partition('://')[2])}")


def repository_folder(name: str) -> str:
    """How a hub cache calls the folder of ``org/name``."""
    return "--".join(("models", *name.split("/")))


def _revision_name(revision: str, aside: bool) -> str:
    name = _component(_file_name(revision))
    return f"{name}~{FORMAT}" if aside else name


def _component(name: str) -> str:
    if not is_component(name):
        raise _leading_out(name)
    return name


def _leading_out(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name[:200]!a} would lead out of its folder in the cache", "Check the source: nothing was written"
    )


def _file_name(text: str) -> str:
    """``text`` where it can be a file's name, else something readable and unique."""
    if text and len(text) <= _READABLE and text[0] not in ".-" and set(text) <= _PLAIN:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{_readable(text)}-{digest}"


def _readable(text: str) -> str:
    plain = "".join(character if character in _PLAIN else "-" for character in text)[:_READABLE]
    return plain.strip(".-") or "unnamed"
