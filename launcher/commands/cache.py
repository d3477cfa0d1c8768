"""``launcher cache ls`` and ``prune``: what is in the cache, and the removal of what is no longer needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress

from launcher.cache import inventory, locks
from launcher.cache.building import explained
from launcher.cache.inventory import Entry, Snapshot
from launcher.cache.layout import shelf
from launcher.cache.parts import Owner
from launcher.commands.setting_up import set_up
from launcher.errors import BusyError, LauncherError, NotFoundError, gathered
from launcher.fetch.progress import counted, readable
from launcher.places import make_shared
from launcher.sources import parse_source
from launcher.typing import Any, NamedTuple

_PRUNED = ".pruned"  # folders on their way out


class Removal(NamedTuple):
    """Something that goes: a snapshot (its manifest first), or a path."""

    what: str
    paths: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(inventory.size_of(path) for path in self.paths)


def run_list(environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print what the cache holds."""
    cache = set_up(environ).options.cache
    found = list(inventory.entries(cache))
    if as_json:
        import json

        print(json.dumps([_document(entry) for entry in found], indent=2))
        return 0
    for entry in found:
        for snapshot in entry.snapshots:
            manifest = snapshot.manifest
            old = "" if snapshot.current else "  (superseded)"
            print(f"{manifest.source}  {manifest.revision[:12]}  {counted(len(manifest.files))}  "
                  f"{readable(manifest.size)}  {manifest.date}  {snapshot.folder}{old}")  # fmt: skip
        for path in entry.unreadable:
            print(f"{entry.source}  manifest cannot be read  {path}")
        if entry.unfinished:
            size = sum(map(inventory.size_of, entry.unfinished))
            print(f"{entry.source}  unfinished  {readable(size)}  {entry.shelf.folder}")
    return 0


def run_prune(words: Sequence[str], environ: Mapping[str, str], *, everything: bool, dry_run: bool) -> int:
    """Remove superseded snapshots, unfinished files and unused blobs; of the sources named, everything.

    An entry that somebody fetches or serves from stays, and raises BusyError once the others are done.  Raises
    NotFoundError for a source that is not there.
    """
    cache = set_up(environ).options.cache
    entries = _chosen(words, cache)
    busy: list[LauncherError] = []
    with ExitStack() as stack:
        if not dry_run:
            entries = list(_taken(entries, stack, busy))
            # Looked at anew: what was superseded before the locks were ours may be what a download has just completed.
            held = {entry.shelf.folder for entry in entries}
            entries = [entry for entry in inventory.entries(cache) if entry.shelf.folder in held]
            _sweep(cache)
        freed = 0
        for entry in entries:
            for removal in _removals(entry, everything=everything or bool(words)):
                size = removal.size
                freed += size
                print(f"{'would remove' if dry_run else 'removed'} {removal.what}, {readable(size)}")
                if not dry_run:
                    _remove(removal, cache)
    print(f"{readable(freed)} {'would be ' if dry_run else ''}freed")
    if busy:
        raise gathered(busy)
    return 0


def _chosen(words: Sequence[str], cache: str) -> list[Entry]:
    entries = list(inventory.entries(cache))
    return [_named(word, entries, cache) for word in words] if words else entries


def _taken(entries: Sequence[Entry], stack: ExitStack, busy: list[LauncherError]) -> Iterator[Entry]:
    """Those that nobody fetches or serves until the stack is left; what keeps the others is added to ``busy``."""
    for entry in entries:
        with ExitStack() as held:
            try:
                _take(entry, held)
            except BusyError as error:
                busy.append(error)
            else:
                stack.enter_context(held.pop_all())
                yield entry


def _take(entry: Entry, stack: ExitStack) -> None:
    """Make sure that nobody fetches or serves the entry until the stack is left.  Raises BusyError."""
    download = f"the download of {entry.source}"
    stack.callback(locks.acquire_now(entry.shelf.lock, download).release)
    try:
        stack.callback(locks.acquire_now(entry.shelf.used, "it").release)
    except BusyError:
        raise BusyError(
            f"{entry.source} is in use by another process, which serves or copies it",
            "Wait until it has ended, and run this again",
        ) from None
    if os.path.isdir(entry.shelf.parts):
        with Owner(entry.shelf.parts) as owner:
            if owner.has_company():  # it had no lock, or went on without one
                raise BusyError(f"{download} is going on in another process", "Wait until it has ended")


def _named(word: str, entries: Sequence[Entry], cache: str) -> Entry:
    source = parse_source(word, "the command line")
    place = shelf(cache, source.scheme, source.name)
    for entry in entries:
        if entry.shelf.folder == place.folder:  # without a manifest, nothing in the cache says the source's own name
            return entry
    raise NotFoundError(f"{place.source} is not in the cache {cache}", "See 'launcher cache ls'")


def _removals(entry: Entry, *, everything: bool) -> Iterator[Removal]:
    if everything:
        for snapshot in entry.snapshots:
            yield _snapshot(entry, snapshot)
        yield Removal(f"the rest of {entry.source}", (entry.shelf.manifests, entry.shelf.folder))
        return
    for snapshot in inventory.superseded(entry):
        yield _snapshot(entry, snapshot)
    unfinished = inventory.abandoned(entry)
    if unfinished:
        yield Removal(f"unfinished files of {entry.source}", unfinished)
    blobs = inventory.unlinked_blobs(entry.shelf)
    if blobs:
        yield Removal(f"{counted(len(blobs), 'unused file')} of {entry.source}", tuple(blobs))


def _snapshot(entry: Entry, snapshot: Snapshot) -> Removal:
    text = f"{entry.source} at {snapshot.manifest.revision[:12]} ({snapshot.folder})"
    tree = (entry.shelf.tree(snapshot.manifest.revision),) if entry.shelf.is_hub else ()
    return Removal(text, (snapshot.manifest_path, snapshot.folder, *tree))


def _remove(removal: Removal, cache: str) -> None:
    """A folder loses its name first: nobody sees half of it."""
    from shutil import rmtree

    try:
        for path in removal.paths:
            if os.path.isdir(path) and not os.path.islink(path):
                make_shared(f"{cache}/{_PRUNED}")
                aside = f"{cache}/{_PRUNED}/{os.urandom(8).hex()}"
                os.rename(path, aside)
                rmtree(aside)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(path)
    except OSError as error:
        raise explained(error, cache) from None


def _sweep(cache: str) -> None:
    """Remove what a killed prune left behind."""
    from shutil import rmtree

    rmtree(f"{cache}/{_PRUNED}", ignore_errors=True)


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "source": entry.source,
        "snapshots": [
            {
                "revision": snapshot.manifest.revision,
                "pinned": snapshot.manifest.pinned,
                "current": snapshot.current,
                "time": snapshot.manifest.time,
                "files": len(snapshot.manifest.files),
                "bytes": snapshot.manifest.size,
                "folder": snapshot.folder,
            }
            for snapshot in entry.snapshots
        ],
        "unreadable": list(entry.unreadable),
        "unfinished": sum(map(inventory.size_of, entry.unfinished)),
    }
