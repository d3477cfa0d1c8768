"""vLLM's log: the configuration that is written for it, and what its formatter makes of a record."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import engine_log
from launcher.vllm import log_config
from launcher.vllm.log_config import Said

SECRET = "hf_abcdefghijklmnopqrstuvwx"


@pytest.fixture(autouse=True)
def warnings_as_before() -> Iterator[None]:
    yield
    logging.captureWarnings(False)


def record(message: str, *arguments: object, name: str = "vllm.core", level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "/site-packages/vllm/v1/core.py", 42, message, arguments, None)
    made.created = 1_700_000_000.123
    return made


def test_the_text_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    line = engine_log.Formatter().format(record("%d tokens", 3))
    assert line.startswith("INFO 2023-11-14 ") and line.endswith(".123 core.py:42] 3 tokens")


def test_a_line_of_json_has_the_launchers_fields() -> None:
    line = engine_log.Formatter(jsonl=True).format(record('a "quote"\nand more', level=logging.WARNING))
    assert json.loads(line) == {
        "timestamp": "2023-11-14T22:13:20.123Z",
        "level": "WARNING",
        "file": "core.py",
        "line": 42,
        "message": 'a "quote"\nand more',
    }


def test_other_processes_are_named() -> None:
    made = record("ready")
    made.vllm_process_name = "Worker_TP1"
    made.process = 77
    assert engine_log.Formatter().format(made).endswith("] (Worker_TP1 pid=77) ready")
    made.vllm_process_name = "APIServer_0"
    assert engine_log.Formatter().format(made).endswith("] ready")


def test_a_traceback_is_part_of_the_message() -> None:
    made = record("it failed")
    try:
        raise ValueError("no such thing")
    except ValueError:
        made.exc_info = sys.exc_info()
    message = json.loads(engine_log.Formatter(jsonl=True).format(made))["message"]
    assert message.startswith("it failed\nTraceback (most recent call last):")
    assert message.endswith("ValueError: no such thing")


@pytest.mark.parametrize("jsonl", [False, True])
def test_secrets_and_colours_are_taken_out(jsonl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "quite-a-secret")
    monkeypatch.setenv("OTHERS_PASSWORD", "another-secret")
    formatter = engine_log.Formatter(jsonl)
    line = formatter.format(record("\x1b[31mquite-a-secret\x1b[0m another-secret %s", SECRET))
    assert "secret" not in line and SECRET not in line and "\x1b" not in line
    assert line.count("***") == 3


def test_silenced_paths() -> None:
    silenced = engine_log.NotThese(["/load"])

    def access(path: str) -> logging.LogRecord:
        return record('%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", path, "1.1", 200, name="uvicorn.access")

    assert [silenced.filter(access(path)) for path in ("/load", "/load?x=1", "/loads")] == [False, False, True]
    assert silenced.filter(record("no access line"))


def test_the_configuration_can_be_used(capfd: pytest.CaptureFixture[str]) -> None:
    said = Said("WARNING", True, {}, {"--disable-access-log-for-endpoints": ("/load, /version",)})
    document = json.loads(log_config.text(said))
    del document["root"]
    loggers = [logging.getLogger(name) for name in document["loggers"]]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    try:
        logging.config.dictConfig(document)
        logging.getLogger("vllm.engine").info("too quiet")
        logging.getLogger("vllm.engine").warning("heard")
        logging.getLogger("uvicorn.access").warning("%s %s %s %s %s", "peer", "GET", "/version", "1.1", 200)
        logging.getLogger("uvicorn.access").warning("%s %s %s %s %s", "peer", "GET", "/other", "1.1", 200)
    finally:
        for logger, handlers, level, propagate in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["message"] for line in lines] == ["heard", "peer GET /other 1.1 200"]
    assert {line["file"] for line in lines} == {Path(__file__).name}


@pytest.mark.parametrize(
    ("environ", "flags", "level"),
    [
        ({}, {}, "INFO"),
        ({"VLLM_LOGGING_LEVEL": "debug"}, {}, "DEBUG"),
        ({"VLLM_LOGGING_LEVEL": "DEBUG"}, {"--log-level": ("ERROR",)}, "ERROR"),
    ],
)
def test_whose_level_counts(environ: dict[str, str], flags: dict[str, tuple[str, ...]], level: str) -> None:
    document = json.loads(log_config.text(Said("INFO", False, environ, flags)))
    assert {logger["level"] for logger in document["loggers"].values()} == {level}
    assert document["root"]["level"] == ("ERROR" if level == "ERROR" else "WARNING")


@pytest.mark.parametrize(
    ("environ", "flags", "reason"),
    [
        ({}, {}, None),
        ({"VLLM_LOGGING_CONFIG_PATH": "/mine.json"}, {}, "VLLM_LOGGING_CONFIG_PATH"),
        ({"VLLM_CONFIGURE_LOGGING": "0"}, {}, "VLLM_CONFIGURE_LOGGING"),
        ({}, {"--log-config-file": ("/mine.json",)}, "--log-config-file"),
        ({}, {"--logging-config": ('{"formatter":"json"}',)}, "--logging-config"),
        ({}, {"--distributed-executor-backend": ("ray",)}, "Ray"),
    ],
)
def test_what_keeps_another_layout(
    environ: dict[str, str], flags: dict[str, tuple[str, ...]], reason: str | None
) -> None:
    found = log_config.obstacle(Said("INFO", True, environ, flags))
    assert found is None if reason is None else reason in (found or "")


def test_the_clients_request_id_stands_in_the_line() -> None:
    made = record("done")
    made.request_id = "trace-42"
    assert engine_log.Formatter().format(made).endswith("] [trace-42] done")
    assert json.loads(engine_log.Formatter(jsonl=True).format(made))["request_id"] == "trace-42"
    assert "request_id" not in json.loads(engine_log.Formatter(jsonl=True).format(record("done")))
