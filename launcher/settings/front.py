"""The variables of the HTTP front: TLS and CORS, as the flags of vLLM that stand for them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from launcher.errors import ConfigurationError
from launcher.settings import scalars
from launcher.settings.reading import Reading
from launcher.settings.scalars import Unreadable
from launcher.settings.values import EngineSetting

MODE, KEY, CERTIFICATES = "NIM_SSL_MODE", "NIM_SSL_KEY_PATH", "NIM_SSL_CERTS_PATH"
AUTHORITIES = "NIM_SSL_CA_CERTS_PATH"
_PATHS = ((KEY, "--ssl-keyfile"), (CERTIFICATES, "--ssl-certfile"), (AUTHORITIES, "--ssl-ca-certs"))
_NEEDED = {"DISABLED": (), "TLS": (KEY, CERTIFICATES), "MTLS": (KEY, CERTIFICATES, AUTHORITIES)}
_CLIENTS_MUST_SHOW_ONE = "2"  # ssl.CERT_REQUIRED


def front_settings(reading: Reading) -> tuple[EngineSetting, ...]:
    """TLS and CORS; what is wrong or without effect goes into ``reading``."""
    return (*_tls(reading), *_cors(reading))


def _tls(reading: Reading) -> Iterator[EngineSetting]:
    mode = reading.choice(MODE)
    needed = _NEEDED[mode]
    for name, flag in _PATHS:
        path = reading.read(name, _absolute)
        if name in needed and not reading.is_set(name):
            reading.problems.append(
                ConfigurationError(f"{MODE}={mode} needs {name}, which is not set", "Name the file, or unset the mode")
            )
        elif path is not None and name not in needed:
            reading.warnings.append(f"{name} is ignored: {MODE} is {mode}")
        elif path is not None:
            yield EngineSetting(flag, path.value, False, path.origin)
    if AUTHORITIES in needed:
        yield EngineSetting("--ssl-cert-reqs", _CLIENTS_MUST_SHOW_ONE, False, MODE)


def _absolute(text: str) -> str:
    if not text.startswith("/"):
        raise Unreadable("an absolute path")
    return text


def _cors(reading: Reading) -> Iterator[EngineSetting]:
    for name, flag, reader in (
        ("NIM_CORS_ALLOW_ORIGINS", "--allowed-origins", _origins),
        ("NIM_CORS_ALLOW_METHODS", "--allowed-methods", _methods),
        ("NIM_CORS_ALLOW_HEADERS", "--allowed-headers", scalars.header_names),
    ):
        listed = reading.read(name, reader)
        if listed is not None:
            yield EngineSetting(flag, json.dumps(list(listed.value)), False, listed.origin)


def _methods(text: str) -> tuple[str, ...]:
    found = tuple(name.upper() for name in scalars.names(text))
    if not all(name == "*" or name.isalpha() for name in found):
        raise Unreadable("a list of HTTP methods separated by commas, or *", "Write such as GET,POST")
    return found


def _origins(text: str) -> tuple[str, ...]:
    """What a browser sends as Origin: scheme and host, perhaps a port, and nothing behind them."""
    found = scalars.names(text)
    for origin in found:
        scheme, separator, host = origin.partition("://")
        if origin not in ("*", "null") and (not separator or not scheme.isalnum() or not host or "/" in host):
            todo = f"Write {origin.rstrip('/')}" if host.endswith("/") and "/" not in host[:-1] else ""
            raise Unreadable("a list of origins (https://host, https://host:port, or *)", todo)
    return found
