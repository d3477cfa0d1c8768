"""The SDK's client for one bucket: credentials, endpoint, where the bucket is named, and how long is waited."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager

import launcher
from launcher import logs
from launcher.errors import ConfigurationError
from launcher.fetch.object_store import Place
from launcher.fetch.proxies import proxy_for
from launcher.fetch.rest import address
from launcher.fetch.s3_errors import misconfigurations
from launcher.fetch.sdk_environment import bundle, given, process_environment, silence
from launcher.settings.scalars import Unreadable, boolean
from launcher.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boto3.session import Session

CONNECTIONS = 8
_CONNECT, _READ = 5, 30  # seconds
_TRIES = 9  # with the SDK's own pauses, most of a minute
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_AMAZON = "https://s3.amazonaws.com"
_STYLES = ("auto", "path", "virtual")
_HOST_NAME = re.compile("[a-z0-9][a-z0-9-]+").fullmatch  # with a dot, Amazon's certificate would not cover it


class Connection:
    """Everything that a client for ``place`` needs.  Credentials are looked for once.

    Raises ConfigurationError for settings that cannot be used, and DeniedError, NotFoundError or NetworkError when
    credentials that are configured cannot be had.
    """

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        self._place = place
        self._environ = environ
        self._style = addressing_style(environ)
        for variable in _ENDPOINTS:
            if given(environ, variable):
                address(environ, variable, "http://host:port or https://host")
        # Asked before the SDK is: it would take any proxy, and fail at the first request in words of its own.
        proxy_for(given(environ, *_ENDPOINTS) or _AMAZON, environ)
        self._bundle = bundle(environ)
        silence("botocore", "boto3", "urllib3")
        with process_environment(environ), misconfigurations(place):
            self._core, self._session = _sessions(environ)
            credentials = self._session.get_credentials()
            if credentials:
                credentials.get_frozen_credentials()  # fetches what is to be fetched, where it can still be explained
        self.anonymous = credentials is None
        if self.anonymous:
            logs.info(f"No AWS credentials were found: {place} is read anonymously")

    def environment(self) -> AbstractContextManager[None]:
        """In which the SDK may be used where it might look for credentials, or renew them."""
        return process_environment(self._environ)

    def client(self, region: str | None = None) -> Any:
        """A client, which threads may share.  It never follows a bucket to another region by itself.

        ``region``: instead of the one that is set.
        """
        with self.environment(), misconfigurations(self._place):
            client = self._make(region, self._style)
            if self._style == "auto" and client.meta.endpoint_url != self._amazons_own(region):
                client = self._make(region, "path")  # only Amazon answers for bucket.host with certainty
        proxy_for(client.meta.endpoint_url, self._environ)  # a profile may have named it
        client.meta.events.register_last("before-parameter-build.s3", _stay)
        return client

    def _make(self, region: str | None, style: str) -> Any:
        from botocore.config import Config

        if style == "auto":
            # The SDK's own "auto" would sign links to a host of no region, which redirects where no signature is valid.
            style = "virtual" if _HOST_NAME(self._place.bucket) else "path"
        config = Config(**self._settings(), s3={"addressing_style": style})
        # Nobody's keys keep the SDK from looking for credentials again, which can take seconds.
        nobody = {"aws_access_key_id": "-", "aws_secret_access_key": "-"} if self.anonymous else {}
        return self._session.client("s3", region_name=region, config=config, verify=self._bundle, **nobody)

    def _settings(self) -> dict[str, Any]:
        from botocore import UNSIGNED

        settings: dict[str, Any] = {
            # Left to itself, the SDK signs links in a way that newer buckets refuse.
            "signature_version": UNSIGNED if self.anonymous else "s3v4",
            "connect_timeout": _CONNECT,
            "read_timeout": _READ,
            "max_pool_connections": CONNECTIONS,
            "user_agent_extra": f"specdec-launcher/{launcher.__version__}",
        }
        for name in ("request_checksum_calculation", "response_checksum_validation"):
            if not self._is_set(name):
                settings[name] = "when_required"  # older stores refuse what they do not know; we verify ourselves
        if not (self._is_set("max_attempts") or self._is_set("retry_mode")):
            settings["retries"] = {"mode": "standard", "total_max_attempts": _TRIES}
        return settings

    def _is_set(self, name: str) -> bool:
        """Whether the environment or the profile sets an SDK's setting; its own defaults do not count."""
        return bool(given(self._environ, f"AWS_{name.upper()}")) or name in self._core.get_scoped_config()

    def _amazons_own(self, region: str | None) -> str:
        from botocore.config import Config

        bare = Config(ignore_configured_endpoint_urls=True)
        keys = {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
        address: str = self._session.client("s3", region_name=region, config=bare, **keys).meta.endpoint_url
        return address


def addressing_style(environ: Mapping[str, str]) -> str:
    style = (given(environ, "NIM_S3_ADDRESSING_STYLE") or "auto").lower()
    if style not in _STYLES:
        raise ConfigurationError(f"NIM_S3_ADDRESSING_STYLE is {style!r}", f"It takes {', '.join(_STYLES)}")
    return style


def pays(environ: Mapping[str, str]) -> bool:
    """Whether the user agreed to pay for requests."""
    text = given(environ, "NIM_S3_REQUEST_PAYER") or "0"
    try:
        return boolean(text)
    except Unreadable as problem:
        raise ConfigurationError(f"NIM_S3_REQUEST_PAYER is {text!r}, which is not {problem.expected}") from None


def _sessions(environ: Mapping[str, str]) -> tuple[Any, Session]:
    """The SDK's session in its two layers; the lower one alone shows the configuration."""
    from boto3.session import Session
    from botocore.session import get_session

    core = get_session()
    # By itself, the SDK reads AWS_DEFAULT_REGION alone.
    return core, Session(botocore_session=core, region_name=given(environ, "AWS_REGION", "AWS_DEFAULT_REGION"))


def _stay(context: dict[str, Any], **_: object) -> None:
    """Make the SDK believe that a request was redirected already.

    Its own redirection asks with HeadBucket, for which there may be no permission, follows redirects of that without
    end, and does not reach the links that it signs.
    """
    context.get("s3_redirect", {})["redirected"] = True
