"""s3:// against SeaweedFS and moto: conformance, digests, credentials and refusals of real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher.errors import ConfigurationError, DeniedError, NotFoundError
from launcher.fetch import s3
from launcher.fetch.remote import Remote
from launcher.sources import ModelSource, parse_source
from tests.storage.conformance import PrefixConformance, UnsafeNames, content_digest, contents, fetch
from tests.storage.servers import ACCESS_KEY, SECRET_KEY, Server

BUCKET = "models"
PART = 5 * 1024 * 1024  # the smallest that S3 allows
_NUMBERS = count()


def environment(url: str, **more: str) -> dict[str, str]:
    """The environment of a launch with keys for the store at ``url``; a blank one takes a variable away."""
    found = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "2",
        **more,
    }
    return found


def open_remote(name: str, environ: Mapping[str, str]) -> Remote:
    return s3.open_remote(parse_source(f"s3://{name}", "test"), environ)


def administrator(server: Server) -> Any:
    """A client of the SDK, to put things there."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1").client(
        "s3", endpoint_url=server.url, config=Config(s3={"addressing_style": "path"}, max_pool_connections=16)
    )


class S3Store(NamedTuple):
    """Repositories below a prefix that no other store of the test run uses."""

    server: Server
    client: Any
    top: str

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        def upload(item: tuple[str, bytes]) -> None:
            self.client.put_object(Bucket=BUCKET, Key=f"{self.top}/{name}/{item[0]}", Body=item[1])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(upload, files.items()))
        return self.source(name)

    def source(self, name: str) -> ModelSource:
        return parse_source(f"s3://{BUCKET}/{self.top}/{name}", "test")

    def open(self, source: ModelSource) -> Remote:
        return s3.open_remote(source, environment(self.server.url))

    def upload_in_parts(self, name: str, data: bytes, **checksum: str) -> None:
        key = f"{self.top}/{name}"
        upload = self.client.create_multipart_upload(Bucket=BUCKET, Key=key, **checksum)
        number, kept = 1, []
        where = {"Bucket": BUCKET, "Key": key, "UploadId": upload["UploadId"]}
        for start in range(0, len(data), PART):
            said = {name: value for name, value in checksum.items() if name == "ChecksumAlgorithm"}
            part = self.client.upload_part(**where, PartNumber=number, Body=data[start : start + PART], **said)
            fields = {name: value for name, value in part.items() if name == "ETag" or name.startswith("Checksum")}
            kept.append({"PartNumber": number, **fields})
            number += 1
        self.client.complete_multipart_upload(**where, MultipartUpload={"Parts": kept})


@pytest.fixture(scope="session")
def weed_bucket(weed: Server) -> Any:
    client = administrator(weed)
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture(scope="session")
def moto_bucket(moto: Server) -> Any:
    client = administrator(moto)
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def on_weed(weed: Server, weed_bucket: Any) -> S3Store:
    return S3Store(weed, weed_bucket, f"weed{next(_NUMBERS)}")


@pytest.fixture
def on_moto(moto: Server, moto_bucket: Any) -> S3Store:
    return S3Store(moto, moto_bucket, f"moto{next(_NUMBERS)}")


class TestWeed(PrefixConformance):
    @pytest.fixture
    def store(self, on_weed: S3Store) -> Iterator[S3Store]:
        yield on_weed


class TestMoto(PrefixConformance, UnsafeNames):
    @pytest.fixture
    def store(self, on_moto: S3Store) -> Iterator[S3Store]:
        yield on_moto


def test_of_an_object_in_parts_neither_etag_nor_composite_checksum_is_a_digest(on_weed: S3Store) -> None:
    data = os.urandom(PART + 1000)
    on_weed.upload_in_parts("m/plain", data)
    on_weed.upload_in_parts("m/composite", data, ChecksumAlgorithm="SHA256")
    remote = on_weed.open(on_weed.put("m", {"small": b"x"}))
    found = {file.path: file for file in remote.listing().files}
    assert found["plain"].identity.endswith("-2") and found["composite"].identity.endswith("-2")
    assert (found["plain"].digest, found["composite"].digest) == (None, None)
    assert found["small"].digest and found["small"].digest.algorithm == "md5"
    assert fetch(remote.locate(found["composite"])).body == data


