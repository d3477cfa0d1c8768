"""s3:// against a small S3 that demands, refuses and fails as some real ones do."""

from __future__ import annotations

import base64
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NetworkError
from launcher.fetch import s3
from launcher.fetch.remote import RemoteFile
from launcher.sources import parse_source
from tests.storage.conformance import content_digest, contents
from tests.storage.loopback import Certificate, certificate
from tests.storage.small_s3 import SmallS3, signing_region
from tests.storage.test_s3 import environment, open_remote
from tests.storage.web import Asked, Body, Fault, Reply, Server

NAME = "models/m"
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "sub/x": b"x", "sub/y": b"y"}
UNSIGNED = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


@pytest.fixture
def store() -> SmallS3:
    return SmallS3({f"m/{name}": data for name, data in FILES.items()})


@pytest.fixture
def server(store: SmallS3) -> Iterator[Server]:
    with closing(Server(store)) as server:
        yield server


def test_nothing_is_asked_but_for_objects(server: Server) -> None:
    """Permissions to look at the bucket itself are often not given."""
    assert contents(open_remote(NAME, environment(server.url))) == FILES
    on_bucket = [asked for asked in server.ledger.requests if asked.path == "/models"]
    assert [(asked.method, dict(asked.query)) for asked in on_bucket] == [
        ("GET", {"list-type": ["2"], "prefix": ["m/"], "encoding-type": ["url"]})
    ]
    assert {asked.method for asked in server.ledger.requests} == {"GET", "HEAD"}


def test_pages_are_followed_to_the_end(store: SmallS3, server: Server) -> None:
    store.page_size = 1
    assert [file.path for file in open_remote(NAME, environment(server.url)).listing().files] == sorted(FILES)
    assert sum(asked.path == "/models" for asked in server.ledger.requests) == len(FILES)


def test_a_bucket_in_another_region_is_asked_there(store: SmallS3, server: Server) -> None:
    store.region = "eu-west-1"
    assert contents(open_remote(NAME, environment(server.url, AWS_REGION="us-east-1"))) == FILES
    assert signing_region(server.ledger.requests[-1]) == "eu-west-1"


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_that_is_set_is_used_at_once(store: SmallS3, server: Server, variable: str) -> None:
    store.region = "eu-west-1"
    assert contents(open_remote(NAME, environment(server.url, **{variable: "eu-west-1"}))) == FILES
    assert {signing_region(asked) for asked in server.ledger.requests} == {"eu-west-1"}


def test_who_requests_pays_only_where_that_is_allowed(store: SmallS3, server: Server) -> None:
    store.pays = True
    with pytest.raises(DeniedError) as refusal:
        open_remote(NAME, environment(server.url)).listing()
    assert "NIM_S3_REQUEST_PAYER=1" in refusal.value.todo
    assert contents(open_remote(NAME, environment(server.url, NIM_S3_REQUEST_PAYER="yes"))) == FILES


def test_a_store_that_knows_no_checksums(store: SmallS3, server: Server) -> None:
    store.knows_checksums = False
    store.etags["m/model.safetensors"] = "0123456789abcdef0123456789abcdef-2"
    remote = open_remote(NAME, environment(server.url))
    digests = {file.path: file.digest for file in remote.listing().files}
    assert digests["model.safetensors"] is None
    assert digests["config.json"] == ("md5", content_digest("md5", b"{}"))
    assert contents(remote) == FILES


@pytest.mark.parametrize(
    ("algorithm", "header"),
    [
        ("crc32", "x-amz-checksum-crc32"),
        ("crc32c", "x-amz-checksum-crc32c"),
        ("crc64nvme", "x-amz-checksum-crc64nvme"),
        ("sha256", "x-amz-checksum-sha256"),
    ],
)
def test_the_checksum_of_a_whole_object_in_parts(store: SmallS3, server: Server, algorithm: str, header: str) -> None:
    value = content_digest(algorithm, b"weights")
    store.etags["m/model.safetensors"] = "0123456789abcdef0123456789abcdef-2"
    kept = {header: base64.b64encode(bytes.fromhex(value)).decode()}
    store.extra["m/model.safetensors"] = {**kept, "x-amz-checksum-type": "FULL_OBJECT"}
    files = {file.path: file for file in open_remote(NAME, environment(server.url)).listing().files}
    assert files["model.safetensors"].digest == (algorithm, value)
    store.extra["m/model.safetensors"] = kept  # of which kind it is, is not said
    files = {file.path: file for file in open_remote(NAME, environment(server.url)).listing().files}
    assert files["model.safetensors"].digest is None


def test_etags_that_are_no_md5_are_not_taken_for_one(store: SmallS3, server: Server) -> None:
    store.etags["m/config.json"] = "an-etag-of-their-own"
    files = {file.path: file for file in open_remote(NAME, environment(server.url)).listing().files}
    assert files["config.json"].digest is None
    assert files["config.json"].identity == "an-etag-of-their-own"


