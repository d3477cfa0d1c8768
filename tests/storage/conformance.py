"""What every remote scheme must do, whatever server is behind it.

A scheme joins by a class in its own test file:

    class TestConformance(Conformance):          # or PrefixConformance, for stores of keys below a prefix
        @pytest.fixture
        def store(self, ...) -> Store: ...

and, where its server lets such names in, by another for `UnsafeNames`.

``store`` is fresh for each test: what one test puts there, no other sees.
"""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

import pytest

from launcher.errors import ConfigurationError, IntegrityError, LauncherError, NotFoundError
from launcher.fetch.remote import Location, Remote
from launcher.sources import ModelSource

FILES = {  # of a small model
    "config.json": b"{}",
    "empty.txt": b"",
    "eagle3_draft/config.json": b'{"draft": true}',
    "model.safetensors": bytes(range(256)) * 64,
}
ODD_NAMES = (
    "a b", "a+b", "a%20b", "100%", "hash#1.json", "what?x=1&y=2", "star*", "[0-9]", "it's \"quoted\"", "semi;colon:",
    "~tilde", "<angle>", "{brace}", "comma,equals=", "at@sign", "$dollar!", "schön-模型-🤖.bin", "sub folder/é ü.txt",
    "..hidden", "dots...", "-dash",
)  # fmt: skip
# Each climbs out of the folder, or means another one on some system.
UNSAFE_NAMES = ("../escape", "sub/../../escape", "/absolute", "sub//double", "./here", "..\\escape")
MANY = 2500


class Store(Protocol):
    """A server of one scheme, and the way to put repositories there."""

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        """Make (or add to) the repository ``name``, which is of the form "group/model"."""

    def source(self, name: str) -> ModelSource:
        """The source of a repository, there or not."""

    def open(self, source: ModelSource) -> Remote:
        """A new `Remote`, with credentials that may read everything."""


