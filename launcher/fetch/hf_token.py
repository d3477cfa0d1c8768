"""The token for the Hugging Face hub, by huggingface_hub's conventions."""

from __future__ import annotations

import os
from collections.abc import Mapping

from launcher import logs
from launcher.errors import ConfigurationError
from launcher.typing import NamedTuple


class Token(NamedTuple):
    value: str
    origin: str  # the variable or file that it came from


def find_token(environ: Mapping[str, str]) -> Token | None:
    """HF_TOKEN, else the token that ``hf auth login`` keeps in a file, unless HF_HUB_DISABLE_IMPLICIT_TOKEN is set.

    A token of the environment was given to this launch, and is sent all the same.  Raises ConfigurationError for a
    file that holds no token.
    """
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        value = environ.get(name, "").strip()
        if value:
            return Token(value, name)
    if is_on(environ, "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return None
    path = _token_file(environ)
    try:
        with open(path, encoding="utf-8") as file:
            value = file.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return None  # not logged in here
    if not value:
        return None
    if len(value.split()) > 1 or not value.isascii():
        raise ConfigurationError(
            f"{path} holds no token: there is a blank or a foreign character inside", "Log in anew"
        )
    logs.add_secrets([value])
    return Token(value, path)


def _token_file(environ: Mapping[str, str]) -> str:
    """Where huggingface_hub keeps its token."""
    path = environ.get("HF_TOKEN_PATH", "").strip()
    if path:
        return os.path.expanduser(path)
    home = environ.get("HF_HOME", "").strip()
    if not home:
        cache = environ.get("XDG_CACHE_HOME", "").strip() or os.path.join(environ.get("HOME", "~"), ".cache")
        home = os.path.join(cache, "huggingface")
    return os.path.join(os.path.expanduser(home), "token")


def is_on(environ: Mapping[str, str], name: str) -> bool:
    """Whether a switch of huggingface_hub's is on; it knows these words only."""
    return environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