def test_where_a_key_service_encrypts_the_stored_checksum_is_the_digest(on_moto: S3Store) -> None:
    """The ETag looks like an MD5 there, and is none."""
    encrypted = {"ServerSideEncryption": "aws:kms", "ChecksumAlgorithm": "SHA256"}
    on_moto.client.put_object(Bucket=BUCKET, Key=f"{on_moto.top}/m/config.json", Body=b"{}", **encrypted)
    (file,) = on_moto.open(on_moto.source("m")).listing().files
    assert file.digest == ("sha256", content_digest("sha256", b"{}"))


def test_an_object_that_was_replaced_since_the_listing_is_refused(on_weed: S3Store) -> None:
    remote = on_weed.open(on_weed.put("m/model", {"config.json": b"{}"}))
    (file,) = remote.listing().files
    on_weed.put("m/model", {"config.json": b"[]"})
    assert fetch(remote.locate(file)).status == 412


def test_a_whole_bucket_is_a_source(moto: Server, moto_bucket: Any) -> None:
    moto_bucket.create_bucket(Bucket="one-model")
    moto_bucket.put_object(Bucket="one-model", Key="config.json", Body=b"{}")
    moto_bucket.put_object(Bucket="one-model", Key="sub/x", Body=b"x")
    remote = open_remote("one-model", environment(moto.url))
    assert contents(remote) == {"config.json": b"{}", "sub/x": b"x"}
    assert remote.listing().source == "s3://one-model"


def test_with_and_without_the_final_slash_is_one_source(on_weed: S3Store) -> None:
    on_weed.put("m/model", {"config.json": b"{}"})
    name, environ = f"{BUCKET}/{on_weed.top}/m/model", environment(on_weed.server.url)
    assert open_remote(name, environ).listing() == open_remote(f"{name}/", environ).listing()


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "not-the-secret-key"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "InvalidAccessKeyId"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "AccessDenied"),
    ],
)
def test_credentials_that_are_not_accepted(weed: Server, weed_bucket: Any, keys: dict[str, str], code: str) -> None:
    with pytest.raises(DeniedError) as refusal:
        open_remote(f"{BUCKET}/m", environment(weed.url, **keys)).listing()
    assert code in refusal.value.what and refusal.value.todo
    assert "not-the-secret-key" not in str(refusal.value)


@pytest.mark.parametrize("server", ["weed", "moto"])
def test_a_bucket_that_does_not_exist(server: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(server).url
    with pytest.raises(NotFoundError, match="the bucket 'no-such-bucket' does not exist"):
        open_remote("no-such-bucket/m", environment(url)).listing()


def test_a_web_identity_becomes_the_role(on_moto: S3Store, tmp_path: Path) -> None:
    """What a pod on EKS has: a role, and a token in a file."""
    token = tmp_path / "token"
    token.write_text("a.web.token")
    on_moto.put("m", {"config.json": b"{}"})
    environ = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL": on_moto.server.url,
        "AWS_REGION": "us-east-1",
    }
    remote = s3.open_remote(on_moto.source("m"), environ)
    (file,) = remote.listing().files
    location = remote.locate(file)
    assert "X-Amz-Security-Token=" in location.url
    assert fetch(location).body == b"{}"


def test_a_web_identity_whose_token_is_not_mounted(moto: Server) -> None:
    environ = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/nowhere/token",
        "AWS_ENDPOINT_URL": moto.url,
    }
    with pytest.raises(NotFoundError, match="/var/run/secrets/nowhere/token"):
        open_remote(f"{BUCKET}/m", environ)


def test_a_profile_gives_keys_and_endpoint(on_weed: S3Store, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    (tmp_path / "config").write_text(f"[profile team]\nregion = us-east-1\nendpoint_url = {on_weed.server.url}\n")
    environ = {
        "AWS_PROFILE": "team",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    source = on_weed.put("m", {"config.json": b"{}"})
    assert contents(s3.open_remote(source, environ)) == {"config.json": b"{}"}


def test_a_profile_that_does_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="nobody"):
        open_remote(f"{BUCKET}/m", {"AWS_PROFILE": "nobody"})


def test_half_a_key_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="AWS_SECRET_ACCESS_KEY"):
        open_remote(f"{BUCKET}/m", {"AWS_ACCESS_KEY_ID": ACCESS_KEY})


def test_the_environment_of_the_process_is_left_alone(on_weed: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-the-process")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-process")
    before = dict(os.environ)
    source = on_weed.put("m", {"config.json": b"{}"})
    assert contents(on_weed.open(source)) == {"config.json": b"{}"}
    assert dict(os.environ) == before
