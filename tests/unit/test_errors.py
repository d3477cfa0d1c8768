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
    shortened,
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
    assert str(NotFoundError("no folder /m", "Is the volume mounted?")) == "no folder /m. Is the volume mounted?"
    assert str(NotFoundError("is it there?", "Look!")) == "is it there? Look!"


def test_a_value_is_cut_where_it_would_drown_the_sentence() -> None:
    assert shortened("x" * 500) == "x" * 500
    assert shortened("x" * 501) == "x" * 499 + "…"
    assert shortened("abcdef", 3) == "ab…"


def test_rewording_reaches_every_text_and_keeps_the_rest() -> None:
    error = ConfigurationError("what", "todo", others=[DeniedError("other", "help")])
    error.secrets = ("s",)
    loud = error.reworded(str.upper)
    assert (type(loud), loud.what, loud.todo, loud.secrets) == (ConfigurationError, "WHAT", "TODO", ("s",))
    assert [(type(other), str(other)) for other in loud.others] == [(DeniedError, "OTHER. HELP.")]
    named = error.named_by("NIM_X")
    assert (named.what, named.others, named.secrets) == ("NIM_X: what", error.others, ("s",))


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


def test_the_secrets_of_all_problems_are_kept() -> None:
    problems = [IntegrityError("a"), ConfigurationError("b")]
    problems[0].secrets, problems[1].secrets = ("one",), ("two",)
    assert gathered(problems).secrets == ("one", "two")
