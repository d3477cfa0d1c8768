"""The launcher's own log on stderr, and the masking of secrets in everything that is printed.

Two layouts: NIM's text (``LEVEL YYYY-MM-DD HH:MM:SS.mmm file.py:LINE] message``, local time) and JSON lines (UTC).  The
standard library's ``logging`` would cost a warm start a tenth of its time for what fits on this page.

Secrets are masked by value where their value is known (`configure`, `add_secrets`) and by shape where it is not: tokens
of a known form, ``--api-key X``, ``NAME_TOKEN=X``, ``Authorization`` headers, passwords and queries of URLs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence

from launcher.typing import NamedTuple

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MASK = "***"

_SHORTEST = 4  # a shorter "secret" would black out half of every message, and protects nothing
_UNMISTAKABLE = 8  # from this length on, a secret is masked inside longer words too
_UNRESERVED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"  # what a URL leaves as it is
_FLAGS = ("--api-key", "--api_key", "--hf-token", "--hf_token")
_KEYS = ("api_key", "api-key", "hf_token", "hf-token", "session_token", "session-token", "access_key", "access-key",
         "secret", "password")  # fmt: skip
_NAMES = "api[-_]key|hf[-_]token|session[-_]token|access[-_]key|secret|password"
# What gives a secret away without its value being known: words of which one must be present (in lower case; a pattern
# is only compiled when it may match), and the pattern, whose last group that matched, or else the whole, is the secret.
# A quote need not be closed.  Whatever stands behind --api-key is taken for one: no sentence of ours goes on there with
# a blank.
_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("hf_",), r"\bhf_[A-Za-z0-9]{16,}"),
    (("nvapi-",), r"\bnvapi-[\w-]{4,}"),
    (("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    (("authorization", "x-api-key"),
     r"""(?i)(?:authorization|x-api-key)\\*["']?\s*[:=]\s*\\*["']?(?:(?:bearer|basic)\s+)?([^\s"'\\,}]+)"""),
    (_FLAGS,
     r"""--(?:api[-_]key|hf[-_]token)(?:\s+|=|["'],\s*)(?!-)(?:"([^"]*)"?|'([^']*)'?|([^\s"']\S*))"""),
    (("token=", "key=", "key_id=", "secret=", "password="),
     r"""\b[A-Z0-9_]*(?:TOKEN|API_KEY|ACCESS_KEY|ACCESS_KEY_ID|SECRET|PASSWORD)=(?:"([^"]*)"?|'([^']*)'?|([^\s"']\S*))"""),
    (_KEYS, rf"""(?i)\\*["'][\w-]*(?:{_NAMES})\\*["']\s*:\s*\[?\s*\\*["']((?:[^"'\\]|\\[^"'])+)"""),
    # JSON that lost some of its quotes to a shell.
    (_KEYS, rf"""(?i)(?:\\*["']|[{{,]\s*)(?:\w[\w-]*)?(?:{_NAMES})\\*["']?\s*:\s*\[?\s*\\*["']?([^\s"',}}\]\\]+)"""),
    # A query, but for the one that names a file of the source, and for a "?" in the literal key of a bucket.
    (("?",), r"""\bhttps?://[^\s"'<>?#]+\?([^\s"'<>]+)"""),
    (("?",), r"""\b\w+://[^\s"'<>?#]+\?(?!file=[^\s"'<>&]*(?:[\s"'<>]|$))([^\s"'<>=]*=[^\s"'<>]*)"""),
    (("@",), r"""://([^\s"'<>/?#@]+)@"""),
)  # fmt: skip


class _Setup(NamedTuple):
    threshold: int  # index into LEVELS
    jsonl: bool
    secrets: tuple[str, ...]


_setup = _Setup(LEVELS.index("INFO"), jsonl=False, secrets=())


def configure(level: str = "INFO", jsonl: bool = False, secrets: Iterable[str] = ()) -> None:
    """Set the lowest level that is written (one of `LEVELS`), the layout, and the values to mask.

    Before the first call the level is INFO, the layout text, and secrets are masked by shape alone.
    """
    global _setup
    _setup = _Setup(LEVELS.index(level), jsonl, tuple(dict.fromkeys(secrets)))


def add_secrets(secrets: Iterable[str]) -> None:
    """Mask these values too, from now on."""
    global _setup
    _setup = _setup._replace(secrets=tuple(dict.fromkeys((*_setup.secrets, *secrets))))


def debug(message: str) -> None:
    _write("DEBUG", message)


def info(message: str) -> None:
    _write("INFO", message)


def warning(message: str) -> None:
    _write("WARNING", message)


def error(message: str) -> None:
    """Always written, whatever the level: the reason of a refusal must not be lost."""
    _write("ERROR", message)


def mask(text: str) -> str:
    """``text`` with every registered secret, and everything that has the shape of one, replaced by ``***``."""
    return masked(text, _setup.secrets)


def cover(text: str) -> str:
    """Like `mask`, but every secret keeps its length, so that positions in ``text`` still hold."""
    return covered(text, _setup.secrets)


