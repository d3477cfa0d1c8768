"""One captured request as one line, in the two formats that AIPerf replays; and what it would choke on.

AIPerf stops a whole run at the first line that it cannot read, and it reads more strictly than Python does: no NaN, no
infinite numbers, no half of a surrogate pair, no empty payload, no deep nesting (docs/capture.md).
"""

from __future__ import annotations

import json

from launcher.typing import Any, NoReturn

MOONCAKE, RAW = "mooncake_payload", "raw_payload"
FORMATS = (MOONCAKE, RAW)
DEEPEST = 200  # levels of nesting; AIPerf fails somewhere beyond 250


class Unusable(Exception):
    """A request that cannot be replayed; the text says why."""


def line(form: str, timestamp: float, body: bytes) -> bytes:
    """The line for a request, with its newline.  ``timestamp`` is in epoch milliseconds.  Raises Unusable."""
    payload = decoded(body)
    if not isinstance(payload, dict) or not payload:
        raise Unusable("no JSON object, or an empty one")
    if form == RAW and not isinstance(payload.get("messages"), list):
        raise Unusable("raw_payload replays chat requests alone, and this one has no list of messages")
    record = payload if form == RAW else {"timestamp": round(timestamp, 3), "payload": payload}
    return encoded(record)


def decoded(data: bytes, deepest: int = DEEPEST) -> Any:
    """The JSON value of a request's body, in any of the encodings that a server takes.  Raises Unusable."""
    try:
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        value = _DECODER.decode(text)
    except Unusable:
        raise
    except RecursionError:
        raise Unusable(f"nested more than {deepest} levels deep") from None
    except ValueError as error:
        raise Unusable(f"no JSON: {error}") from None
    # Brackets inside strings count as well: no harm, as the nesting is then looked at.
    if text.count("{") + text.count("[") > deepest and depth(value) > deepest:
        raise Unusable(f"nested more than {deepest} levels deep")
    return value


def encoded(record: Any) -> bytes:
    """One line of UTF-8.  Raises Unusable for what JSON of the strict kind cannot hold."""
    try:
        return f"{json.dumps(record, ensure_ascii=False, allow_nan=False)}\n".encode()
    except UnicodeEncodeError:
        raise Unusable("half of a surrogate pair") from None
    except ValueError:
        raise Unusable("a number that is too large") from None


def depth(value: Any) -> int:
    """Levels of nesting, counted without recursion; 0 for what is neither object nor list."""
    levels = 0
    layer = [value]
    while True:
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in ((*outer.values(), None) if isinstance(outer, dict) else (*outer, None))
        ]
        if not layer:
            return levels
        levels += 1


def _constant(name: str) -> NoReturn:
    raise Unusable(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_constant)
