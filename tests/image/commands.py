"""``docker run`` commands out of documents, and what they become here: our image, our folders, no GPU."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_FLAGS = {"--rm", "-d", "--detach", "-it", "-i", "-t", "--init", "--read-only"}  # options without a value


class Command(NamedTuple):
    """``docker run OPTIONS IMAGE WORDS``."""

    options: tuple[str, ...]
    image: str
    words: tuple[str, ...]

    def here(self, folders: Mapping[str, Path]) -> tuple[list[str], str]:
        """podman's options and the network: GPUs and ports are left out, host folders replaced."""
        options: list[str] = []
        network = "host"  # where the services that stand in for hubs and stores are
        words = iter(self.options)
        for word in words:
            name, _, value = word.partition("=")
            if word not in _FLAGS and not value:
                value = next(words)
            if name in ("-v", "--volume"):
                place, _, rest = value.partition(":")
                options.append(f"--volume={folders[place]}:{rest}")
            elif name == "--network":
                network = value
            elif name in ("-e", "--env"):
                options.append(f"--env={value}")
            elif name not in ("--gpus", "-p", "--publish", "-d", "--detach", "-it", "-i", "-t", "--init", "--rm"):
                options.append(f"{name}={value}" if value else name)
        return options, network


def commands(text: str) -> Iterator[Command]:
    """Every ``docker run`` in the code blocks of a document (indented or fenced), continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.splitlines():
        if line.lstrip().startswith("docker run ") and (line.startswith("    ") or not line.startswith(" ")):
            yield parsed(line.strip())


def parsed(line: str) -> Command:
    words = shlex.split(line, comments=True)[2:]
    position = 0
    while words[position].startswith("-"):
        position += 1 if words[position] in _FLAGS or "=" in words[position] else 2
    return Command(tuple(words[:position]), words[position], tuple(words[position + 1 :]))
