"""The built-in client: streaming requests from a bounded number of threads, each request measured.

It is there so that a comparison needs nothing installed; AIPerf does it where it is.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from urllib.parse import urlsplit

from launcher.bench.traffic import Question, Recorded, Traffic
from launcher.errors import IntegrityError, NetworkError, shortened
from launcher.fetch.trust import authorities
from launcher.report.run import Speed
from launcher.settings.values import Secret
from launcher.typing import Any, NamedTuple

SILENCE = 600.0  # seconds without a byte after which a request has failed
_LATE = 1.0  # seconds: a recorded request that is sent later than this counts as late


class Target(NamedTuple):
    """A server and how to ask it."""

    url: str  # scheme, host and port
    model: str
    key: Secret | None
    environ: Mapping[str, str]
    longest: int | None = None  # tokens of prompt and answer together; None: the server does not say


class Pace(NamedTuple):
    """How questions are asked.  Recorded requests say for themselves how many tokens and at what temperature."""

    concurrency: int
    max_tokens: int
    temperature: float


class Answer(NamedTuple):
    """What became of one conversation or recorded request; times in seconds."""

    text: str = ""
    tokens: int | None = 0  # None: the server did not say, and pieces of a stream are no tokens under speculation
    requests: int = 0
    first_token: tuple[float, ...] = ()
    latency: tuple[float, ...] = ()
    error: str | None = None
    late: bool = False


class Measured(NamedTuple):
    speed: Speed
    answers: tuple[str, ...]  # digests of the texts
    notes: tuple[str, ...]


def measure(traffic: Traffic, target: Target, pace: Pace) -> Measured:
    """Send the traffic.  Raises NetworkError when no request at all succeeded."""
    begin = time.monotonic()
    answers = _in_parallel(
        [_task(request, target, pace, _due(traffic, request, begin)) for request in traffic.requests], pace.concurrency
    )
    seconds = time.monotonic() - begin
    failed = [answer for answer in answers if answer.error is not None]
    if len(failed) == len(answers):
        raise NetworkError(f"every request to {target.url} failed: {failed[0].error}", "See the server's log")
    notes = [f"{traffic.name}: {len(failed)} failed, the first with: {failed[0].error}"] if failed else []
    late = sum(answer.late for answer in answers)
    if late:
        notes.append(f"{traffic.name}: {late} were sent over {_LATE:g} s late; raise --concurrency")
    first = [value for answer in answers for value in answer.first_token]
    latency = [value for answer in answers for value in answer.latency]
    speed = Speed(
        seconds=seconds,
        requests=float(sum(answer.requests for answer in answers)),
        errors=float(len(failed)),
        tokens=_sum(answers),
        first_token_ms=1000 * median(first) if first else None,
        latency_ms=1000 * median(latency) if latency else None,
    )
    return Measured(speed, tuple(map(_digest, answers)), tuple(notes))


def served(target_url: str, key: Secret | None, environ: Mapping[str, str]) -> tuple[tuple[str, int | None], ...]:
    """Name and longest context of each model that a server has.  Raises NetworkError where it does not say."""
    target = Target(target_url, "", key, environ)
    try:
        answer = _send(target, "GET", "/v1/models", None)
        document = json.loads(answer.read())
        if answer.status != 200:
            raise NetworkError(f"{target_url}/v1/models answers {answer.status}", _KEY)
        return tuple((model["id"], model.get("max_model_len")) for model in document["data"])
    except (OSError, http.client.HTTPException) as error:
        raise NetworkError(f"{target_url} cannot be reached: {_reason(error)}", "Check that it is up") from None
    except (ValueError, KeyError, TypeError):
        raise IntegrityError(f"{target_url}/v1/models does not list models", "Is it a server of models?") from None


def _task(request: Question | Recorded, target: Target, pace: Pace, due: float | None) -> Callable[[], Answer]:
    def carry_out() -> Answer:
        late = _wait_until(due)
        try:
            if isinstance(request, Recorded):
                answer = _ask(target, request.path, request.payload)
            else:
                answer = _converse(target, request, pace)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            answer = Answer(error=_reason(error))
        return answer._replace(late=late)

    return carry_out


def _due(traffic: Traffic, request: Question | Recorded, begin: float) -> float | None:
    first = traffic.requests[0]
    if not isinstance(first, Recorded) or not isinstance(request, Recorded):
        return None
    return None if first.at is None or request.at is None else begin + (request.at - first.at) / 1000


def _wait_until(due: float | None) -> bool:
    """Whether it is too late already."""
    if due is None:
        return False
    ahead = due - time.monotonic()
    if ahead > 0:
        time.sleep(ahead)
    return ahead < -_LATE


def _converse(target: Target, question: Question, pace: Pace) -> Answer:
    """All turns of a conversation, one after the other."""
    said: list[Mapping[str, Any]] = []
    whole = Answer()
    for turn in question.turns:
        said.append(turn)
        if turn["role"] == "system":
            continue
        body = {
            "model": target.model,
            "messages": said,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_completion_tokens": pace.max_tokens,
            "temperature": pace.temperature,
        }
        answer = _ask(target, "/v1/chat/completions", body)
        said.append({"role": "assistant", "content": answer.text})
        whole = Answer(
            whole.text + answer.text,
            None if whole.tokens is None or answer.tokens is None else whole.tokens + answer.tokens,
            whole.requests + 1,
            whole.first_token + answer.first_token,
            whole.latency + answer.latency,
        )
    return whole


def _ask(target: Target, path: str, body: Mapping[str, Any]) -> Answer:
    """One request; ValueError with the server's words for another status than 200."""
    begin = time.monotonic()
    response = _send(target, "POST", path, body)
    if response.status != 200:
        raise ValueError(f"HTTP {response.status}: {shortened(response.read().decode(errors='replace'), 200)}")
    if not body.get("stream"):
        document = json.loads(response.read())
        return Answer(_text(document, "message"), _counted(document), 1, (), (time.monotonic() - begin,))
    text: list[str] = []
    first: float | None = None
    tokens: int | None = None
    for document in _events(response):
        piece = _text(document, "delta")
        if piece:
            first = first or time.monotonic()
            text.append(piece)
        tokens = _counted(document) or tokens
    end = time.monotonic()
    first_token = () if first is None else (first - begin,)
    return Answer("".join(text), tokens, 1, first_token, (end - begin,))


