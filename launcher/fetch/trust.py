"""Which certificate authorities are trusted: the system's, certifi's where installed, and the user's own, together.

A bundle that *replaced* the public authorities would break every other source; tools that read only one of the usual
variables would each need another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from launcher.errors import ConfigurationError
from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def authorities(environ: Mapping[str, str], also: tuple[str, ...] = ()) -> SSLContext:
    """A client context.  ``also`` names further variables that hold the path of a bundle (AWS_CA_BUNDLE).

    Raises ConfigurationError for a named bundle that is missing or holds no certificate.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    for file, folder in ((paths.openssl_cafile, None), (None, paths.openssl_capath)):
        if os.path.exists(file or folder or ""):
            context.load_verify_locations(file, folder)
    bundle = _certifi()
    if bundle:
        context.load_verify_locations(bundle)
    for name in (*VARIABLES, *also):
        path = environ.get(name, "").strip()
        if path:
            _add(context, name, path)
    return context


def _add(context: SSLContext, name: str, path: str) -> None:
    folder = os.path.isdir(path)
    if not folder and not os.path.isfile(path):
        raise ConfigurationError(
            f"{name}: {path!r} does not exist", "Mount the certificate bundle there, or unset the variable"
        )
    try:
        context.load_verify_locations(None if folder else path, path if folder else None)
    except OSError as error:  # SSLError among them
        raise ConfigurationError(
            f"{name}: {path!r} cannot be read as certificates ({error.strerror or error})",
            "Give a file of certificates in PEM form",
        ) from None


def _certifi() -> str | None:
    try:
        import certifi
    except ImportError:
        return None
    return str(certifi.where())
