"""NIM's model manifest, version 2: which profiles an image offers, and the files of each.

NVIDIA's Kubernetes operator reads it from the image; an image derived from ours may bring one that pins its model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.errors import ConfigurationError, HardwareError
from launcher.offered import FILE, VERSION, Offered
from launcher.profiles.values import Profile
from launcher.typing import Any

PATHS = ("/opt/nim/etc/default/model_manifest.yaml", "/etc/nim/config/model_manifest.yaml")


def of_profile(profile: Profile, files: Mapping[str, str]) -> Offered:
    """A profile of ours, as a manifest offers it; all tags are texts."""
    tags = {
        "llm_engine": "vllm",
        "precision": profile.precision,
        "tp": str(profile.tp),
        "pp": str(profile.pp),
        "feat_lora": "false",
        "model": profile.model.name,
        "source": profile.sources[0] if profile.sources else "",
    }
    return Offered(profile.id, tags, files)


def present(paths: Sequence[str] = PATHS) -> str | None:
    """The manifest of this image, if it has one."""
    import os

    return next((path for path in paths if os.path.isfile(path)), None)


def read(path: str) -> tuple[Offered, ...]:
    """The profiles of the manifest at ``path``, those of other engines left out.

    Raises ConfigurationError when it is no manifest of version 2.
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as stream:
            document = yaml.safe_load(stream)
    except (OSError, ValueError, yaml.YAMLError) as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        raise ConfigurationError(f"{path}{line} cannot be read as a model manifest", "Correct the file") from None
    if not isinstance(document, Mapping) or not str(document.get("schema_version", "")).startswith("2."):
        raise ConfigurationError(f"{path} is no model manifest of schema_version 2", f"Write schema_version: {VERSION}")
    entries = document.get("profiles")
    if not isinstance(entries, list):
        raise ConfigurationError(f"{path} has no list of profiles", "Add profiles, each with id, tags and workspace")
    found = tuple(_offered(entry, position, path) for position, entry in enumerate(entries))
    return tuple(one for one in found if one.description.startswith("vllm-"))


def _offered(entry: Any, position: int, path: str) -> Offered:
    where = f"{path}: profiles[{position}]"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
        raise ConfigurationError(f"{where} has no id", "Give each profile its id")
    tags, workspace = entry.get("tags") or {}, entry.get("workspace") or {}
    files = workspace.get("files") or {} if isinstance(workspace, Mapping) else {}
    if not isinstance(tags, Mapping) or not isinstance(files, Mapping):
        raise ConfigurationError(f"{where} has tags or files that are no mapping", "Write them as key: value")
    uris: dict[str, str] = {}
    for name, file in files.items():
        uri = file.get("uri") if isinstance(file, Mapping) else None
        if not isinstance(uri, str):
            raise ConfigurationError(
                f"{where}: the file {name} has no uri", "Give it one, such as ngc://org/m:1?file=x"
            )
        uris[str(name)] = uri
    return Offered(entry["id"], {str(key): str(value) for key, value in tags.items()}, uris)


def wanted(offered: Sequence[Offered], wish: str | None, origin: str, path: str) -> Offered:
    """The profile that ``wish`` names by id or description, or the only one with files.

    Raises HardwareError (exit code 9) where the choice is not clear.
    """
    ready = [one for one in offered if one.files]
    if wish is not None:
        words = wish.replace("(", " ").replace(")", " ").split()
        for one in ready:
            if one.id in words or one.description in words:
                return one
        raise HardwareError(f"{origin}: {path} offers no profile {wish}", _choices(ready))
    if len(ready) == 1:
        return ready[0]
    raise HardwareError(f"{path} offers {len(ready)} profiles with files, and none is named", _choices(ready))


def _choices(ready: Sequence[Offered]) -> str:
    named = ", ".join(f"{one.id} ({one.description})" for one in ready[:3])
    return f"Set NIM_MODEL_PROFILE to one of them: {named}" if named else "Name a model with NIM_MODEL_PATH"


def source_of(one: Offered, path: str) -> str:
    """The pinned source that all files of a profile come from: ``ngc://org/model:1``.

    Raises ConfigurationError where they come from several, or would lie elsewhere than in their source.
    """
    sources = {uri.partition(FILE)[0] for uri in one.files.values()}
    if len(sources) != 1:
        raise ConfigurationError(
            f"{path}: the files of {one.description} come from {len(sources)} sources",
            "Name one source for all of them",
        )
    moved = [name for name, uri in one.files.items() if FILE in uri and uri.partition(FILE)[2] != name]
    if moved:
        raise ConfigurationError(
            f"{path}: the file {moved[0]} of {one.description} has another name in its source", "Use the same names"
        )
    return sources.pop()
