"""Settings read from a mapping, for the tests of what each spelling means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launcher.errors import LauncherError
from launcher.settings.parse import Settings, parse_settings

TOKEN = "hf-token-nobody-may-see"


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def parse(read_text: Callable[[str], str] = no_file, /, **environ: str) -> Settings:
    return parse_settings(environ, read_text)


def refusal(read_text: Callable[[str], str] = no_file, /, **environ: str) -> LauncherError:
    with pytest.raises(LauncherError) as caught:
        parse_settings(environ, read_text)
    return caught.value


def specdec(text: str) -> Any:
    given = parse(NIM_SPECDEC_ARGS=text).specdec_args
    assert given is not None
    return given.value
