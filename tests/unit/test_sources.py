from __future__ import annotations

import pytest

from launcher.errors import ConfigurationError
from launcher.sources import ModelSource, is_source, parse_source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/models/target", ("local", "/models/target", None)),
        ("/models/target/", ("local", "/models/target", None)),
        ("/", ("local", "/", None)),
        ("local:///m", ("local", "/m", None)),
        ("file:///m n/x", ("local", "/m n/x", None)),
        ("hf://org/model", ("hf", "org/model", None)),
        ("hf://org/model:main", ("hf", "org/model", "main")),
        ("ngc://org/team/model:1.0", ("ngc", "org/team/model", "1.0")),
        ("ngc://org/model", ("ngc", "org/model", None)),
        ("modelscope://org/model:v1", ("modelscope", "org/model", "v1")),
        ("s3://b/m/model/", ("s3", "b/m/model", None)),
        ("s3://b/m/my model#1/", ("s3", "b/m/my model#1", None)),
        ("gs://b/a?b", ("gs", "b/a?b", None)),
        ("s3://b/a%20b", ("s3", "b/a%20b", None)),
        ("s3://b", ("s3", "b", None)),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint:a/x", ("s3", "arn:aws:s3:eu-west-1:1:accesspoint:a/x", None)),
        ("hf://org/model:refs/pr/1", ("hf", "org/model", "refs/pr/1")),
        ("hf://org/model:", ("hf", "org/model", None)),
        ("ngc://org/model:1.0?file=a/b.json", ("ngc", "org/model", "1.0?file=a/b.json")),
        ("ngc://org/team/model?file=a/b:c", ("ngc", "org/team/model?file=a/b:c", None)),
    ],
)
def test_what_a_source_means(text: str, expected: tuple[str, str, str | None]) -> None:
    assert parse_source(text, "NIM_MODEL_PATH") == ModelSource(*expected, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models/draft", "neither an absolute path nor a source"),
        ("meta-llama/Llama-3.1-8B", "hf://meta-llama/Llama-3.1-8B"),
        ("local://relative", "relative path"),
        ("http://host/x", "unknown scheme 'http'"),
        ("hf://model", "not a repository name"),
        ("hf://a/b/c", "not a repository name"),
        ("ngc://a/b/c/d", "not a repository name"),
        ("hf://../x", "not a repository name"),
        ("hf://org/plàin", "not a repository name"),
        ("hf://org/pl ain", "not a repository name"),
        ("hf://org/plain?x=1", "not a repository name"),
        ("hf://org/plain#x", "not a repository name"),
        ("hf://org/plain@main", "Did you mean hf://org/plain:main?"),
        ("modelscope://org/é", "not a repository name"),
        ("modelscope://org/m@v1", "Did you mean modelscope://org/m:v1?"),
        ("hf://org/br:../../../../evil", "a revision that cannot exist"),
        ("hf://org/br:a/../b", "a revision that cannot exist"),
        ("hf://org/br:/a", "a revision that cannot exist"),
        ("hf://org/br:a//b", "a revision that cannot exist"),
        ("hf://org/br:a/", "a revision that cannot exist"),
        ("hf://org/br:.", "a revision that cannot exist"),
        ("hf://org/br:a\nb", "a revision that cannot exist"),
        ("hf://org/br:a\udcff", "a revision that cannot exist"),
        ("hf://org/br:a b", "a revision that cannot exist"),
        ("modelscope://org/br:..", "a revision that cannot exist"),
        ("ngc://org/m:1/2", "a revision that cannot exist"),
        ("ngc://org/m:..", "a revision that cannot exist"),
        ("ngc://org/m:1?file=../x", "asks for 'file=../x'"),
        ("ngc://org/m?files=x", "asks for 'files=x'"),
        ("s3://", "names no bucket"),
        ("s3://bück/x", "no possible name of a bucket"),
        ("gs://b t/x", "no possible name of a bucket"),
        ("gs://arn:b/x", "no possible name of a bucket"),
        ("s3://b/\udcff", "a prefix that no object can have"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_source(text, "NIM_MODEL_PATH")
    assert said in str(raised.value)
    assert raised.value.what.startswith("NIM_MODEL_PATH: ")


@pytest.mark.parametrize("text", ["s3://u:s3cr3t@bucket/x", "s3://u:s3/cr3t@bucket/x", "hf://u:s3cr3t@org/x"])
def test_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_source(text, "NIM_MODEL_PATH")
    assert "cr3t" not in str(raised.value) and "://***@" in raised.value.what


GENERAL = "Give an absolute path or one of ngc://, hf://, s3://, gs://, modelscope://, local://, file://"


@pytest.mark.parametrize(
    ("text", "todo"),
    [
        ("org/name", f"{GENERAL} (for the Hugging Face repository: hf://org/name)"),
        ("org/name:v1", f"{GENERAL} (for the Hugging Face repository: hf://org/name:v1)"),
        ("gpt2", GENERAL),
        ("a/b/c", GENERAL),
        ("./models/m", GENERAL),
        ("../m", GENERAL),
        ("models/my model", GENERAL),
        ("", GENERAL),
        ("None", "Leave it empty to unset it"),
        ("null", "Leave it empty to unset it"),
        ('"/models/x"', "Write the value without quotes: an env file keeps them"),
        ("'org/name'", "Write the value without quotes: an env file keeps them"),
        ("~/x", "Write the home folder out: nothing expands ~ here"),
    ],
)
def test_what_to_write_instead(text: str, todo: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_source(text, "NIM_MODEL_PATH")
    assert (raised.value.what, raised.value.todo) == (
        f"NIM_MODEL_PATH: {text!r} is neither an absolute path nor a source",
        todo,
    )


@pytest.mark.parametrize(
    ("text", "todo"),
    [
        ("https://huggingface.co/org/name", "Write hf://org/name"),
        ("https://huggingface.co/org/name/tree/v1.0", "Write hf://org/name:v1.0"),
        ("https://huggingface.co/gpt2", "Use an absolute path or one of "),
        ("https://example.com/org/name", "Use an absolute path or one of "),
        ("S3://bucket/m", "Did you mean 's3://bucket/m'?"),
        ("gcs://bucket/m", "Did you mean 'gs://bucket/m'?"),
        ("s3a://u:pass-word@bucket/m", "Did you mean 's3://***@bucket/m'?"),
    ],
)
def test_what_a_wrong_scheme_was_meant_to_be(text: str, todo: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown scheme") as raised:
        parse_source(text, "NIM_MODEL_PATH")
    assert raised.value.todo.startswith(todo)


@pytest.mark.parametrize("start", ["/", "hf://org/", "", "x://"])
def test_what_is_too_long_is_cut(start: str) -> None:
    text = start + "x" * 120_000
    with pytest.raises(ConfigurationError) as raised:
        parse_source(text, "NIM_MODEL_PATH")
    assert f"has {len(text)} characters, more than any path or source" in raised.value.what
    assert len(str(raised.value)) < 800


@pytest.mark.parametrize(
    ("word", "expected"), [("/m", True), ("hf://a/b", True), ("file:///x", True), ("a/b", False), ("bash", False)]
)
def test_which_words_are_sources(word: str, expected: bool) -> None:
    assert is_source(word) is expected
