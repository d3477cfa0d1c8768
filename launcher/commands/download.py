"""``download-to-cache``: fill the cache, so that a later start needs no network."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from launcher import logs
from launcher.cache import locks
from launcher.cache import manifest as manifests
from launcher.cache.manifest import Manifest
from launcher.cache.snapshots import pinned_revision
from launcher.cache.verify import DIGESTS, STRUCTURE, compare, faulty
from launcher.commands.setting_up import SetUp, named_source, set_up
from launcher.errors import ConfigurationError, DeniedError, IntegrityError
from launcher.fetch.bring import bring
from launcher.fetch.describe import Described, describe, describe_anew
from launcher.fetch.local import LocalFolder
from launcher.fetch.progress import Progress, counted, readable
from launcher.places import can_make, refusal
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
        raise ConfigurationError(
            "no model is named, and there is no model manifest whose models --all could mean",
            "Give --model-uri or --profiles, or set NIM_MODEL_PATH",
        )
    enable = ready.settings.specdec_enable
    speculates = enable is not None and enable.value
    if wanted.manifest_file is not None and model is None and len({one.source for one in meant}) > 1:
        raise ConfigurationError("--manifest-file takes the manifest of one model", "Name one profile")
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
    _check_manifest_file(wanted.manifest_file, model or draft)
    named = [(label, source) for label, source in ((TARGET, model), (DRAFT, draft)) if source is not None]
    remote = [(label, source) for label, source in named if not source.is_local]
    brought = dict(zip([label for label, _ in remote], fetched(remote, ready), strict=True))
    for label, source in named:
        if source.is_local:
            LocalFolder(source.name).listing()  # says so when it is not there
            logs.info(f"{source.name} is on this machine: nothing to fetch")
        elif wanted.verify:
            brought[label] = _verified(brought[label], label, ready)
        else:
            _warn_of_damage(brought[label])
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


def fetch_again(source: str, revision: str | None = None) -> str:
    """What to do about a snapshot whose content is wrong, which a mere start would take as it is.

    ``source`` is a source's text, or its canonical one beside the ``revision`` that lies in the cache.
    """
    from shlex import quote

    scheme = source.partition("://")[0]
    pinned = pinned_revision(scheme, revision)
    name, mark, query = source.partition("?") if scheme == "ngc" else (source, "", "")
    whole = f"{name}:{pinned}{mark}{query}" if pinned else source
    return f"Run download-to-cache --model-uri {quote(whole)} --verify-checksums, which fetches what is wrong again"


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
        f"{described.source.text}: other content than the source gives is in {counted(len(wrong))}, such as "
        f"{wrong[0].path}: fetched again"
    )
    anew = describe_anew(described, options)
    return _brought([anew], [label], ready._replace(options=options))[0]


def _warn_of_damage(described: Described) -> None:
    """Weights may be broken at their source: a server would refuse them, perhaps where there is no network any more."""
    for difference in compare(described.folder, described.files, STRUCTURE).differences:
        logs.warning(f"{described.source.text}: {difference}; it cannot be served so: check the model at its source")


def _what_hinders_repair(described: Described, ready: SetUp) -> str:
    if ready.options.offline:
        return f"Unset {ready.options.offline} once, so that they can be fetched again"
    if not described.folder.startswith(f"{ready.options.cache}/"):
        return f"{described.folder} is another tool's: repair it with that, or unset HF_HUB_CACHE and HF_HOME"
    return "The source itself gives them so: check the model there"


def _verified(described: Described, label: str, ready: SetUp) -> Described:
    if not described.files:
        logs.warning(f"{described.folder} has no listing, so there are no checksums to compare with")
        return described
    report = compare(described.folder, described.files, DIGESTS)
    if report.differences:
        described = _repaired(described, label, ready)
        report = compare(described.folder, described.files, DIGESTS)
    report.settle(described.source.text, _what_hinders_repair(described, ready))
    silent = f", {report.without_digest} of them without a digest" if report.without_digest else ""
    logs.info(f"{described.source.text}: {counted(report.files)} verified{silent}, {readable(report.bytes)}")
    return described


def _check_manifest_file(path: str | None, source: ModelSource | None) -> None:
    """Refuse before a long download what would only fail after it."""
    if path is None:
        return
    if source is not None and source.is_local:
        raise ConfigurationError(f"--manifest-file: the folder {source.name} has no manifest", "Leave it out")
    whole = os.path.abspath(path)
    if os.path.isdir(whole) or not can_make(os.path.dirname(whole)):
        why = "it is a folder" if os.path.isdir(whole) else str(refusal(os.path.dirname(whole)).strerror)
        raise DeniedError(f"--manifest-file: cannot write {path}: {why}", "Give the path of a file that can be written")


def _write_manifest(path: str, brought: Mapping[str, Described]) -> None:
    """The manifest of the target, or of the draft where that alone was asked for."""
    try:
        manifests.write(os.path.abspath(path), as_manifest(brought.get(TARGET) or brought[DRAFT]))
    except OSError as error:
        raise DeniedError(f"--manifest-file: cannot write {path}: {error.strerror}", "Give a writable path") from None
