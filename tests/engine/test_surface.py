"""The middleware in real vLLM: its routes with and without the clients' key, and what is streamed through it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Launch
from tests.engine.server import Server

OPEN = ("/v1/health/live", "/v1/health/ready", "/v1/metrics", "/v1/version", "/v1/license")
GUARDED = ("/v1/metadata", "/v1/manifest")
KEY = "clients-key-1"


def get(server: Server, path: str, headers: Mapping[str, str] = {}) -> tuple[int, bytes]:
    assert isinstance(server.address, int)
    connection = http.client.HTTPConnection("127.0.0.1", server.address, timeout=30)
    try:
        connection.request("GET", path, headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.fixture
def licensed(models: Path) -> Iterator[Path]:
    licence = models / "plain" / "LICENSE"
    licence.write_text("Do as you like.\n")
    yield models / "plain"
    licence.unlink()


@pytest.mark.parametrize("how", ["variable", "flag", "two flags"])
def test_routes_with_a_key(how: str, launch: Launch, licensed: Path) -> None:
    words = {"variable": (), "flag": ("--api-key", KEY), "two flags": ("--api-key", KEY, "another-key-2")}[how]
    variables = {"VLLM_API_KEY": KEY} if how == "variable" else {}
    with launch(licensed, *words, **variables) as server:
        assert {path: get(server, path)[0] for path in OPEN} == dict.fromkeys(OPEN, 200)
        assert {path: get(server, path)[0] for path in (*GUARDED, "/v1/models")} == dict.fromkeys(
            (*GUARDED, "/v1/models"), 401
        )
        headers = {"Authorization": f"Bearer {KEY}"}
        found: Any = json.loads(get(server, "/v1/metadata", headers)[1])
        assert found["modelInfo"][0]["path"] == str(licensed)
        assert KEY not in server.log.read_text()