def mask_words(words: Sequence[str]) -> list[str]:
    """The words of a command line, masked one by one.

    ``--api-key`` takes several values and all of them are secrets, so what follows it is hidden up to the next flag.
    """
    shown: list[str] = []
    hidden = 0  # how many of the coming words are values of a secret flag
    for word in words:
        if word.startswith("-"):
            flag, equals, _ = word.partition("=")
            hidden = (len(words) if "api" in flag else 1) if flag in _FLAGS else 0
            if hidden and equals:
                word, hidden = f"{flag}={MASK}", hidden - 1
            shown.append(mask(word))
        else:
            shown.append(MASK if hidden > 0 else mask(word))
            hidden -= 1
    return shown


def masked(text: str, secrets: Iterable[str]) -> str:
    """`mask` with the secrets given: what code uses that runs before they are registered."""
    pieces: list[str] = []
    end = 0
    for start, stop in _secret_spans(text, secrets):
        covered_already = text[start:stop].strip("*") == ""  # and positions in it may matter
        pieces += (text[end:start], text[start:stop] if covered_already else MASK)
        end = stop
    return "".join((*pieces, text[end:]))


def covered(text: str, secrets: Iterable[str]) -> str:
    """`cover` with the secrets given."""
    pieces: list[str] = []
    end = 0
    for start, stop in _secret_spans(text, secrets):
        pieces += (text[end:start], "*" * (stop - start))
        end = stop
    return "".join((*pieces, text[end:]))


def _secret_spans(text: str, secrets: Iterable[str]) -> list[tuple[int, int]]:
    """Where secrets stand in ``text``: sorted, without overlap."""
    found = [span for secret in secrets for form in _written_forms(secret) for span in _occurrences(text, form)]
    found += _shaped_spans(text)
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _written_forms(secret: str) -> Iterable[str]:
    """A secret as it is and as JSON, Python and URLs write it."""
    if len(secret) < _SHORTEST:
        return ()
    if secret.isascii() and secret.replace("-", "").replace("_", "").isalnum():
        return (secret,)
    import json

    quoted = "".join(
        chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in secret.encode("utf-8", "surrogatepass")
    )
    return dict.fromkeys(
        (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1], quoted)
    )


def _occurrences(text: str, secret: str) -> Iterable[tuple[int, int]]:
    start = text.find(secret)
    while start >= 0:
        stop = start + len(secret)
        if len(secret) >= _UNMISTAKABLE or not (text[start - 1 : start].isalnum() or text[stop : stop + 1].isalnum()):
            yield start, stop
        start = text.find(secret, start + 1)


def _shaped_spans(text: str) -> Iterable[tuple[int, int]]:
    lowered = text.lower()
    for needles, pattern in _SHAPES:
        if any(needle in lowered for needle in needles):
            import re

            for match in re.finditer(pattern, text):
                yield match.span(match.lastindex or 0)


def _write(level: str, message: str) -> None:
    """Write one record.  A log that cannot be written is lost; it never stops the launch."""
    rank = LEVELS.index(level)
    if rank < _setup.threshold and level != "ERROR":
        return
    caller = sys._getframe(2)
    file, line = os.path.basename(caller.f_code.co_filename), caller.f_lineno
    layout = json_line if _setup.jsonl else text_line
    _send(layout(level, time.time(), file, line, mask(message)))


def text_line(level: str, now: float, file: str, line: int, message: str, request_id: str = "") -> str:
    """A record in NIM's text layout; ``now`` in seconds since the epoch."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    text = f"[{request_id}] {message}" if request_id else message
    return f"{level} {stamp}.{int(now * 1000) % 1000:03d} {file}:{line}] {_printable(text)}\n"


def json_line(level: str, now: float, file: str, line: int, message: str, request_id: str = "") -> str:
    """A record as a line of JSON; ``now`` in seconds since the epoch."""
    import json

    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    record = {
        "timestamp": f"{stamp}.{int(now * 1000) % 1000:03d}Z",
        "level": level,
        "file": file,
        "line": line,
        "message": message,
        **({"request_id": request_id} if request_id else {}),
    }
    return json.dumps(record) + "\n"


def _printable(message: str) -> str:
    """``message`` without control characters, which could rewrite the lines around it.

    Tabs stay; what follows a newline is indented, so that no name in a message can look like a record of its own.
    """
    if message.isprintable():
        return message
    message = message.replace("\n", "\n  ")
    return "".join(
        character if character in "\n\t" or not _is_control(character) else f"\\x{ord(character):02x}"
        for character in message
    )


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"


def _send(record: str) -> None:
    stream = sys.stderr
    if stream is None:  # descriptor 2 was closed at the start: the number may belong to any file by now
        return
    data = record.encode("utf-8", "backslashreplace")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # not a file: somebody replaced the stream
        descriptor = None
    try:
        if descriptor is None:
            stream.write(data.decode())
            return
        # Past the stream's buffer: what a broken pipe leaves there would fail again at exit and change the exit code.
        while data:
            data = data[os.write(descriptor, data) :]
    except (OSError, ValueError):
        return
