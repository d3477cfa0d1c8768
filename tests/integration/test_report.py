"""``launcher report`` as a user runs it, against servers of metrics on loopback."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.certificates import Authority, Pair

REPOSITORY = Path(__file__).parents[2]
KEY = "sk-secret-clients-key"


def page(step: int, *, per_step: tuple[int, int, int] = (10, 30, 18), model: str = "tiny") -> str:
    """Metrics after ``step`` looks: 10 drafts of 3 tokens a look, of which 18 are accepted (9, 6, 3), and 28 tokens."""
    drafts, proposed, accepted = (step * number for number in per_step)
    labels = f'engine="0",model_name="{model}"'
    lines = [
        f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}",
        f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {proposed}",
        f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted}",
        *(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {accepted * share / 6}'
            for place, share in enumerate((3, 2, 1))
        ),
        f"vllm:generation_tokens_total{{{labels}}} {drafts + accepted}",
    ]
    return "\n".join(lines) + "\n"


OFF = 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 100\n'


class Metrics:
    """A server of metrics: ``text`` gives the page of the n-th look, and ``looks`` keeps what was asked."""

    def __init__(self, text: Callable[[int], str], *, path: str = "/v1/metrics", key: str | None = None) -> None:
        self.text, self.path, self.key = text, path, key
        self.looks: list[tuple[str, str | None]] = []
        self.redirect: str | None = None
        self.url = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, str]:
        self.looks.append((path, authorization))
        if path != self.path:
            return 404, '{"detail":"Not Found"}'
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, '{"error":"Unauthorized"}'
        return 200, self.text(sum(looked == self.path for looked, _ in self.looks))


@contextmanager
def serving(metrics: Metrics, pair: Pair | None = None) -> Iterator[Metrics]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = metrics.answer(self.path, self.headers.get("Authorization"))
            self.send_response(307 if metrics.redirect else status)
            if metrics.redirect:
                self.send_header("Location", metrics.redirect)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        metrics.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield metrics
        finally:
            server.shutdown()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "launcher", "report", *words]


def environment(**variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}


def report(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), env=environment(**variables), capture_output=True, text=True, timeout=60)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_a_live_server() -> None:
    with serving(Metrics(page)) as server:
        done = report("--url", server.url, "--interval", "0.5", "--format", "json")
    assert done.returncode == 0, done.stderr
    recent, whole = json.loads(done.stdout)["runs"]
    assert (recent["traffic"], whole["traffic"]) == ("last 0.5 s", "since start")
    assert (recent["acceptance_rate"], recent["acceptance_length"]) == (0.6, 2.8)
    assert recent["acceptance_by_position"] == [0.9, 0.6, 0.3]
    assert (recent["drafts"], whole["drafts"]) == (10, 20)
    assert 0.5 <= recent["seconds"] < 5
    assert recent["draft_tokens_per_second"] == pytest.approx(30 / recent["seconds"])
    assert recent["output_tokens_per_second"] == pytest.approx(28 / recent["seconds"])
    assert [path for path, _ in server.looks] == ["/v1/metrics"] * 2


def test_vllms_own_address_is_found_too() -> None:
    with serving(Metrics(page, path="/metrics")) as server:
        address = server.url.removeprefix("http://")
        done = report("--url", address, "--interval", "0")
    assert "since start  tiny " in done.stdout and "last" not in done.stdout
    assert [path for path, _ in server.looks] == ["/v1/metrics", "/metrics"]


def test_a_server_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    with serving(Metrics(page), authority.sign("server")) as server:
        url = server.url.replace("http:", "https:")
        strange = report("--url", url, "--interval", "0")
        known = report("--url", url, "--interval", "0", SSL_CERT_FILE=str(authority.path))
    assert strange.returncode == 5
    assert "shows a certificate that is not trusted: " in last_line(strange)
    assert "Name the file of its authority in SSL_CERT_FILE." in last_line(strange)
    assert known.returncode == 0, known.stderr
    assert "since start  tiny " in known.stdout


def test_a_server_without_tls() -> None:
    with serving(Metrics(page)) as server:
        done = report("--url", server.url.replace("http:", "https:"), "--interval", "0")
    assert done.returncode == 5
    assert "does not speak TLS. Write http://." in last_line(done)


def test_speculation_off_is_said() -> None:
    with serving(Metrics(lambda _: OFF)) as server:
        done = report("--url", server.url, "--interval", "0.1")
        floor = report("--url", server.url, "--interval", "0", NIM_SPECDEC_MIN_ACCEPTANCE="0.3")
    assert done.returncode == 0
    assert [line.split()[-1] for line in done.stdout.splitlines()[1:]] == ["off", "off"]
    assert floor.returncode == 11
    assert "speculation is off" in last_line(floor) and "NIM_SPECDEC_MIN_ACCEPTANCE" in last_line(floor)


@pytest.mark.parametrize(("floor", "code"), [("0.6", 0), ("0.61", 11), ("61%", 2), ("1.5", 2)])
def test_the_floor(floor: str, code: int) -> None:
    with serving(Metrics(page)) as server:
        done = report("--url", server.url, "--interval", "0", "--min-acceptance", floor)
    assert done.returncode == code, done.stderr
    assert ("0.600" in done.stdout) == (code != 2)  # below the floor the figures are printed all the same
    if code == 11:
        assert "acceptance 0.600 is below the floor of 0.61 (--min-acceptance)" in last_line(done)


def test_an_idle_server_has_nothing_to_hold_against_the_floor() -> None:
    with serving(Metrics(lambda _: page(0))) as server:
        done = report("--url", server.url, "--interval", "0.1", "--min-acceptance", "0.5")
    assert done.returncode == 0
    assert "no drafts" in done.stdout and "nothing was drafted" in done.stderr


def test_the_key_is_sent_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    with serving(Metrics(page, key=KEY)) as server:
        without = report("--url", server.url, "--interval", "0")
        wrong = report("--url", server.url, "--interval", "0", VLLM_API_KEY="another-key")
        good = report("--url", server.url, "--interval", "0", VLLM_API_KEY_FILE=str(tmp_path / "key"))
    assert (without.returncode, wrong.returncode, good.returncode) == (4, 4, 0), good.stderr
    assert "Set VLLM_API_KEY" in last_line(without) and "Check VLLM_API_KEY" in last_line(wrong)
    assert not any("another-key" in done.stderr + done.stdout or KEY in done.stderr for done in (wrong, good))


def test_the_key_does_not_follow_to_another_server() -> None:
    with serving(Metrics(page)) as other, serving(Metrics(page)) as server:
        server.redirect = f"{other.url}/v1/metrics"
        done = report("--url", server.url, "--interval", "0", VLLM_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert server.looks == [("/v1/metrics", f"Bearer {KEY}")]
    assert other.looks == [("/v1/metrics", None)]


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("<html><body>Welcome</body></html>", 2, "is a web page, not a page of metrics"),
        ('{"object":"list","data":[]}', 2, "is no page of metrics"),
        ("node_load1 0.5\n", 2, "holds no metrics of vLLM, SGLang or TensorRT-LLM"),
    ],
)
def test_another_page(answer: str, code: int, said: str) -> None:
    with serving(Metrics(lambda _: answer)) as server:
        done = report("--url", server.url)
    assert done.returncode == code
    assert said in last_line(done) and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--url", "127.0.0.1:9"], 5, "cannot be reached: Connection refused"),
        (["--url", "http://no-such-host.invalid/metrics"], 5, "cannot be reached"),
        (["--url", "ftp://localhost/metrics"], 2, "is no address of a server"),
        (["--url", "http://localhost:port"], 2, "is no address of a server"),
        (["--url", "localhost", "x.txt"], 2, "--url and PATH do not go together"),
        ([], 2, "nothing to report on"),
        (["--watch", "x.txt"], 2, "--watch needs --url"),
        (["http://localhost:8000"], 2, "Use --url"),
        (["/nowhere/at/all"], 3, "does not exist"),
        (["--url", "localhost", "--picture", "x.gif"], 2, "ends neither in .svg nor in .png"),
        (["--url", "localhost", "--picture", "/nowhere/x.svg"], 3, "the folder /nowhere"),
        (["--frequency", "1"], 2, "--frequency"),
        (["--url", "localhost", "--lines", "3"], 2, "--lines goes with --watch"),
    ],
)
def test_what_is_refused(words: list[str], code: int, said: str) -> None:
    done = report(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in last_line(done), done.stderr
    assert "Traceback" not in done.stderr


def test_a_picture_is_whole_or_not_there(tmp_path: Path) -> None:
    with serving(Metrics(page)) as server:
        done = report("--url", server.url, "--interval", "0.1", "--picture", str(tmp_path / "a.svg"))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert (tmp_path / "a.svg").read_text().startswith("<svg") and "0.600" in (tmp_path / "a.svg").read_text()


def test_watching() -> None:
    """A line for each interval; a restart in the middle starts the count anew."""
    steps = iter((5, 6, 1, 2))
    with serving(Metrics(lambda _: page(next(steps)))) as server:
        done = report("--url", server.url, "--interval", "0.1", "--watch", "--lines", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["acceptance_rate"] for line in lines] == [0.6, 0.6]
    assert [line["drafts"] for line in lines] == [10, 10]
    assert "started again" in done.stderr


def test_watching_ends_with_the_signal() -> None:
    with serving(Metrics(page)) as server:
        words = command("--url", server.url, "--interval", "0.1", "--watch")
        with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            lines = [process.stdout.readline().decode() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
            assert process.stderr.read() == b""
    assert lines[0].split()[:4] == ["time", "model", "tokens/s", "acceptance"]
    assert lines[1].split()[3:5] == ["0.600", "2.80"]
