"""What `download-to-cache` refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.commands import download
from launcher.commands.download import Wanted
from launcher.errors import ConfigurationError
from launcher.profiles import compiled


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"NIM_CACHE_PATH": str(tmp_path / "cache"), "HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}


def test_one_manifest_is_of_one_model(environ: dict[str, str], tmp_path: Path) -> None:
    store = compiled.load()
    assert store is not None
    first = store.all()[0]
    other = next(profile for profile in store.all() if profile.sources[0] != first.sources[0])
    wanted = Wanted(manifest_file=str(tmp_path / "m.json"), profiles=(first.id, other.id))
    with pytest.raises(ConfigurationError, match="--manifest-file takes the manifest of one model") as refused:
        download.run(wanted, environ)
    assert refused.value.code == 2
    assert not (tmp_path / "m.json").exists()


def test_without_a_model_it_says_what_all_would_have_meant(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="no model manifest whose models --all could mean") as refused:
        download.run(Wanted(), environ)
    assert "Give --model-uri or --profiles, or set NIM_MODEL_PATH" in refused.value.todo
