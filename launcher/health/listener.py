"""The launcher's side of the health listener: the port, the fork, and what is told to the child."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Mapping

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError
from launcher.health.state import FETCHING, STARTING, Upstream, phase_line, upstream_line
from launcher.settings.values import Given

_BACKLOG = 64
_LAST_WORD = 1000  # milliseconds to wait for room in the pipe before the exec


class Listener:
    """A listener that runs.  Nothing here waits for it, but for the one message that it must have before the exec."""

    def __init__(self, port: int, child: int, pipe: int) -> None:
        self.port = port
        self._child, self._pipe = child, pipe

    def progress(self, totals: Mapping[str, int], present: Mapping[str, int]) -> None:
        """Bytes of the download by label, in all and already there."""
        self._tell(phase_line(STARTING if totals == present else FETCHING, totals, present))

    def follow(self, upstream: Upstream) -> None:
        """Say where vLLM will answer.  The exec that comes next closes our end of the pipe."""
        room = select.poll()
        room.register(self._pipe, select.POLLOUT)
        room.poll(_LAST_WORD)
        if not self._tell(upstream_line(upstream)):
            logs.warning(f"the health listener on port {self.port} has ended: nothing answers there from now on")

    def end(self) -> None:
        """Close the port, if it is still open."""
        if self._pipe < 0:
            return
        os.close(self._pipe)
        self._pipe = -1
        try:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        except OSError:  # somebody else has ended it
            return

    def _tell(self, line: bytes) -> bool:
        try:
            os.write(self._pipe, line)  # shorter than a pipe's page: whole or not at all
        except OSError:
            return False
        return True


def listen(port: Given[int]) -> Listener:
    """Open ``port`` on all addresses and answer there from now on, in a child of this process.

    Must be called before there are threads.  Raises ConfigurationError when the port is taken, DeniedError when this
    user may not have it.
    """
    sockets = _bound(port)
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            from launcher.health.server import live_on  # lazy: only the child needs it

            live_on(sockets, reading, parent)
        finally:
            os._exit(1)  # a child of the launcher must never go on as a second launcher
    os.close(reading)
    for listening in sockets:
        listening.close()
    os.set_blocking(writing, False)
    logs.info(f"health: answering on port {port.value}")
    return Listener(port.value, child, writing)


def _bound(port: Given[int]) -> list[socket.socket]:
    """One socket for both families, else one for IPv4."""
    try:
        try:
            return [_open(socket.AF_INET6, "::", port.value)]
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
            return [_open(socket.AF_INET, "0.0.0.0", port.value)]  # a machine without IPv6
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"{port.origin}: port {port.value} is taken by another process",
                "Choose a free port, or end that process",
            ) from None
        if error.errno == errno.EACCES:
            raise DeniedError(
                f"{port.origin}: this user may not open port {port.value}", "Choose a port of 1024 or above"
            ) from None
        raise ConfigurationError(
            f"{port.origin}: port {port.value} cannot be opened: {error.strerror}", "Choose another port"
        ) from None


def _open(family: int, address: str, port: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
