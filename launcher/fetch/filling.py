"""Fetching what a cache lacks, for all sources of a start in one download.

Everything that can be known beforehand is: who may write the cache, whether all of it fits on the disk, whether each
source may be read.  A snapshot gets its name when all its files are there, and its manifest after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress

from launcher import logs
from launcher.cache import locks, manifest, snapshots
from launcher.cache.building import Site, distinct, explained, link_or_copy, place_all
from launcher.cache.manifest import Manifest, Newer
from launcher.cache.parts import Owner
from launcher.cache.reuse import Stock, other_names, reuse, stock
from launcher.cache.snapshots import Known
from launcher.cache.verify import faulty
from launcher.errors import IntegrityError, LauncherError, NoSpaceError
from launcher.fetch.cached import snapshot_source
from launcher.fetch.describe import Described
from launcher.fetch.options import FetchOptions
from launcher.fetch.peek import Peek
from launcher.fetch.progress import Progress, counted, readable
from launcher.fetch.remote import RemoteFile
from launcher.places import can_make, let_group_write, refusal
from launcher.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launcher.fetch.incoming import Job

# Fetches every job's file into its part: complete and checked when it returns.
Transfer = Callable[[Sequence["Job"], Progress], None]


def fill(
    wanted: Sequence[Described],
    labels: Sequence[str],
    options: FetchOptions,
    progress: Progress,
    transfer: Transfer | None = None,
) -> list[Described]:
    """Complete every source; see `launcher.fetch.bring.bring`."""
    _refuse_unwritable(options.cache)
    _check_access(wanted, labels, progress)
    with ExitStack() as stack:
        for lock in _lock_all([described for described in wanted if not described.is_complete], options):
            stack.callback(lock.release)
        wanted = [_looked_up_again(described, options) for described in wanted]
        try:
            _fill(wanted, labels, options, progress, transfer or _engine(options), stack)
        except OSError as error:
            raise explained(error, options.cache) from None
    return [_completed(described) for described in wanted]


class _Work(NamedTuple):
    """What is left to do for one source."""

    described: Described
    label: str
    site: Site
    owner: Owner
    groups: list[list[RemoteFile]]  # of equal content
    at_hand: Stock

    def remaining(self, check: bool) -> Iterator[list[RemoteFile]]:
        """What must be fetched; what can be had without is put into place meanwhile.  Raises OSError."""
        for group in self.groups:
            if group[0].size == 0:
                self._place_empty(group, check)
            elif not reuse(self.site, group, self.at_hand, check):
                yield group

    def _place_empty(self, group: list[RemoteFile], check: bool) -> None:
        """Files without content need no transfer, but the same proof."""
        from launcher.fetch.digests import running

        digest = group[0].digest
        if check and digest is not None and running(digest, 0).hexdigest() != digest.value:
            raise IntegrityError(
                f"{self.described.source.text}: {group[0].path} is said to be empty, and to have the "
                f"{digest.algorithm} {digest.value}, which an empty file has not",
                "Check the source",
            )
        part = self.owner.claim(group[0])
        descriptor = os.open(part.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        let_group_write(descriptor)
        os.close(descriptor)
        place_all(self.site, part.path, group)


class _Fetched(NamedTuple):
    """A job, and where its file belongs."""

    job: Job
    site: Site
    group: list[RemoteFile]

    def place(self) -> None:
        # A wrong file that is replaced is one in all its snapshots: each would hand it on to the next revision.
        shared = {file: other_names(self.site, file) for file in self.group}
        place_all(self.site, self.job.part, self.group)
        for file, names in shared.items():
            for name in names:
                link_or_copy(f"{self.site.folder}/{file.path}", name, self.site.scratch)
        with suppress(FileNotFoundError):
            os.unlink(self.job.record)


def _fill(
    wanted: Sequence[Described],
    labels: Sequence[str],
    options: FetchOptions,
    progress: Progress,
    transfer: Transfer,
    stack: ExitStack,
) -> None:
    work = []
    for described, label in zip(wanted, labels, strict=True):
        if not described.is_complete:
            site = described.site
            owner = stack.enter_context(Owner(described.shelf.parts))
            to_do = distinct(_to_do(described, site, options.digests))
            at_hand = Stock() if described.distrusted else stock(described.shelf, options.hubs)
            work.append(_Work(described, label, site, owner, to_do, at_hand))
    _refuse_small_disk(work, options)
    fetched = [_fetched(one, group) for one in work for group in one.remaining(options.digests)]
    if fetched:
        _announce(work, fetched)
        transfer([one.job for one in fetched], progress)
    for piece in fetched:
        piece.place()
    for one in work:
        one.site.finish(_manifest(one), one.described.asked)


def _to_do(described: Described, site: Site, check: bool) -> list[RemoteFile]:
    """What a snapshot lacks.

    In one that is distrusted, and in one that another tool began and nobody has checked, also what has other content.
    """
    if described.distrusted:
        return faulty(site.folder, site.files)
    missing = site.lacking()
    if not check or not site.shelf.is_hub or site.folder != site.final or isinstance(_own_manifest(site), Manifest):
        return missing
    wrong = faulty(site.final, [file for file in site.files if file not in missing])
    return [*missing, *wrong]


def _fetched(one: _Work, group: list[RemoteFile]) -> _Fetched:
    from launcher.fetch.incoming import Job

    assert one.described.remote is not None, "what is complete needs no work"
    part = one.owner.claim(group[0])
    return _Fetched(Job(one.described.remote, group[0], part.path, part.record, one.label), one.site, group)


def _engine(options: FetchOptions) -> Transfer:
    from launcher.fetch.transfer import Options, download

    settings = Options(verify="digest" if options.digests else "size", environ=options.environ)
    if options.connections is not None:
        settings = settings._replace(connections=options.connections)
    return lambda jobs, progress: download(jobs, settings, progress)


def _check_access(wanted: Sequence[Described], labels: Sequence[str], progress: Progress) -> None:
    """Read a little of every source before much of any: some list to everybody what only few may read."""
    for described, label in zip(wanted, labels, strict=True):
        if isinstance(described.reader, Peek):
            try:
                described.reader.check_access()
            except LauncherError:
                progress.blamed = label
                raise


def _lock_all(pending: Sequence[Described], options: FetchOptions) -> Iterator[locks.Held]:
    """One lock after the other, in an order that all launchers share, so that none waits for one that waits for it."""
    for path, text in sorted({described.shelf.lock: described.source.text for described in pending}.items()):
        yield locks.acquire(path, f"the download of {text}", options.lock_limit)


def _looked_up_again(described: Described, options: FetchOptions) -> Described:
    """Complete, if another launcher completed the very revision while we waited for it."""
    if described.is_complete or described.distrusted:
        return described
    known = snapshots.find(described.shelf, described.revision, options.hubs, described.wishes)
    if not isinstance(known, Known) or not snapshots.has_all(known, described.files):
        return described
    reader = snapshot_source(known.folder, known.files)
    return described._replace(
        folder=known.folder, proof=known.proof, files=known.files, skipped=known.skipped, reader=reader, remote=None
    )


def _refuse_unwritable(cache: str) -> None:
    if not can_make(cache):
        raise explained(refusal(cache), cache)


def _refuse_small_disk(work: Iterable[_Work], options: FetchOptions) -> None:
    """Raise NoSpaceError when what is lacking does not fit.  Parts that exist hold their room already."""
    status = os.statvfs(options.cache)
    device = os.stat(options.cache).st_dev
    needed = 0
    for one in work:
        for group in one.groups:
            needed += _room(group[0], one.at_hand, one.owner, device, status.f_frsize)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        texts = [one.described.source.text for one in work]
        names = f"{' and '.join(texts)} still need{'' if len(texts) > 1 else 's'}"
        raise NoSpaceError(
            f"{names} {readable(needed)}, and {options.cache} has {readable(free)} free",
            "Free some space, set NIM_CACHE_PATH to a larger volume, or remove old models with 'launcher cache prune'",
        )


def _room(file: RemoteFile, at_hand: Stock, owner: Owner, device: int, block: int) -> int:
    for donor in at_hand.donors(file):
        if os.stat(donor.path).st_dev == device:
            return 0  # a link
    part = owner.claim(file)
    have = os.stat(part.path).st_blocks * 512 if os.path.exists(part.path) else 0
    return max(0, -(-file.size // block) * block - have)


def _manifest(one: _Work) -> Manifest:
    """What the finished snapshot consists of: with what an earlier start, with other wishes, fetched of it."""
    described = one.described
    files = {file.path: file for file in described.files}
    earlier = _own_manifest(one.site)
    if isinstance(earlier, Manifest):
        lost = set(snapshots.lacking(one.site.folder, earlier.files))
        files |= {file.path: file for file in earlier.files if file not in lost and file.path not in files}
    skipped = tuple(file for file in described.skipped if file.path not in files)
    return Manifest(
        source=described.shelf.source,
        revision=described.revision,
        pinned=snapshots.pinned_revision(described.shelf.scheme, described.asked) is not None,
        time=manifest.now(),
        files=tuple(files[path] for path in sorted(files)),
        skipped=skipped,
        wishes=described.wishes,
    )


def _own_manifest(site: Site) -> Manifest | Newer | None:
    return manifest.read(site.shelf.manifest(site.revision, aside=site.aside))


def _completed(described: Described) -> Described:
    if described.is_complete:
        return described
    return described._replace(
        remote=None, proof=snapshots.MANIFEST, reader=snapshot_source(described.folder, described.files)
    )


def _announce(work: Iterable[_Work], fetched: Sequence[_Fetched]) -> None:
    for one in work:
        sizes = [piece.job.file.size for piece in fetched if piece.site is one.site]
        present = one.described.size - sum(sizes)
        kept = f", {readable(present)} are here already" if present else ""
        logs.info(
            f"fetching {one.described.source.text} at {one.described.revision[:12]}: {counted(len(sizes))}, "
            f"{readable(sum(sizes))}{kept}"
        )
