"""What the environment says about fetching, and where a mirror keeps a source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError, LauncherError
from launcher.fetch.duplicates import Wishes
from launcher.fetch.options import FetchOptions, fetch_options, for_load_format
from launcher.fetch.override import mirror, stored
from launcher.fetch.schemes import open_remote
from launcher.settings.parse import parse_settings
from launcher.sources import ModelSource, parse_source


def options(environ: dict[str, str]) -> FetchOptions:
    return fetch_options(parse_settings(environ, lambda path: Path(path).read_text()), environ, "/cache")


def test_the_defaults() -> None:
    found = options({})
    assert found == FetchOptions("/cache", (), {})
    assert (found.refresh, found.digests, found.lock_limit, found.offline) == ("auto", True, 3600, "")


def test_every_variable_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_abcdefgh\n")
    environ = {
        "HF_TOKEN_FILE": str(tmp_path / "token"),
        "NIM_FETCH_INCLUDE": "*.json, *.safetensors",
        "NIM_FETCH_EXCLUDE": "figures/",
        "NIM_FETCH_VERIFY": "size",
        "NIM_FETCH_CONNECTIONS": "4",
        "NIM_LOCK_TIMEOUT": "0",
        "NIM_REFRESH": "required",
        "NIM_REPOSITORY_OVERRIDE": "https://mirror/models",
        "HF_HUB_CACHE": "/hub",
        "HF_HOME": "/home/hf",
    }
    found = options(environ)
    assert found.environ["HF_TOKEN"] == "hf_abcdefgh"
    assert found.wishes == Wishes(("*.json", "*.safetensors"), ("figures/",))
    assert (found.digests, found.connections, found.lock_limit, found.refresh) == (False, 4, 0, "required")
    assert (found.override, found.hubs) == ("https://mirror/models", ("/hub", "/home/hf/hub", "/home/hf"))


def test_our_own_hub_is_not_another_tools() -> None:
    assert options({"HF_HOME": "/cache/huggingface"}).hubs == ("/cache/huggingface",)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
        ({"TRANSFORMERS_OFFLINE": "1"}, "TRANSFORMERS_OFFLINE"),
        ({"NIM_DISABLE_MODEL_DOWNLOAD": "1", "HF_HUB_OFFLINE": "1"}, "NIM_DISABLE_MODEL_DOWNLOAD"),
        ({"HF_HUB_OFFLINE": "0"}, ""),
    ],
)
def test_who_forbids_the_network(environ: dict[str, str], name: str) -> None:
    found = options(environ)
    assert (found.offline, found.refresh) == (name, "never" if name else "auto")


@pytest.mark.parametrize(
    ("name", "value"),
    [("NIM_FETCH_CONNECTIONS", "0"), ("NIM_LOCK_TIMEOUT", "-1"), ("NIM_FETCH_VERIFY", "sha256")],
)
def test_what_cannot_be_read(name: str, value: str) -> None:
    with pytest.raises(LauncherError) as caught:
        options({name: value})
    assert caught.value.code == 2
    assert caught.value.what.startswith(f"{name} is '{value}', which is not ")


def test_mistral_files_follow_the_load_format() -> None:
    assert for_load_format(options({}), "mistral").wishes.mistral
    assert not for_load_format(options({}), "auto").wishes.mistral
    assert not for_load_format(options({}), None).wishes.mistral


def source(text: str) -> ModelSource:
    return parse_source(text, "test")


@pytest.mark.parametrize(
    ("text", "override", "place"),
    [
        ("hf://org/m", "https://host/models", "https://host/models/hf/org/m/latest"),
        ("hf://org/m:v1", "https://host/models/", "https://host/models/hf/org/m/v1"),
        ("ngc://org/team/m:1.0", "s3://bucket", "s3://bucket/ngc/org/team/m/1.0"),
        ("hf://org/m", "s3://bucket/", "s3://bucket/hf/org/m/latest"),
        ("s3://b/deep/prefix", "gs://bucket/p", "gs://bucket/p/s3/b/deep/prefix/latest"),
    ],
)
def test_where_a_mirror_keeps_a_source(text: str, override: str, place: str) -> None:
    found = mirror(source(text), override)
    assert (found.text, found.revision) == (place, None)


@pytest.mark.parametrize(
    "override", ["ftp://host/x", "host/models", "/folder", "hf://org/m", "https://", "s3:///", "https://[bad/x"]
)
def test_what_cannot_be_a_mirror(override: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mirror(source("hf://org/m"), override)
    assert caught.value.what == f"NIM_REPOSITORY_OVERRIDE: '{override}' cannot be a mirror"


@pytest.mark.parametrize("override", ["http://u:s3cr3t@host/x", "https://s3cr3t@host", "s3://u:s3/cr3t@bucket/x"])
def test_a_mirror_takes_no_password(override: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^NIM_REPOSITORY_OVERRIDE holds a user or password\.") as raised:
        mirror(parse_source("hf://org/m", "test"), override)
    assert "cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("gs://bucket/x", "STORAGE_EMULATOR_HOST"),
        ("s3://bucket/x", "AWS_ENDPOINT_URL_S3"),
        ("s3://bucket/x", "AWS_ENDPOINT_URL"),
        ("hf://org/m", "HF_ENDPOINT"),
        ("modelscope://org/m", "MODELSCOPE_ENDPOINT"),
        ("ngc://org/m", "NGC_CLI_API_URL"),
    ],
)
def test_no_address_takes_a_password(text: str, variable: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{variable} holds a user or password\.") as raised:
        open_remote(parse_source(text, "test"), {variable: "http://u:s3cr3t@127.0.0.1:9"})
    assert "s3cr3t" not in str(raised.value)


def test_a_mirror_with_a_manifest_fills_the_originals_entry() -> None:
    original = source("hf://org/m:v1")
    assert stored(original, None) == original
    assert stored(original, "https://host") == original
    assert stored(original, "s3://bucket").name == "bucket/hf/org/m/v1"


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("boto3", "launcher.fetch.s3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(ConfigurationError, match="s3:// sources need the Python package boto3"):
        open_remote(source("s3://b/m"), {})


def test_a_complete_cache_loads_no_network() -> None:
    """Describing and bringing are on the road of every warm start from a cache."""
    code = (
        "import sys, launcher.commands.prepare, launcher.fetch.options, launcher.fetch.describe, launcher.fetch.bring;"
        "print(*sorted(set(sys.modules) & {'ssl', 'socket', 'http', 'urllib', 'threading', 'shutil', 'tempfile',"
        "'inspect', 'dataclasses', 'logging', 'pathlib', 'random', 'datetime', 'fnmatch', 'click', 'subprocess'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
