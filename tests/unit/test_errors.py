from __future__ import annotations

from launcher.errors import (
    TREE,
    ConfigurationError,
    DeniedError,
    IncompatibleError,
    IntegrityError,
    LauncherError,
    NotFoundError,
    gathered,
)


def test_codes_are_stable() -> None:
    assert [(kind.code, kind.title) for kind in TREE] == [
        (2, "configuration"),
        (3, "not found"),
        (4, "denied"),
        (5, "network"),
        (6, "no space"),
        (7, "integrity"),
        (8, "incompatible"),
        (9, "hardware or profile"),
        (10, "busy"),
        (11, "acceptance"),
    ]


def test_two_sentences() -> None:
    assert str(NotFoundError("no folder /m", "Mount it")) == "no folder /m. Mount it."
    assert str(LauncherError("bug")) == "bug."


def test_the_first_code_decides_and_the_others_are_kept() -> None:
    problems = [
        IncompatibleError("a"),
        IntegrityError("b"),
        DeniedError("c"),
        ConfigurationError("d"),
        ConfigurationError("e"),
    ]
    first = gathered(problems)
    assert (first.code, first.what) == (2, "d")
    assert [other.what for other in first.others] == ["a", "b", "c", "e"]
