"""Packing what a bug report needs into one archive, with every secret masked."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError, NoSpaceError

TAIL = 2_000_000  # bytes of a log's end


def pack(path: str, files: Mapping[str, str]) -> None:
    """Write ``files`` (name -> text) into a new ``.tar.gz`` that this user alone can read; all text is masked here.

    Raises ConfigurationError where ``path`` exists already, DeniedError or NoSpaceError where it cannot be written.
    """
    folder = os.path.basename(path).partition(".")[0] or "bundle"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(f"--bundle: {path} exists already", "Choose another name, or remove it") from None
    except OSError as error:
        raise DeniedError(
            f"--bundle: {path} cannot be written: {error.strerror}", "Choose a folder that exists and can be written"
        ) from None
    try:
        with (
            open(descriptor, "wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,  # the same content is the same archive
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, text in files.items():
                data = logs.mask(text).encode("utf-8", "backslashreplace")
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
    except OSError as error:
        os.unlink(path)
        raise NoSpaceError(f"--bundle: {path} cannot be written: {error.strerror}", "Make room") from None


def tail(path: str, most: int = TAIL) -> tuple[str, str]:
    """The end of a log, from the beginning of a line on; and why there is none, or "" where there is."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        return f"{why}\n", why
    if size > most:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace"), ""
