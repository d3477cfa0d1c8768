"""Whatever stands in the environment and the arguments: a plan or a documented refusal, and never a planted secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher import logs
from launcher.commands import serve
from launcher.errors import TREE, LauncherError
from launcher.settings.variables import VARIABLES
from tests.models import write

SECRET = "planted-secret-Zq9"
CODES = {kind.code for kind in TREE}
NAMES = sorted({row.name for row in VARIABLES} | {alias for row in VARIABLES for alias in row.aliases})
KEYS = [
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "draft_tensor_parallel_size",
    "tensor_parallel_size",
    "max_model_len",
    "quantization",
    "num_speculative_tokrns",
]
METHODS = [
    "mtp",
    "eagle3",
    "eagle",
    "ngram",
    "dflash",
    "dspark",
    "draft_model",
    "suffix",
    "medusa",
    "deepseek_mtp",
    "x",
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 600),
    st.floats(allow_nan=False),
    st.sampled_from(METHODS),
    st.text(max_size=8),
)
documents = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=5
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
values = st.one_of(
    st.sampled_from(
        ["", " ", "0", "1", "true", "nope", "/models", "hf://a/b", "tcp://10.0.0.1:80", "{}", "null", "$X"]
    ),
    texts,
    documents.map(json.dumps),
    documents.map(lambda value: json.dumps({"speculative_config": value})),
    documents.map(lambda value: json.dumps({"speculative_config": json.dumps(value)})),
)
environments = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
words = st.lists(
    st.one_of(
        st.sampled_from(
            ["--speculative-config", "-sc", "--spec-method", "--seed", "3", "mtp", "--", "--enforce-eager"]
        ),
        documents.map(json.dumps),
        texts,
    ),
    max_size=4,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    for name in ("mtp", "eagle3-mla"):
        write(name, folder / name)
    return folder


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    yield
    logs.configure()


def outcome(arguments: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Exit code and everything that was printed, as the process would have it."""
    out = StringIO()
    with mock.patch.object(serve, "_print", out.write), redirect_stderr(out):
        try:
            code = serve.run(["--json", *arguments], environ, dry_run=True)
        except LauncherError as error:
            code = error.code
            out.write("\n".join(map(str, (error, *error.others))))
    return code, out.getvalue()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(extra=environments, arguments=words)
def test_any_environment_and_any_words(extra: dict[str, str], arguments: list[str], place: Path) -> None:
    environ: dict[str, str] = {
        "NIM_MODEL_PATH": f"{place}/mtp",
        "NIM_CACHE_PATH": f"{place}/cache",
        "NIM_SPECDEC_ENABLE": "1",
        "HOME": f"{place}",
        **{name: value for name, value in extra.items() if "\0" not in value},
        "HF_TOKEN": SECRET,
        "VLLM_API_KEY": SECRET,
    }
    code, printed = outcome(arguments, environ)
    assert code == 0 or code in CODES
    assert SECRET not in printed
    assert "Traceback" not in printed


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(config=documents, policy=st.sampled_from(["required", "fallback"]), draft=st.booleans())
def test_any_speculative_json(config: dict[str, Any], policy: str, draft: bool, place: Path) -> None:
    environ = {
        "NIM_MODEL_PATH": f"{place}/mtp",
        "NIM_CACHE_PATH": f"{place}/cache",
        "NIM_SPECDEC_POLICY": policy,
        "HF_TOKEN": SECRET,
        **({"NIM_DRAFT_MODEL_PATH": f"{place}/eagle3-mla"} if draft else {}),
    }
    code, printed = outcome(["--speculative-config", json.dumps(config)], environ)
    assert code == 0 or code in CODES
    assert SECRET not in printed
    if code == 0:
        plan = json.loads(printed[printed.index('{\n  "schema"') :])
        assert plan["speculation"]["enabled"] == ("--speculative-config" in plan["argv"])
