"""What is sent: questions by category (rows of SPEED-Bench), or recorded requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence

from launcher.errors import ConfigurationError, DeniedError, NotFoundError
from launcher.settings.hints import nearest
from launcher.typing import Any, NamedTuple

BUILT_IN = f"{os.path.dirname(__file__)}/prompts.jsonl"
CATEGORIES = (
    "coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem", "summarization",
    "writing",
)  # fmt: skip  # those of SPEED-Bench, which are the dataset types of AIPerf
_ID_LENGTH = 32  # AIPerf refuses a whole file for one other id
_UNFETCHED = "FULL BENCHMARK DATA SHOULD BE FETCHED"  # stands in rows whose text the benchmark may not carry


class Question(NamedTuple):
    """One conversation: each message is sent once the one before is answered, with what was said so far."""

    category: str
    turns: tuple[Mapping[str, Any], ...]


class Recorded(NamedTuple):
    """A captured request body, sent as it is.  ``at`` is in milliseconds of any clock; None: it was not recorded."""

    payload: Mapping[str, Any]
    at: float | None

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if "messages" in self.payload else "/v1/completions"


class Traffic(NamedTuple):
    """The requests of one row of the comparison; ``file`` is where they stand, for a client that reads it itself."""

    name: str
    file: str
    requests: tuple[Question, ...] | tuple[Recorded, ...]
    times_ignored: bool = False  # the file has times, and nobody wants them

    @property
    def is_recorded(self) -> bool:
        return isinstance(self.requests[0], Recorded)

    @property
    def is_timed(self) -> bool:
        first = self.requests[0]
        return isinstance(first, Recorded) and first.at is not None


def read_questions(file: str, categories: Sequence[str], limit: int | None) -> tuple[Traffic, ...]:
    """The categories of a SPEED-Bench file in their order there; none named: all.  ``limit`` is for each.

    Raises ConfigurationError for a row that AIPerf would refuse, and for a category that is not there.
    """
    found: dict[str, list[Question]] = {}
    for number, row in _rows(file):
        question = _question(row, f"{file}, line {number}")
        found.setdefault(question.category, []).append(question)
    for category in categories:
        if category not in found:
            close = nearest(category, tuple(found))
            known = f"Did you mean {close!r}?" if close else f"It has {', '.join(found)}"
            where = "the built-in set" if file == BUILT_IN else file
            raise ConfigurationError(f"{where} has no category {category!r}", known)
    chosen = {name: questions for name, questions in found.items() if not categories or name in categories}
    if not chosen:
        raise ConfigurationError(f"{file} holds no questions", "Prepare it again, or leave --speed-bench out")
    return tuple(Traffic(name, file, tuple(questions[:limit])) for name, questions in chosen.items())


def read_trace(file: str, limit: int | None, *, ignore_times: bool = False) -> Traffic:
    """A captured trace, ``mooncake_payload`` or ``raw_payload``, in the order of its times.

    Raises ConfigurationError for a line that a replay would stumble over.
    """
    recorded = [_recorded(row, f"{file}, line {number}") for number, row in _rows(file)]
    if not recorded:
        raise ConfigurationError(f"{file} holds no requests", "Capture some with NIM_CAPTURE_ENABLE=1")
    if len({item.at is None for item in recorded}) > 1:
        raise ConfigurationError(f"{file} has a timestamp on some lines only", _VALIDATE)
    if len({item.path for item in recorded}) > 1:
        raise ConfigurationError(f"{file} mixes chat and completions", "Keep the requests of one endpoint in a file")
    recorded.sort(key=lambda item: item.at or 0.0)
    name = os.path.basename(file).partition(".")[0]
    ignored = ignore_times and recorded[0].at is not None
    if ignored:
        recorded = [item._replace(at=None) for item in recorded]
    return Traffic(name, file, tuple(recorded[:limit]), ignored)


def _question(row: Mapping[str, Any], where: str) -> Question:
    category, turns, number = row.get("category"), row.get("messages"), row.get("question_id")
    if not isinstance(number, str) or len(number) != _ID_LENGTH:
        raise ConfigurationError(f"{where}: question_id is not a text of {_ID_LENGTH} characters", _PREPARE)
    if category not in CATEGORIES:
        raise ConfigurationError(f"{where}: {category!r} is no category of SPEED-Bench", _PREPARE)
    if not isinstance(turns, list) or not turns:
        raise ConfigurationError(f"{where}: no messages", _PREPARE)
    for turn in turns:
        text = turn.get("content") if isinstance(turn, dict) else None
        if not isinstance(text, str) or not text or not isinstance(turn.get("role"), str):
            raise ConfigurationError(f"{where}: a message without role and text", _PREPARE)
        if text.startswith(_UNFETCHED):
            raise ConfigurationError(f"{where}: its text was never fetched", _PREPARE)
    return Question(str(category), tuple(turns))


def _recorded(row: Mapping[str, Any], where: str) -> Recorded:
    at = row.get("timestamp")
    payload = row.get("payload", None if "timestamp" in row else row)
    if not isinstance(payload, dict) or not ("messages" in payload or "prompt" in payload):
        raise ConfigurationError(f"{where}: no payload with messages or a prompt", _VALIDATE)
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | float)):
        raise ConfigurationError(f"{where}: the timestamp is no number of milliseconds", _VALIDATE)
    return Recorded(payload, at)


def _rows(file: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line number and object of each line that is not blank."""
    try:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _object(line, f"{file}, line {number}")
    except FileNotFoundError:
        raise NotFoundError(f"{file} does not exist", "Check the path") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not text in UTF-8", "Give JSON lines") from None
    except OSError as error:
        raise DeniedError(f"{file} cannot be read: {error.strerror}", "Check its owner and mode") from None


def _object(line: str, where: str) -> Mapping[str, Any]:
    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not JSON")

    try:
        row = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: broken JSON ({error})", _VALIDATE) from None
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where}: not a JSON object", _VALIDATE)
    return row


_PREPARE = "Prepare the file again (docs/benchmarking.md)"
_VALIDATE = "See 'launcher capture validate'"
