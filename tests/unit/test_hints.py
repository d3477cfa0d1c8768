from __future__ import annotations

import pytest

from launcher.settings.hints import did_you_mean, listed, nearest, placeholder

KEYS = ("num_speculative_tokens", "method", "model", "prompt_lookup_max", "prompt_lookup_min")


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("num_speculative_tokrns", KEYS, "num_speculative_tokens"),
        ("num-speculative-tokens", KEYS, "num_speculative_tokens"),
        ("METHOD", KEYS, "method"),
        ("modle", KEYS, "model"),
        ("xyz", KEYS, None),
        ("", KEYS, None),
        ("anything", (), None),
        ("A-B", ("a_b", "a-b"), "a_b"),
    ],
)
def test_nearest(word: str, known: tuple[str, ...], expected: str | None) -> None:
    assert nearest(word, known) == expected


def test_sentences() -> None:
    assert did_you_mean("modle", KEYS) == "Did you mean model?"
    assert did_you_mean("xyz", KEYS, "Keys are lower case") == "Keys are lower case"
    assert listed(("a", "b", "c")) == "a, b or c"
    assert listed(("a",)) == "a"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"model": "$DRAFT"}', "$DRAFT"),
        ("${HOME}/model", "${HOME}"),
        ("--api-key ${KEY:-s3cr3t}", "${KEY…}"),
        ("hf://{{ .Values.model }}", "{{ .Values.model }}"),
        ("$(MODEL_PATH)", "$(MODEL_PATH)"),
        ("^/v1/chat/completions$", None),
        ('{"a": {"b": {"c": 1}}}', None),
        ("costs 5$", None),
        ("$(touch /tmp/x)", None),
        ("plain", None),
    ],
)
def test_placeholder(text: str, found: str | None) -> None:
    assert placeholder(text) == found
