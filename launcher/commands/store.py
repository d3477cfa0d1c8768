"""``create-model-store``: a model as a plain folder to carry over, or as a mirror to fetch from."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from launcher import logs
from launcher.cache import locks
from launcher.cache import manifest as manifests
from launcher.cache.building import copy_file, link_or_copy, same_file
from launcher.cache.layout import OWN_FOLDERS
from launcher.cache.manifest import Manifest
from launcher.cache.verify import digest_of, faulty
from launcher.commands.download import TARGET, as_manifest, fetch_again, fetched
from launcher.commands.setting_up import SetUp, named_source, set_up
from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NoSpaceError
from launcher.fetch.local import LocalFolder
from launcher.fetch.names import is_safe
from launcher.fetch.override import LATEST, MANIFEST
from launcher.fetch.progress import counted, readable
from launcher.fetch.remote import Digest, RemoteFile
from launcher.layout import OWN_PREFIX
from launcher.places import can_make, refusal
from launcher.sources import ModelSource, parse_source
from launcher.typing import NamedTuple

STORE_MANIFEST = f"{OWN_PREFIX}manifest.json"  # in a plain folder: hidden, and of no concern to an engine
_SHA256 = Digest("sha256", "")
_LINKED = 64 * 1024 * 1024  # bytes from which a file of the store is another name of the one in the cache


class Wanted(NamedTuple):
    """The words of the command."""

    store: str
    model: str | None = None
    mirror: bool = False
    profile: str | None = None


def run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Write the store, and print its folder."""
    ready = set_up(environ)
    source = named_source(wanted.model, "--model-repo", ready.settings.model)
    if source is None:
        source = _of_profile(wanted, ready)
    if source is None:
        raise ConfigurationError("no model is named", "Give --model-repo, or set NIM_MODEL_PATH")
    if not wanted.store.strip():
        raise ConfigurationError("-m names no folder", "Give the folder to write; is its variable set?")
    store = os.path.abspath(wanted.store)
    if wanted.mirror and not source.is_local:
        store = mirror_folder(store, source)
    _refuse_places_of_others(store, source, ready.options.cache)
    _refuse_unusable(store, wanted, source, ready.options.override)
    if source.is_local:
        if wanted.mirror:
            raise ConfigurationError(
                f"--mirror: {source.name} is a folder, and a mirror stands for a remote source",
                "Give --model-repo as it would be fetched, such as hf://org/model",
            )
        folder, manifest = source.name, _of_folder(source)
    else:
        (described,) = fetched([(TARGET, source)], ready)
        folder, manifest = described.folder, as_manifest(described)
    try:
        write_store(folder, manifest, store, MANIFEST if wanted.mirror else STORE_MANIFEST)
    except OSError as error:
        raise _unwritable(error, wanted.store) from None
    logs.info(f"{source.text}: {counted(len(manifest.files))}, {readable(manifest.size)} in {store}")
    print(store)
    return 0


def _refuse_places_of_others(store: str, source: ModelSource, cache: str) -> None:
    """Neither the model itself nor what the launcher keeps in its cache is written to."""
    real = f"{os.path.realpath(store)}/"
    if source.is_local and real.startswith(f"{os.path.realpath(source.name)}/"):
        raise ConfigurationError(f"-m {store}: the store would lie in the model {source.name}", "Give another folder")
    root = os.path.realpath(cache)
    if real == f"{root}/" or real.startswith(tuple(f"{root}/{name}/" for name in OWN_FOLDERS)):
        raise ConfigurationError(
            f"-m {store}: the store would lie in the cache {cache} among the launcher's own folders",
            "Give another folder",
        )


def _refuse_unusable(store: str, wanted: Wanted, source: ModelSource, override: str | None) -> None:
    """Say before a long download what would only show after it."""
    if not can_make(store):
        raise _unwritable(refusal(store), wanted.store)
    if override is None and "?" not in source.text and not source.is_local:  # the cache calls others otherwise
        _earlier(store, MANIFEST if wanted.mirror else STORE_MANIFEST, f"{source.scheme}://{source.name}")


def _of_profile(wanted: Wanted, ready: SetUp) -> ModelSource | None:
    """The model that a profile stands for."""
    from launcher.commands import known  # lazy: a model is named as a rule

    meant = known.meant((wanted.profile,) if wanted.profile else (), ready.settings)
    return parse_source(meant[0].source, meant[0].origin) if len(meant) == 1 else None


def mirror_folder(root: str, source: ModelSource) -> str:
    """Where a mirror at ``root`` keeps a source."""
    below = f"{source.scheme}/{source.name}/{source.revision or LATEST}"
    if not is_safe(below):
        raise ConfigurationError(
            f"--mirror: {source.text!r} cannot be a folder", "A mirror needs names without '..' and empty parts"
        )
    return f"{root}/{below}"


