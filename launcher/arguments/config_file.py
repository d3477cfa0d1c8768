"""Reading vLLM's ``--config`` file (an effect: opens the file)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import ConfigurationError, shortened
from launcher.typing import Any

_EXTENSIONS = ("yaml", "yml")


def read_config(path: str) -> Mapping[str, Any]:
    """The mapping in a YAML file of vLLM flags.  Raises ConfigurationError for a file that vLLM would not take."""
    from pathlib import Path

    where = f"--config {shortened(path)}"
    if path.rpartition(".")[2] not in _EXTENSIONS:
        raise ConfigurationError(f"{where}: vLLM takes a .yaml or .yml file only", "Rename the file")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(
            f"{where} cannot be read: {reason}", "Check the path; is the volume mounted?"
        ) from None
    document = _mapping(text, where)
    if document is None:
        raise ConfigurationError(f"{where} holds no mapping of flags to values", "Write lines such as 'port: 8000'")
    return document


def _mapping(text: str, where: str) -> Mapping[str, Any] | None:
    import yaml

    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # Beside its own errors, PyYAML lets through whatever goes wrong in the reading of !!int, !!bool and their like.
        mark = getattr(error, "problem_mark", None)
        at = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = _unquoted(getattr(error, "problem", None) or "it cannot be read")
        raise ConfigurationError(f"{where} is not YAML{at}: {problem}", "Correct the file") from None
    return document if isinstance(document, dict) else None


def _unquoted(problem: str) -> str:
    """PyYAML's complaint up to where it quotes from the file, which may hold a secret.

    What it quotes of the language itself stays: single characters, and kinds of tokens (``'<block end>'``).
    """
    import re

    found = re.match(r"""(?:[^"']|'<[\w ]+>'|'\\?.'|"'")*""", problem)
    return found[0].rstrip() if found else ""
