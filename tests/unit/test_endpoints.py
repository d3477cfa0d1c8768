"""The routes that the middleware adds, with and without a key, on the ASGI callable."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from launcher import nim_manifest
from launcher.middleware import access_log
from launcher.middleware.asgi import App, Middleware
from launcher.middleware.configuration import VARIABLE, Configuration, Model, Speculation, from_json, to_json
from tests.unit.asgi import Engine, Reply, call

OPEN = ("/v1/health/live", "/v1/health/ready", "/v1/metrics", "/v1/version", "/v1/license")
GUARDED = ("/v1/metadata", "/v1/manifest")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "target"
    target.mkdir()
    (target / "LICENSE.txt").write_text("You may.\n")
    (target / "config.json").write_text("{}")
    return target


@pytest.fixture
def configuration(folder: Path, tmp_path: Path) -> Configuration:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "README.md").write_text("---\nlicense: apache-2.0\ntags:\n- x\n---\n# A draft\n")
    (draft / "model.safetensors").write_bytes(bytes(range(256)) * 1024)
    manifest = tmp_path / "manifest.json"
    rows = [{"path": "config.json", "size": 2, "identity": "i", "digest": "sha256:ab"}]
    manifest.write_text(json.dumps({"files": rows}))
    return Configuration(
        launcher="1.2.3",
        engine="0.32.0",
        models=(
            Model("target", "llama", "hf://org/llama", "c0ffee", str(folder), str(manifest), 10, "manifest"),
            Model("draft", "eagle", "/draft", None, str(draft), None, 20, "local folder"),
        ),
        speculation=Speculation(True, "eagle3", 3, "named", ({"method": "mtp", "accepted": False, "reason": "no"},)),
    )


@pytest.fixture
def made(configuration: Configuration, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(VARIABLE, to_json(configuration.document()))
    return Middleware


def ask(app: Any, path: str, method: str = "GET", **more: Any) -> Reply:
    return asyncio.run(call(app, method, path, **more))


def test_a_configuration_survives_the_variable(configuration: Configuration) -> None:
    text = to_json(configuration.document())
    assert from_json(text) == configuration
    assert json.loads(text)["models"][0]["revision"] == "c0ffee"


@pytest.mark.parametrize("key", [None, "secret"])
def test_what_answers_without_a_key(made: Any, key: str | None) -> None:
    engine = Engine(key)
    found = {path: ask(made(engine), path).status for path in (*OPEN, *GUARDED)}
    assert found == dict.fromkeys(OPEN, 200) | dict.fromkeys(GUARDED, 401 if key else 200)
    assert ask(made(engine), "/v1/chat/completions", "POST").status == (401 if key else 200)


@pytest.mark.parametrize("path", ["/invocations", "/tokenize", "/collective_rpc"])
def test_no_door_beside_the_key(made: Any, path: str) -> None:
    """vLLM checks keys below /v1 alone, and serves completions at /invocations too."""
    engine = Engine("secret")
    app = made(engine)
    refused = ask(app, path, "POST", body=[b"{}"])
    assert (refused.status, refused.document) == (401, {"error": "Unauthorized"})
    assert engine.bodies == []
    assert ask(app, path, "POST", body=[b"{}"], headers=[("Authorization", "Bearer secret")]).status == 404
    assert engine.bodies == [b"", b"{}"]  # the list of models, and what was sent
    assert ask(app, "/ping", "POST").status == ask(app, path).status == 404


def test_without_a_key_the_list_of_models_is_asked_for_once(made: Any) -> None:
    engine = Engine()
    app = made(engine)
    assert [ask(app, "/tokenize", "POST", headers=[("X", "y")]).status for _ in range(2)] == [404, 404]
    assert [seen["path"] for seen in engine.asked] == ["/v1/models", "/tokenize", "/tokenize"]
    assert [seen["headers"] for seen in engine.asked] == [[], [(b"x", b"y")], [(b"x", b"y")]]


@pytest.mark.parametrize("path", GUARDED)
def test_the_key_opens_what_is_guarded(made: Any, path: str) -> None:
    engine = Engine("secret")
    assert ask(made(engine), path, headers=[("Authorization", "Bearer secret")]).status == 200
    refused = ask(made(engine), path, headers=[("Authorization", "Bearer wrong")])
    assert (refused.status, refused.document) == (401, {"error": "Unauthorized"})


def test_ready_follows_the_engine(made: Any) -> None:
    engine = Engine()
    app = made(engine)
    ready = ask(app, "/v1/health/ready")
    assert (ready.status, ready.document) == (
        200,
        {"object": "health.response", "message": "Service is ready.", "phase": "ready"},
    )
    engine.health = 503
    ready = ask(app, "/v1/health/ready")
    assert (ready.status, ready.document["phase"]) == (503, "failing")
    assert ask(app, "/v1/health/live").document == {"object": "health.response", "message": "Service is live."}

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the engine is dead")

    assert ask(made(broken), "/v1/health/ready").status == 503


def test_metrics_are_the_engines(made: Any) -> None:
    reply = ask(made(Engine()), "/v1/metrics")
    assert (reply.body, reply.headers["x-from"]) == (b"vllm:one 1\n", "engine")


def test_version_and_licence(made: Any, folder: Path) -> None:
    app = made(Engine())
    assert ask(app, "/v1/version").document == {"release": "1.2.3", "api": "0.32.0"}
    assert ask(app, "/v1/license").document == {
        "name": "LICENSE.txt",
        "path": f"{folder}/LICENSE.txt",
        "sha": hashlib.sha1(b"You may.\n").hexdigest(),
        "size": 9,
        "url": "",
        "type": "file",
        "content": "You may.\n",
    }
    (folder / "LICENSE.txt").unlink()
    assert ask(app, "/v1/license").status == 404


def test_metadata_names_target_and_draft(made: Any, folder: Path, tmp_path: Path) -> None:
    found = ask(made(Engine()), "/v1/metadata").document
    assert found["version"] == "1.2.3"
    assert found["assetInfo"] == ["hf://org/llama@c0ffee", "/draft"]
    assert found["licenseInfo"]["name"] == "LICENSE.txt"
    assert "content" not in found["licenseInfo"]
    assert found["speculation"] == {
        "enabled": True,
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "model": "/draft",
        "reason": "named",
        "fallback": "",
        "considered": [{"method": "mtp", "accepted": False, "reason": "no"}],
    }
    target, draft = found["modelInfo"]
    expected = hashlib.sha256(b"config.json\x002\x00sha256:ab\n").hexdigest()
    assert (target["role"], target["revision"], target["digest"]) == ("target", "c0ffee", f"sha256:{expected}")
    assert (draft["role"], draft["license"], draft["path"]) == ("draft", "apache-2.0", str(tmp_path / "draft"))
    assert draft["digest"].startswith("sampled-sha256:")


def test_a_sampled_digest_sees_both_ends_and_the_sizes(made: Any, tmp_path: Path) -> None:
    def digest() -> str:
        found: str = ask(made(Engine()), "/v1/metadata").document["modelInfo"][1]["digest"]
        return found

    weights = tmp_path / "draft" / "model.safetensors"
    first = digest()
    assert digest() == first
    data = bytearray(weights.read_bytes())
    seen = {first}
    for change in (0, len(data) - 1):
        data[change] ^= 1
        weights.write_bytes(data)
        seen.add(digest())
    weights.write_bytes(data + b"\0")
    seen.add(digest())
    assert len(seen) == 4


def test_the_manifest_is_nims_and_names_what_is_served(
    made: Any, configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text, put into an image, serves the same files."""
    profile = {"id": "ab" * 32, "description": "vllm-fp8-tp2-pp1-llama", "reason": "named"}
    monkeypatch.setenv(VARIABLE, to_json(configuration._replace(profile=profile).document()))
    text = ask(made(Engine()), "/v1/manifest").document["manifest_file"]
    path = tmp_path / "model_manifest.yaml"
    path.write_text(text)
    (offered,) = nim_manifest.read(str(path))
    assert (offered.id, offered.description) == ("ab" * 32, "vllm-fp8-tp2-pp1")
    assert offered.tags["model"] == "llama"
    assert offered.files == {"config.json": "hf://org/llama:c0ffee?file=config.json"}
    assert nim_manifest.source_of(offered, str(path)) == "hf://org/llama:c0ffee"
    document = yaml.safe_load(text)
    assert document["schema_version"] == "2.0.0"
    target, draft = document["models"]
    assert (target["role"], target["revision"]) == ("target", "c0ffee")
    assert target["files"] == [{"path": "config.json", "size": 2, "digest": "sha256:ab"}]
    assert [file["path"] for file in draft["files"]] == ["README.md", "model.safetensors"]


