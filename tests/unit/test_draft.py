"""Draft references: what the word after "model" means."""

from __future__ import annotations

import pytest

from launcher.checkpoint import Checkpoint
from launcher.errors import ConfigurationError
from launcher.speculation import draft
from launcher.speculation.values import DraftReference
from tests.unit.checkpoints import request, target

ORIGIN = "command line"
FOLDERS = ("eagle3_draft", "only/v1", "speculator/spec", "two/a", "two/b")


def resolve(
    text: object, *, given: str | None = None, profile: str | None = None, folders: tuple[str, ...] = FOLDERS
) -> draft.Resolved:
    return draft.resolve(text, ORIGIN, request(draft=given, profile_draft=profile), place(folders))


def place(folders: tuple[str, ...] = FOLDERS) -> Checkpoint:
    return target(drafts=folders)


def named(name: str, source: str, origin: str = ORIGIN, *, as_is: bool = False) -> DraftReference:
    return DraftReference(name, source, origin, True, as_is)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # An absolute path is used as it is.
        ("/drafts/a", named("a", "/drafts/a", as_is=True)),
        ("/drafts/a/", named("a", "/drafts/a", as_is=True)),
        ("/drafts/my draft#1", named("my-draft-1", "/drafts/my draft#1", as_is=True)),
        ("file:///drafts/a", named("a", "/drafts/a", as_is=True)),
        ("local:///drafts/a", named("a", "/drafts/a", as_is=True)),
        # A URI is fetched.
        ("hf://org/draft", named("draft", "hf://org/draft")),
        ("hf://org/draft:rev", named("draft", "hf://org/draft:rev")),
        ("s3://bucket/x/draft/", named("draft", "s3://bucket/x/draft/")),
        ("ngc://org/team/draft:1", named("draft", "ngc://org/team/draft:1")),
        # A bare name: the folder of that name, or speculator/NAME, in the target.
        ("eagle3_draft", named("eagle3_draft", "/models/target/eagle3_draft")),
        ("spec", named("spec", "/models/target/speculator/spec")),
        # A folder without config.json: its only child with one.
        ("only", named("only", "/models/target/only/v1")),
        # A relative path: that folder inside the target, else org/name on the hub.
        ("speculator/spec", named("spec", "/models/target/speculator/spec")),
        ("./speculator/spec/", named("spec", "/models/target/speculator/spec")),
        ("./eagle3_draft", named("eagle3_draft", "/models/target/eagle3_draft")),
        ("only/v1", named("v1", "/models/target/only/v1")),
    ],
)
def test_a_reference_means(text: str, expected: DraftReference) -> None:
    assert resolve(text) == draft.Resolved((expected,))


@pytest.mark.parametrize("text", ["org/draft", "speculator/spek", "speculatr/spec"])
def test_what_is_no_folder_of_the_target_is_a_repository_and_says_so(text: str) -> None:
    note = (
        f"/models/target has no folder {text} (its drafts are eagle3_draft, only/v1, speculator/spec, two/a, two/b), "
        "so a repository is meant"
    )
    expected = named(text.partition("/")[2], f"hf://{text}")
    assert resolve(text) == draft.Resolved((expected._replace(note=note),))
    assert resolve(text, folders=()) == draft.Resolved((expected,))


def test_a_bare_name_is_filled_from_the_variable_first() -> None:
    for source in ("/mnt/draft", "hf://org/draft", "s3://b/draft"):
        resolved = resolve("eagle3_draft", given=source, profile="hf://nvidia/draft")
        assert resolved == draft.Resolved((named("eagle3_draft", source, draft.VARIABLE),))


def test_a_bare_name_is_filled_from_the_profile_last() -> None:
    assert resolve("other", profile="hf://nvidia/draft").references == (named("other", "hf://nvidia/draft", "profile"),)
    assert resolve("spec", profile="hf://nvidia/draft").references[0].source == "/models/target/speculator/spec"