def test_an_object_that_disappears_while_it_is_listed(store: SmallS3) -> None:
    store.etags["m/sub/y"] = "0123456789abcdef0123456789abcdef-2"

    def answer(asked: Asked) -> Reply:
        return Reply(404) if asked.method == "HEAD" and asked.path.endswith("/sub/y") else store(asked)

    with closing(Server(answer)) as server, pytest.raises(IntegrityError, match="'m/sub/y' disappeared"):
        open_remote(NAME, environment(server.url)).listing()


@pytest.mark.parametrize(
    ("variables", "works"),
    [
        ({"AWS_ENDPOINT_URL": "SERVER"}, True),
        ({"AWS_ENDPOINT_URL_S3": " ", "AWS_ENDPOINT_URL": "SERVER"}, True),
        ({"AWS_ENDPOINT_URL_S3": "SERVER", "AWS_ENDPOINT_URL": "http://nowhere.invalid"}, True),
        ({"AWS_PROFILE": "", "AWS_REGION": "", "AWS_CA_BUNDLE": " ", "AWS_ENDPOINT_URL_S3": "SERVER"}, True),
        ({"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": " "}, False),
    ],
)
def test_endpoints(server: Server, variables: dict[str, str], works: bool) -> None:
    given = {name: value.replace("SERVER", server.url) for name, value in variables.items()}
    environ = environment("", **given)
    if works:
        assert contents(open_remote(NAME, environ)) == FILES
    else:
        url = open_remote(NAME, environ).locate(RemoteFile("x", 1, "etag", None)).url
        assert url.startswith("https://models.s3.amazonaws.com/m/x?")


