"""The committed table of one vLLM version: flags, speculative fields, methods, families.

Importing vLLM costs seconds, so what must be known about it before it starts is kept in ``data/<version>.json``, made
from the real package by tools/make_tables.py.  Reading one takes about a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from launcher.errors import ConfigurationError
from launcher.typing import Any, NamedTuple

# One for each file in data/, oldest first.
SUPPORTED = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
# The version the tests run against, and the one a plan is made for where no vLLM is installed.
PINNED = "0.32.0"


class Flag(NamedTuple):
    """One option of ``vllm serve``.

    ``kind`` says how argparse consumes it:
    ``value`` one word; ``optional`` none or one word (nargs ``?``); ``list`` one or more words (``+`` or ``*``);
    ``switch`` no word (store_true); ``boolean`` no word, with spellings that negate it; ``append`` one word, repeatable
    (all count); ``append-list`` one or more words, repeatable.
    ``type`` is how a value is read: ``str``, ``int``, ``float``, ``human-int`` (1k, 2M), ``json`` (an object: merged
    key by key across sources), ``json-any`` (other JSON), ``bool``.
    """

    name: str  # canonical long spelling, "--max-model-len"
    aliases: tuple[str, ...]  # the other option strings that mean the same, "-sc"
    kind: str
    type: str
    choices: tuple[str, ...]  # empty: free
    dest: str
    negatives: tuple[str, ...]  # of a boolean: "--no-x" first, then (0.33) "--disable-x" for "--enable-x"
    words: tuple[str, ...]  # read whatever the type: "None" (and an empty word) for no value, "auto" for a length
    folded: bool  # choices are compared in lower case with "-" as "_"
    units: bool  # JSON in which vLLM also reads bare numbers with a unit, {"cpu_bytes_to_use": 80m}

    def negates(self, spelling: str) -> bool:
        """Whether this spelling of the flag means no."""
        return _canonical(spelling) in self.negatives


class Field(NamedTuple):
    """One key of --speculative-config.

    ``type`` as in `Flag`; ``choices`` empty when free; ``internal`` keys hold engine objects and cannot be given.
    """

    name: str
    type: str
    choices: tuple[str, ...]
    minimum: float | None  # smallest allowed value, inclusive
    internal: bool
    nullable: bool  # null is a value (and means "not given")


class Spellings(Mapping[str, Flag]):
    """Every spelling of every flag.  A flag is made when it is asked for: a start needs a few of three hundred."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        """``rows`` hold what `Flag` does, in its order."""
        self.rows = rows
        self._row_of: dict[str, Sequence[Any]] = {}
        self._made: dict[str, Flag] = {}

    def __getitem__(self, spelling: str) -> Flag:
        row = self._index()[spelling]
        name = row[0]
        if name not in self._made:
            self._made[name] = Flag._make(tuple(part) if isinstance(part, list) else part for part in row)
        return self._made[name]

    def __contains__(self, spelling: object) -> bool:
        return spelling in self._index()

    def __iter__(self) -> Iterator[str]:
        return iter(self._index())

    def __len__(self) -> int:
        return len(self._index())

    def _index(self) -> Mapping[str, Sequence[Any]]:
        if not self._row_of:
            self._row_of = {text: row for row in self.rows for text in (row[0], *row[1], *row[6])}
        return self._row_of


class EngineTable(NamedTuple):
    """What one vLLM version accepts.  An architecture is a name of config.json's ``architectures``."""

    version: str  # of the vLLM that it is used for, "0.32.1rc1"; of a newer one than all tables: the table's own
    release: tuple[int, int]  # its first two parts
    sha256: str  # of the wheel the table was made from
    spellings: Spellings  # every flag by every spelling, with dashes, negating ones included
    fields: tuple[Field, ...]
    methods: frozenset[str]
    mtp_types: frozenset[str]  # MTPModelTypes, legacy method names included
    eagle3_targets: frozenset[str]  # architectures whose class returns auxiliary states (dflash, dspark need them too)
    architectures: frozenset[str]  # every architecture of the model registry, drafts included
    speculators: frozenset[str]  # speculators_model_type values this version reads
    exact: bool  # False: not made from this vLLM's own minor version; unknown keys and flags then warn
    eagle3_over_stages: frozenset[str]  # eagle3_targets that do so with pipeline parallelism too
    v2_methods: frozenset[str]  # methods that Model Runner V2 drives; the others get V1 (as all do without Triton)
    drafts: frozenset[str]  # architectures that are drafts or heads

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All flags, by name."""
        return tuple(self.spellings[row[0]] for row in self.spellings.rows)

    def flag(self, spelling: str) -> Flag | None:
        """The flag of a full spelling: underscores, aliases and negating spellings included, no abbreviation."""
        return self.spellings.get(_canonical(spelling))

    def flag_spellings(self) -> tuple[str, ...]:
        """Every spelling the parser knows: what an abbreviation may stand for, and what a hint may offer."""
        return tuple(self.spellings)

    def field(self, name: str) -> Field | None:
        """The key of --speculative-config called ``name`` (dashes count as underscores, as in vLLM)."""
        name = name.replace("-", "_")
        return next((field for field in self.fields if field.name == name), None)


def supported() -> tuple[str, ...]:
    """The versions with a table, oldest first."""
    return SUPPORTED


def pinned() -> EngineTable:
    """The table of the version the tests run against."""
    return load(PINNED)


def load(version: str) -> EngineTable:
    """The table for an installed vLLM; only the first two parts of its version count.

    A newer vLLM than the newest table gets that one with ``exact`` False.  Raises ConfigurationError for an older one
    than the oldest table, and for a version that is none.
    """
    wanted = minor(version)
    if wanted is None:
        raise ConfigurationError(
            f"the version of the vLLM that was found cannot be read ({version or 'it has none'})",
            "Install vLLM with pip, so that its vllm-*.dist-info folder is there",
        )
    known = [candidate for candidate in SUPPORTED if (minor(candidate) or wanted) <= wanted]
    if not known:
        raise ConfigurationError(
            f"vLLM {version} is older than what this launcher knows",
            f"Use vLLM {_short(SUPPORTED[0])} to {_short(SUPPORTED[-1])}",
        )
    if minor(known[-1]) != wanted:
        return _read(known[-1], exact=False)
    return _read(known[-1], exact=True)._replace(version=version.partition("+")[0])


def minor(version: str) -> tuple[int, int] | None:
    """The first two parts of a version as numbers; None if they are none."""
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _short(version: str) -> str:
    return version.rpartition(".")[0]


def _canonical(spelling: str) -> str:
    return spelling.replace("_", "-") if spelling.startswith("--") else spelling


def _read(version: str, *, exact: bool) -> EngineTable:
    path = f"{__file__.rpartition('/')[0]}/data/{version}.json"
    with open(path, encoding="utf-8") as stream:
        document = json.load(stream)
    return EngineTable(
        version=version,
        release=minor(version) or (0, 0),
        sha256=document["sha256"],
        spellings=Spellings(document["flags"]),
        fields=tuple(Field(name, reads, tuple(choices), *rest) for name, reads, choices, *rest in document["fields"]),
        methods=frozenset(document["methods"]),
        mtp_types=frozenset(document["mtp_types"]),
        eagle3_targets=frozenset(document["eagle3_targets"]),
        architectures=frozenset(document["architectures"]),
        speculators=frozenset(document["speculators"]),
        exact=exact,
        eagle3_over_stages=frozenset(document["eagle3_over_stages"]),
        v2_methods=frozenset(document["v2_methods"]),
        drafts=frozenset(document["drafts"]),
    )
