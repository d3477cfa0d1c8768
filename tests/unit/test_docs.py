"""The generated pages are what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import TREE
from launcher.profiles.compile import files_in
from launcher.profiles.documents import read_document
from launcher.settings.parse import parse_settings
from launcher.settings.variables import BY_NAME, GROUPS, INERT, OURS, TYPES, USED, VARIABLES
from launcher.vllm import tables
from tools import make_docs

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, dict[str, Any]] = json.loads(make_docs.schema())["properties"]


def test_the_pages_are_up_to_date() -> None:
    assert make_docs.stale(ROOT) == []


def test_a_stale_page_is_named(tmp_path: Path) -> None:
    for path, text in make_docs.pages().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert make_docs.stale(tmp_path) == []
    (tmp_path / "docs/variables.md").write_text("old")
    (tmp_path / "docs/exit-codes.md").unlink()
    assert make_docs.stale(tmp_path) == ["docs/variables.md", "docs/exit-codes.md"]


def test_every_variable_and_code_is_on_its_page() -> None:
    variables, codes = make_docs.variables_page(), make_docs.exit_codes_page()
    for row in VARIABLES:
        assert f"| `{row.name}` |" in variables
        for alias in row.aliases:
            assert f"`{alias}`" in variables
        for name in (*row.files, *(synonym for synonym, _ in row.synonyms)):
            assert f"`{name}`" in variables
    for code in (1, 130, 143, *(kind.code for kind in TREE)):
        assert f"\n| {code} |" in codes


def test_the_migration_page_has_every_name_of_nims_and_none_of_ours() -> None:
    page = make_docs.migration_page()
    assert set(BY_NAME) >= OURS
    table = page.partition("| variable of NIM |")[2].partition("<!-- nim: end -->")[0]
    named = set(re.findall(r"^\| `(NIM_\w+)`", table, re.MULTILINE))
    spelled = {name for row in VARIABLES for name in row.spellings if name.startswith("NIM_")}
    assert named == spelled - OURS
    assert "| `NIM_MAX_NUM_SEQS` | no effect (an argument of vLLM): put `--max-num-seqs` into" in table
    assert "| `NIM_MODEL_NAME` | use `NIM_MODEL_PATH`; works, with a warning |" in table
    assert "| `NIM_LOG_LEVEL` | the same; `INFO` where it is unset, not `WARNING` |" in table
    assert "| `--max-model-len` | `NIM_MAX_MODEL_LEN` |" in page


def test_what_the_migration_page_adds_by_hand_exists() -> None:
    assert set(make_docs.OTHERWISE) <= {row.name for row in VARIABLES if row.status != INERT} - OURS
    for flag, name in make_docs.COUNTERPARTS:
        assert tables.pinned().flag(flag) is not None, flag
        assert name in BY_NAME


def test_the_readme_counts_right() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    models = sum(len(read_document(path).document.models) for path in files_in(str(ROOT / "profiles")))
    assert re.findall(r"(\d+) models", readme) == [str(models)] * 2
    assert len({1, 130, 143} | {kind.code for kind in TREE}) == 13
    assert "| exit codes | thirteen," in readme


def test_the_table_is_sound() -> None:
    names = [name for row in VARIABLES for name in (*row.spellings, *row.files)]
    assert len(names) == len(set(names))
    for row in VARIABLES:
        assert row.group in GROUPS and row.type in TYPES and row.help
        assert not row.help.endswith(".")
        assert (row.type == "choice") == bool(row.choices)
        assert all(word in row.choices and synonym == synonym.upper() for synonym, word in row.synonyms)
        assert row.default is None or not row.choices or row.default in row.choices
        assert (row.group == "nim") == (row.status == INERT)


def test_the_flags_exist_in_every_supported_vllm() -> None:
    for version in tables.supported():
        table = tables.load(version)
        missing = [row.flag for row in VARIABLES if row.flag and table.flag(row.flag) is None]
        assert missing == [], version


SAMPLES = {
    "bool": ("1", "0", "True", "YES", "off", " on ", "maybe", "2", "None"),
    "port": ("8000", "1", "eighty", "8000.5"),
    "int": ("1", "64", "x", "1.5"),
    "length": ("8192", "32k", "1.5m", "AUTO", "-1", "1.5K", "k", "8,192"),
    "choice": ("required", "Fallback", "strict"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NIM_SPECDEC_ENABLE", "bool"),
        ("NIM_SERVER_PORT", "port"),
        ("NIM_TENSOR_PARALLEL_SIZE", "int"),
        ("NIM_MAX_MODEL_LEN", "length"),
        ("NIM_SPECDEC_POLICY", "choice"),
    ],
)
def test_the_schema_accepts_what_the_parser_accepts(name: str, kind: str) -> None:
    for sample in SAMPLES[kind]:
        try:
            parse_settings({name: sample}, lambda path: "")
            accepted = True
        except Exception:
            accepted = False
        assert bool(re.search(SCHEMA[name]["pattern"], sample)) == accepted, sample
    assert re.search(SCHEMA[name]["pattern"], " ")  # blank is not set


def test_the_schema_marks_secrets_and_aliases() -> None:
    assert SCHEMA["HF_TOKEN"]["writeOnly"] is True
    assert SCHEMA["HF_TOKEN_FILE"]["type"] == "string"
    assert SCHEMA["NIM_HTTP_API_PORT"]["deprecated"] is True
    assert all("default" in SCHEMA[row.name] for row in VARIABLES if row.default is not None and row.status == USED)
