"""What is served: the documents of /v1/version, /v1/license, /v1/metadata and /v1/manifest.

Files are read when somebody asks for the first time, in a thread, and remembered: they lie under a snapshot that does
not change while it is served.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from threading import Lock

from launcher.middleware.configuration import Configuration, Model
from launcher.offered import FILE, Offered, to_yaml
from launcher.typing import Any, NamedTuple

_LICENCES = re.compile(r"(licen[cs]e|copying)([._-].*)?", re.IGNORECASE)
_CARD = "README.md"  # on Hugging Face the model card, whose head names the licence
_REVISED = ("hf", "modelscope", "ngc")  # schemes whose sources end in a revision
_DESCRIPTION = re.compile(r"vllm-(?P<precision>[a-z0-9_]+)-tp(?P<tp>\d+)-pp(?P<pp>\d+)")
_LONGEST_TEXT = 1 << 20  # bytes of a licence or a model card that are read
_SAMPLE = 1 << 16  # bytes at each end of a file that stand for it where no digest is recorded


class Licence(NamedTuple):
    name: str  # the file's, or what the model card calls the licence
    path: str
    text: str
    url: str = ""

    def document(self) -> dict[str, Any]:
        """In NIM's terms: ``sha`` is SHA-1 of the content, ``size`` its length in characters."""
        sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        return {
            "name": self.name,
            "path": self.path,
            "sha": sha,
            "size": len(self.text),
            "url": self.url,
            "type": "file",
            "content": self.text,
        }


class Facts:
    """Each method gives a status and a document."""

    def __init__(self, configuration: Configuration) -> None:
        self._told = configuration
        self._lock = Lock()  # two who ask at once would both hash the files
        self._models: list[dict[str, Any]] | None = None

    def version(self) -> tuple[int, Mapping[str, Any]]:
        return 200, {"release": self._told.launcher, "api": self._told.engine}

    def license(self) -> tuple[int, Mapping[str, Any]]:
        licence = licence_of(self._told.models[0].folder) if self._told.models else None
        if licence is None:
            return 404, {"error": "the model's folder holds neither a licence file nor a model card that names one"}
        return 200, licence.document()

    def metadata(self) -> tuple[int, Mapping[str, Any]]:
        told = self._told
        licence = licence_of(told.models[0].folder) if told.models else None
        brief = {key: value for key, value in licence.document().items() if key != "content"} if licence else None
        spoken = told.speculation._asdict()
        draft = next((model for model in told.models if model.role == "draft"), None)
        return 200, {
            "version": told.launcher,
            "engine": {"name": "vllm", "version": told.engine},
            "assetInfo": [_asset(model) for model in told.models],
            "licenseInfo": brief,
            "modelInfo": self._described(),
            "repository_override": told.repository_override,
            "selectedModelProfileId": (told.profile or {}).get("id", ""),
            "profile": told.profile,
            "speculation": {**spoken, "model": draft.source if draft else None},
        }

    def manifest(self) -> tuple[int, Mapping[str, Any]]:
        """The model manifest of what is served, as NIM makes one of a model without its own."""
        told = self._told
        files = {model.role: files_of(model) for model in told.models}
        offered = [_offered(told, told.models[0], files["target"])] if told.models else []
        models = [
            {
                "role": model.role,
                "source": model.source,
                "revision": model.revision,
                "files": [file._asdict() for file in files[model.role]],
            }
            for model in told.models
        ]
        return 200, {
            "manifest_file": to_yaml(offered, {"models": models}),
            "repository_override": told.repository_override,
        }

    def _described(self) -> list[dict[str, Any]]:
        with self._lock:
            if self._models is None:
                self._models = [describe(model) for model in self._told.models]
            return self._models


class File(NamedTuple):
    path: str  # below the model's folder
    size: int  # bytes
    digest: str | None  # "sha256:…"


def describe(model: Model) -> dict[str, Any]:
    """One model for /v1/metadata.  ``shortName`` and ``modelUrl`` are NIM's names."""
    licence = licence_of(model.folder)
    return {
        "shortName": model.name,
        "modelUrl": model.source,
        "role": model.role,
        "revision": model.revision,
        "license": licence.name if licence else None,
        "digest": digest_of(model),
        "bytes": model.bytes,
        "path": model.folder,
        "proof": model.proof,
    }


