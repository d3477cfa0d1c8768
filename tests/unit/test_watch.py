"""The watch over speculation: silent while all is well, loud when it is off or not worth its time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from launcher.middleware import metrics, watch
from launcher.middleware.configuration import Speculation
from launcher.middleware.watch import Counted, Judge, Watch, counted

EAGLE = Speculation(True, "eagle3", 3, "named")


@pytest.mark.parametrize(
    ("windows", "said"),
    [
        ([(999, 0)], [None]),
        ([(1000, 100)], ["costing"]),
        ([(1000, 300)], [None]),
        ([(1000, 299)], ["costing"]),
        ([(1000, 100), (1000, 100), (1000, 900)], ["costing", None, "again"]),
        ([(900, 0), (100, 500), (5000, 100)], [None, None, "costing"]),
        ([(1000, 900), (1000, 0), (500, 500), (500, 500)], [None, "costing", None, "again"]),
    ],
)
def test_judgements(windows: list[tuple[int, int]], said: list[str | None]) -> None:
    judge = Judge(EAGLE, 0.3)
    total = Counted(0, 0)
    for (drafted, accepted), expected in zip(windows, said, strict=True):
        total = Counted(total.drafted + drafted, total.accepted + accepted)
        sentence = judge.sentence(total)
        assert (sentence is None) if expected is None else (sentence is not None and expected in sentence)


def test_the_sentence_says_what_was_seen_and_what_to_try() -> None:
    assert Judge(EAGLE, 0.3).sentence(Counted(2000, 500)) == (
        "speculation is likely costing time: 0.250 of the last 2000 drafted tokens were accepted, less than "
        "NIM_SPECDEC_MIN_ACCEPTANCE=0.3; try fewer than 3 tokens (num_speculative_tokens), and mind that a high "
        "temperature lowers it, or switch it off (NIM_SPECDEC_ENABLE=0, or --speculative-config none); "
        "'launcher bench' compares both"
    )


@pytest.mark.parametrize(
    ("told", "accepted", "advice"),
    [
        (Speculation(True, "mtp", 1), 0, "a head whose weights are not in the checkpoint"),
        (Speculation(True, "mtp", 1), 100, "try another draft"),
        (EAGLE, 10, "made for another model"),
        (Speculation(True, "ngram", 3), 0, "repeats itself too little"),
    ],
)
def test_advice(told: Speculation, accepted: int, advice: str) -> None:
    sentence = Judge(told, 0.3).sentence(Counted(1000, accepted))
    assert sentence is not None and advice in sentence


def gauges() -> dict[str, float]:
    found = metrics.speculation()
    names = ("expected", "active", "fallback", "floor", "below")
    return {name: getattr(found, name)._value.get() for name in names}


def run(
    told: Speculation, floor: float | None, read: Callable[[], Counted | None], monkeypatch: pytest.MonkeyPatch
) -> Watch:
    monkeypatch.setattr(watch, "PATIENCE", 2)
    monkeypatch.setattr(watch, "EVERY", 0.01)
    made = Watch(told, floor, read)
    monkeypatch.setattr(made._end, "wait", lambda seconds: made._end.is_set())
    return made


def test_active(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=watch.log.name)
    seen = iter([None, Counted(0, 0), Counted(1500, 15)])

    def read() -> Counted | None:
        try:
            return next(seen)
        except StopIteration:
            made.stop()
            return Counted(1500, 15)

    made = run(EAGLE, 0.3, read, monkeypatch)
    made._run()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.records[0].message == "speculation is active: eagle3, 3 tokens"
    assert gauges() == {"expected": 1, "active": 1, "fallback": 0, "floor": 0.3, "below": 1}


def test_silently_off_is_loud(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    run(EAGLE, None, lambda: None, monkeypatch)._run()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "SPECULATION MAY BE OFF: eagle3 was asked for" in caplog.text
    assert gauges() == {"expected": 1, "active": 0, "fallback": 0, "floor": 0, "below": 0}


def test_a_fallback_is_loud(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    run(Speculation(fallback="the draft does not fit"), None, lambda: None, monkeypatch)._run()
    assert "SPECULATION IS OFF, and was asked for: the draft does not fit" in caplog.text
    assert gauges() == {"expected": 0, "active": 0, "fallback": 1, "floor": 0, "below": 0}


def test_off_is_silent(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=watch.log.name)
    run(Speculation(), None, lambda: None, monkeypatch)._run()
    assert caplog.text == ""


def test_counters_of_all_engines_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr("prometheus_client.REGISTRY", registry)
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    assert counted() is None
    for name, values in ((watch.DRAFTED, (10, 20)), (watch.ACCEPTED, (3, 4))):
        counter = Counter(name, "text", ("engine",), registry=registry)
        for engine, value in enumerate(values):
            counter.labels(str(engine)).inc(value)
    Counter("vllm:spec_decode_num_accepted_tokens_per_pos", "text", registry=registry).inc(99)
    assert counted() == Counted(30, 7)
