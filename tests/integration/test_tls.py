"""TLS and CORS variables: the flags that vLLM gets, and the files that are refused before it starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.standin import Installation
from tests.unit.certificates import Authority


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "authority")
    server, other = authority.sign("server"), authority.sign("other")
    locked = authority.sign("locked", b"open sesame")
    (folder / "nonsense").write_text("no PEM")
    (folder / "bundle").write_bytes(server.certificate.read_bytes() + server.key.read_bytes())
    return {
        "ca": str(authority.path), "crt": str(server.certificate), "key": str(server.key), "other": str(other.key),
        "locked-crt": str(locked.certificate), "locked-key": str(locked.key), "nonsense": f"{folder}/nonsense",
        "missing": f"{folder}/missing", "bundle": f"{folder}/bundle",
    }  # fmt: skip


def variables(files: Mapping[str, str], mode: str, key: str = "key", crt: str = "crt", ca: str = "") -> dict[str, str]:
    wanted = {"NIM_SSL_KEY_PATH": key, "NIM_SSL_CERTS_PATH": crt, "NIM_SSL_CA_CERTS_PATH": ca}
    return {"NIM_SSL_MODE": mode} | {name: files[file] for name, file in wanted.items() if file}


def test_tls(launcher: Installation, models: Path, files: Mapping[str, str]) -> None:
    ran = launcher.run("serve", str(models / "plain"), **variables(files, "tls"))
    assert ran.code == 0, ran.err
    assert ran.argv[-4:] == ["--ssl-keyfile", files["key"], "--ssl-certfile", files["crt"]]


def test_mtls(launcher: Installation, models: Path, files: Mapping[str, str]) -> None:
    ran = launcher.run("serve", str(models / "plain"), **variables(files, "MTLS", ca="ca"))
    assert ran.code == 0, ran.err
    assert ran.argv[-8:] == [
        "--ssl-keyfile", files["key"], "--ssl-certfile", files["crt"], "--ssl-ca-certs", files["ca"],
        "--ssl-cert-reqs", "2",
    ]  # fmt: skip


def test_files_without_the_mode_are_said_to_be_ignored(
    launcher: Installation, models: Path, files: Mapping[str, str]
) -> None:
    ran = launcher.run("serve", str(models / "plain"), **variables(files, "", ca="ca"))
    assert ran.code == 0 and not [word for word in ran.argv if word.startswith("--ssl")]
    assert "NIM_SSL_KEY_PATH is ignored: NIM_SSL_MODE is DISABLED" in ran.err
    ran = launcher.run("serve", str(models / "plain"), **variables(files, "TLS", ca="ca"))
    assert "--ssl-ca-certs" not in ran.argv
    assert "NIM_SSL_CA_CERTS_PATH is ignored: NIM_SSL_MODE is TLS" in ran.err


@pytest.mark.parametrize(
    ("mode", "key", "crt", "ca", "code", "said"),
    [
        ("TLS", "", "crt", "", 2, "NIM_SSL_MODE=TLS needs NIM_SSL_KEY_PATH"),
        ("MTLS", "key", "crt", "", 2, "NIM_SSL_MODE=MTLS needs NIM_SSL_CA_CERTS_PATH"),
        ("TLS", "missing", "crt", "", 3, "NIM_SSL_KEY_PATH: the file"),
        ("TLS", "key", "missing", "", 3, "NIM_SSL_CERTS_PATH: the file"),
        ("MTLS", "key", "crt", "missing", 3, "NIM_SSL_CA_CERTS_PATH: the file"),
        ("TLS", "other", "crt", "", 2, "does not belong to the certificate"),
        ("TLS", "nonsense", "crt", "", 2, "NIM_SSL_KEY_PATH"),
        ("TLS", "key", "nonsense", "", 2, "NIM_SSL_CERTS_PATH"),
        ("TLS", "key", "key", "", 2, "NIM_SSL_CERTS_PATH"),
        ("MTLS", "key", "crt", "nonsense", 2, "NIM_SSL_CA_CERTS_PATH"),
        ("TLS", "locked-key", "locked-crt", "", 2, "has a passphrase"),
        ("SOMETIMES", "key", "crt", "", 2, "NIM_SSL_MODE"),
    ],
)
def test_what_is_refused(
    mode: str, key: str, crt: str, ca: str, code: int, said: str,
    launcher: Installation, models: Path, files: Mapping[str, str],
) -> None:  # fmt: skip
    ran = launcher.run("serve", str(models / "plain"), **variables(files, mode, key, crt, ca))
    assert (ran.code, ran.record) == (code, None), ran.err
    assert said in ran.last_line
    assert "BEGIN" not in ran.err and "Traceback" not in ran.err


def test_vllms_own_flags_are_looked_at_too(launcher: Installation, models: Path, files: Mapping[str, str]) -> None:
    ran = launcher.run("serve", str(models / "plain"), "--ssl-certfile", files["bundle"])
    assert ran.code == 0, ran.err
    ran = launcher.run("serve", str(models / "plain"), "--ssl-certfile", files["crt"])
    assert (ran.code, ran.record) == (2, None)
    assert "command line" in ran.last_line and "private key" in ran.last_line
    ran = launcher.run("plan", str(models / "plain"), "--ssl-keyfile", files["key"])
    assert ran.code == 2 and "needs --ssl-certfile" in ran.last_line
    ran = launcher.run("serve", str(models / "plain"), "--ssl-certfile", files["bundle"], "--ssl-cert-reqs", "2")
    assert ran.code == 2 and "which authority" in ran.last_line


def test_cors(launcher: Installation, models: Path) -> None:
    environ = {
        "NIM_CORS_ALLOW_ORIGINS": "https://a.example, http://localhost:3000",
        "NIM_CORS_ALLOW_METHODS": "get,POST",
        "NIM_CORS_ALLOW_HEADERS": "Authorization, X-Request-Id",
    }
    ran = launcher.run("serve", str(models / "plain"), **environ)
    assert ran.code == 0, ran.err
    said = dict(zip(ran.argv[5::2], ran.argv[6::2], strict=True))
    assert json.loads(said["--allowed-origins"]) == ["https://a.example", "http://localhost:3000"]
    assert json.loads(said["--allowed-methods"]) == ["GET", "POST"]
    assert json.loads(said["--allowed-headers"]) == ["Authorization", "X-Request-Id"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NIM_CORS_ALLOW_METHODS", "GET"),
        ("NIM_CORS_ALLOW_HEADERS", "Authorization"),
        ("NIM_CORS_EXPOSE_HEADERS", "X-Request-Id"),
        ("NIM_CORS_MAX_AGE", "60"),
    ],
)
def test_cors_without_an_origin(variable: str, value: str, launcher: Installation, models: Path) -> None:
    warning = f"{variable} has no effect: no origin may call; set NIM_CORS_ALLOW_ORIGINS"
    ran = launcher.run("serve", str(models / "plain"), **{variable: value})
    assert ran.code == 0 and warning in ran.err
    ran = launcher.run("serve", str(models / "plain"), "--allowed-origins", '["*"]', **{variable: value})
    assert ran.code == 0 and "no origin may call" not in ran.err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("NIM_CORS_ALLOW_METHODS", "GET,FOO BAR", "a list of HTTP methods separated by commas, or *. Write such as"),
        ("NIM_CORS_ALLOW_HEADERS", "A B", "a list of header names separated by commas"),
    ],
)
def test_what_is_no_method_or_header(
    variable: str, value: str, said: str, launcher: Installation, models: Path
) -> None:
    ran = launcher.run("serve", str(models / "plain"), **{variable: value})
    assert (ran.code, ran.record) == (2, None)
    assert said in ran.last_line


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        ("https://a.example/", "Write https://a.example"),
        ("https://a.example/page", "a list of origins"),
        ("a.example", "a list of origins"),
    ],
)
def test_what_no_browser_sends_as_its_origin(origins: str, said: str, launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "plain"), NIM_CORS_ALLOW_ORIGINS=origins)
    assert (ran.code, ran.record) == (2, None)
    assert said in ran.last_line
