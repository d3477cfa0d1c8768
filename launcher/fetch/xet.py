"""The one seam to hf-xet, for files of the Hugging Face hub that are too large for plain HTTP."""

from __future__ import annotations

import errno
import os

from launcher.errors import ConfigurationError, NetworkError
from launcher.fetch.hf_token import is_on
from launcher.fetch.remote import RemoteFile
from launcher.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.fetch.hf import Repository

_ADVICE = "Check the network and start again"


def fetch_by_xet(repository: Repository, file: RemoteFile, path: str) -> None:
    """Write the file whose ``xet`` is set to ``path``, whole; its digest remains to be checked.

    It starts anew whenever it is called: hf-xet keeps finished chunks in its own cache (HF_XET_CACHE) at best.  Raises
    ConfigurationError without hf-xet, NetworkError when its storage fails, OSError for a full disk, and what the hub's
    refusal means.
    """
    if is_on(repository.environ, "HF_HUB_DISABLE_XET"):
        raise _no_xet(repository, file, "HF_HUB_DISABLE_XET is set", "Unset HF_HUB_DISABLE_XET")
    try:
        import hf_xet
    except ImportError:
        raise _no_xet(repository, file, "hf-xet is not installed", "Install the Python package hf-xet") from None
    keys = repository.xet_location()
    answer = repository.ask(keys.url)
    try:
        storage, token = answer.headers["x-xet-cas-url"], answer.headers["x-xet-access-token"]
        expiry = int(answer.headers["x-xet-token-expiration"])
    except (KeyError, ValueError):
        raise NetworkError(f"{answer.service} gives no keys to its Xet storage", "Check HF_ENDPOINT") from None
    try:
        with hf_xet.XetSession().new_file_download_group(
            endpoint=storage,
            token=token,
            token_expiry_unix_secs=expiry,
            token_refresh_url=keys.url,
            token_refresh_headers=dict(keys.headers),
        ) as group:
            group.start_download_file(hf_xet.XetFileInfo(file.xet, file.size), os.path.abspath(path))
    except (OSError, RuntimeError) as error:  # what hf-xet raises; its own classes are among these
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NetworkError(f"hf-xet could not fetch {file.path} of hf://{repository.name}: {error}", _ADVICE) from None


def _no_xet(repository: Repository, file: RemoteFile, why: str, todo: str) -> ConfigurationError:
    return ConfigurationError(
        f"{file.path} of hf://{repository.name} has {file.size} bytes, which only Xet storage serves, and {why}", todo
    )
