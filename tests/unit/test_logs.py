from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launcher import logs


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    logs.configure()
    yield
    logs.configure()


def test_text_layout(capfd: pytest.CaptureFixture[str]) -> None:
    logs.info("Server starting on port 8000")
    line = capfd.readouterr().err
    pattern = r"INFO \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} test_logs\.py:\d+\] Server starting on port 8000\n"
    assert re.fullmatch(pattern, line)


def test_json_lines(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("DEBUG", jsonl=True)
    logs.debug('two\nlines and "quotes"')
    line = capfd.readouterr().err
    assert line.count("\n") == 1
    record = json.loads(line)
    assert list(record) == ["timestamp", "level", "file", "line", "message"]
    assert (record["level"], record["file"]) == ("DEBUG", "test_logs.py")
    assert record["message"] == 'two\nlines and "quotes"'
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["timestamp"])


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("DEBUG", ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ("INFO", ["INFO", "WARNING", "ERROR"]),
        ("WARNING", ["WARNING", "ERROR"]),
        ("ERROR", ["ERROR"]),
        ("CRITICAL", ["ERROR"]),
    ],
)
def test_levels(level: str, written: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(level)
    logs.debug("d")
    logs.info("i")
    logs.warning("w")
    logs.error("e")
    assert [line.split()[0] for line in capfd.readouterr().err.splitlines()] == written


def test_a_name_cannot_look_like_a_record(capfd: pytest.CaptureFixture[str]) -> None:
    logs.info("s3://bucket/a\nERROR 2026-01-01 00:00:00.000 serve.py:1] all is lost")
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith("] s3://bucket/a")
    assert second == "  ERROR 2026-01-01 00:00:00.000 serve.py:1] all is lost"


def test_newlines_stay_and_control_characters_go(capfd: pytest.CaptureFixture[str]) -> None:
    logs.info("first\n  ^ second\tx\x1b[31m\r")
    assert capfd.readouterr().err.partition("] ")[2] == "first\n    ^ second\tx\\x1b[31m\\x0d\n"


def test_a_lone_surrogate_is_written_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    logs.info("\udcff")
    assert capfd.readouterr().err.endswith("] \\udcff\n")


def test_a_replaced_stream_gets_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.warning("here")
    assert capsys.readouterr().err.endswith("] here\n")


SAY = "from launcher import logs; logs.info('x' * 100); logs.error('y'); print('alive')"


@pytest.mark.parametrize(
    "script", ['"$0" -c "$1" 2>&-', '{ sleep 0.3; "$0" -c "$1"; } 2> >(exec true)'], ids=["closed", "reader gone"]
)
def test_a_broken_stderr_stops_nothing(script: str) -> None:
    run = subprocess.run(["bash", "-c", script, sys.executable, SAY], stdout=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "alive\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token hf_abcdefghijklmnopqrstuvwx end", "token *** end"),
        ("HF_HOME and hf_transfer stay", "HF_HOME and hf_transfer stay"),
        ("key nvapi-AbC_123-xyz.", "key ***."),
        ("vllm serve /m --api-key abc --port 1", "vllm serve /m --api-key *** --port 1"),
        ("--api-key=abc", "--api-key=***"),
        ("--api_key 'a b' x", "--api_key '***' x"),
        ("--hf-token abc", "--hf-token ***"),
        ("['--api-key', 'abc']", "['--api-key', '***']"),
        ('["--api-key", "abc"]', '["--api-key", "***"]'),
        ("--api-key 'abc def", "--api-key '***"),
        ('--hf-token="abc def', '--hf-token="***'),
        ("VLLM_API_KEY='abc def", "VLLM_API_KEY='***"),
        # However much like a sentence it looks: what stands behind the flag may be a secret.
        ("--api-key would", "--api-key ***"),
        ("--api-key, --hf-token: moved", "--api-key, --hf-token: moved"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("{'authorization': 'Basic eHl6'}", "{'authorization': 'Basic ***'}"),
        ("x-api-key: k1", "x-api-key: ***"),
        ("HF_TOKEN=abc VLLM_API_KEY=def X=1", "HF_TOKEN=*** VLLM_API_KEY=*** X=1"),
        ("HF_TOKEN_FILE=/run/secrets/hf", "HF_TOKEN_FILE=/run/secrets/hf"),
        ('{"api_key": "abc", "model": "m"}', '{"api_key": "***", "model": "m"}'),
        ('{"a": "{\\"hf_token\\": \\"abc\\"}"}', '{"a": "{\\"hf_token\\": \\"***\\"}"}'),
        ("AWS key AKIAIOSFODNN7EXAMPLE", "AWS key ***"),
        ("GET https://b.s3.example/k?X-Amz-Signature=abc&x=1 failed", "GET https://b.s3.example/k?*** failed"),
        ("ngc://org/model?file=config.json", "ngc://org/model?file=config.json"),
        ("'ngc://org/model?file=a.json' is", "'ngc://org/model?file=a.json' is"),
        ("ngc://org/model:1?token=abc end", "ngc://org/model:1?*** end"),
        ("ngc://org/model?file=a.json&token=abc", "ngc://org/model?***"),
        ("s3://bucket/m?X-Amz-Signature=abc", "s3://bucket/m?***"),
        ("gs://bucket/what?/model", "gs://bucket/what?/model"),
        ("{hf_token:abc,method:mtp}", "{hf_token:***,method:mtp}"),
        ("{method: mtp, my_api_key: abc}", "{method: mtp, my_api_key: ***}"),
        ('{"hf_token": abc}', '{"hf_token": ***}'),
        ("HF_TOKEN_FILE: the file is empty", "HF_TOKEN_FILE: the file is empty"),
        ("http://user:pass@proxy:3128/", "http://***@proxy:3128/"),
        ("nothing here", "nothing here"),
        ("", ""),
    ],
)
def test_masking_by_shape(text: str, expected: str) -> None:
    assert logs.mask(text) == expected