def _offered(told: Configuration, target: Model, files: list[File]) -> Offered:
    """What is served as the one profile of a manifest."""
    profile = told.profile or {}
    tags = {"llm_engine": "vllm"}
    # "vllm-bf16-tp2-pp1": the description that names a profile is made of its tags.
    spoken = _DESCRIPTION.match(profile.get("description", ""))
    tags |= spoken.groupdict() if spoken else {}
    source = _pinned(target)
    tags |= {"model": target.name, "source": source}
    return Offered(profile.get("id", ""), tags, {file.path: f"{source}{FILE}{file.path}" for file in files})


def _pinned(model: Model) -> str:
    """A model's source with the revision that is served, where its scheme can name one."""
    scheme, separator, rest = model.source.partition("://")
    if not separator:
        return f"local://{model.source}"
    if scheme not in _REVISED or not model.revision:
        return model.source
    return f"{scheme}://{rest.partition(':')[0]}:{model.revision}"


def licence_of(folder: str | None) -> Licence | None:
    """The licence file of a model's folder; failing that, what its model card names."""
    if folder is None:
        return None
    name = next((name for name in _names(folder) if _LICENCES.fullmatch(name)), None)
    if name is not None:
        text = _text(f"{folder}/{name}")
        if text is not None:
            return Licence(name, f"{folder}/{name}", text)
    card = _text(f"{folder}/{_CARD}")
    head = _card_head(card) if card else {}
    named = head.get("license_name") or head.get("license")
    return Licence(named, f"{folder}/{_CARD}", "", head.get("license_link", "")) if named else None


def digest_of(model: Model) -> str | None:
    """One digest for all files of a model; equal where every file is.

    ``sha256:`` is made from the digests that the model's source gave for each file.  ``sampled-sha256:`` stands for a
    folder without such a record: from the name and size of each file and its first and last 64 KiB, since the whole of
    it may be hundreds of gigabytes.
    """
    files = files_of(model)
    if not files:
        return None
    total = hashlib.sha256()
    if all(file.digest for file in files):
        for file in files:
            total.update(f"{file.path}\0{file.size}\0{file.digest}\n".encode("utf-8", "surrogatepass"))
        return f"sha256:{total.hexdigest()}"
    try:
        for file in files:
            total.update(f"{file.path}\0{file.size}\n".encode("utf-8", "surrogatepass"))
            for piece in _ends(f"{model.folder}/{file.path}", file.size):
                total.update(piece)
    except OSError:
        return None
    return f"sampled-sha256:{total.hexdigest()}"


def files_of(model: Model) -> list[File]:
    """A model's files by path: by the launcher's record of them, else as they lie in the folder."""
    recorded = _recorded(model.manifest) if model.manifest else None
    if recorded is not None:
        return recorded
    return sorted(_listed(model.folder)) if model.folder else []


def _recorded(manifest: str) -> list[File] | None:
    try:
        with open(manifest, encoding="utf-8") as file:
            rows = json.load(file)["files"]
        return sorted(File(row["path"], row["size"], row["digest"]) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _listed(folder: str) -> Iterator[File]:
    for here, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = f"{here}/{name}"
            try:
                yield File(path[len(folder) + 1 :], os.stat(path).st_size, None)
            except OSError:
                continue


def _ends(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield file.read(_SAMPLE)
        if size > _SAMPLE:
            file.seek(max(_SAMPLE, size - _SAMPLE))
            yield file.read(_SAMPLE)


def _asset(model: Model) -> str:
    return f"{model.source}@{model.revision}" if model.revision else model.source


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST_TEXT).decode("utf-8", "replace")
    except OSError:
        return None


def _card_head(card: str) -> dict[str, str]:
    """The plain entries of a model card's YAML head."""
    lines = card.splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    found: dict[str, str] = {}
    for line in lines[1:]:
        if line.strip() == "---":
            return found
        key, colon, value = line.partition(":")
        if colon and value.strip() and not line[0].isspace():
            found.setdefault(key.strip(), value.strip().strip("'\""))
    return {}
