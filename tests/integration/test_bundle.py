"""``launcher report --bundle``: what is in the archive, and what must never be."""

from __future__ import annotations

import json
import re
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.standin import Installation, install

# Each is planted in another place, and none may come out.
TOKEN, KEY, OTHER = "hf_plantedplantedplanted", "planted-client-key", "planted-other-password"
PASSED, BEARER, NGC, AWS = (
    "planted-passthrough-key",
    "plantedbearertoken",
    "nvapi-planted-planted",
    "AKIAPLANTED012345678",
)
URL_PASSWORD = "plantedurlpassword"
PLANTED = (TOKEN, KEY, OTHER, PASSED, BEARER, NGC, AWS, URL_PASSWORD)


@pytest.fixture
def launcher(tmp_path: Path) -> Installation:
    return install(tmp_path / "venv", clients=True)


@pytest.fixture
def server() -> Iterator[str]:
    """Answers every path, with secrets in it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{self.path} {KEY} {NGC} {self.headers.get('Authorization', '-')}\n".encode()
            self.send_response(404 if self.path == "/v1/metadata" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
        return found


def planted(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "ngc").write_text(f"{NGC}\n")
    return {
        "HF_TOKEN": TOKEN,
        "VLLM_API_KEY": KEY,
        "SOME_PASSWORD": OTHER,
        "NGC_API_KEY_FILE": str(tmp_path / "ngc"),
        "AWS_ACCESS_KEY_ID": AWS,
        "NIM_PASSTHROUGH_ARGS": f"--api-key {PASSED} --seed 7",
        "HTTPS_PROXY": f"http://user:{URL_PASSWORD}@proxy.example:3128",
    }


def test_no_secret_comes_out(launcher: Installation, models: Path, server: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"old line {TOKEN}\nAuthorization: Bearer {BEARER}\nHF_TOKEN={TOKEN} {PASSED} {OTHER} {NGC}\n")
    out = tmp_path / "out.tar.gz"
    ran = launcher.run(
        "report", "--bundle", str(out), "--url", server, "--log", str(log), "--log", "/no/such/log",
        NIM_MODEL_PATH=str(models / "mtp"), NIM_SPECDEC_ENABLE="1", **planted(tmp_path),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert out.stat().st_mode & 0o777 == 0o600
    files = unpacked(out)
    everything = "\n".join(files.values()) + ran.out + ran.err
    assert [secret for secret in PLANTED if secret in everything] == []
    assert json.loads(files["plan.json"])["speculation"]["method"] == "mtp"
    settings = json.loads(files["settings.json"])
    assert (settings["HF_TOKEN"], settings["VLLM_API_KEY"], settings["NIM_SPECDEC_ENABLE"]) == ("***", "***", "1")
    assert settings["NIM_PASSTHROUGH_ARGS"] == "--api-key *** --seed 7"
    assert "click" in {name.lower() for name in json.loads(files["versions.json"])["packages"]}
    assert files["log-1.txt"].startswith("old line ***\nAuthorization: Bearer ***\n")
    assert "/no/such/log cannot be read" in files["log-2.txt"] and "--log: /no/such/log cannot be read" in ran.err
    assert files["metrics.txt"].startswith("/metrics *** ***")
    assert "answers 404" in files["server/metadata.json"]
    assert re.search(r"WARNING .*server/metadata.json: http://\S+/v1/metadata answers 404", ran.err)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/metrics", "/metrics"])
def test_the_server_is_found_by_any_address_that_the_report_takes(
    ending: str, launcher: Installation, server: str, tmp_path: Path
) -> None:
    out = tmp_path / "out.tgz"
    url = server.removeprefix("http://") + ending
    ran = launcher.run("report", "--bundle", str(out), "--url", url, NIM_MODEL_PATH="/no/such/model")
    assert ran.code == 0, ran.err
    assert unpacked(out)["metrics.txt"].startswith("/metrics")


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("out.zip", "localhost", "ends neither in .tar.gz nor in .tgz"),
        ("out.tar.gz", "fo o", "'fo o' is no address of a server"),
    ],
)
def test_what_can_be_no_bundle(name: str, url: str, said: str, launcher: Installation, tmp_path: Path) -> None:
    ran = launcher.run("report", "--bundle", str(tmp_path / name), "--url", url, NIM_MODEL_PATH="/no/such/model")
    assert ran.code == 2 and said in ran.last_line
    assert not (tmp_path / name).exists()


def test_a_launch_that_is_refused_is_reported_too(launcher: Installation, tmp_path: Path) -> None:
    out = tmp_path / "out.tar.gz"
    ran = launcher.run("report", "--bundle", str(out), NIM_MODEL_PATH="/no/such/model", **planted(tmp_path))
    assert ran.code == 0, ran.err
    files = unpacked(out)
    assert json.loads(files["plan.json"])["error"]["code"] == 3
    assert [secret for secret in PLANTED if secret in "\n".join(files.values()) + ran.err] == []


@pytest.mark.parametrize(
    ("place", "code", "said"), [("taken.tar.gz", 2, "exists already"), ("no/such/folder/out.tar.gz", 4, "cannot be")]
)
def test_where_it_cannot_go(place: str, code: int, said: str, launcher: Installation, tmp_path: Path) -> None:
    (tmp_path / "taken.tar.gz").write_text("mine")
    ran = launcher.run("report", "--bundle", str(tmp_path / place), NIM_MODEL_PATH="/no/such/model")
    assert ran.code == code and said in ran.last_line
    assert (tmp_path / "taken.tar.gz").read_text() == "mine"


def test_a_log_alone_makes_no_bundle(launcher: Installation) -> None:
    ran = launcher.run("report", "--log", "/var/log/x")
    assert ran.code == 2 and "--bundle" in ran.last_line