@pytest.mark.parametrize(
    ("secret", "text", "expected"),
    [
        ("topsecretvalue", "a topsecretvalueb topsecretvalue", "a ***b ***"),
        ("abcd", "abcd xabcd abcd.", "*** xabcd ***."),
        ("abc", "abc is too short to be a secret", "abc is too short to be a secret"),
        ('qu"ote\\slash', json.dumps({"k": 'qu"ote\\slash'}), '{"k": "***"}'),
        ('qu"ote\\slash', repr('qu"ote\\slash'), "'***'"),
        ("with/slash+plus", "https://h/with%2Fslash%2Bplus/x", "https://h/***/x"),
        ("schlüssel-geheim", "schlüssel-geheim schl\\u00fcssel-geheim", "*** ***"),
    ],
)
def test_masking_by_value(secret: str, text: str, expected: str) -> None:
    logs.configure(secrets=[secret])
    assert logs.mask(text) == expected
    assert logs.masked(text, [secret]) == expected
    assert len(logs.cover(text)) == len(text)
    assert len(logs.covered(text, [secret])) == len(text)


def test_masking_twice_changes_nothing_more() -> None:
    picture = logs.cover("{hf_token:abcdefgh, x}")
    assert picture == "{hf_token:********, x}"
    assert logs.mask(picture) == picture
    assert logs.mask("--api-key ***") == "--api-key ***"


def test_overlapping_secrets_leave_nothing() -> None:
    assert logs.masked("xx abcdefghijklmnop yy", ["abcdefghijkl", "ijklmnop"]) == "xx *** yy"
    assert logs.covered("abcdefghij!", ["abcdefgh", "cdefghij"]) == "**********!"


def test_added_secrets_are_masked_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(secrets=["firstsecret"])
    logs.add_secrets(["secondsecret"])
    logs.info("firstsecret secondsecret")
    assert capfd.readouterr().err.endswith("] *** ***\n")


def test_masking_words() -> None:
    words = ["vllm", "serve", "/m", "--api-key", "a", "b", "--hf-token", "c", "/n", "--api-key=d", "--port", "1"]
    shown = [
        "vllm",
        "serve",
        "/m",
        "--api-key",
        "***",
        "***",
        "--hf-token",
        "***",
        "/n",
        "--api-key=***",
        "--port",
        "1",
    ]
    assert logs.mask_words(words) == shown


def test_the_module_stays_light() -> None:
    heavy = ("logging", "datetime", "re", "json", "traceback")
    code = f"import sys, launcher.logs; print([name for name in {heavy!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() in ("[]", "['re']")  # typing may bring re