def write_store(folder: str, manifest: Manifest, store: str, name: str) -> None:
    """Put the files of ``folder`` into ``store``, and the manifest under ``name`` last.

    Files of an earlier revision that are no longer part of it go.  Raises BusyError while another process writes the
    store, ConfigurationError rather than replace what is not ours, and OSError.
    """
    os.makedirs(store, exist_ok=True)
    lock = locks.acquire_folder(store, f"the store {store}")
    try:
        earlier = _earlier(store, name, manifest.source)
        _refuse_foreign(store, manifest.files, earlier, name)
        complete = tuple(_with_digest(folder, file) for file in manifest.files)
        with suppress(FileNotFoundError):
            os.unlink(f"{store}/{name}")  # from here on, until it is complete, nothing vouches for the store
        scratch = f"{store}/{OWN_PREFIX}new"
        kept = set(earlier) - set(faulty(store, earlier))
        for file in complete:
            if file in kept:
                continue
            is_same = same_file(f"{folder}/{file.path}", f"{store}/{file.path}")
            if is_same and not _has_content(f"{store}/{file.path}", file):
                raise IntegrityError(
                    f"{folder}/{file.path}, of which the store has another name, does not have the "
                    f"{file.digest.algorithm if file.digest else 'digest'} that its source gives",
                    fetch_again(manifest.source, manifest.revision),
                )
            if not is_same:
                # Whoever edits a small file of the store must not change the cache with it.
                place = link_or_copy if file.size >= _LINKED else copy_file
                place(f"{folder}/{file.path}", f"{store}/{file.path}", scratch)
        _remove_old(store, earlier, {file.path for file in complete})
        with suppress(OSError):
            os.rmdir(scratch)
        manifests.write(f"{store}/{name}", manifest._replace(files=complete))
    finally:
        lock.release()


def _unwritable(error: OSError, store: str) -> LauncherError:
    """An error of writing the store, as a refusal."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(f"-m {store}: {error.strerror}", "Free some space, or give a folder on a larger volume")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ConfigurationError(f"-m {store}: a file is where the folder belongs", "Give a folder")
    return DeniedError(f"-m {store}: it cannot be written: {error.strerror}", "Give a folder that can be written")


def _of_folder(source: ModelSource) -> Manifest:
    """A folder of this machine, as it is now."""
    files = tuple(
        RemoteFile(entry.path, entry.size, "", None)
        for entry in LocalFolder(source.name).listing()
        if not entry.path.startswith(OWN_PREFIX)
    )
    return Manifest(f"local://{source.name}", LATEST, False, manifests.now(), files)


def _earlier(store: str, name: str, source: str) -> Sequence[RemoteFile]:
    """The files that an earlier call put there.  Raises ConfigurationError when they are of another source."""
    found = manifests.read(f"{store}/{name}")
    if not isinstance(found, Manifest):
        return ()
    if found.source != source:
        raise ConfigurationError(
            f"the store {store} holds {found.source}, not {source}", "Give each model a store of its own"
        )
    return found.files


def _refuse_foreign(store: str, files: Iterable[RemoteFile], earlier: Iterable[RemoteFile], name: str) -> None:
    ours = {file.path for file in earlier}
    for file in files:
        path = f"{store}/{file.path}"
        if file.path == name:
            raise ConfigurationError(
                f"the model has a file {name!r} of its own, where the store's manifest belongs",
                "Make a plain store (without --mirror), or leave the file out with NIM_FETCH_EXCLUDE",
            )
        if file.path in ours or not os.path.lexists(path):
            continue
        if os.path.isdir(path) or os.stat(path).st_size != file.size or not _has_content(path, file):
            raise ConfigurationError(
                f"{path} is already there and is something else", "Give an empty folder as the model store"
            )


def _has_content(path: str, file: RemoteFile) -> bool:
    return file.digest is not None and digest_of(path, file.digest, file.size) == file.digest.value


def _with_digest(folder: str, file: RemoteFile) -> RemoteFile:
    """A store is carried to where nothing else can vouch for it: every file gets a digest."""
    if file.digest is not None:
        return file
    return file._replace(digest=Digest("sha256", digest_of(f"{folder}/{file.path}", _SHA256, file.size)))


def _remove_old(store: str, earlier: Iterable[RemoteFile], kept: set[str]) -> None:
    for file in earlier:
        if file.path not in kept and is_safe(file.path):
            with suppress(OSError):
                os.unlink(f"{store}/{file.path}")
                os.removedirs(os.path.dirname(f"{store}/{file.path}"))
