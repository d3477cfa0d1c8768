"""The pure parts of the transfer engine, and its records on disk."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.errors import DeniedError, IntegrityError, NetworkError, NotFoundError
from launcher.fetch import record, retry
from launcher.fetch.channel import _redirected
from launcher.fetch.digests import running
from launcher.fetch.pace import Pace
from launcher.fetch.progress import Progress, clock, percent, readable
from launcher.fetch.remote import Digest, Location, RemoteFile
from launcher.fetch.retry import Hindrance, Refused, check_status, retry_after, shown, wait_before
from launcher.fetch.spans import Span, Spans
from launcher.fetch.strain import Strain

CHECK = b"123456789"  # the input whose CRCs are published


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [
        ("crc32", "cbf43926"),
        ("crc32c", "e3069283"),
        ("crc64nvme", "ae8b14860a799888"),
        ("md5", "25f9e794323b453885f5181f1b624d0b"),
        ("sha1", "e2e107ac61ac259b87c544f6e7a4eb03422c6c21"),  # git hash-object
        ("sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
    ],
)
def test_published_digests(algorithm: str, value: str) -> None:
    for cut in range(len(CHECK)):
        state = running(Digest(algorithm, ""), len(CHECK))
        state.update(memoryview(CHECK[:cut]))
        state.update(memoryview(CHECK[cut:]))
        assert state.hexdigest() == value


def test_a_crc_keeps_its_leading_zeros() -> None:
    data = next(text for number in range(10**6) if zlib.crc32(text := b"%d" % number) < 1 << 24)
    state = running(Digest("crc32", ""), len(data))
    state.update(memoryview(data))
    assert state.hexdigest() == f"{zlib.crc32(data):08x}"


def test_an_empty_file_has_a_digest() -> None:
    assert running(Digest("sha1", ""), 0).hexdigest() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert running(Digest("crc32c", ""), 0).hexdigest() == "00000000"


def test_spans_come_in_the_order_of_the_file() -> None:
    spans = Spans(100, chunk=16)
    assert spans.take(16) == Span(0, 16)
    assert spans.take(40) == Span(16, 48)
    assert spans.take(1000) == Span(48, 100)
    assert spans.take(1000) is None


def test_a_span_that_is_given_back_continues_where_it_stopped() -> None:
    spans = Spans(100, chunk=16)
    span = spans.take(48)
    assert span == Span(0, 48)
    spans.advance(0, 16)
    spans.advance(16, 5)
    spans.release(span)
    assert spans.take(48) == Span(21, 64)


def test_what_follows_a_partly_filled_chunk_is_not_fetched_twice() -> None:
    spans = Spans(64, chunk=16)
    spans.restore([16, 0, 3, 0])
    assert spans.take(64) == Span(16, 32)
    assert spans.take(64) == Span(35, 64)


def test_the_edge_is_the_end_of_what_is_whole_from_the_start() -> None:
    spans = Spans(40, chunk=16)
    spans.restore([16, 7, 8])
    assert (spans.edge, spans.valid, spans.complete) == (23, 31, False)
    spans.advance(23, 9)
    assert (spans.edge, spans.complete) == (40, True)


def test_a_file_without_bytes_is_complete() -> None:
    assert Spans(0).complete
    assert Spans(0).take(1) is None


@settings(max_examples=200, deadline=None)
@given(size=st.integers(1, 300), seed=st.integers())
def test_spans_cover_the_file_exactly_once(size: int, seed: int) -> None:
    """Whatever is taken, given up half-way and taken again: in the end each byte came once."""
    chance = random.Random(seed)
    spans = Spans(size, chunk=16)
    came = bytearray(size)
    while not spans.complete:
        span = spans.take(chance.choice([16, 32, 1000]))
        assert span is not None
        position = span.start
        while position < span.stop and chance.random() < 0.9:
            count = chance.randint(1, min(spans.room(position), span.stop - position))
            for place in range(position, position + count):
                came[place] += 1
            spans.advance(position, count)
            position += count
        spans.release(span)
        assert spans.edge == next((place for place in range(size) if not came[place]), size)
    assert set(came) == {1}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Refused), (403, Refused), (408, Hindrance), (429, Hindrance), (500, Hindrance), (502, Hindrance),
        (503, Hindrance), (504, Hindrance), (404, NotFoundError), (410, NotFoundError), (412, IntegrityError),
        (416, IntegrityError), (400, NetworkError), (405, NetworkError), (204, NetworkError), (304, NetworkError),
    ],
)  # fmt: skip
def test_what_a_status_means(status: int, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        check_status(status, {}, "file", "http://host/file")
    assert type(caught.value) is error


def test_a_refusal_becomes_denied_and_anything_that_lasts_becomes_network() -> None:
    with pytest.raises(Refused) as refused:
        check_status(403, {}, "file", "http://host/file")
    assert isinstance(refused.value.error, DeniedError)
    with pytest.raises(Hindrance) as hindered:
        check_status(503, {"retry-after": "7"}, "file", "http://host/file")
    assert (type(hindered.value.error), hindered.value.wait, hindered.value.crowded) == (NetworkError, 7.0, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("7", 7.0), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)]
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text} if text else {}) == seconds


def test_waits_grow_are_bounded_and_differ() -> None:
    for attempt in range(1, 12):
        most = min(30.0, 0.5 * 2 ** (attempt - 1))
        waits = [wait_before(attempt) for _ in range(50)]
        assert most / 2 <= min(waits) < max(waits) <= most
        assert wait_before(attempt, 10.0) >= 10.0
    assert retry.LONGEST_WAIT == 30.0


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("https://host/a", "/b", True),
        ("https://host/a", "https://HOST:443/b", True),
        ("http://host/a", "https://host/b", True),
        ("http://host:8080/a", "https://host/b", False),
        ("https://host/a", "http://host/b", False),
        ("https://host/a", "https://host.evil/b", False),
        ("https://host/a", "https://user@other/b", False),
        ("https://host/a", "//other/b", False),
        ("https://host/a", "https://host:444/b", False),
    ],
)
def test_headers_end_where_another_host_begins(old: str, new: str, kept: bool) -> None:
    location = _redirected(Location(old, (("Authorization", "x"),)), new, "file")
    assert bool(location.headers) is kept


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown("https://me:secret@host/a%20b?X-Amz-Signature=secret#s") == "https://host/a%20b"


def steady(pace: Pace, rate: float, seconds: float, start: tuple[float, int], strain: float = 0.0) -> tuple[float, int]:
    """Let every connection have ``rate`` for some seconds."""
    now, total = start
    for _ in range(round(seconds / 0.1)):
        pace.observe(now, total, pace.limit, lambda: strain)
        now += 0.1
        total += int(rate * pace.limit * 0.1)
    return now, total


def test_connections_grow_while_each_is_limited() -> None:
    pace = Pace(16)
    steady(pace, 50e6, 2.0, (0.0, 0))
    assert pace.limit == 16


def test_connections_do_not_grow_where_the_whole_is_limited() -> None:
    pace = Pace(16)
    now, total = 0.0, 0
    for _ in range(100):
        pace.observe(now, total, pace.limit, lambda: 0.0)
        now, total = now + 0.1, total + 10**7
    assert pace.limit in (4, 8)
    pace.observe(now, total, pace.limit, lambda: 0.0)
    assert pace.limit == 4


def test_a_strained_machine_tries_no_more() -> None:
    pace = Pace(16)
    steady(pace, 50e6, 2.0, (0.0, 0), strain=0.9)
    assert pace.limit == 4


def test_a_server_that_asks_for_less_gets_less() -> None:
    pace = Pace(16)
    steady(pace, 50e6, 2.0, (0.0, 0))
    pace.slow_down()
    assert pace.limit == 8
    steady(pace, 50e6, 5.0, (10.0, 0))
    assert pace.limit == 8


@pytest.mark.parametrize(("delay", "most", "limit"), [(0.0005, 16, 4), (0.010, 16, 13), (0.050, 16, 32), (0.050, 2, 4)])
def test_connections_for_small_files(delay: float, most: int, limit: int) -> None:
    pace = Pace(most)
    for _ in range(100):
        pace.replied(delay)
    assert pace.small_limit == pytest.approx(limit, abs=1)


def test_the_strain_of_a_thread_that_works() -> None:
    strain = Strain()
    strain.share([os.getpid()])
    sum(number * number for number in range(10**6))
    assert 0.1 < strain.share([os.getpid()]) <= 1.1
    assert Strain().share([]) == 0.0


FILE = RemoteFile("file", 100, "etag", None)


def recorded(folder: Path, validator: str = '"tag"') -> tuple[str, str]:
    part, path = folder / "part", folder / "record"
    part.write_bytes(bytes(100))
    with part.open("rb") as opened:
        made = record.begin(str(path), opened.fileno(), FILE, 16, [16, 5, 0, 0, 0, 0, 0], validator)
    made.note(2, 9)
    made.close()
    return str(path), str(part)


def test_a_record_tells_what_is_there(tmp_path: Path) -> None:
    path, part = recorded(tmp_path)
    assert record.read(path, part, FILE, 16, checked=False) == ((16, 5, 9, 0, 0, 0, 0), '"tag"')


def test_a_record_is_bound_to_its_part_and_object(tmp_path: Path) -> None:
    path, part = recorded(tmp_path)
    assert record.read(path, part, FILE._replace(identity="new"), 16, checked=True) is None
    assert record.read(path, part, FILE._replace(size=99), 16, checked=True) is None
    assert record.read(path, part, FILE, 8, checked=True) is None
    assert record.read(f"{path}.absent", part, FILE, 16, checked=True) is None
    os.truncate(part, 99)
    assert record.read(path, part, FILE, 16, checked=True) is None
    Path(part).rename(f"{part}.old")
    Path(part).write_bytes(bytes(100))
    assert record.read(path, part, FILE, 16, checked=True) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b"\xff" * 540])
def test_a_damaged_record_tells_nothing(tmp_path: Path, damage: bytes) -> None:
    path, part = recorded(tmp_path)
    Path(path).write_bytes(damage)
    assert record.read(path, part, FILE, 16, checked=True) is None


def test_a_record_from_before_a_restart_needs_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, part = recorded(tmp_path)
    monkeypatch.setattr(record, "kernel", lambda: "another")
    assert record.read(path, part, FILE, 16, checked=False) is None
    assert record.read(path, part, FILE, 16, checked=True) is not None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_340, "12.3 kB"), (999_600, "1.00 MB"),
        (2_147_483_648, "2.15 GB"), (140e9, "140 GB"), (5e15, "5000 TB"),
    ],
)  # fmt: skip
def test_readable_bytes(number: float, text: str) -> None:
    assert readable(number) == text


def test_a_hundred_percent_is_everything() -> None:
    assert [percent(999, 1000), percent(1000, 1000), percent(0, 0)] == [99, 100, 100]
    assert [clock(5), clock(65), clock(3725)] == ["0:05", "1:05", "1:02:05"]


def test_progress_lines_tell_target_and_draft_apart(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(bar=False, every=0.0)
    progress.begin({"target": 1000, "draft": 100}, {"target": 0, "draft": 0})
    began = progress._began
    progress.show(lambda: {"target": 250, "draft": 100}, began + 1.0)
    line = capsys.readouterr().err
    assert "target 250 B of 1.00 kB (25 %); draft 100 B of 100 B (100 %), 350 B/s, 0:02 left" in line


def test_a_bar_is_drawn_over_itself_and_erased(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress(bar=True)
    progress.begin({"target": 1000}, {"target": 0})
    progress.show(lambda: {"target": 500}, progress._began + 1.0)
    progress.stop()
    text = capfd.readouterr().err
    assert "\rtarget [##########..........]  50 %, 500 B/s, 0:01 left\x1b[K" in text
    assert text.endswith("\r\x1b[K")


def test_json_lines_leave_no_room_for_a_bar() -> None:
    assert Progress(jsonl=True, bar=True)._bar is False


def test_a_full_pipe_does_not_stop_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    with os.fdopen(reader, "rb"), os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        for bar in (True, False):
            progress = Progress(bar=bar, every=0.0)
            progress.begin({"target": 1000}, {"target": 0})
            progress.show(lambda: {"target": 500}, progress._began + 10.0)
            progress.end({"target": 1000})
        monkeypatch.undo()
