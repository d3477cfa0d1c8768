"""Runtime-config documents: JSON objects whose keys are vLLM's flags.

``NIM_SPECDEC_ARGS`` holds one, and a model folder may bring one as ``runtime_config.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.arguments.options import options_of
from launcher.arguments.spellings import hidden, laid_over, parse_document, parse_words
from launcher.arguments.typed import shown
from launcher.arguments.values import Parsed
from launcher.errors import ConfigurationError, LauncherError, gathered
from launcher.settings import scalars
from launcher.typing import Any
from launcher.vllm.tables import EngineTable

PASSTHROUGH = "NIM_PASSTHROUGH_ARGS"
# What decides the launch itself cannot come from a document that belongs to the model.
NOT_HERE = {"model": "Name the model with NIM_MODEL_PATH or on the command line", "config": "Put its keys here"}


def from_runtime_config(
    document: Mapping[str, Any], table: EngineTable, origin: str, *, passthrough: bool = False
) -> Parsed:
    """Read a runtime configuration.

    ``passthrough``: the reserved key ``NIM_PASSTHROUGH_ARGS``, a string of words that stand below the other keys, is
    allowed (in ``runtime_config.json`` alone).  Raises ConfigurationError for unknown keys and unfit values.
    """
    for key, todo in NOT_HERE.items():
        if key in document:
            raise ConfigurationError(f"{origin}: the key {key} cannot be set here", todo)
    keys = {key: value for key, value in document.items() if not (passthrough and key == PASSTHROUGH)}
    if not passthrough or document.get(PASSTHROUGH) is None:
        return parse_document(keys, options_of(table), origin)
    own, below = _both(
        lambda: parse_document(keys, options_of(table), origin),
        lambda: _words_below(document[PASSTHROUGH], table, f"{origin} ({PASSTHROUGH})"),
    )
    return laid_over(own, below, origin)


def _both(*parts: Callable[[], Parsed]) -> list[Parsed]:
    """Read the parts of one document; what is wrong with one shows no secret of another."""
    read: list[Parsed] = []
    problems: list[LauncherError] = []
    for part in parts:
        try:
            read.append(part())
        except ConfigurationError as problem:
            problems += [problem, *problem.others]
    if problems:
        raise hidden(gathered(problems), [secret for parsed in read for secret in parsed.secrets])
    return read


def _words_below(text: Any, table: EngineTable, where: str) -> Parsed:
    if not isinstance(text, str):
        raise ConfigurationError(f"{where} takes one string of words", "Write the words as on a command line")
    try:
        words = scalars.words(text)
    except scalars.Unreadable as problem:
        raise ConfigurationError(f"{where} is not {problem.expected}", problem.todo) from None

    def no_config(path: str) -> Mapping[str, Any]:
        raise ConfigurationError(f"{where} names a configuration file, {shown(path)}", NOT_HERE["config"])

    below = parse_words(words, table, where, no_config)
    if below.positionals:
        second = ConfigurationError(f"{where} names a model, {shown(below.positionals[0])}", NOT_HERE["model"])
        raise hidden(second, below.secrets)
    return below
