"""What the cloud SDKs see of this process: they read its environment, and they write to Python's ``logging``.

Both are the process's own, while a launch reads its settings from a mapping in which blank variables count as unset and
credentials may have come from files.  So that mapping is put in place while an SDK looks for credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from launcher.fetch.trust import VARIABLES, authorities

_ONE_AT_A_TIME = Lock()
_AMAZONS_OWN = "AWS_CA_BUNDLE"


@contextmanager
def process_environment(environ: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> Iterator[None]:
    """Make the process's environment what ``environ`` says, blank variables left out, and put it back afterwards.

    ``defaults`` hold where ``environ`` is silent.  Only what differs is touched: in a launch, next to nothing.
    """
    with _ONE_AT_A_TIME:
        before = dict(os.environ)
        _become({**(defaults or {}), **{name: value for name, value in environ.items() if value.strip()}})
        try:
            yield
        finally:
            _become(before)


def _become(wanted: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def given(environ: Mapping[str, str], *names: str) -> str | None:
    """The first of these variables that is set; a blank one is not."""
    return next((value for value in (environ.get(name, "").strip() for name in names) if value), None)


def bundle(environ: Mapping[str, str]) -> str | None:
    """A file with all trusted authorities, where the user named some, for SDKs that take nothing but a file.

    It lies in memory: there may be no place to write to.  Raises ConfigurationError if a named file cannot be used.
    """
    if not given(environ, _AMAZONS_OWN, *VARIABLES):
        return None
    from ssl import DER_cert_to_PEM_cert

    context = authorities(environ, (_AMAZONS_OWN,))
    descriptor = os.memfd_create("authorities")  # open for as long as the process may make connections
    with open(descriptor, "w", encoding="ascii", closefd=False) as file:
        file.writelines(DER_cert_to_PEM_cert(certificate) for certificate in context.get_ca_certs(binary_form=True))
    return f"/proc/self/fd/{descriptor}"


def silence(*loggers: str) -> None:
    """Keep these libraries' warnings off stderr: what matters of them comes to us as an exception."""
    import logging

    for name in loggers:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
