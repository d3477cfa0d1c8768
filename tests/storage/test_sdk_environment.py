"""What the cloud SDKs get to see of the process."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError
from launcher.fetch.sdk_environment import bundle, given, process_environment
from tests.storage.loopback import certificate


def test_the_process_says_what_the_mapping_says_and_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-the-process")
    monkeypatch.setenv("AWS_REGION", "here")
    before = dict(os.environ)
    with process_environment({"AWS_REGION": "there", "AWS_ENDPOINT_URL": " ", "X": "1"}, {"X": "0", "Y": "2"}):
        assert dict(os.environ) == {"AWS_REGION": "there", "X": "1", "Y": "2"}
    assert dict(os.environ) == before


def test_it_is_put_back_after_an_error() -> None:
    before = dict(os.environ)
    with pytest.raises(KeyError), process_environment({}):
        raise KeyError
    assert dict(os.environ) == before


def test_its_own_environment_loses_only_what_is_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "")
    before = dict(os.environ)
    with process_environment(os.environ):
        assert dict(os.environ) == {name: value for name, value in before.items() if value.strip()}
    assert dict(os.environ) == before


def test_the_first_that_is_set() -> None:
    assert given({"A": " ", "B": " b ", "C": "c"}, "A", "B", "C") == "b"
    assert given({"A": ""}, "A", "B") is None


def test_a_bundle_adds_to_the_authorities_and_replaces_none(tmp_path: Path) -> None:
    own = certificate(tmp_path)
    path = bundle({"AWS_CA_BUNDLE": str(own.file)})
    assert path
    context = ssl.create_default_context(cafile=path)
    certificates = context.get_ca_certs()
    assert "a private authority" in str(certificates) and len(certificates) > 50


def test_without_a_bundle_of_the_user_the_library_uses_its_own() -> None:
    assert bundle({"SSL_CERT_FILE": ""}) is None


def test_a_bundle_without_certificates(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        bundle({"SSL_CERT_FILE": str(empty)})
