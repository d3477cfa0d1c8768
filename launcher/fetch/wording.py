"""Errors about the files of a source, in the words of whoever named the source (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launcher.errors import LauncherError
from launcher.fetch.describe import Described
from launcher.fetch.duplicates import EXCLUDE, INCLUDE, patterns_that_miss
from launcher.speculation.values import Check, Decision

_OF_WEIGHTS = ("target-weights", "draft-weights")  # the checks that fail where patterns leave out all weights


def of_source(error: LauncherError, described: Described) -> LauncherError:
    """``error`` with the source's text in place of its folder in the cache, and the patterns that may be its cause.

    Where the error advises to give a folder, that is one in the store, or else one in the cache once it is filled: the
    other sources have no way to name a folder of theirs.
    """
    named = error.reworded(_in_words_of([described]))
    if described.folder in error.todo and described.source.scheme not in ("s3", "gs"):
        named.todo = f"Fetch it with download-to-cache, and then: {error.todo[:1].lower()}{error.todo[1:]}"
    missing = patterns_that_miss(described.files, described.skipped, described.wishes)
    if missing:
        named.todo = f"{missing}; {named.todo[:1].lower()}{named.todo[1:]}" if named.todo else missing
    return named


def of_sources(error: LauncherError, fetched: Sequence[Described]) -> LauncherError:
    """``error`` with the texts of these sources in place of their folders in the cache."""
    return error.reworded(_in_words_of(fetched))


def of_decision(decision: Decision, fetched: Sequence[Described]) -> Decision:
    """``decision`` with everything that it says in the words of these sources; what it does is the same."""
    change = _in_words_of(fetched)
    chosen = decision.speculation
    return decision._replace(
        speculation=chosen._replace(
            reason=change(chosen.reason),
            considered=tuple([step._replace(reason=change(step.reason)) for step in chosen.considered]),
        ),
        checks=tuple([_check(check, fetched, change) for check in decision.checks]),
        warnings=tuple([change(text) for text in decision.warnings]),
        unknown=tuple([change(text) for text in decision.unknown]),
    )


def _check(check: Check, fetched: Sequence[Described], change: Callable[[str], str]) -> Check:
    if check.error is None:
        return check._replace(message=change(check.message))
    error = check.error.reworded(change)
    for described in fetched if check.name in _OF_WEIGHTS else ():
        missing = patterns_that_miss(described.files, described.skipped, described.wishes)
        if missing and described.folder in check.error.what:
            error.what = f"{missing}, so {error.what}"
            error.todo = f"Change {_patterns(described)}"
    return check._replace(error=error, message=error.what)


def _patterns(described: Described) -> str:
    given = ((INCLUDE, described.wishes.include), (EXCLUDE, described.wishes.exclude))
    return " and ".join(f"{name}={','.join(patterns)}" for name, patterns in given if patterns)


def _in_words_of(fetched: Sequence[Described]) -> Callable[[str], str]:
    names = {described.folder: described.source.text.rstrip("/") for described in fetched}

    def change(words: str) -> str:
        for folder, text in names.items():
            words = words.replace(folder, text)
        return words

    return change
