"""Small reads of a source that is not downloaded: what is asked for, and what strange servers make of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launcher.errors import DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.peek import Peek
from launcher.fetch.remote import Listing, Location, RemoteFile
from tests.storage.web import Asked, Body, Fault, Reply, Server

DATA = bytes(range(250)) * 4
FILES = (RemoteFile("config.json", 2, "", None), RemoteFile("empty", 0, "", None), RemoteFile("w", len(DATA), "", None))


class Store:
    """A store that may ignore ranges; its links carry a number."""

    def __init__(self) -> None:
        self.ranges = True
        self.links = 0
        self.server = Server(self.answer)

    def answer(self, asked: Asked) -> Reply:
        content = {"/config.json": b"{}", "/w": DATA}
        if asked.path not in content:
            return Reply(404)
        return Reply(200, {}, Body(content[asked.path]), ranges=self.ranges)

    def listing(self) -> Listing:
        raise AssertionError("nobody asks")

    def locate(self, file: RemoteFile) -> Location:
        self.links += 1
        return Location(f"{self.server.url}/{file.path}?link={self.links}", (("X-Key", "k"),))


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.server.close()


@pytest.fixture
def peek(store: Store) -> Peek:
    return Peek(store, FILES, {}, "s3://b/m")


@pytest.mark.parametrize("ranges", [True, False])
def test_reads_are_small(store: Store, peek: Peek, ranges: bool) -> None:
    store.ranges = ranges
    assert peek.read("w", 100, 50) == DATA[100:150]
    assert peek.read("w", 990, 50) == DATA[990:]
    assert peek.read("w", 2000, 1) == b""
    assert peek.read("empty", 0, 10) == b""
    assert [asked.headers["range"] for asked in store.server.ledger.requests] == ["bytes=100-149", "bytes=990-999"]
    assert store.server.ledger.requests[0].headers["x-key"] == "k"


def test_an_expired_link_is_renewed_once(store: Store, peek: Peek) -> None:
    store.server.ledger.faults.append(Fault("link=1", status=403))
    assert peek.read("config.json", 0, 2) == b"{}"
    store.server.ledger.faults.append(Fault("config.json", status=403, times=2))
    with pytest.raises(DeniedError, match=r"s3://b/m: config\.json was answered with 403"):
        peek.read("config.json", 0, 2)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFoundError), (412, IntegrityError), (418, NetworkError)])
def test_refusals(store: Store, peek: Peek, status: int, kind: type[LauncherError]) -> None:
    store.server.ledger.faults.append(Fault("config.json", status=status))
    with pytest.raises(kind, match=rf"config\.json was answered with {status}"):
        peek.read("config.json", 0, 2)


def test_another_length_is_no_answer(store: Store) -> None:
    longer = Peek(store, (FILES[0]._replace(size=5),), {}, "s3://b/m")
    with pytest.raises(IntegrityError, match=r"config\.json gave 2 bytes where 5 were asked for"):
        longer.read("config.json", 0, 5)


def test_access_is_checked_with_one_byte_of_the_smallest_file(store: Store, peek: Peek) -> None:
    peek.check_access()
    peek.check_access()
    (asked,) = store.server.ledger.requests
    assert (asked.path, asked.headers["range"]) == ("/config.json", "bytes=0-0")


def test_all_reads_together_have_a_bound(store: Store, peek: Peek, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek, "_left", 3)
    assert peek.read("config.json", 0, 2) == b"{}"
    with pytest.raises(IntegrityError, match="take more than"):
        peek.read("w", 0, 2)
