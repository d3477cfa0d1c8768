"""``download-to-cache``: fill the cache, so that a later start needs no network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from launcher import logs
from launcher.cache import locks
from launcher.cache import manifest as manifests
from launcher.cache.manifest import Manifest
from launcher.cache.verify import DIGESTS, compare, faulty
from launcher.commands.setting_up import SetUp, named_source, set_up
from launcher.errors import ConfigurationError, DeniedError, IntegrityError
from launcher.fetch.bring import bring
from launcher.fetch.describe import Described, describe, describe_anew
from launcher.fetch.local import LocalFolder
from launcher.fetch.progress import Progress, readable
from launcher.sources import ModelSource, parse_source
from launcher.typing import NamedTuple

TARGET, DRAFT = "target", "draft"


class Wanted(NamedTuple):
    """The words of the command."""

    model: str | None = None
    draft: str | None = None
    manifest_file: str | None = None
    verify: bool = False
    profiles: tuple[str, ...] = ()


def run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Fetch what is named, and print where each snapshot lies: ``target /folder``."""
    ready = set_up(environ)
    model = named_source(wanted.model, "--model-uri", ready.settings.model)
    draft = named_source(wanted.draft, "--draft-uri", ready.settings.draft)
    if wanted.profiles or (model is None and draft is None):
        return _run_profiles(wanted, ready, model, draft)
    return _run(wanted, ready, model, draft)


def _run_profiles(wanted: Wanted, ready: SetUp, model: ModelSource | None, draft: ModelSource | None) -> int:
    """Fetch the model of each profile, and where speculation is on the draft that it publishes."""
    from launcher.commands import known  # lazy: a model is named as a rule

    meant = known.meant(wanted.profiles, ready.settings)
    if not meant:
        raise ConfigurationError("no model is named", "Give --model-uri or --profiles, or set NIM_MODEL_PATH")
    enable = ready.settings.specdec_enable
    speculates = enable is not None and enable.value
    done: set[tuple[str, str]] = set()
    for one in meant:
        target = model or parse_source(one.source, one.origin)
        published = one.draft if speculates and draft is None else None
        extra = draft or (parse_source(published, one.origin) if published else None)
        if (target.text, extra.text if extra else "") not in done:
            done.add((target.text, extra.text if extra else ""))
            _run(wanted, ready, target, extra)
    return 0


def _run(wanted: Wanted, ready: SetUp, model: ModelSource | None, draft: ModelSource | None) -> int:
    named = [(label, source) for label, source in ((TARGET, model), (DRAFT, draft)) if source is not None]
    remote = [(label, source) for label, source in named if not source.is_local]
    brought = dict(zip([label for label, _ in remote], fetched(remote, ready), strict=True))
    for label, source in named:
        if source.is_local:
            LocalFolder(source.name).listing()  # says so when it is not there
            logs.info(f"{source.name} is on this machine: nothing to fetch")
        elif wanted.verify:
            brought[label] = _verified(brought[label], label, ready)
        print(f"{label} {source.name if source.is_local else brought[label].folder}")
    if wanted.manifest_file is not None:
        _write_manifest(wanted.manifest_file, brought)
    return 0


def fetched(named: list[tuple[str, ModelSource]], ready: SetUp) -> tuple[Described, ...]:
    """Complete snapshots of remote sources, each with its label.

    As long as this process lives, no prune takes them away.
    """
    described = []
    for _, source in named:
        found = describe(source, ready.options)
        for note in found.notes:
            logs.info(note)
        for warning in found.warnings:
            logs.warning(warning)
        described.append(found)
    labels = [label for label, _ in named]
    brought = _brought(described, labels, ready)
    for label, before, after in zip(labels, described, brought, strict=True):
        if before.is_complete:
            logs.info(f"{label} {after.source.text} is complete in {after.folder} (proof: {after.proof})")
        locks.share(after.shelf.used)
    return brought


def _brought(described: Sequence[Described], labels: Sequence[str], ready: SetUp) -> tuple[Described, ...]:
    progress = Progress(jsonl=ready.settings.jsonl)
    try:
        return bring(described, labels, ready.options, progress)
    finally:
        progress.stop()


def as_manifest(described: Described) -> Manifest:
    """The manifest of a complete snapshot.

    Raises IntegrityError for one that another tool made and only its index proves: nothing says what belongs to it.
    """
    own = manifests.read(described.shelf.manifest(described.revision, aside=described.aside))
    if isinstance(own, Manifest):
        return own
    if not described.files:
        raise IntegrityError(
            f"{described.folder} was made by another tool, which left no listing: nothing says what belongs to it",
            "Leave its cache out (unset HF_HUB_CACHE and HF_HOME) to fetch the model anew",
        )
    return Manifest(
        described.shelf.source, described.revision, False, manifests.now(), described.files, described.skipped
    )


def fetch_again(source: str) -> str:
    """What to do about a snapshot whose content is wrong, which a mere start would take as it is."""
    return f"Remove it with 'launcher cache prune {source}' and fetch it again"


def _repaired(described: Described, label: str, ready: SetUp) -> Described:
    """The snapshot after its files with wrong content, if any, were fetched anew; without a network it stays.

    As any download: under the lock of the source, beside the snapshot, and put into its place file by file.  So who
    serves from it meanwhile finds each file at any moment.
    """
    options = ready.options._replace(digests=True)
    ours = [described.shelf.snapshot(described.revision, aside=aside) for aside in (False, True)]
    if options.offline or described.folder not in ours:
        return described
    wrong = faulty(described.folder, described.files)
    if not wrong:
        return described
    logs.warning(
        f"{described.source.text}: {len(wrong)} files have other content than their source gives them, such as "
        f"{wrong[0].path}: they are fetched again"
    )
    anew = describe_anew(described, options)
    return _brought([anew], [label], ready._replace(options=options))[0]


def _verified(described: Described, label: str, ready: SetUp) -> Described:
    if not described.files:
        logs.warning(f"{described.folder} has no listing, so there are no checksums to compare with")
        return described
    report = compare(described.folder, described.files, DIGESTS)
    if report.differences:
        described = _repaired(described, label, ready)
        report = compare(described.folder, described.files, DIGESTS)
    report.settle(described.source.text, fetch_again(described.source.text))
    silent = f", {report.without_digest} of them without a digest" if report.without_digest else ""
    logs.info(f"{described.source.text}: {report.files} files verified{silent}, {readable(report.bytes)}")
    return described


def _write_manifest(path: str, brought: Mapping[str, Described]) -> None:
    described = brought.get(TARGET) or next(iter(brought.values()), None)
    if described is None:
        raise ConfigurationError("--manifest-file: a local folder has no manifest", "Leave it out")
    try:
        manifests.write(os.path.abspath(path), as_manifest(described))
    except OSError as error:
        raise DeniedError(f"--manifest-file: cannot write {path}: {error.strerror}", "Give a writable path") from None
