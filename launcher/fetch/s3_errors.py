"""From the SDK's exceptions to ours: what S3 or the credential chain refused, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.object_store import Place
from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_NO_ACCESS = frozenset((401, 403))
_BAD_CREDENTIALS = frozenset(
    ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId", "SignatureDoesNotMatch")
)
_WRONG_REGION = frozenset(("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"))
_BUSY = frozenset((408, 429))
_ADDRESS = "Check AWS_REGION, and write AWS_ENDPOINT_URL_S3 as http://host:port or https://host"
_NO_CREDENTIALS = (
    "No credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the machine or "
    "the pod a role that may read the bucket"
)
_PERMISSIONS = (
    "The credentials in use need s3:ListBucket on the bucket and s3:GetObject on its objects; if the requester pays "
    "for this bucket, set NIM_S3_REQUEST_PAYER=1"
)


@contextmanager
def refusals(place: Place, doing: str, anonymous: bool = False) -> Iterator[None]:
    """Turn the SDK's exceptions into ours.

    ``doing`` says what was asked of it; ``anonymous``, that it had no credentials to ask with.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise _answered(place, error, anonymous) from None
    except BotoCoreError as error:
        raise _failed(place, doing, error) from None


@contextmanager
def misconfigurations(place: Place) -> Iterator[None]:
    """The same while the SDK reads its settings, of which some end in exceptions that are not its own."""
    with refusals(place, "reading the AWS configuration"):
        try:
            yield
        except FileNotFoundError as error:  # a web identity token
            raise NotFoundError(
                f"{place}: the file {error.filename}, which the AWS configuration names, does not exist",
                "Check AWS_WEB_IDENTITY_TOKEN_FILE and whether the token is mounted",
            ) from None
        except PermissionError as error:
            raise DeniedError(
                f"{place}: the file {error.filename}, which the AWS configuration names, may not be read",
                "Check its mode and owner",
            ) from None
        except ValueError as error:
            raise ConfigurationError(f"{place}: {str(error).rstrip('.')}", _ADDRESS) from None


@contextmanager
def refused_only() -> Iterator[None]:
    """For a question whose answer would only make a message better: a refusal ends the block, nothing more."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError:
        return


def region_of(error: ClientError) -> str | None:
    """The region that the refused bucket is in, where the refusal says so."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region: str | None = headers.get("x-amz-bucket-region") or error.response.get("Error", {}).get("Region")
    return region


def _answered(place: Place, error: ClientError, anonymous: bool) -> LauncherError:
    """A service said no."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = str(error.response.get("Error", {}).get("Message", "")).rstrip(".")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = f"{status} {code}{': ' if message else ''}{message}"
    if error.operation_name.startswith("AssumeRole"):
        return DeniedError(
            f"{place}: the role for it cannot be assumed ({said})", "Check AWS_ROLE_ARN and the role's trust policy"
        )
    if code == "NoSuchBucket" or status == 404:
        return NotFoundError(f"{place}: the bucket {place.bucket!r} does not exist ({said})", "Check its name")
    if code in _BAD_CREDENTIALS:
        return DeniedError(f"{place}: the AWS credentials are not accepted ({said})", "Renew or correct them")
    if code == "RequestTimeTooSkewed":
        return DeniedError(f"{place}: the clock of this machine is wrong ({said})", "Set it")
    if status in _NO_ACCESS:
        return DeniedError(f"{place}: access is denied ({said})", _NO_CREDENTIALS if anonymous else _PERMISSIONS)
    if code in _WRONG_REGION or 300 <= status < 400:
        return ConfigurationError(f"{place}: the bucket is in another region ({said})", "Set AWS_REGION to it")
    if status in _BUSY or status >= 500:
        return NetworkError(f"{place}: the store kept failing ({said})", "Try again later")
    return ConfigurationError(
        f"{place}: the store refused the request ({said})",
        "Check AWS_ENDPOINT_URL_S3, AWS_REGION and the name",
    )


def _failed(place: Place, doing: str, error: BotoCoreError) -> LauncherError:
    """There was no answer, or no question."""
    from botocore import exceptions as sdk

    said = str(error).rstrip(".")
    if isinstance(error, sdk.SSLError):
        return NetworkError(
            f"{place}: no trusted connection while {doing} ({said})",
            "If the store has a certificate of a private authority, name that in AWS_CA_BUNDLE",
        )
    if isinstance(error, sdk.ConnectionError | sdk.HTTPClientError | sdk.IncompleteReadError):
        return NetworkError(
            f"{place}: no answer while {doing} ({said})", "Check the network, AWS_ENDPOINT_URL_S3 and HTTPS_PROXY"
        )
    if isinstance(error, sdk.CredentialRetrievalError | sdk.MetadataRetrievalError | sdk.SSOError):
        return DeniedError(f"{place}: the AWS credentials cannot be had ({said})", "Check the AWS configuration")
    return ConfigurationError(f"{place}: {doing} failed ({said})", "Check the AWS_* variables and the AWS profile")
