"""What the listener knows, and what it answers (pure).

The launcher tells it what happens in lines of JSON over a pipe: a phase with its progress, and right before the exec
the address of vLLM.  The end of the pipe is the exec itself: the launcher's end closes then.
"""

from __future__ import annotations

import json

from launcher.typing import Any, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STARTING, FETCHING, LOADING, READY = "starting", "fetching", "loading", "ready"
_VLLM_PORT = 8000  # vLLM's own default
LIVE_PATH, READY_PATH = "/v1/health/live", "/v1/health/ready"


class Upstream(NamedTuple):
    """Where vLLM answers, and what to ask it for.  ``port`` 0 means that it serves no HTTP (a node without a head)."""

    port: int
    path: str = "/health"
    host: str = "127.0.0.1"
    socket: str | None = None  # a socket file, in place of host and port
    tls: bool = False
    certificate: str | None = None  # shown as the client's own, where clients must show one
    key: str | None = None


class State(NamedTuple):
    """The launch as the listener sees it.  Sizes are bytes, by label ("target", "draft")."""

    phase: str = STARTING
    totals: Mapping[str, int] = {}
    present: Mapping[str, int] = {}
    upstream: Upstream | None = None

    def told(self, line: bytes) -> State:
        """The state after one line from the launcher; a line that cannot be read changes nothing."""
        try:
            said = json.loads(line)
            if "upstream" in said:
                return State(LOADING, upstream=Upstream(**said["upstream"]))
            return self._replace(phase=said["phase"], totals=said["totals"], present=said["present"])
        except (ValueError, TypeError, KeyError):
            return self


class Verdict(NamedTuple):
    """What vLLM said of itself."""

    ready: bool
    reason: str = ""


def phase_line(phase: str, totals: Mapping[str, int], present: Mapping[str, int]) -> bytes:
    return _line({"phase": phase, "totals": dict(totals), "present": dict(present)})


def upstream_line(upstream: Upstream) -> bytes:
    return _line({"upstream": upstream._asdict()})


def _line(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


class Answer(NamedTuple):
    status: int
    document: Mapping[str, Any]

    def encoded(self, *, head: bool = False) -> bytes:
        """The whole HTTP response; the connection ends with it."""
        body = json.dumps(self.document).encode() + b"\n"
        allow = "Allow: GET, HEAD\r\n" if self.status == 405 else ""
        lines = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{allow}"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return lines.encode() + (b"" if head else body)


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def live() -> Answer:
    return _health(200, "Service is live.")


def not_yet(state: State) -> Answer:
    """The readiness of a launch that has not become vLLM."""
    shares = {
        label: {"bytes": state.present.get(label, 0), "total": total, "percent": _percent(state, label)}
        for label, total in state.totals.items()
    }
    far = ", ".join(f"{label} {share['percent']} %" for label, share in shares.items())
    return _health(503, f"Service is {state.phase}{f': {far}' if far else ''}.", phase=state.phase, progress=shares)


def followed(state: State, verdict: Verdict, was_ready: bool) -> Answer:
    """The readiness of vLLM, by its own word."""
    if verdict.ready:
        return _health(200, "Service is ready.", phase=READY, progress={})
    if was_ready:
        return _health(503, f"Service is not ready: {verdict.reason}.", phase="failing", progress={})
    return _health(503, f"Service is {state.phase}: {verdict.reason}.", phase=state.phase, progress={})


def refused(status: int, reason: str) -> Answer:
    return Answer(status, {"object": "error", "message": reason})


def _health(status: int, message: str, **more: Any) -> Answer:
    return Answer(status, {"object": "health.response", "message": message, **more})


def _percent(state: State, label: str) -> int:
    """Whole percents; 100 only for everything."""
    total = state.totals[label]
    return 100 * state.present.get(label, 0) // total if total else 100


def upstream_of(flags: Mapping[str, tuple[str, ...]]) -> Upstream:
    """Where vLLM will answer, by its effective arguments (flag -> values)."""

    def said(flag: str) -> str | None:
        values = flags.get(flag)
        return values[-1] if values else None

    if "--headless" in flags:
        return Upstream(0)
    certificate, key = said("--ssl-certfile"), said("--ssl-keyfile")
    shown = said("--ssl-cert-reqs") not in (None, "0")
    return Upstream(
        port=int(said("--port") or _VLLM_PORT),
        host=_reachable(said("--host")),
        socket=said("--uds"),
        tls=certificate is not None,
        certificate=certificate if shown else None,
        key=key if shown else None,
    )


def status_port(text: str) -> Upstream:
    """Where a worker of Dynamo answers, by its variable for that; it serves no clients itself."""
    return Upstream(int(text) if text.isdecimal() else 0)


def _reachable(host: str | None) -> str:
    """An address of this machine behind which a server that listens on ``host`` is found."""
    return {None: "127.0.0.1", "0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host or "")
