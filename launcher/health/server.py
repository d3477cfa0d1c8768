"""The listener's own process: one loop over its sockets, and one thread that asks vLLM when somebody asks us.

It holds nothing of the launcher's but the listening sockets and the pipe, and ends with its parent, whatever that has
become.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable

from launcher.health import state as health
from launcher.health.state import Answer, State, Upstream, Verdict
from launcher.health.upstream import LIMIT, ask
from launcher.typing import NoReturn

MOST_CONNECTIONS = 64  # beyond them the oldest is closed
LONGEST_REQUEST = 8192  # bytes
PATIENCE = 5.0  # seconds for a request to arrive
_TICK = 500  # milliseconds between two looks at the clock and the parent
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_NAME = b"health-listener"  # as `ps` and `top` show it; 15 characters at most


def live_on(sockets: Iterable[socket.socket], pipe: int, parent: int) -> NoReturn:
    """Serve until ``parent`` is gone; to be called in a fresh child of it."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # meant for the parent, with whom we go
        _die_with(parent)
        _forget_words()
        _let_go_of_the_rest([listening.fileno() for listening in sockets], pipe)
        gc.enable()
        _Server(list(sockets), pipe, parent).run()
    finally:
        os._exit(0)


def _die_with(parent: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_NAME, _NAME)
    if os.getppid() != parent:  # it was quicker
        os._exit(0)


def _forget_words() -> None:
    """Overwrite the command line and the environment that `ps` shows of this process: both may hold keys.

    The kernel reads them from our own memory, where fields 48 to 51 of ``stat`` say.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end, variables, variables_end = (int(field) for field in fields[45:49])
    ctypes.memset(start, 0, end - start)
    ctypes.memset(variables, 0, variables_end - variables)
    ctypes.memmove(start, _NAME, min(len(_NAME), end - start - 1))


def _let_go_of_the_rest(sockets: list[int], pipe: int) -> None:
    """Close every descriptor that is not ours; what is written to stdout or stderr goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    start = 3
    for kept in sorted((*sockets, pipe)):
        os.closerange(start, kept)
        start = kept + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


class _Connection:
    """One client, from its connection to our answer."""

    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self.request = b""
        self.until = time.monotonic() + PATIENCE
        self.waits = False  # for vLLM's verdict
        self.head = False

    def finish(self, answer: Answer) -> None:
        """Answer and close; a client that does not take so little at once gets nothing."""
        try:
            self.socket.send(answer.encoded(head=self.head))
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.socket.close()


class _Asker:
    """The thread that asks vLLM, once for all who wait."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.verdict = Verdict(False, "not asked yet")
        self.busy = False
        self._wake = wake
        self._upstream: Upstream | None = None
        self._asked = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, upstream: Upstream) -> None:
        if not self.busy:
            self.busy, self._upstream = True, upstream
            self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            assert self._upstream is not None
            try:
                self.verdict = ask(self._upstream)
            except Exception as error:
                self.verdict = Verdict(False, f"vLLM cannot be asked ({type(error).__name__})")
            self._wake()


class _Server:
    def __init__(self, sockets: list[socket.socket], pipe: int, parent: int) -> None:
        self._listening = {listening.fileno(): listening for listening in sockets}
        self._pipe, self._parent = pipe, parent
        self._told = b""
        self._state = State()
        self._was_ready = False
        self._open: dict[int, _Connection] = {}
        self._woken, waker = os.pipe()
        self._asker = _Asker(lambda: _put_byte(waker))
        self._poll = select.poll()
        for descriptor in (*self._listening, pipe, self._woken):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        while os.getppid() == self._parent:
            for descriptor, _ in self._poll.poll(_TICK):
                if descriptor in self._listening:
                    self._accept(self._listening[descriptor])
                elif descriptor == self._pipe:
                    if not self._hear():
                        return
                elif descriptor == self._woken:
                    os.read(self._woken, 1)
                    self._pass_on(self._asker.verdict)
                elif descriptor in self._open:
                    self._read(self._open[descriptor])
            self._drop_late()

    def _hear(self) -> bool:
        """Read from the launcher.  False when it has gone without becoming vLLM."""
        said = os.read(self._pipe, 65536)
        if not said:
            self._poll.unregister(self._pipe)
            os.close(self._pipe)
            self._pipe = -1  # its number is free for the next client
            return self._state.upstream is not None
        *lines, self._told = (self._told + said).split(b"\n")
        for line in lines:
            self._state = self._state.told(line)
        return True

    def _accept(self, listening: socket.socket) -> None:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        peer.setblocking(False)
        if len(self._open) >= MOST_CONNECTIONS:
            self._close(min(self._open.values(), key=lambda connection: connection.until))
        self._open[peer.fileno()] = _Connection(peer)
        self._poll.register(peer.fileno(), select.POLLIN)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        if connection.waits:
            return  # a request behind the one that is being answered
        connection.request += data
        if b"\r\n\r\n" in connection.request or b"\n\n" in connection.request:
            self._answer(connection)
        elif len(connection.request) >= LONGEST_REQUEST:
            self._finish(connection, health.refused(400, "the request is too long"))

    def _answer(self, connection: _Connection) -> None:
        words = connection.request.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            self._finish(connection, health.refused(400, "this is not an HTTP request"))
            return
        method, path = words[0], words[1].partition(b"?")[0].decode("latin-1")
        connection.head = method == b"HEAD"
        if path not in (health.LIVE_PATH, health.READY_PATH):
            self._finish(connection, health.refused(404, f"only {health.LIVE_PATH} and {health.READY_PATH} are here"))
        elif method not in (b"GET", b"HEAD"):
            self._finish(connection, health.refused(405, "only GET and HEAD"))
        elif path == health.LIVE_PATH:
            self._finish(connection, health.live())
        else:
            self._answer_ready(connection)

    def _answer_ready(self, connection: _Connection) -> None:
        upstream = self._state.upstream
        if upstream is None:
            self._finish(connection, health.not_yet(self._state))
        elif upstream.port == 0 and upstream.socket is None:
            self._finish(connection, health.followed(self._state, Verdict(True), self._was_ready))
        else:
            connection.waits, connection.until = True, time.monotonic() + 2 * LIMIT
            self._asker.begin(upstream)

    def _pass_on(self, verdict: Verdict) -> None:
        self._asker.busy = False
        for connection in [one for one in self._open.values() if one.waits]:
            self._finish(connection, health.followed(self._state, verdict, self._was_ready))
        self._was_ready = self._was_ready or verdict.ready

    def _drop_late(self) -> None:
        now = time.monotonic()
        for connection in [one for one in self._open.values() if one.until < now]:
            if connection.waits:
                verdict = Verdict(False, "vLLM does not answer in time")
                self._finish(connection, health.followed(self._state, verdict, self._was_ready))
            else:
                self._close(connection)

    def _finish(self, connection: _Connection, answer: Answer) -> None:
        self._forget(connection)
        connection.finish(answer)

    def _close(self, connection: _Connection) -> None:
        self._forget(connection)
        connection.socket.close()

    def _forget(self, connection: _Connection) -> None:
        descriptor = connection.socket.fileno()
        self._poll.unregister(descriptor)
        del self._open[descriptor]


def _put_byte(descriptor: int) -> None:
    os.write(descriptor, b"x")