@pytest.mark.parametrize("endpoint", ["store.example", "http://"])
def test_an_endpoint_that_is_no_address(endpoint: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        open_remote(NAME, environment(endpoint)).listing()
    assert "http://host:port" in refusal.value.todo


@pytest.mark.parametrize(
    ("style", "host", "path"),
    [
        ("", "store.example", "/models/m/config.json"),
        ("auto", "store.example", "/models/m/config.json"),
        ("path", "store.example", "/models/m/config.json"),
        ("virtual", "models.store.example", "/m/config.json"),
    ],
)
def test_where_a_request_names_its_bucket(server: Server, style: str, host: str, path: str) -> None:
    """The names need not resolve: the server is the proxy for them."""
    environ = environment("http://store.example", NIM_S3_ADDRESSING_STYLE=style, HTTP_PROXY=server.url)
    remote = open_remote(NAME, environ)
    (file,) = [file for file in remote.listing().files if file.path == "config.json"]
    assert {asked.host for asked in server.ledger.requests} == {host}
    location = urlsplit(remote.locate(file).url)
    assert (location.netloc, location.path) == (host, path)


@pytest.mark.parametrize("style", ["auto", "path"])
def test_amazon_itself_is_asked_by_host_name_unless_told_otherwise(style: str) -> None:
    environ = environment("", NIM_S3_ADDRESSING_STYLE=style, AWS_REGION="eu-west-1")
    link = urlsplit(open_remote(NAME, environ).locate(RemoteFile("x", 1, "etag", None)).url)
    by_host = ("models.s3.eu-west-1.amazonaws.com", "/m/x")
    by_path = ("s3.eu-west-1.amazonaws.com", "/models/m/x")
    assert (link.netloc, link.path) == (by_host if style == "auto" else by_path)


@pytest.mark.parametrize("variable", ["NIM_S3_ADDRESSING_STYLE", "NIM_S3_REQUEST_PAYER"])
def test_settings_that_cannot_be_read(variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{variable} is 'sideways'"):
        open_remote(NAME, environment("http://127.0.0.1:9", **{variable: "sideways"}))


def test_without_credentials_it_is_read_anonymously(
    store: SmallS3, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    store.public = True
    remote = open_remote(NAME, environment(server.url, **UNSIGNED))
    assert contents(remote) == FILES
    assert not any(
        "authorization" in asked.headers or asked.first("X-Amz-Credential") for asked in server.ledger.requests
    )
    assert "No AWS credentials were found: s3://models/m is read anonymously" in capsys.readouterr().err


def test_links_are_signed_and_last_an_hour(server: Server) -> None:
    remote = open_remote(NAME, environment(server.url))
    location = remote.locate(remote.listing().files[0])
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in location.url and "X-Amz-Expires=3600" in location.url
    assert location.headers == (("If-Match", f'"{content_digest("md5", b"{}")}"'),)


def test_a_machine_without_metadata_service_is_not_waited_for(store: SmallS3, server: Server) -> None:
    """A listener that never answers, as a firewall that drops would be."""
    store.public = True
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        more = {**UNSIGNED, "AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": address}
        start = time.monotonic()
        assert contents(open_remote(NAME, environment(server.url, **more))) == FILES
        assert time.monotonic() - start < 4


def test_the_metadata_service_gives_the_role_of_the_machine(server: Server) -> None:
    def metadata(asked: Asked) -> Reply:
        if asked.path.endswith("/security-credentials/"):
            return Reply(200, body=Body(b"role"))
        keys = b'"AccessKeyId": "ofTheMachine", "SecretAccessKey": "s", "Token": "t"'
        return Reply(200, body=Body(b'{"Code": "Success", "Expiration": "2099-01-01T00:00:00Z", %s}' % keys))

    with closing(Server(metadata)) as service:
        more = {**UNSIGNED, "AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}
        remote = open_remote(NAME, environment(server.url, **more))
        assert contents(remote) == FILES
    assert "ofTheMachine" in server.ledger.requests[-1].first("X-Amz-Credential")


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "ExpiredToken", DeniedError),
        (403, "RequestTimeTooSkewed", DeniedError),
        (403, "AccessDenied", DeniedError),
        (400, "InvalidArgument", ConfigurationError),
        (301, "PermanentRedirect", ConfigurationError),
        (500, "InternalError", NetworkError),
        (429, "TooManyRequests", NetworkError),
    ],
)
def test_refusals(store: SmallS3, server: Server, status: int, code: str, error: type[LauncherError]) -> None:
    store.refusal = (status, code)
    with pytest.raises(error) as refusal:
        open_remote(NAME, environment(server.url)).listing()
    assert type(refusal.value) is error
    assert f"{status} {code}" in refusal.value.what and "s3://models/m" in refusal.value.what and refusal.value.todo


def test_objects_that_may_be_listed_but_not_read(store: SmallS3) -> None:
    """That is known before the first byte."""
    with (
        closing(Server(lambda asked: Reply(403) if asked.method == "HEAD" else store(asked))) as server,
        pytest.raises(DeniedError) as refusal,
    ):
        open_remote(NAME, environment(server.url)).listing()
    assert "s3:GetObject" in refusal.value.todo


def test_who_is_refused_without_credentials_is_told_so(server: Server) -> None:
    with pytest.raises(DeniedError) as refusal:
        open_remote(NAME, environment(server.url, **UNSIGNED)).listing()
    assert refusal.value.todo.startswith("No credentials were found: set AWS_ACCESS_KEY_ID")


def test_a_role_that_may_not_be_assumed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.web.token")
    body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not yours</Message></Error></ErrorResponse>"
    role = {"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r", "AWS_WEB_IDENTITY_TOKEN_FILE": str(token)}
    refusal = Reply(403, {"Content-Type": "text/xml"}, Body(body))
    with closing(Server(lambda asked: refusal)) as service, pytest.raises(DeniedError, match="cannot be assumed"):
        open_remote(NAME, {**role, "AWS_ENDPOINT_URL": service.url, "AWS_MAX_ATTEMPTS": "1"})


def test_a_store_that_fails_for_a_moment_is_asked_again(server: Server) -> None:
    server.ledger.faults.append(Fault("list-type", times=2, status=503))
    assert contents(open_remote(NAME, environment(server.url, AWS_MAX_ATTEMPTS=""))) == FILES


def test_tries_are_bounded(server: Server) -> None:
    server.ledger.faults.append(Fault("", times=1000, status=503))
    with pytest.raises(NetworkError, match="503"):
        open_remote(NAME, environment(server.url, AWS_MAX_ATTEMPTS="3")).listing()
    assert len(server.ledger.requests) == 3


def test_a_page_that_is_not_s3() -> None:
    page = Reply(200, {"Content-Type": "text/html"}, Body(b"<html><body>Log in</p></body></html>"))
    with closing(Server(lambda asked: page)) as server, pytest.raises(LauncherError) as refusal:
        open_remote(NAME, environment(server.url)).listing()
    assert "s3://models/m" in refusal.value.what


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(NetworkError) as refusal:
        open_remote(NAME, environment(url)).listing()
    assert "s3://models/m" in refusal.value.what


@pytest.fixture
def own_authority(tmp_path: Path) -> Certificate:
    return certificate(tmp_path)


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_private_authority_is_trusted(store: SmallS3, own_authority: Certificate, variable: str) -> None:
    with closing(Server(store, tls=own_authority)) as server:
        environ = environment(server.url, **{variable: str(own_authority.file)})
        assert len(open_remote(NAME, environ).listing().files) == len(FILES)


def test_an_unknown_authority_is_not(store: SmallS3, own_authority: Certificate) -> None:
    with closing(Server(store, tls=own_authority)) as server, pytest.raises(NetworkError) as refusal:
        open_remote(NAME, environment(server.url)).listing()
    assert "AWS_CA_BUNDLE" in refusal.value.todo


def test_a_bundle_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match=r"AWS_CA_BUNDLE: ./nowhere/ca.pem. does not exist"):
        open_remote(NAME, environment("http://127.0.0.1:9", AWS_CA_BUNDLE="/nowhere/ca.pem"))


def test_neither_errors_nor_logs_show_a_secret(
    store: SmallS3, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    store.refusal = (403, "AccessDenied")
    secrets = {"AWS_SECRET_ACCESS_KEY": "verysecretkey", "AWS_SESSION_TOKEN": "verysecrettoken"}
    with pytest.raises(DeniedError) as refusal:
        s3.open_remote(parse_source(f"s3://{NAME}", "test"), environment(server.url, **secrets)).listing()
    assert not re.search("verysecret", str(refusal.value) + capsys.readouterr().err)
