"""gs:// against fake-gcs-server, and against a small Cloud Storage that asks for credentials."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple
from urllib.parse import quote

import pytest

from launcher.errors import NotFoundError
from launcher.fetch import gs
from launcher.fetch.remote import Remote
from launcher.sources import ModelSource, parse_source
from tests.storage.conformance import PrefixConformance, UnsafeNames, contents, fetch
from tests.storage.servers import Server

BUCKET = "models"
_NUMBERS = count()


class GcsStore(NamedTuple):
    """Repositories below a prefix that no other store of the test run uses."""

    server: Server
    top: str

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        for key, data in files.items():
            place = quote(f"{self.top}/{name}/{key}", safe="")
            connection.request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={place}", body=data)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        connection.close()
        return self.source(name)

    def source(self, name: str) -> ModelSource:
        return parse_source(f"gs://{BUCKET}/{self.top}/{name}", "test")

    def open(self, source: ModelSource) -> Remote:
        return gs.open_remote(source, {"STORAGE_EMULATOR_HOST": self.server.url})


@pytest.fixture(scope="session")
def bucket(fake_gcs: Server) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", fake_gcs.port, timeout=20)
    connection.request("POST", "/storage/v1/b?project=test", body=json.dumps({"name": BUCKET}))
    assert connection.getresponse().status == 200
    connection.close()
    return BUCKET


class TestFakeGcs(PrefixConformance, UnsafeNames):
    @pytest.fixture
    def store(self, fake_gcs: Server, bucket: str) -> Iterator[GcsStore]:
        yield GcsStore(fake_gcs, f"gcs{next(_NUMBERS)}")


def test_an_object_that_was_replaced_since_the_listing_is_not_found(fake_gcs: Server, bucket: str) -> None:
    store = GcsStore(fake_gcs, f"gcs{next(_NUMBERS)}")
    remote = store.open(store.put("m/model", {"config.json": b"{}"}))
    (file,) = remote.listing().files
    store.put("m/model", {"config.json": b"[]"})
    assert fetch(remote.locate(file)).status == 404


def test_a_bucket_that_does_not_exist(fake_gcs: Server) -> None:
    source = parse_source("gs://no-such-bucket/m", "test")
    with pytest.raises(NotFoundError, match="the bucket 'no-such-bucket' does not exist"):
        gs.open_remote(source, {"STORAGE_EMULATOR_HOST": fake_gcs.url}).listing()


def test_a_whole_bucket_is_a_source(fake_gcs: Server, bucket: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fake_gcs.port, timeout=20)
    for path, body in (
        ("/storage/v1/b?project=test", b'{"name": "one-model"}'),
        ("/upload/storage/v1/b/one-model/o?uploadType=media&name=a%2Fb", b"x"),
    ):
        connection.request("POST", path, body=body)
        connection.getresponse().read()
    connection.close()
    remote = gs.open_remote(parse_source("gs://one-model", "test"), {"STORAGE_EMULATOR_HOST": fake_gcs.url})
    assert contents(remote) == {"a/b": b"x"}
    assert remote.listing().source == "gs://one-model"
