"""The head of an HTTP answer, read without the mail parser that http.client uses for it.

That parser takes about as long as everything else which a small file costs in Python.  The body is http.client's.
"""

from __future__ import annotations

from http.client import BadStatusLine, HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected

_LONGEST_LINE = 65536
_MOST_LINES = 100


class Answer(HTTPResponse):
    """An answer whose headers are in ``fields``, by lower-case name; of a repeated one, the first."""

    fields: dict[str, str]

    def begin(self) -> None:
        """Read the status line and the headers; called once by the connection."""
        while True:
            self.version, self.status, self.reason = self._status_line()
            self.code = self.status
            self.fields = self._fields()
            if self.status >= 200:
                break
        self.chunked = self.fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = None if self.chunked else self._length()
        connection = self.fields.get("connection", "").lower()
        kept = "keep-alive" in connection if self.version == 10 else "close" not in connection
        self.will_close = not kept or (self.length is None and not self.chunked)

    def _line(self) -> bytes:
        line: bytes = self.fp.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise LineTooLong("header line")
        return line

    def _status_line(self) -> tuple[int, int, str]:
        line = self._line()
        if not line:
            raise RemoteDisconnected("the server closed the connection without an answer")
        version, _, rest = line.decode("iso-8859-1").strip().partition(" ")
        status, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or len(status) != 3 or not status.isdecimal():
            raise BadStatusLine(repr(line[:100]))
        return 10 if version == "HTTP/1.0" else 11, int(status), reason

    def _fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        for _ in range(_MOST_LINES):
            line = self._line()
            if line in (b"\r\n", b"\n"):
                return fields
            name, colon, value = line.decode("iso-8859-1").partition(":")
            if not colon:
                raise HTTPException("the server's headers end in the middle" if not line else "no header: " + name[:50])
            fields.setdefault(name.strip().lower(), value.strip())
        raise HTTPException(f"the server sends more than {_MOST_LINES} headers")

    def _length(self) -> int | None:
        if self.status in (204, 304):
            return 0
        text = self.fields.get("content-length", "")
        return int(text) if text.isdecimal() else None
