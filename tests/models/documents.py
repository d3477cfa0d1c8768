"""JSON as it stands in a checkpoint's files."""

from __future__ import annotations

import json


def to_json(document: object) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
