"""What a model manifest of NIM's offers, and its text: the launcher writes one, vLLM's process answers with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.typing import Any, NamedTuple

VERSION = "2.0.0"  # of the manifest's schema
FILE = "?file="  # names one file of a source


class Offered(NamedTuple):
    """A profile of a manifest.  ``files``: path in the workspace -> URI."""

    id: str
    tags: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def description(self) -> str:
        """The name that NIM makes of the tags."""
        tags = self.tags
        engine = tags.get("llm_engine") or tags.get("model_type") or tags.get("backend") or "vllm"
        return f"{engine}-{tags.get('precision', 'bf16')}-tp{tags.get('tp', '1')}-pp{tags.get('pp', '1')}"


def to_yaml(offered: Sequence[Offered], beside: Mapping[str, Any] | None = None) -> str:
    """The manifest.  Every text is quoted: a tag such as tp must stay one.

    ``beside``: further keys of its own, which readers of profiles leave alone.
    """
    import json

    lines = [f"schema_version: {VERSION}", "profile_selection_criteria: default"]
    lines.append("profiles:" if offered else "profiles: []")
    for one in offered:
        lines += [f"  - id: {json.dumps(one.id)}", "    tags:"]
        lines += [f"      {key}: {json.dumps(value)}" for key, value in one.tags.items()]
        lines += ["    workspace:", "      files:" if one.files else "      files: {}"]
        for path, uri in sorted(one.files.items()):
            lines += [f"        {json.dumps(path)}:", f"          uri: {json.dumps(uri)}"]
    # JSON is YAML, and a line that can be read by eye or by either.
    lines += [f"{key}: {json.dumps(value)}" for key, value in (beside or {}).items()]
    return "\n".join(lines) + "\n"
