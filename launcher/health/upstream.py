"""Asking vLLM how it is: one request over loopback, with a limit on its whole duration.

Only the status line is read, by hand: `http.client` brings the mail parser, which alone is a fifth of the memory that
the listener may use.
"""

from __future__ import annotations

import socket
import time

from launcher.health.state import Upstream, Verdict
from launcher.typing import NamedTuple

LIMIT = 2.0  # seconds for one answer
_LONGEST_LINE = 256  # bytes


def ask(upstream: Upstream, limit: float = LIMIT) -> Verdict:
    """vLLM's own verdict.  Never raises for what a server or a network can do."""
    end = time.monotonic() + limit
    try:
        connection = _connected(upstream, limit)
    except OSError as error:
        return Verdict(False, f"vLLM does not listen yet ({error.strerror or type(error).__name__})")
    with connection:
        reply = _encrypted_reply(connection, upstream, end) if upstream.tls else _reply(connection, upstream.path, end)
    if reply.status is not None:
        return Verdict(reply.status == 200, f"vLLM answers {upstream.path} with {reply.status}")
    if reply.turned_away and upstream.certificate is not None:
        # Where clients must show a certificate, the server's own was shown.  It need not be signed by the authority of
        # the clients; a server that turns it away has come as far as serving, and more cannot be known from outside.
        return Verdict(True)
    return Verdict(False, reply.trouble)


class _Reply(NamedTuple):
    status: int | None
    trouble: str = ""
    turned_away: bool = False  # the other side spoke, and ended the connection


def _connected(upstream: Upstream, limit: float) -> socket.socket:
    if upstream.socket is None:
        return socket.create_connection((upstream.host, upstream.port), limit)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit)
    try:
        connection.connect(upstream.socket)
    except BaseException:
        connection.close()
        raise
    return connection


def _reply(connection: socket.socket, path: str, end: float) -> _Reply:
    line = b""
    try:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        while b"\n" not in line and len(line) < _LONGEST_LINE:
            connection.settimeout(max(0.001, end - time.monotonic()))
            piece = connection.recv(_LONGEST_LINE)
            if not piece:
                break
            line += piece
    except TimeoutError:
        return _Reply(None, f"vLLM does not answer {path} in time")
    except OSError as error:
        return _Reply(None, f"vLLM ended the connection ({error.strerror or error})", turned_away=True)
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return _Reply(None, f"vLLM ended the connection without answering {path}", turned_away=True)
    return _Reply(int(words[1]))


def _encrypted_reply(connection: socket.socket, upstream: Upstream, end: float) -> _Reply:
    """Over TLS, without a look at the certificate: it is made out to a public name, and this is loopback."""
    import ssl  # lazy: costs megabytes

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if upstream.certificate is not None:
        try:
            context.load_cert_chain(upstream.certificate, upstream.key)
        except OSError:
            pass  # vLLM loads the same files, and says what is wrong with them
    try:
        encrypted = context.wrap_socket(connection)
    except TimeoutError:
        return _Reply(None, "vLLM does not answer a TLS handshake in time")
    except OSError as error:
        alert = "ALERT" in (getattr(error, "reason", None) or "")
        return _Reply(None, f"vLLM refuses a TLS connection ({error})", turned_away=alert)
    with encrypted:
        return _reply(encrypted, upstream.path, end)
