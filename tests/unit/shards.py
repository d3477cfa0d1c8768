"""Small weight files for tests of what their headers say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WIDTHS = {"F8_E4M3": 1, "U8": 1, "BF16": 2, "F16": 2, "F32": 4, "I64": 8}


def shard(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """A safetensors file of zeros; ``tensors`` maps a name to its type and shape."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = _WIDTHS[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    return framed(header) + bytes(end)


def framed(header: Mapping[str, Any]) -> bytes:
    """A header with its length before it."""
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), "utf-8")


def bf16(*names: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Two-by-two matrices of the given names."""
    return {name: ("BF16", (2, 2)) for name in names}
