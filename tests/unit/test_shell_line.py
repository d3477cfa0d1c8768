"""A command line as people may copy it into a shell."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from launcher.plan import shell_line


def test_what_a_shell_would_read_is_quoted() -> None:
    words = ["vllm", "serve", "/m/a b", '{"method":"mtp"}', "", "it's", "--x=1,2:3"]
    assert shell_line(words) == """vllm serve '/m/a b' '{"method":"mtp"}' '' 'it'"'"'s' --x=1,2:3"""


@given(st.lists(st.text()))
def test_it_is_what_the_standard_library_writes(words: list[str]) -> None:
    assert shell_line(words) == shlex.join(words)
