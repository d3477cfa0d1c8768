"""``launcher report --bundle``: plan, versions, settings, logs and a running server's own word, for a bug report."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence

from launcher import __version__, logs, process
from launcher.commands.measuring import means
from launcher.commands.prepare import prepare
from launcher.errors import ConfigurationError, LauncherError
from launcher.plan import document, refusal_document
from launcher.report.bundle import pack, tail
from launcher.report.live import get, root
from launcher.settings.names import named_like_a_secret
from launcher.settings.parse import early_log_setup
from launcher.settings.variables import BY_NAME, CANONICAL
from launcher.typing import Any, NamedTuple

_PREFIXES = ("NIM_", "VLLM_", "HF_", "AWS_", "LWS_", "CUDA_", "NVIDIA_", "NCCL_", "TORCH", "OMP_", "LD_")
_ASKED = {
    "metrics.txt": "/metrics",
    "server/version.json": "/v1/version",
    "server/models.json": "/v1/models",
    "server/metadata.json": "/v1/metadata",
    "server/ready.json": "/v1/health/ready",
}
_NOTE = """\
Made by launcher report --bundle.  Credentials are masked by their value and by their shape; look through it all
the same before you pass it on: names, paths and addresses are in it, and the log may hold what clients sent.

plan.json      what `launcher plan --json` prints with these settings
settings.json  the environment, as far as launcher and engine read it
versions.json  launcher, Python, packages, system
log-*.txt      the end of each log that was named with --log
metrics.txt, server/  what the server at --url said
"""


class Wanted(NamedTuple):
    """The words of the command line."""

    path: str
    url: str | None
    logs: tuple[str, ...]  # files
    words: tuple[str, ...]  # MODEL and vLLM's arguments, as for `plan`


def run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Write the archive and say what is in it, and what should be and is not.

    Raises ConfigurationError for an archive's name or a server's address that cannot be.
    """
    logs.configure(*early_log_setup(environ))
    if not wanted.path.endswith((".tar.gz", ".tgz")):
        raise ConfigurationError(f"--bundle: {wanted.path!r} ends neither in .tar.gz nor in .tgz", "Name it so")
    server = None if wanted.url is None else root(wanted.url)
    files = {"README.txt": _NOTE, "plan.json": _json(_plan(wanted.words, environ))}
    files["settings.json"] = _json(_settings(environ))
    files["versions.json"] = _json(_versions())
    for number, path in enumerate(wanted.logs, 1):
        files[f"log-{number}.txt"], unread = tail(path)
        if unread:
            logs.warning(f"--log: {unread}")
    files |= (
        {"termination-log.txt": tail(process.TERMINATION_LOG)[0]} if os.path.exists(process.TERMINATION_LOG) else {}
    )
    if server is not None:
        files |= dict(_asked(server, environ))
    pack(wanted.path, files)
    print(f"{wanted.path}: {', '.join(files)}")
    return 0


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _plan(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The plan, or the refusal: a launch that does not start is what most reports are about."""
    warnings: list[str] = []
    try:
        return document(prepare(words, environ, warnings).plan)
    except LauncherError as error:
        logs.add_secrets(error.secrets)
        return refusal_document(error, warnings)


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that somebody here reads; of credentials only that they are set."""
    shown = {}
    for name, value in sorted(environ.items()):
        if name in CANONICAL or name.startswith(_PREFIXES):
            row = BY_NAME.get(CANONICAL.get(name, ""))
            secret = named_like_a_secret(name) or (row is not None and row.secret)
            shown[name] = logs.MASK if secret and value.strip() else value
    return shown


def _versions() -> dict[str, Any]:
    from importlib.metadata import distributions

    packages = {str(found.metadata["Name"]): found.version for found in distributions()}
    return {
        "launcher": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "user": f"{os.getuid()}:{os.getgid()}",
        "processors": os.cpu_count(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def _asked(server: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What a running server says; where it says nothing, why."""
    key = means(environ, None).key
    for name, path in _ASKED.items():
        try:
            yield name, get(f"{server}{path}", key, environ)
        except LauncherError as error:
            logs.warning(f"{name}: {error.what}")
            yield name, f"{error}\n"