class Got(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


def fetch(location: Location, span: str = "") -> Got:
    """GET a location as the transfer engine would; ``span`` is a Range such as "bytes=0-9".

    Redirects are followed, without the headers once the host changes.
    """
    url, headers = location.url, dict(location.headers)
    for _ in range(5):
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        ranged = {"Range": span} if span else {}
        connection.request("GET", parts._replace(scheme="", netloc="").geturl(), headers={**headers, **ranged})
        answer = connection.getresponse()
        got = Got(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        if got.status not in (301, 302, 303, 307, 308):
            return got
        target = urljoin(url, got.headers["location"])
        headers = headers if urlsplit(target).netloc == parts.netloc else {}
        url = target
    raise AssertionError(f"too many redirects from {location.url}")


def contents(remote: Remote) -> dict[str, bytes]:
    """Every file of a remote, by path."""
    found = {}
    for file in remote.listing().files:
        got = fetch(remote.locate(file))
        assert got.status == 200, f"{file.path}: {got.status} {got.body[:200]!r}"
        found[file.path] = got.body
    return found


def refused(open_remote: Callable[[], Remote]) -> LauncherError:
    """How opening or listing a source ends that cannot be had."""
    with pytest.raises(LauncherError) as raised:
        open_remote().listing()
    return raised.value


def content_digest(algorithm: str, data: bytes) -> str:
    """The digest that `launcher.fetch.remote.Digest` means, computed independently of the product."""
    if algorithm in ("crc32", "crc32c", "crc64nvme"):
        return _crc(algorithm, data)
    if algorithm == "sha1":
        data = b"blob %d\0" % len(data) + data
    return hashlib.new(algorithm, data).hexdigest()


def _crc(algorithm: str, data: bytes) -> str:
    """Bit by bit: slow, and plainly right."""
    width, polynomial = {
        "crc32": (32, 0xEDB88320),
        "crc32c": (32, 0x82F63B78),
        "crc64nvme": (64, 0x9A6C9329AC4BC9B5),
    }[algorithm]
    ones = (1 << width) - 1
    value = ones
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
    return f"{value ^ ones:0{width // 4}x}"


class Conformance:
    """The rules of every scheme."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        raise NotImplementedError

    def test_folders_are_kept(self, store: Store) -> None:
        files = {
            "config.json": b"{}",
            "eagle3_draft/config.json": b'{"draft": true}',
            "a/b/c/d/deep.txt": b"deep",
            "merges.txt": b"",
        }
        assert contents(store.open(store.put("m/model", files))) == files

    def test_sizes_and_digests_are_those_of_the_content(self, store: Store) -> None:
        files = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 40, "empty.txt": b""}
        listing = store.open(store.put("m/model", files)).listing()
        assert {file.path: file.size for file in listing.files} == {name: len(data) for name, data in files.items()}
        for file in listing.files:
            assert file.digest, file.path
            assert file.digest.value == content_digest(file.digest.algorithm, files[file.path]), file.path

    def test_a_listing_goes_to_the_last_page(self, store: Store) -> None:
        files = {f"part/{number:05}.bin": str(number).encode() for number in range(MANY)}
        remote = store.open(store.put("m/model", files))
        listing = remote.listing()
        assert [file.path for file in listing.files] == sorted(files)
        last = listing.files[-1]
        assert fetch(remote.locate(last)).body == files[last.path]

    def test_odd_names_are_literal(self, store: Store) -> None:
        files = {name: name.encode() for name in ODD_NAMES}
        assert contents(store.open(store.put("m/model", files))) == files

    def test_ranges(self, store: Store) -> None:
        data = hashlib.shake_256(b"seed").digest(300_000)
        remote = store.open(store.put("m/model", {"model.safetensors": data}))
        location = remote.locate(remote.listing().files[0])
        for span, first, end in (
            ("bytes=0-0", 0, 1),
            ("bytes=1000-199999", 1000, 200_000),
            ("bytes=299990-", 299_990, 300_000),
        ):
            got = fetch(location, span)
            assert (got.status, got.body) == (206, data[first:end]), span
            assert got.headers["content-range"] == f"bytes {first}-{end - 1}/300000"

    def test_an_unchanged_repository_has_the_same_listing(self, store: Store) -> None:
        source = store.put("m/model", {"config.json": b"{}", "a/b": b"c"})
        assert store.open(source).listing() == store.open(source).listing()

    def test_changed_content_changes_identity_and_revision(self, store: Store) -> None:
        source = store.put("m/model", {"config.json": b'{"a": 1}', "other": b"same"})
        before = store.open(source).listing()
        after = store.open(store.put("m/model", {"config.json": b'{"a": 2}'})).listing()
        assert before.revision != after.revision
        old, new = ({file.path: file for file in listing.files} for listing in (before, after))
        assert old["config.json"].size == new["config.json"].size
        assert old["config.json"].identity != new["config.json"].identity
        assert old["other"] == new["other"]

    def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        store.put("m/model", {"config.json": b"{}"})
        with pytest.raises(NotFoundError):
            store.open(store.source("m/other")).listing()


class PrefixConformance(Conformance):
    """The rules of object stores, where a model is what lies below a prefix."""

    def test_the_neighbour_whose_name_begins_the_same_is_left_out(self, store: Store) -> None:
        store.put("m/model-v2", {"config.json": b"2", "only-in-v2": b""})
        source = store.put("m/model", {"config.json": b"1"})
        assert contents(store.open(source)) == {"config.json": b"1"}

    def test_three_keys_that_a_url_parser_would_confuse(self, store: Store) -> None:
        for name in ("m/a%20b", "m/a b", "m/a+b"):
            store.put(name, {"which": name.encode()})
        for name in ("m/a%20b", "m/a b", "m/a+b"):
            assert contents(store.open(store.source(name))) == {"which": name.encode()}

    @pytest.mark.parametrize("name", ["m/my model#1", "m/a?b", "m/x*", "m/[ab]", "m/schön"])
    def test_a_prefix_is_literal(self, store: Store, name: str) -> None:
        for decoy in ("m/my model", "m/a", "m/xy", "m/a", "m/b"):
            store.put(decoy, {"decoy": b""})
        assert contents(store.open(store.put(name, {"which": b"right"}))) == {"which": b"right"}

    def test_folder_markers_are_no_files(self, store: Store) -> None:
        files = {"": b"", "sub/": b"", "sub/x.json": b"x", "empty/": b"", "config.json": b"{}"}
        assert contents(store.open(store.put("m/model", files))) == {"sub/x.json": b"x", "config.json": b"{}"}

    def test_markers_alone_are_no_model(self, store: Store) -> None:
        source = store.put("m/model", {"": b"", "sub/": b""})
        with pytest.raises(NotFoundError):
            store.open(source).listing()

    def test_one_object_is_not_a_folder(self, store: Store) -> None:
        store.put("m", {"x.safetensors": b"weights", "x.safetensors.index.json": b"{}"})
        source = store.source("m/x.safetensors")
        with pytest.raises(ConfigurationError) as refusal:
            store.open(source).listing()
        assert "one object" in refusal.value.what
        folder = f"{source.scheme}://{source.name}".rpartition("/")[0]
        assert refusal.value.todo == f"Give its folder: {folder}"

    def test_the_refusal_of_an_empty_prefix_shows_what_is_near(self, store: Store) -> None:
        for name in ("m/llama-3", "m/llama-3-draft", "m/qwen"):
            store.put(name, {"config.json": b"{}"})
        with pytest.raises(NotFoundError) as refusal:
            store.open(store.source("m/llama3")).listing()
        assert "llama-3" in refusal.value.what and "qwen" not in refusal.value.what


class UnsafeNames:
    """The rules about names that no file can have; for servers that let them in."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        raise NotImplementedError

    @pytest.mark.parametrize("name", UNSAFE_NAMES)
    def test_a_name_that_leaves_the_folder_is_refused(self, store: Store, name: str) -> None:
        source = store.put("m/model", {"config.json": b"{}", name: b"x"})
        with pytest.raises(IntegrityError):
            store.open(source).listing()

    def test_a_name_that_is_file_and_folder_is_refused(self, store: Store) -> None:
        source = store.put("m/model", {"sub": b"x", "sub/file": b"y"})
        with pytest.raises(IntegrityError, match="both a file and a folder"):
            store.open(source).listing()

    def test_an_empty_file_is_a_marker_only_with_files_below_it(self, store: Store) -> None:
        files = {"sub": b"", "sub/a": b"a", "__init__.py": b"", "sub/deeper": b"", "sub/deeper/b": b"b"}
        wanted = {"sub/a": b"a", "__init__.py": b"", "sub/deeper/b": b"b"}
        assert contents(store.open(store.put("m/model", files))) == wanted
