"""The files of TLS, looked at before vLLM loads a model for minutes only to fail on them."""

from __future__ import annotations

import os

from launcher.arguments.values import Argument, Merged
from launcher.errors import ConfigurationError, DeniedError, NotFoundError
from launcher.typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ssl import SSLError

KEY, CERTIFICATE = "--ssl-keyfile", "--ssl-certfile"
AUTHORITIES, CLIENTS = "--ssl-ca-certs", "--ssl-cert-reqs"
FLAGS = (KEY, CERTIFICATE, AUTHORITIES, CLIENTS)


def check(merged: Merged) -> None:
    """Raise what is wrong with the files that the arguments name, whoever named them.

    NotFoundError for one that is missing, DeniedError for one that must not be read, ConfigurationError for one that
    holds no certificate or key, for a pair that does not belong together, for a key with a passphrase (vLLM would wait
    for somebody to type it), and for a demand that lacks the file it needs.
    """
    said = {argument.flag: argument for argument in merged.arguments if argument.flag in FLAGS and argument.values}
    if not said:
        return
    for flag in (KEY, CERTIFICATE, AUTHORITIES):
        if flag in said:
            _check_readable(said[flag])
    if CERTIFICATE not in said:
        named = next(iter(said.values()))
        raise ConfigurationError(f"{named.origin}: {named.flag} needs {CERTIFICATE} beside it", "Name the certificate")
    _check_pair(said[CERTIFICATE], said.get(KEY))
    if AUTHORITIES in said:
        _check_authorities(said[AUTHORITIES])
    elif said.get(CLIENTS) is not None and said[CLIENTS].values[-1] != "0":
        raise ConfigurationError(
            f"{said[CLIENTS].origin}: clients must show a certificate, and nobody says which authority signs them",
            f"Set NIM_SSL_CA_CERTS_PATH, or {AUTHORITIES}",
        )


def _check_readable(argument: Argument) -> None:
    path = argument.values[-1]
    if not os.path.isfile(path):
        raise NotFoundError(f"{argument.origin}: the file {path} does not exist", "Mount it there, or name another")
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise DeniedError(
            f"{argument.origin}: {path} cannot be read by user id {os.getuid()}: {error.strerror}",
            "Make it readable for this user, or for group 0",
        ) from None


def _check_pair(certificate: Argument, key: Argument | None) -> None:
    import ssl  # lazy: few starts serve over TLS

    named = key or certificate

    def no_passphrase() -> NoReturn:
        raise ConfigurationError(
            f"{named.origin}: the key {named.values[-1]} has a passphrase, and vLLM cannot be told one",
            "Give a key without a passphrase, readable for this user alone",
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate.values[-1], key and key.values[-1], no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(
                f"{named.origin}: the key {named.values[-1]} does not belong to the certificate "
                f"{certificate.values[-1]}",
                "Give the pair that was issued together; the server's own certificate stands first in its file",
            ) from None
        raise _unusable(error, certificate, key) from None


def _unusable(error: SSLError, certificate: Argument, key: Argument | None) -> ConfigurationError:
    """Which of the two files it is that cannot be used: the other one alone tells."""
    certified = _holds(certificate.values[-1], b"CERTIFICATE-----")
    blamed = key if certified and key is not None else certificate
    kind = "private key" if certified else "certificate"
    return ConfigurationError(
        f"{blamed.origin}: {blamed.values[-1]} holds no {kind} that OpenSSL can use ({error.reason or error})",
        "Give it in PEM form",
    )


def _holds(path: str, marker: bytes) -> bool:
    with open(path, "rb") as file:
        return marker in file.read()


def _check_authorities(authorities: Argument) -> None:
    import ssl  # lazy: few starts serve over TLS

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(authorities.values[-1])
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{authorities.origin}: {authorities.values[-1]} holds no certificate that OpenSSL can use "
            f"({error.reason or error})",
            "Give the authority's certificates in PEM form",
        ) from None
