"""What AIPerf says of a trace, without AIPerf: which lines would stop a replay (docs/capture.md has the rules).

Found by running AIPerf 0.13 on each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from launcher.middleware.records import MOONCAKE, RAW, Unusable, decoded, depth, encoded
from launcher.typing import Any

_DEEPEST = 250  # levels of a payload that AIPerf still writes
# What one line of a mooncake trace may be made of: one of these, and no other.
_KINDS = ("payload", "messages", "text_input", "input_length")
_BOM = b"\xef\xbb\xbf"


class Trace:
    """What the lines so far add up to."""

    def __init__(self, form: str | None = None) -> None:
        """``form``: mooncake_payload or raw_payload; None: as the first line is."""
        self.form = form
        self.lines = 0
        self.timed: bool | None = None  # whether the first line has a timestamp
        self.first = self.last = 0.0  # milliseconds
        self.models: set[str] = set()
        self.chats = self.others = self.sessions = 0

    def summary(self) -> str:
        what = (
            f"{self.lines} request{'' if self.lines == 1 else 's'} for {', '.join(sorted(self.models)) or 'no model'}"
        )
        span = f" over {(self.last - self.first) / 1000:.1f} s" if self.timed else ""
        return f"{what}{span}: nothing would stop a replay as {self.form}"

    def notes(self) -> Iterator[str]:
        """What stops nothing and may still surprise."""
        if self.chats and self.others:
            yield f"{self.chats} chat requests and {self.others} others: one run sends all to one endpoint"
        if self.sessions:
            yield f"{self.sessions} lines have a session_id: those of one session are sent one after the other"
        if len(self.models) > 1:
            names = ", ".join(sorted(self.models))
            yield f"it names {len(self.models)} models, which the server must all serve: {names}"


def problems(lines: Iterable[bytes], trace: Trace) -> Iterator[tuple[int, str]]:
    """Line number, from 1, and what is wrong with it."""
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(_BOM):
            yield number, "a byte order mark in front"
            line = line[len(_BOM) :]
        if not line.strip():
            continue
        trace.lines += 1
        try:
            line.decode()
            record = decoded(line, deepest=_DEEPEST + 1)
            if not isinstance(record, dict):
                raise Unusable("no JSON object")
            encoded(record)
            trace.form = trace.form or (RAW if "messages" in record and "timestamp" not in record else MOONCAKE)
            payload = _raw(record) if trace.form == RAW else _mooncake(record, trace)
        except UnicodeDecodeError:
            yield number, "not UTF-8"
        except Unusable as reason:
            yield number, str(reason)
        else:
            _count(payload, trace)


def _raw(record: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(record.get("messages"), list):
        raise Unusable("no list of messages, which raw_payload needs")
    return record


def _mooncake(record: dict[str, Any], trace: Trace) -> dict[str, Any]:
    kind = record.get("type")
    if kind not in (None, "mooncake_trace"):
        raise Unusable(f"the reserved key 'type' is {str(kind)[:50]!r}, not 'mooncake_trace'")
    present = [name for name in _KINDS if record.get(name) is not None]
    if len(present) != 1:
        both = f"both {present[0]} and {present[1]}" if present else f"none of {', '.join(_KINDS)}"
        raise Unusable(f"{both}: a line has exactly one of them")
    if record.get("hash_ids") is not None and present != ["input_length"]:
        raise Unusable("hash_ids go with input_length alone")
    payload = record.get("payload")
    if payload is not None and (not isinstance(payload, dict) or not payload):
        raise Unusable("the payload is not an object with something in it")
    if depth(payload) > _DEEPEST:
        raise Unusable(f"nested more than {_DEEPEST} levels deep")
    _time(record.get("timestamp"), trace)
    trace.sessions += record.get("session_id") is not None
    return payload if payload is not None else record


def _time(stamp: Any, trace: Trace) -> None:
    """With a timestamp on the first line every line needs one; without, those of the others are ignored."""
    try:
        milliseconds = None if stamp is None else float(stamp)
        if milliseconds is not None and not isfinite(milliseconds):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise Unusable(f"the timestamp {str(stamp)[:50]!r} is no number of milliseconds") from None
    if trace.timed is None:
        trace.timed = milliseconds is not None
        trace.first = trace.last = milliseconds or 0.0
    elif trace.timed and milliseconds is None:
        raise Unusable("no timestamp, although the first line has one")
    if trace.timed and milliseconds is not None:
        trace.first, trace.last = min(trace.first, milliseconds), max(trace.last, milliseconds)


def _count(payload: dict[str, Any], trace: Trace) -> None:
    chat = isinstance(payload.get("messages"), list)
    trace.chats += chat
    trace.others += not chat
    model = payload.get("model")
    if isinstance(model, str):
        trace.models.add(model)