@pytest.mark.parametrize("name", ["gpt2", "eagle3.v1", "a", "x" * 300])
def test_a_bare_name_that_names_nothing_never_falls_through_to_the_hub(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(name, folders=())
    assert caught.value.code == 2
    assert f"the draft {name!r} names nothing" in caught.value.what
    assert draft.VARIABLE in caught.value.todo


def test_a_misspelt_bare_name_gets_the_nearest_folder() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve("eagel3_draft")
    assert caught.value.todo == "The nearest folder is eagle3_draft"
    assert caught.value.what.endswith(f"(its drafts are {', '.join(FOLDERS)})")


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("eagle3.v1", True),
        ("a_b-C.9", True),
        (".", False),
        ("..", False),
        ("", False),
        ("a b", False),
        ("é", False),
        ("a/b", False),
    ],
)
def test_what_a_bare_name_is(text: str, bare: bool) -> None:
    assert draft.is_bare(text) is bare


@pytest.mark.parametrize("text", ["two", "./two/"])
def test_several_children_with_a_config_are_listed(text: str) -> None:
    with pytest.raises(ConfigurationError, match="holds several drafts: two/a, two/b"):
        resolve(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "..",
        "../draft",
        "a/../b",
        "a//b",
        "a/b/c",
        "org/draft/",
        "./org/draft",
        "models draft",
        "org/na me",
        "hf://draft",
        "ftp://x/y",
        "s3://",
        "file://draft",
        "é",
    ],
)
def test_references_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(text, folders=())
    assert caught.value.what.startswith("command line: ")


@pytest.mark.parametrize("text", [3, None, ["a"], {"a": 1}, "a\0b", "/a\nb"])
def test_what_is_no_reference(text: object) -> None:
    with pytest.raises(ConfigurationError, match="command line: model is"):
        resolve(text)


def test_an_absolute_path_or_a_source_beats_the_variable_with_a_warning() -> None:
    for text in ("/drafts/a", "hf://org/draft", "org/draft", "speculator/spec"):
        resolved = resolve(text, given="/mnt/draft")
        assert resolved.references[0].origin == ORIGIN
        assert resolved.unused == f"command line names the draft {text} itself"
    assert resolve("/drafts/a", given="/drafts/a").unused == ""


def test_a_mounted_path_may_mean_the_folder_of_the_target() -> None:
    resolved = resolve("/tmp/model/speculator/spec")
    assert resolved.references == (
        named("spec", "/tmp/model/speculator/spec", as_is=True),
        named("spec", "/models/target/speculator/spec"),
    )
    (elsewhere,) = resolve("/tmp/model/elsewhere").references
    assert elsewhere.note.startswith("/models/target has no folder elsewhere (its drafts are "), elsewhere.note
    assert len(resolve("/tmp/other/speculator/spec").references) == 1


def test_the_revision_key_pins_a_hub_repository() -> None:
    for text in ("org/draft", "hf://org/draft"):
        resolved = draft.resolve(text, ORIGIN, request(), place(()), "abc")
        assert resolved.references[0].source == "hf://org/draft:abc"
    assert draft.resolve("hf://org/d:x", ORIGIN, request(), place(()), "abc").references[0].source == "hf://org/d:x"
    assert draft.resolve("s3://b/d", ORIGIN, request(), place(()), "abc").references[0].source == "s3://b/d"


def test_the_variable_alone() -> None:
    assert draft.from_variable(request(draft=None)) is None
    assert draft.from_variable(request(draft="  ")) is None
    assert draft.from_variable(request(draft="/mnt/my draft")) == named("my-draft", "/mnt/my draft", draft.VARIABLE)
    for text in ("models/draft", "ftp://x/y", "hf://x"):
        with pytest.raises(ConfigurationError, match=draft.VARIABLE):
            draft.from_variable(request(draft=text))


def test_the_folders_of_the_target() -> None:
    assert draft.from_folders(place(("a", "b/c"))) == (
        DraftReference("a", "/models/target/a", "target", False),
        DraftReference("c", "/models/target/b/c", "target", False),
    )
