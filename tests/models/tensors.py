"""Small bf16 tensors and the safetensors container, with the standard library alone."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from typing import NamedTuple


class Tensor(NamedTuple):
    """A tensor as safetensors stores it: little-endian, row by row."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@cache
def _bf16(value: float) -> bytes:
    """The upper half of the float32: exact for small multiples of powers of two, which nearly all values here are."""
    return struct.pack("<f", value)[2:]


def filled(value: float, *shape: int) -> Tensor:
    return Tensor("BF16", shape, _bf16(value) * prod(shape))


def zeros(*shape: int) -> Tensor:
    return filled(0.0, *shape)


def ones(size: int) -> Tensor:
    return filled(1.0, size)


def matrix(rows: Sequence[Sequence[float]]) -> Tensor:
    data = b"".join(_bf16(value) for row in rows for value in row)
    return Tensor("BF16", (len(rows), len(rows[0])), data)


def identity(size: int, scale: float = 1.0) -> Tensor:
    return matrix([[scale if row == column else 0.0 for column in range(size)] for row in range(size)])


def beside(*parts: Tensor) -> Tensor:
    """Matrices of equal height joined column by column: the layer that takes the concatenation of their inputs."""
    height = parts[0].shape[0]
    widths = [len(part.data) // height for part in parts]
    data = b"".join(
        part.data[row * width : (row + 1) * width]
        for row in range(height)
        for part, width in zip(parts, widths, strict=True)
    )
    return Tensor(parts[0].dtype, (height, sum(part.shape[1] for part in parts)), data)


def above(*parts: Tensor) -> Tensor:
    """Matrices of equal width joined row by row."""
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    return Tensor(parts[0].dtype, shape, b"".join(part.data for part in parts))


def integers(values: Iterable[int]) -> Tensor:
    numbers = tuple(values)
    return Tensor("I64", (len(numbers),), struct.pack(f"<{len(numbers)}q", *numbers))


def flags(values: Iterable[bool]) -> Tensor:
    data = bytes(values)
    return Tensor("BOOL", (len(data),), data)


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """One .safetensors file, tensors in the order of their names, so that equal tensors make equal bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in sorted(tensors.items()):
        end = offset + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data starts on a multiple of eight
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.data for _, tensor in sorted(tensors.items()))
