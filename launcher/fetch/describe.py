"""The first phase of a start: what a source consists of, from the cache or from its listing, and a way to read a little
of it.  Nothing is written, and no weights are fetched."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from launcher.cache import snapshots
from launcher.cache.building import Site
from launcher.cache.layout import Shelf, shelf
from launcher.cache.snapshots import Damaged, Known
from launcher.errors import ConfigurationError, LauncherError, NetworkError
from launcher.fetch import refresh
from launcher.fetch.cached import snapshot_source
from launcher.fetch.duplicates import EXCLUDE, INCLUDE, Wishes, choose
from launcher.fetch.options import FetchOptions
from launcher.fetch.override import stored
from launcher.fetch.remote import TOO_LATE, Listing, Remote, RemoteFile
from launcher.sources import ModelSource, Patience, Source
from launcher.typing import NamedTuple

_BEFORE = 0.1  # seconds that the reason of a failure has to get here
Opener = Callable[[ModelSource, Mapping[str, str], str | None], Remote]


class Described(NamedTuple):
    """A source at one revision, before or after it was fetched.

    ``folder`` is where its snapshot lies, or will lie.  ``remote`` is None where the snapshot is complete; ``proof`` is
    then what proves it ("manifest", "trees" or "index"), and else "".
    """

    source: ModelSource
    shelf: Shelf
    asked: str | None  # the revision as the user wrote it
    revision: str
    folder: str
    proof: str
    files: tuple[RemoteFile, ...]  # to be served; () where only the index proves the snapshot
    skipped: tuple[RemoteFile, ...]
    wishes: Wishes
    reader: Source
    remote: Remote | None
    aside: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    distrusted: bool = False  # what is there has its size, and counts only with its digest

    @property
    def is_complete(self) -> bool:
        return self.remote is None

    @property
    def size(self) -> int:
        """Bytes of the files that are served."""
        return sum(file.size for file in self.files) or sum(entry.size for entry in self.reader.listing())

    @property
    def site(self) -> Site:
        return Site(self.shelf, self.revision, self.files, self.aside)

    def to_download(self) -> int:
        """Bytes that the cache lacks; unfinished files count whole."""
        return 0 if self.is_complete else sum(file.size for file in self.site.lacking())


def describe(
    source: ModelSource,
    options: FetchOptions,
    opener: Opener | None = None,
    patience: Patience | None = None,
    *,
    brief: bool = False,
) -> Described:
    """Look for a complete snapshot, and ask the source as the rules of refreshing say.

    ``patience`` is what this start has left of it, where it describes more than one source.  ``brief``: nobody named
    the source, and a start can do without it, so that it gets the time of a brief question even where nothing is kept.

    Raises the LauncherError that would stop the start: not found (3), denied (4), network (5), integrity (7).
    """
    kept = stored(source, options.override)
    name, asked = _split(kept)
    place = shelf(options.cache, kept.scheme, name)
    known = snapshots.recorded(place, asked, options.hubs, options.wishes)
    pinned = snapshots.pinned_revision(place.scheme, asked) is not None
    how = refresh.asking(known, pinned, options.refresh, options.offline, source.text)
    if how == refresh.NOT:
        assert isinstance(known, Known)
        return _complete(source, place, asked, known, options, ())
    ask = _Question(source, options, opener)
    brief = how == refresh.BRIEFLY or (brief and options.refresh != "required")
    answer = ask.briefly(patience or Patience()) if brief else ask.patiently()
    return _answered(source, place, asked, known, answer, options)


def describe_anew(described: Described, options: FetchOptions, opener: Opener | None = None) -> Described:
    """A complete snapshot whose content is not believed, with what it takes to fetch the same files once more.

    Where the source has moved on, it is described as it is now.  Raises as `describe` does.
    """
    answer = _Question(described.source, options, opener).patiently()
    if isinstance(answer, LauncherError):
        raise answer
    now = _listed(described.source, described.shelf, described.asked, answer, options, ())
    if now.revision != described.revision:
        return describe(described.source, options, opener)
    listed = {file.path: file for file in answer.listing.files}
    files = tuple([listed[file.path] for file in described.files if file.path in listed])
    aside = described.folder != described.shelf.snapshot(described.revision)
    return now._replace(files=files, folder=described.folder, aside=aside, distrusted=True)


class _Answer(NamedTuple):
    remote: Remote
    listing: Listing


class _Question(NamedTuple):
    source: ModelSource
    options: FetchOptions
    opener: Opener | None

    def patiently(self) -> _Answer | LauncherError:
        try:
            if self.opener is None:
                from launcher.fetch.schemes import open_remote

                remote = open_remote(self.source, self.options.environ, self.options.override)
            else:
                remote = self.opener(self.source, self.options.environ, self.options.override)
            return _Answer(remote, remote.listing())
        except LauncherError as error:
            return error

    def briefly(self, patience: Patience) -> _Answer | LauncherError:
        """The same within what is left of the limit for all brief questions of a start."""
        began = time.monotonic()
        try:
            return self.within(max(0.0, refresh.BRIEF - patience.spent))
        finally:
            patience.spent += time.monotonic() - began

    def within(self, seconds: float) -> _Answer | LauncherError:
        """The answer, or a NetworkError once the time is over.

        In a thread of its own, which is left behind then: name resolution and SDKs cannot be interrupted.
        """
        from threading import Thread

        answers: list[_Answer | LauncherError | BaseException] = []

        def ask() -> None:
            TOO_LATE.set(time.monotonic() + seconds - _BEFORE)
            try:
                answers.append(self.patiently())
            except BaseException as error:
                answers.append(error)

        thread = Thread(target=ask, name="listing", daemon=True)
        thread.start()
        end = time.monotonic() + seconds
        while thread.is_alive() and time.monotonic() < end:
            thread.join(min(0.1, max(0.0, end - time.monotonic())))  # in steps: signals are heard between them
        if not answers:
            return NetworkError(f"no answer within {refresh.BRIEF:.0f} s", "Check the network")
        answer = answers[0]
        if isinstance(answer, BaseException) and not isinstance(answer, LauncherError):
            raise answer
        return answer


def _answered(
    source: ModelSource,
    place: Shelf,
    asked: str | None,
    known: Known | Damaged | None,
    answer: _Answer | LauncherError,
    options: FetchOptions,
) -> Described:
    said = answer if isinstance(answer, LauncherError) else answer.listing
    outcome = refresh.after(known, said, options.refresh, source.text)
    if outcome.known is not None and _agrees(outcome.known, said, options):
        return _complete(source, place, asked, outcome.known, options, outcome.warnings)
    assert isinstance(answer, _Answer), "an error is raised, or has a recorded snapshot to go on with"
    listing = answer.listing
    other = snapshots.find(place, listing.revision, options.hubs, options.wishes)
    if isinstance(other, Known) and _agrees(other, listing, options):
        return _complete(source, place, asked, other, options, ())
    return _listed(source, place, asked, answer, options, outcome.warnings)


def _listed(
    source: ModelSource,
    place: Shelf,
    asked: str | None,
    answer: _Answer,
    options: FetchOptions,
    warnings: tuple[str, ...],
) -> Described:
    """A source as it was listed, still to be fetched."""
    from launcher.fetch.peek import Peek

    listing = answer.listing
    choice = choose(listing.files, options.wishes, source.text)
    if not choice.files:
        raise _nothing_wanted(listing, options, source)
    aside = snapshots.is_aside(place, listing.revision)
    return Described(
        source=source,
        shelf=place,
        asked=asked,
        revision=listing.revision,
        folder=place.snapshot(listing.revision, aside=aside),
        proof="",
        files=choice.files,
        skipped=choice.skipped,
        wishes=options.wishes,
        reader=Peek(answer.remote, choice.files, options.environ, source.text),
        remote=answer.remote,
        aside=aside,
        warnings=(*warnings, *choice.warnings),
        notes=choice.notes,
    )


def _nothing_wanted(listing: Listing, options: FetchOptions, source: ModelSource) -> ConfigurationError:
    given = [
        name for name, patterns in ((INCLUDE, options.wishes.include), (EXCLUDE, options.wishes.exclude)) if patterns
    ]
    leave = "leaves" if len(given) == 1 else "leave"
    return ConfigurationError(
        f"{source.text}: {' and '.join(given)} {leave} out all of its {len(listing.files)} files, such as "
        f"{listing.files[0].path}",
        f"Change {' or '.join(given)}: the patterns are matched with whole paths, and * matches / too",
    )


def _agrees(known: Known, said: Listing | LauncherError, options: FetchOptions) -> bool:
    """Whether a snapshot that is complete by its own account is so by the source's, as far as that was heard."""
    if known.proof != snapshots.INDEX or isinstance(said, LauncherError):
        return True
    return snapshots.has_all(known, choose(said.files, options.wishes, said.source).files)


def _complete(
    source: ModelSource,
    place: Shelf,
    asked: str | None,
    known: Known,
    options: FetchOptions,
    warnings: tuple[str, ...],
) -> Described:
    return Described(
        source=source,
        shelf=place,
        asked=asked,
        revision=known.revision,
        folder=known.folder,
        proof=known.proof,
        files=known.files,
        skipped=known.skipped,
        wishes=options.wishes,
        reader=snapshot_source(known.folder, known.files),
        remote=None,
        warnings=warnings,
    )


def _split(source: ModelSource) -> tuple[str, str | None]:
    """Name and revision.  ``?file=`` after an NGC name belongs to the name: it selects, and is a source of its own."""
    if source.scheme != "ngc" or "?" not in source.text:
        return source.name, source.revision
    name, _, query = source.name.partition("?")
    revision, _, after = (source.revision or "").partition("?")
    return f"{name}?{query or after}", revision or None
