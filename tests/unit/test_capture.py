"""Captured requests: the lines, the files, and the recorder on the ASGI callable."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.middleware import capture as capturing
from launcher.middleware import metrics
from launcher.middleware.asgi import Middleware
from launcher.middleware.capture import Recorder
from launcher.middleware.configuration import VARIABLE, Capture, Configuration, to_json
from launcher.middleware.records import MOONCAKE, RAW, Unusable, depth, line
from launcher.middleware.replay import Trace as Seen
from launcher.middleware.replay import problems
from launcher.middleware.traces import Trace, naming
from tests.unit.asgi import Engine, call

CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "é 𝄞 \u2028 \x00"}],
    "temperature": 1.0,
    "seed": 2**70,
}


def body(**more: Any) -> bytes:
    return json.dumps({**CHAT, **more}).encode()


# -- the lines


def test_a_mooncake_line_is_a_time_and_the_body() -> None:
    made = line(MOONCAKE, 1795982564123.4567, body(stream=True))
    assert made.endswith(b"\n") and made.count(b"\n") == 1
    assert json.loads(made) == {"timestamp": 1795982564123.457, "payload": {**CHAT, "stream": True}}


def test_a_raw_line_is_the_body() -> None:
    assert json.loads(line(RAW, 1.0, json.dumps(CHAT, indent=2).encode())) == CHAT


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
def test_bodies_in_any_encoding_that_json_has(encoding: str) -> None:
    assert json.loads(line(RAW, 1.0, json.dumps(CHAT, ensure_ascii=False).encode(encoding))) == CHAT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b'{"a": 1} {}', "no JSON"),
        (b"\xff\xfe\xfd", "no JSON"),
        (b"{}", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'"x"', "no JSON object"),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": [-Infinity]}', "-Infinity is no JSON value"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested more than 200"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 200"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
    ],
)
def test_what_a_replay_would_choke_on(text: bytes, why: str) -> None:
    with pytest.raises(Unusable, match=re.escape(why)):
        line(MOONCAKE, 1.0, text)


def test_raw_lines_need_messages() -> None:
    assert line(MOONCAKE, 1.0, b'{"prompt": "x"}')
    with pytest.raises(Unusable, match="no list of messages"):
        line(RAW, 1.0, b'{"prompt": "x"}')


def test_depth_counts_levels() -> None:
    values: tuple[Any, ...] = (1, {}, [], {"a": 1}, {"a": [{}, []]}, [[[1]], 2])
    assert [depth(value) for value in values] == [0, 1, 1, 1, 3, 3]


@pytest.mark.parametrize("levels", [199, 200])
def test_brackets_in_strings_are_no_nesting(levels: int) -> None:
    nested = b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b', "b": "' + b"[" * 500 + b'"}'
    assert line(MOONCAKE, 1.0, nested)


# -- the files


def trace(folder: Path, form: str = MOONCAKE, *, name: str = "r.jsonl", number: int = 1, **limits: int) -> Trace:
    return Trace(naming(f"{folder}/{name}"), number, form, limits.get("max_bytes", 1 << 20), limits.get("max_files", 4))


def record(number: int) -> bytes:
    return line(MOONCAKE, 1_800_000_000_000 + number, json.dumps({"messages": [], "n": number}).encode())


@pytest.mark.parametrize(
    ("path", "endpoint", "number", "expected"),
    [
        ("/c/requests.jsonl", "", 1, "/c/requests.jsonl"),
        ("/c/requests.jsonl", "", 3, "/c/requests.3.jsonl"),
        ("/c/requests.jsonl", "/v1/completions", 1, "/c/requests.v1-completions.jsonl"),
        ("/c/requests.jsonl", "/v1/completions", 2, "/c/requests.v1-completions.2.jsonl"),
        ("/c/requests", "", 2, "/c/requests.2"),
        ("/c/.hidden", "", 2, "/c/.hidden.2"),
        ("/c/a.b.jsonl", "/../../etc/x", 1, "/c/a.b.etc-x.jsonl"),
    ],
)
def test_names(path: str, endpoint: str, number: int, expected: str) -> None:
    assert naming(path, endpoint).path(number) == expected


def test_a_full_file_is_called_by_its_beginning() -> None:
    names = naming("/c/r.jsonl")
    assert names.rotated(1, 0.0) == "/c/r.19700101T000000Z.jsonl"
    assert names.rotated(2, 0.0, 2) == "/c/r.2.19700101T000000Z-2.jsonl"


def test_files_are_private_whatever_they_were(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(record(1))
    (tmp_path / "r.jsonl").chmod(0o644)
    one = trace(tmp_path)
    one.write(record(2), 1.0)
    assert stat.S_IMODE((tmp_path / "r.jsonl").stat().st_mode) == 0o600
    assert (tmp_path / "r.jsonl").read_bytes() == record(1) + record(2)


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (record(1) + record(2)[:20], record(1)),
        (record(1) + b"\0" * 5000, record(1)),
        (record(1) + record(2)[:-1], record(1) + record(2)),
        (record(1)[:-1], record(1)),
        (record(1)[:30], b""),
        (record(1) + b'{"timestamp": 1, "payload": "' + b"x" * 200_000, record(1)),
        (b"", b""),
    ],
    ids=["torn", "zeros", "newline lost", "only line whole", "only line torn", "long torn", "empty"],
)
def test_a_torn_end_is_repaired(left: bytes, kept: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(left)
    one = trace(tmp_path)
    one.open()
    assert (tmp_path / "r.jsonl").read_bytes() == kept
    one.write(record(3), 1.0)
    assert (tmp_path / "r.jsonl").read_bytes() == kept + record(3)


@pytest.mark.parametrize("content", ['{\n "a": 1\n}\n', "#!/bin/sh\n", "\0\1\2", '{"model_type": "llama"}'])
def test_somebody_elses_file_is_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    with pytest.raises(OSError, match="something else"):
        trace(tmp_path).write(record(1), 1.0)
    assert (tmp_path / "r.jsonl").read_text() == content


def test_a_trace_of_the_other_format_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(record(1))
    trace(tmp_path, RAW).write(line(RAW, 1, body()), 1.0)
    assert (tmp_path / "r.20270115T080000Z.jsonl").read_bytes() == record(1)
    assert json.loads((tmp_path / "r.jsonl").read_bytes()) == CHAT


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    size = len(record(10))
    one = trace(tmp_path, max_bytes=2 * size, max_files=3)
    for number in range(10, 20):
        one.write(record(number), 1_800_000_000 + number)
    assert one.rotations == 4
    found = {path.name: [row["payload"]["n"] for row in lines(path)] for path in tmp_path.iterdir()}
    assert found == {
        "r.jsonl": [18, 19],
        "r.20270115T080016Z.jsonl": [16, 17],
        "r.20270115T080014Z.jsonl": [14, 15],
    }


def test_a_line_larger_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    one = trace(tmp_path, max_bytes=10)
    for number in (1, 2):
        one.write(record(number), 5.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.19700101T000005Z.jsonl", "r.jsonl"]


def test_two_writers_never_share_a_file(tmp_path: Path) -> None:
    first, second, third = (trace(tmp_path) for _ in range(3))
    for number, one in enumerate((first, second, third)):
        one.write(record(number), 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.2.jsonl", "r.3.jsonl", "r.jsonl"]
    second.close()
    again = trace(tmp_path)
    again.write(record(9), 1.0)
    assert again.path == f"{tmp_path}/r.2.jsonl"


def test_a_file_that_was_taken_away_comes_back(tmp_path: Path) -> None:
    one = trace(tmp_path)
    one.write(record(1), 1.0)
    (tmp_path / "r.jsonl").rename(tmp_path / "moved")
    one.open()
    one.write(record(2), 1.0)
    (tmp_path / "other").write_bytes(record(7))
    (tmp_path / "other").replace(tmp_path / "r.jsonl")
    one.open()
    one.write(record(3), 1.0)
    assert (tmp_path / "moved").read_bytes() == record(1)
    assert (tmp_path / "r.jsonl").read_bytes() == record(7) + record(3)


def test_a_pipe_or_folder_is_no_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.jsonl")
    with pytest.raises(OSError, match="not a regular file"):
        trace(tmp_path).open()
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        trace(tmp_path, name="d.jsonl").open()


# -- the recorder


class Counts:
    """The counters since they were last looked at: they live as long as the process."""

    def __init__(self) -> None:
        self.before = self.now()

    @staticmethod
    def now() -> dict[str, float]:
        found = metrics.capture()
        values = {"taken": found.taken, "written": found.written, **found.dropped}
        return {name: metric._value.get() for name, metric in values.items()}

    def new(self) -> dict[str, int]:
        now, before = self.now(), self.before
        return {name: int(now[name] - before[name]) for name in now if now[name] != before[name]}


@pytest.fixture
def counts() -> Counts:
    return Counts()


def recording(path: Path, monkeypatch: pytest.MonkeyPatch, **told: Any) -> tuple[Middleware, Engine]:
    configuration = Configuration(capture=Capture(path=str(path), **told))
    monkeypatch.setenv(VARIABLE, to_json(configuration.document()))
    engine = Engine()
    app: Any = engine
    return Middleware(app), engine


def lines(path: Path) -> list[Any]:
    return [json.loads(text) for text in path.read_bytes().splitlines()]


def test_a_request_is_recorded_and_reaches_the_engine_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    app, engine = recording(tmp_path / "r.jsonl", monkeypatch)
    sent = json.dumps(CHAT, indent=1).encode()
    before = time.time() * 1000

    async def ask() -> None:
        pieces = (sent[:7], sent[7:9], b"", sent[9:])
        secret = [("Authorization", "Bearer clients-own-key"), ("X-Request-Id", "abc")]
        reply = await call(app, "POST", "/v1/chat/completions", body=pieces, headers=secret)
        assert reply.chunks == (b"data: 1\n\n", b"data: 2\n\n", b"")
        await call(app, "GET", "/v1/chat/completions")
        await call(app, "POST", "/v1/completions", body=(sent,))

    asyncio.run(ask())
    app.close()
    assert engine.bodies[0] == sent
    (found,) = lines(tmp_path / "r.jsonl")
    assert found.keys() == {"timestamp", "payload"}
    assert found["payload"] == CHAT
    assert before <= found["timestamp"] <= time.time() * 1000
    assert b"clients-own-key" not in (tmp_path / "r.jsonl").read_bytes()
    assert counts.new() == {"taken": 1, "written": 1}


def test_endpoints_get_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch, endpoint_pattern="^/")

    async def ask() -> None:
        for path in ("/v1/completions", "/v1/chat/completions", *(f"/made/up/{number}" for number in range(30))):
            await call(app, "POST", path, body=(body(path=path),))

    asyncio.run(ask())
    app.close()
    assert lines(tmp_path / "r.jsonl")[0]["payload"]["path"] == "/v1/chat/completions"
    assert lines(tmp_path / "r.v1-completions.jsonl")[0]["payload"]["path"] == "/v1/completions"
    assert len(list(tmp_path.iterdir())) == capturing.MOST_ENDPOINTS
    most = capturing.MOST_ENDPOINTS
    assert counts.new() == {"taken": 32, "written": most, "too_many_endpoints": 32 - most}


def test_the_first_endpoint_of_a_pattern_gets_the_named_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch, endpoint_pattern="^/v1/completions$")
    asyncio.run(call(app, "POST", "/v1/completions", body=(b'{"prompt": "x"}',)))
    app.close()
    assert lines(tmp_path / "r.jsonl")[0]["payload"] == {"prompt": "x"}


def test_what_cannot_be_replayed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch)

    async def ask() -> None:
        for data in (b"{", b'{"a": NaN}', b"{}", body()):
            await call(app, "POST", "/v1/chat/completions", body=(data,))

    asyncio.run(ask())
    app.close()
    assert counts.new() == {"taken": 4, "written": 1, "unusable": 3}
    assert len(lines(tmp_path / "r.jsonl")) == 1


def test_a_client_that_hangs_up_in_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch)

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        return None

    messages = [{"type": "http.request", "body": b'{"mod', "more_body": True}, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    app.close()
    assert counts.new() == {"taken": 1, "incomplete": 1}
    assert (tmp_path / "r.jsonl").read_bytes() == b""


def test_a_body_beyond_all_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    monkeypatch.setattr(capturing, "LARGEST", 1000)
    app, engine = recording(tmp_path / "r.jsonl", monkeypatch)
    asyncio.run(call(app, "POST", "/v1/chat/completions", body=(b"x" * 900, b"y" * 900, b"z" * 900)))
    app.close()
    assert counts.new() == {"taken": 1, "too_large": 1}
    assert len(engine.bodies[0]) == 2700


@pytest.mark.parametrize(("limit", "value"), [("MOST_WAITING", 3), ("MOST_BYTES", 3 * len(body()))])
def test_a_slow_disk_costs_records_and_no_time(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    monkeypatch.setattr(capturing, limit, value)
    monkeypatch.setattr(capturing, "_LINGER", 0.5)
    app, engine = recording(tmp_path / "r.jsonl", monkeypatch)

    async def ask() -> None:
        for _ in range(10):
            await call(app, "POST", "/v1/chat/completions", body=(body(),))

    begin = time.monotonic()
    asyncio.run(ask())
    assert time.monotonic() - begin < 0.4
    app.close()
    assert len(engine.bodies) == 10
    assert counts.new() == {"taken": 10, "written": 3, "queue_full": 7}


def test_a_path_that_cannot_be_written_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, counts: Counts
) -> None:
    app, engine = recording(tmp_path / "missing" / "r.jsonl", monkeypatch)

    async def ask(count: int) -> None:
        for _ in range(count):
            await call(app, "POST", "/v1/chat/completions", body=(body(),))
        await asyncio.sleep(0.2)

    asyncio.run(ask(3))
    assert [found.message for found in caplog.records if "cannot be written" in found.message] == [
        f"capture: {tmp_path}/missing/r.jsonl cannot be written (No such file or directory): requests are served, and "
        "not recorded"
    ]
    assert counts.new() == {"taken": 3, "write_failed": 3}
    (tmp_path / "missing").mkdir()
    asyncio.run(ask(2))
    app.close()
    assert counts.new() == {"taken": 5, "write_failed": 3, "written": 2}
    assert (len(engine.bodies), len(lines(tmp_path / "missing" / "r.jsonl"))) == (5, 2)


def test_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    app, engine = recording(tmp_path / "r.jsonl", monkeypatch, sample=0.25)

    async def ask() -> None:
        for _ in range(2000):
            await call(app, "POST", "/v1/chat/completions", body=(body(),))

    asyncio.run(ask())
    app.close()
    written = len(lines(tmp_path / "r.jsonl"))
    assert len(engine.bodies) == 2000
    assert 400 < written < 600  # seven standard deviations around 500
    assert counts.new() == {"taken": written, "written": written}


def test_many_at_once_each_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch)
    arrived: list[int] = []

    async def one(number: int) -> None:
        data = body(number=number)
        await asyncio.sleep(number % 7 / 1000)
        arrived.append(number)
        await call(app, "POST", "/v1/chat/completions", body=(data,))

    async def ask() -> None:
        await asyncio.gather(*map(one, range(1000)))

    asyncio.run(ask())
    app.close()
    found = lines(tmp_path / "r.jsonl")
    assert [row["payload"]["number"] for row in found] == arrived
    stamps = [row["timestamp"] for row in found]
    assert stamps == sorted(stamps)
    assert counts.new() == {"taken": 1000, "written": 1000}


def test_the_end_of_the_server_writes_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "_LINGER", 1.0)
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch)
    recorder = app._recorder
    assert isinstance(recorder, Recorder)

    async def ask() -> None:
        heard = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> dict[str, Any]:
            return heard.pop(0)

        async def life(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "lifespan":
                await engine(scope, receive, send)
                return
            await receive()
            await call(app, "POST", "/v1/chat/completions", body=(body(),))
            await receive()

        engine, app.app = app.app, life
        await app({"type": "lifespan"}, receive, receive)  # type: ignore[arg-type]
        app.app = engine

    asyncio.run(ask())
    assert len(lines(tmp_path / "r.jsonl")) == 1
    assert not recorder._thread.is_alive()


# -- validate's rules


def bad(*rows: bytes, form: str | None = None) -> list[tuple[int, str]]:
    return list(problems(iter(rows), Seen(form)))


GOOD = b'{"timestamp": 5, "payload": {"model": "m", "messages": []}}'


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (b'{"timestamp": "2026-11-29T20:00:00Z", "payload": {"a": 1}}', "no number of milliseconds"),
        (b'{"timestamp": "nan", "payload": {"a": 1}}', "no number of milliseconds"),
        (b'{"payload": {"a": 1}}', "no timestamp, although the first line has one"),
        (b'{"timestamp": null, "payload": {"a": 1}}', "no timestamp, although"),
        (b'{"timestamp": 5, "payload": {}}', "not an object with something in it"),
        (b'{"timestamp": 5, "payload": "{}"}', "not an object"),
        (b'{"timestamp": 5, "payload": [1]}', "not an object"),
        (b'{"timestamp": 5, "payload": null}', "none of payload"),
        (b'{"timestamp": 5}', "none of payload"),
        (b'{"timestamp": 5, "payload": {"a": 1}, "messages": []}', "both payload and messages"),
        (b'{"timestamp": 5, "payload": {"a": 1}, "input_length": 3}', "both payload and input_length"),
        (b'{"timestamp": 5, "payload": {"a": 1}, "hash_ids": [1]}', "hash_ids go with input_length"),
        (b'{"timestamp": 5, "payload": {"a": 1}, "type": "chat"}', "reserved key 'type'"),
        (b'{"timestamp": 5, "payload": {"a": NaN}}', "NaN is no JSON value"),
        (b'{"timestamp": 5, "payload": {"a": "\\ud800"}}', "surrogate"),
        (b'{"timestamp": 5, "payload": {"a"', "no JSON"),
        (GOOD + b" " + GOOD, "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"timestamp": 5, "payload": {"a": "\xff"}}', "not UTF-8"),
        (b'{"timestamp": 5, "payload": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}", "nested more than 2"),
    ],
)
def test_lines_that_stop_a_replay(row: bytes, why: str) -> None:
    ((number, said),) = bad(GOOD, b"", row, GOOD)
    assert number == 3
    assert why in said


@pytest.mark.parametrize(
    "row",
    [
        GOOD,
        b'{"timestamp": 5.25, "payload": {"a": 1}}',
        b'{"timestamp": -5, "payload": {"a": 1}}',
        b'{"timestamp": "5", "payload": {"a": 1}}',
        b'{"timestamp": true, "payload": {"a": 1}, "type": "mooncake_trace", "headers": {}, "session_id": "s"}',
        b'{"timestamp": 5, "messages": [{"role": "user", "content": "x"}]}',
        b'{"timestamp": 5, "input_length": 10, "hash_ids": [1]}',
        b'{"timestamp": 5, "payload": {"a": "\\ud834\\udd1e \\u0000", "b": 123456789012345678901234567890}}',
        b'{"timestamp": 5, "payload": {"a": 1, "a": 2}}',
    ],
)
def test_lines_that_do_not(row: bytes) -> None:
    assert bad(GOOD, row) == []


def test_without_a_timestamp_on_the_first_line_others_do_not_matter() -> None:
    assert bad(b'{"payload": {"a": 1}}', GOOD) == []


def test_a_byte_order_mark() -> None:
    assert bad(b"\xef\xbb\xbf" + GOOD, GOOD) == [(1, "a byte order mark in front")]


def test_raw_payload_is_for_chat() -> None:
    assert bad(b'{"messages": []}', b'{"prompt": "x"}') == [(2, "no list of messages, which raw_payload needs")]
    assert bad(GOOD, form=RAW) == [(1, "no list of messages, which raw_payload needs")]


def test_what_a_trace_adds_up_to() -> None:
    seen = Seen()
    rows = (
        b'{"timestamp": 2500, "payload": {"model": "b", "messages": []}, "session_id": "s"}',
        b'{"timestamp": 1000, "payload": {"model": "a", "prompt": "x"}}',
    )
    assert list(problems(iter(rows), seen)) == []
    assert seen.summary() == "2 requests for a, b over 1.5 s: nothing would stop a replay as mooncake_payload"
    assert [note.partition(":")[0] for note in seen.notes()] == [
        "1 chat requests and 1 others",
        "1 lines have a session_id",
        "it names 2 models, which the server must all serve",
    ]


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    app, _ = recording(tmp_path / "r.jsonl", monkeypatch)

    async def ask() -> None:
        for number in range(20):
            await call(app, "POST", "/v1/chat/completions", body=(body(number=number),))

    asyncio.run(ask())
    app.close()
    yield tmp_path / "r.jsonl"


def test_what_is_captured_is_valid(captured: Path) -> None:
    rows = captured.read_bytes().splitlines()
    assert bad(*rows) == []
    assert gzip.decompress(gzip.compress(captured.read_bytes())).splitlines() == rows
