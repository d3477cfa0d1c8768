"""gs:// against a small Cloud Storage that asks for credentials, demands, refuses and fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch import gs
from launcher.fetch.rest import Service
from launcher.sources import parse_source
from tests.storage.conformance import content_digest, contents
from tests.storage.loopback import certificate
from tests.storage.small_gcs import GENERATION, SmallGcs, error, key_file
from tests.storage.web import Asked, Body, Fault, Reply, Server, json_reply

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "sub/x": b"x"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store() -> SmallGcs:
    return SmallGcs({f"m/{name}": data for name, data in FILES.items()})


@pytest.fixture
def server(store: SmallGcs) -> Iterator[Server]:
    with closing(Server(store)) as server:
        yield server


@pytest.fixture
def key(server: Server, tmp_path: Path) -> Path:
    return key_file(tmp_path, f"{server.url}/token")


def with_key(server: Server, key: Path, **more: str) -> gs.GcsRemote:
    """The model, read with a service account's key.  It is Google's own address that is replaced, nothing else."""
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(key), **more}
    remote = gs.open_remote(parse_source("gs://models/m", "test"), environ)
    assert remote.service.base == "https://storage.googleapis.com"
    return remote._replace(service=Service("Cloud Storage", server.url, environ, pause=lambda seconds: None))


def anonymously(server: Server, name: str = "models/m") -> gs.GcsRemote:
    remote = gs.open_remote(parse_source(f"gs://{name}", "test"), {"STORAGE_EMULATOR_HOST": server.url})
    return remote._replace(service=remote.service._replace(pause=lambda seconds: None))


def test_a_key_file_gives_the_token_of_every_request(server: Server, key: Path) -> None:
    remote = with_key(server, key)
    assert contents(remote) == FILES
    (file, *_) = remote.listing().files
    location = remote.locate(file)
    assert dict(location.headers) == {"authorization": "Bearer good-token"}
    assert (
        location.url == f"{server.url}/download/storage/v1/b/models/o/m%2Fconfig.json?alt=media&generation={GENERATION}"
    )
    assert file.digest == ("crc32c", content_digest("crc32c", b"{}")) and file.identity == GENERATION
    assert len(server.ledger.asked("/token")) == 1


def test_a_token_that_is_about_to_expire_is_renewed(store: SmallGcs, server: Server, key: Path) -> None:
    store.lasts = 10
    remote = with_key(server, key)
    file = remote.listing().files[0]
    store.token = "next-token"
    assert dict(remote.locate(file).headers) == {"authorization": "Bearer next-token"}


def test_a_key_that_is_not_accepted(store: SmallGcs, server: Server, key: Path) -> None:
    store.grant = json_reply({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400)
    with pytest.raises(DeniedError, match="Google does not accept the credentials"):
        with_key(server, key).listing()


def test_a_token_endpoint_that_cannot_be_reached(server: Server, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="cannot be renewed"):
        with_key(server, key_file(tmp_path, "http://127.0.0.1:9/token")).listing()


def test_a_token_endpoint_behind_a_private_authority(store: SmallGcs, server: Server, tmp_path: Path) -> None:
    authority = certificate(tmp_path)
    with closing(Server(store, tls=authority)) as tokens:
        key = key_file(tmp_path, f"{tokens.url}/token")
        assert contents(with_key(server, key, SSL_CERT_FILE=str(authority.file))) == FILES


def test_a_key_file_that_is_not_there() -> None:
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json"}
    with pytest.raises(NotFoundError, match="/nowhere/key"):
        gs.open_remote(parse_source("gs://models/m", "test"), environ)


@pytest.mark.parametrize("text", ["", "no json", '{"type": "unheard_of"}', '{"type": "service_account"}'])
def test_a_key_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        gs.open_remote(parse_source("gs://models/m", "test"), {"GOOGLE_APPLICATION_CREDENTIALS": str(path)})


def test_a_private_bucket_without_credentials(server: Server) -> None:
    with pytest.raises(DeniedError) as refusal:
        anonymously(server).listing()
    assert "gs://models/m needs credentials" in refusal.value.what
    assert "Anonymous caller does not have storage.objects.list access" in refusal.value.what
    assert "GOOGLE_APPLICATION_CREDENTIALS" in refusal.value.todo


def test_an_account_that_may_not_read(store: SmallGcs, server: Server, key: Path) -> None:
    store.grant = json_reply({"access_token": "of another", "expires_in": 3600})
    with pytest.raises(DeniedError) as refusal:
        with_key(server, key).listing()
    assert "reader@test" in refusal.value.what and "Storage Object Viewer" in refusal.value.todo
    assert "of another" not in str(refusal.value)


def test_a_public_bucket(store: SmallGcs, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    store.token = None
    assert contents(anonymously(server)) == FILES
    assert not any("authorization" in asked.headers for asked in server.ledger.requests)
    assert "No Google credentials were found: gs://models/m is read anonymously" in capsys.readouterr().err


def test_the_emulators_address_may_come_without_a_scheme(store: SmallGcs, server: Server) -> None:
    store.token = None
    environ = {"STORAGE_EMULATOR_HOST": server.url.removeprefix("http://"), "GOOGLE_APPLICATION_CREDENTIALS": " "}
    assert contents(gs.open_remote(parse_source("gs://models/m", "test"), environ)) == FILES


def test_a_bucket_that_does_not_exist(store: SmallGcs, server: Server) -> None:
    store.token = None
    with pytest.raises(NotFoundError, match="the bucket 'other' does not exist"):
        anonymously(server, "other/m").listing()


def test_who_requests_pays(store: SmallGcs, server: Server, key: Path) -> None:
    store.pays = True
    with pytest.raises(DeniedError) as refusal:
        with_key(server, key).listing()
    assert "GOOGLE_CLOUD_QUOTA_PROJECT" in refusal.value.todo
    remote = with_key(server, key, GOOGLE_CLOUD_QUOTA_PROJECT="of-the-reader")
    assert contents(remote) == FILES
    assert server.ledger.requests[-1].first("userProject") == "of-the-reader"


def test_pages_are_followed_to_the_end(store: SmallGcs, server: Server, key: Path) -> None:
    store.page_size = 1
    assert [file.path for file in with_key(server, key).listing().files] == sorted(FILES)


def test_an_object_that_was_uploaded_compressed(store: SmallGcs, server: Server, key: Path) -> None:
    """The service would unpack it on the way: neither size nor checksum would be those of what arrives."""
    store.encoded.add("m/config.json")
    with pytest.raises(IntegrityError, match=r"'m/config\.json' is stored compressed"):
        with_key(server, key).listing()


def test_a_service_that_fails_for_a_moment_is_asked_again(server: Server, key: Path) -> None:
    server.ledger.faults.append(Fault("/storage/v1", times=2, status=503))
    assert contents(with_key(server, key)) == FILES


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(500, "backend", "backendError"), NetworkError),
        (error(429, "slow down", "rateLimitExceeded"), NetworkError),
        (error(400, "no such thing", "invalid"), ConfigurationError),
        (Reply(200, {"Content-Type": "text/html"}, Body(b"<html>Log in</html>")), NetworkError),
        (json_reply({"items": [{"name": "m/x"}]}), NetworkError),
    ],
)
def test_refusals(reply: Reply, kind: type[LauncherError]) -> None:
    with closing(Server(lambda asked: reply)) as server, pytest.raises(kind) as refusal:
        anonymously(server).listing()
    assert type(refusal.value) is kind and refusal.value.todo


def in_a_process_of_its_own(code: str, **environ: str) -> str:
    """google-auth reads where the metadata server is when it is imported."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", f"import os\nfrom launcher.fetch import gs\nfrom launcher.sources import *\n{code}"],
        cwd=ROOT,
        env={**clean, "PYTHONPATH": str(ROOT), "CLOUDSDK_CONFIG": "/nowhere", **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_metadata_server_that_is_not_there_is_not_waited_for() -> None:
    """A listener that never answers, as a firewall that drops would be."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        told = in_a_process_of_its_own(
            "remote = gs.open_remote(parse_source('gs://models/m', 'test'), os.environ)\n"
            "print(remote.identity.headers())",
            GCE_METADATA_HOST=address,
            GCE_METADATA_IP=address,
        )
        assert time.monotonic() - start < 8
    assert told.splitlines()[0] == "()" and "read anonymously" in told
    assert len(told.splitlines()) == 2, told  # none of the library's own complaints


def test_the_metadata_server_gives_the_account_of_the_machine() -> None:
    def metadata(asked: Asked) -> Reply:
        flavour = {"Metadata-Flavor": "Google", "Content-Type": "text/plain"}
        if asked.path.endswith("/token"):
            return json_reply(
                {"access_token": "of-the-machine", "expires_in": 3600}, headers={"Metadata-Flavor": "Google"}
            )
        if "service-accounts" in asked.path:
            return json_reply(
                {"email": "machine@test", "scopes": [], "aliases": []}, headers={"Metadata-Flavor": "Google"}
            )
        return Reply(200, flavour, Body(b"test"))

    with closing(Server(metadata)) as server:
        address = server.url.removeprefix("http://")
        told = in_a_process_of_its_own(
            "remote = gs.open_remote(parse_source('gs://models/m', 'test'), os.environ)\n"
            "print(dict(remote.identity.headers())['authorization'])",
            GCE_METADATA_HOST=address,
            GCE_METADATA_IP=address,
        )
    assert told == "Bearer of-the-machine\n"


def test_a_metadata_server_that_comes_late_is_asked_again(store: SmallGcs, server: Server, key: Path) -> None:
    """As in a new pod: the first answer is 401 to nobody, and then there is an account."""
    remote = anonymously(server)
    signed = with_key(server, key)
    remote.identity.environ = signed.identity.environ
    assert contents(remote) == FILES