def _counted(document: Mapping[str, Any]) -> int | None:
    usage = document.get("usage") or {}
    return int(usage["completion_tokens"]) if "completion_tokens" in usage else None


def _text(document: Mapping[str, Any], part: str) -> str:
    """What the first choice says, thoughts included."""
    choices = document.get("choices") or ()
    if not choices:
        return ""
    said = choices[0].get(part) or choices[0]
    names = ("reasoning_content", "reasoning", "content", "text")
    return "".join(said[name] for name in names if isinstance(said.get(name), str))


def _events(response: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
    """The documents of an event stream.  ValueError for one that tells of an error or breaks off."""
    for line in response:
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or not data:
            continue
        if data == b"[DONE]":
            return
        document = json.loads(data)
        if document.get("error"):
            raise ValueError(shortened(json.dumps(document["error"]), 200))
        yield document
    raise ValueError("the answer broke off")


def _send(target: Target, method: str, path: str, body: Mapping[str, Any] | None) -> http.client.HTTPResponse:
    parts = urlsplit(target.url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = authorities(target.environ)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=SILENCE, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SILENCE)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if target.key is not None:
        headers["Authorization"] = f"Bearer {target.key.reveal()}"
    data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    connection.request(method, parts.path.rstrip("/") + path, data, headers)
    return connection.getresponse()


def _in_parallel(tasks: Sequence[Callable[[], Answer]], width: int) -> list[Answer]:
    """Carry out the tasks in their order, at most ``width`` at once.  A signal ends the wait at once."""
    answers: list[Answer | None] = [None] * len(tasks)
    waiting = iter(enumerate(tasks))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                item = next(waiting, None)
            if item is None:
                return
            number, task = item
            answers[number] = task()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(width, len(tasks)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer or Answer(error="the client failed") for answer in answers]


def _sum(answers: Sequence[Answer]) -> float | None:
    known = [answer.tokens for answer in answers if answer.tokens is not None]
    return float(sum(known)) if len(known) == len(answers) else None


def _digest(answer: Answer) -> str:
    return "" if answer.error else hashlib.sha256(answer.text.encode(errors="replace")).hexdigest()[:16]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


_KEY = "Set VLLM_API_KEY to a key of that server"