@pytest.mark.parametrize(
    ("source", "revision", "pinned"),
    [
        ("hf://org/model:main", "c0ffee", "hf://org/model:c0ffee"),
        ("ngc://org/team/model", "1.2", "ngc://org/team/model:1.2"),
        ("modelscope://org/model", None, "modelscope://org/model"),
        ("s3://bucket/a:b/c", "9f", "s3://bucket/a:b/c"),
        ("/models/a:b", None, "local:///models/a:b"),
        ("local:///models/a", None, "local:///models/a"),
    ],
)
def test_the_source_of_a_manifest(
    source: str, revision: str | None, pinned: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Configuration(models=(Model("target", "m", source, revision, str(folder)),))
    monkeypatch.setenv(VARIABLE, to_json(told.document()))
    text = ask(Middleware(cast(App, Engine())), "/v1/manifest").document["manifest_file"]
    uris = {file["uri"] for file in yaml.safe_load(text)["profiles"][0]["workspace"]["files"].values()}
    assert uris == {f"{pinned}?file=LICENSE.txt", f"{pinned}?file=config.json"}


def test_without_a_model_the_manifest_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    text = ask(Middleware(cast(App, Engine())), "/v1/manifest").document["manifest_file"]
    assert yaml.safe_load(text)["profiles"] == []


def test_head_has_the_headers_alone(made: Any) -> None:
    reply = ask(made(Engine()), "/v1/version", "HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) == len(ask(made(Engine()), "/v1/version").body)


def test_all_else_is_passed_on_as_it_came(made: Any) -> None:
    engine = Engine()
    app = made(engine)
    passed: list[Any] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        passed.append((scope, receive, send))

    async def receive() -> dict[str, Any]:
        return {}

    async def send(message: Any) -> None:
        return None

    same = made(note)
    for scope in (
        {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []},
        {"type": "http", "method": "POST", "path": "/v1/version", "headers": []},
        {"type": "websocket", "path": "/v1/health/live"},
    ):
        asyncio.run(same(scope, receive, send))
        assert passed[-1][0] is scope
        assert passed[-1][1:] == (receive, send)
    assert ask(app, "/v1/chat/completions", "POST").chunks == (b"data: 1\n\n", b"data: 2\n\n", b"")


def test_a_root_path_in_front(made: Any) -> None:
    app = made(Engine())
    assert ask(app, "/llm/v1/version", root_path="/llm").document["release"] == "1.2.3"
    assert ask(app, "/llm/v1/health/ready", root_path="/llm").status == 200
    assert ask(app, "/v1/version", root_path="/llm").status == 200
    assert ask(app, "/v1/version", root_path="/").status == 200
    assert ask(app, "/llmv1/version", root_path="/llm").status == 404


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"models": [3]}', '{"models": [{"role": "target"}]}'])
def test_an_unreadable_configuration_costs_no_route(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    app: Any = Middleware(cast("App", Engine()))
    assert ("LAUNCHER_MIDDLEWARE cannot be read" in caplog.text) == bool(text)
    assert {path: ask(app, path).status for path in OPEN} == dict.fromkeys(OPEN, 200) | {"/v1/license": 404}
    assert ask(app, "/v1/metadata").document["modelInfo"] == []


def test_a_newer_launchers_keys_are_left_alone() -> None:
    assert from_json('{"launcher": "9", "novel": 1, "speculation": {"enabled": true, "novel": 2}}') == Configuration(
        launcher="9", speculation=Speculation(enabled=True)
    )


@pytest.mark.parametrize(
    ("path", "status", "shown"),
    [
        ("/v1/health/ready", 200, False),
        ("/v1/health/ready", 503, True),
        ("/v1/metrics?name[]=a", 200, False),
        ("/health", 200, False),
        ("/v1/chat/completions", 200, True),
    ],
)
def test_probes_leave_no_line(made: Any, path: str, status: int, shown: bool) -> None:
    made(Engine())
    made(Engine())
    logger = logging.getLogger(access_log.LOGGER)
    assert len([known for known in logger.filters if isinstance(known, access_log.NoProbes)]) == 1
    arguments = ("127.0.0.1:1", "GET", path, "1.1", status)
    record = logger.makeRecord(logger.name, logging.INFO, "f", 1, '%s - "%s %s HTTP/%s" %d', arguments, None)
    assert bool(logger.filter(record)) is shown


def test_it_imports_the_standard_library_alone() -> None:
    code = (
        "import sys; import launcher.middleware.asgi; "
        "print(sorted(n for n in sys.modules if n.partition('.')[0] not in sys.stdlib_module_names))"
    )
    found = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in json.loads(found.stdout.replace("'", '"')) if not name.startswith("launcher")]
    assert modules == ["__main__"]
