"""Who asks Google: the application's default credentials, found and renewed by google-auth, or nobody."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError, NetworkError, NotFoundError
from launcher.fetch.object_store import Place
from launcher.fetch.sdk_environment import bundle, given, process_environment, silence
from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from google.auth.transport.requests import Request

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
EMULATOR = "STORAGE_EMULATOR_HOST"
HOW_TO_SIGN_IN = f"Set {KEY_FILE} to a key file, or give the pod a service account that may read the bucket"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
# Away from Google nobody answers where its metadata server would be: look for it twice, a second each.
_SHORT_LOOK = {"GCE_METADATA_TIMEOUT": "1", "GCE_METADATA_DETECT_RETRIES": "2"}
_CREDENTIAL_HEADERS = ("authorization", "x-goog-user-project")  # the library adds some that count its users


class Identity:
    """Who asks: the application's default credentials, or nobody.  Safe to share between threads."""

    def __init__(self, place: Place, environ: Mapping[str, str]) -> None:
        silence("google", "urllib3")
        self._place = place
        self.environ = environ
        self._lock = Lock()
        self._request: Request | None = None
        self._credentials = self._find()
        if self.anonymous:
            logs.info(f"No Google credentials were found: {place} is read anonymously")

    @property
    def anonymous(self) -> bool:
        return self._credentials is None

    def universe(self) -> str:
        """The domain of the cloud that the credentials belong to."""
        return getattr(self._credentials, "universe_domain", None) or "googleapis.com"

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The credentials, renewed when they are about to expire.  Raises DeniedError or NetworkError."""
        if self._credentials is None:
            return ()
        headers: dict[str, str] = {}
        with self._lock, process_environment(self.environ), _renewal(self._place):
            self._credentials.before_request(self._request, "GET", "https://storage.googleapis.com/", headers)
        return tuple((name, value) for name, value in headers.items() if name in _CREDENTIAL_HEADERS)

    def look_again(self) -> bool:
        """Whether there are credentials now: a new pod's metadata server may need a few seconds."""
        if self.anonymous:
            self._credentials = self._find()
            return not self.anonymous
        return False

    def _find(self) -> Credentials | None:
        if given(self.environ, EMULATOR):
            return None
        path = given(self.environ, KEY_FILE)
        if path and not os.path.exists(path):
            raise NotFoundError(f"{KEY_FILE}: the file {path} does not exist", "Check that the secret is mounted")
        with process_environment(self.environ, _SHORT_LOOK), _renewal(self._place):
            return self._default(path)

    def _default(self, path: str | None) -> Credentials | None:
        import warnings

        import google.auth
        import requests
        from google.auth.exceptions import DefaultCredentialsError, TransportError
        from google.auth.transport.requests import Request

        session = requests.Session()
        session.verify = bundle(self.environ) or True
        self._request = Request(session)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found: Credentials = google.auth.default(scopes=[_SCOPE], request=self._request)[0]
        except DefaultCredentialsError as error:
            if path:
                raise ConfigurationError(
                    f"{KEY_FILE}: the file {path} cannot be used ({_first_line(error)})", "Give a key file from Google"
                ) from None
            return None
        except TransportError:  # something answers where the metadata server would be, but not as it would
            return None
        return found


@contextmanager
def _renewal(place: Place) -> Iterator[None]:
    """Turn what google-auth raises into our errors."""
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        yield
    except GoogleAuthError as error:
        if isinstance(error, TransportError) or error.retryable:
            raise NetworkError(
                f"{place}: the Google credentials cannot be renewed ({_first_line(error)})",
                "Check the network and HTTPS_PROXY, or try again later",
            ) from None
        raise DeniedError(
            f"{place}: Google does not accept the credentials ({_first_line(error)})", HOW_TO_SIGN_IN
        ) from None


def _first_line(error: Exception) -> str:
    text = str(error.args[0] if error.args else error)
    return text.partition("\n")[0].rstrip(". ")
