"""Errors about the files of a source, in the words of whoever named the source (pure)."""

from __future__ import annotations

from launcher.errors import LauncherError
from launcher.fetch.describe import Described
from launcher.fetch.duplicates import patterns_that_miss


def of_source(error: LauncherError, described: Described) -> LauncherError:
    """``error`` with the source's text in place of its folder in the cache, and the patterns that may be its cause.

    Where the error advises to give a folder, that is one in the store, or else one in the cache once it is filled: the
    other sources have no way to name a folder of theirs.
    """
    text, folder = described.source.text.rstrip("/"), described.folder
    named = error.reworded(lambda words: words.replace(folder, text))
    if folder in error.todo and described.source.scheme not in ("s3", "gs"):
        named.todo = f"Fetch it with download-to-cache, and then: {error.todo[:1].lower()}{error.todo[1:]}"
    missing = patterns_that_miss(described.files, described.skipped, described.wishes)
    if missing:
        named.todo = f"{missing}; {named.todo[:1].lower()}{named.todo[1:]}" if named.todo else missing
    return named
