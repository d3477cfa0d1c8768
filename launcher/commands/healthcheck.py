"""``launcher healthcheck``: whether the server of this container is ready, for a runtime that asks by a program.

vLLM is asked where it listens by its own account: the port, TLS or socket file in the command line of its process,
whatever it was that set them.  Costs about 40 ms and 13 MB (no HTTP library, nothing of vLLM).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from launcher.arguments.merge import effective, level, merge
from launcher.arguments.spellings import parse_words
from launcher.health.state import Upstream, Verdict, upstream_of
from launcher.health.upstream import ask
from launcher.vllm import installed, tables

LIMIT = 4.0  # seconds for the answer; the image allows the whole check six
PROCESSES = "/proc"
_ORIGIN = "the command line of vLLM"


def run(environ: Mapping[str, str], processes: str = PROCESSES) -> int:
    """0 when it is ready, else 1; a line on stdout says why (``docker inspect`` shows it)."""
    verdict = _verdict(environ, processes)
    print("ready" if verdict.ready else verdict.reason)
    return 0 if verdict.ready else 1


def _verdict(environ: Mapping[str, str], processes: str) -> Verdict:
    words = serving(processes)
    if words is None:
        return Verdict(False, "vLLM was not started yet")
    upstream = _upstream(words, environ)
    if upstream.port == 0:
        return Verdict(True)  # a node that serves no HTTP: its process is all there is to see
    return ask(upstream, LIMIT)


def serving(processes: str) -> Sequence[str] | None:
    """The words behind ``vllm serve`` of the oldest process that runs it; None without one."""
    for number in sorted(int(name) for name in os.listdir(processes) if name.isdigit()):
        try:
            with open(f"{processes}/{number}/cmdline", "rb") as stream:
                words = stream.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
        except OSError:  # it has ended, or is another user's
            continue
        # The interpreter stands in front of a console script.
        for position, word in enumerate(words[:2]):
            if os.path.basename(word) == installed.NAME and words[position + 1 : position + 2] == ["serve"]:
                return words[position + 2 :]
    return None


def _upstream(words: Sequence[str], environ: Mapping[str, str]) -> Upstream:
    engine = installed.find(environ)
    table = tables.load(engine.version) if engine else tables.pinned()
    # A --config file that reached vLLM is our own and holds the clients' keys: nothing that is needed here.
    parsed = parse_words(words, table, _ORIGIN, lambda path: {})
    return upstream_of(effective(merge([level(1, _ORIGIN, parsed)])))
