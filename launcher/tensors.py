"""What weight files hold: safetensors headers and indexes, and the speculative heads that tensor names give away.

Opens nothing.  A header is eight bytes of length (little-endian) and a JSON object from tensor name to type, shape and
place; the tensors follow, and the last one ends where the file ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from launcher.checkpoint import Head, Portion, Tensor, decode_object, disguise
from launcher.errors import IntegrityError
from launcher.typing import Any, NamedTuple

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit

_DTYPES = frozenset(
    {
        *("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
        *("F4", "F6_E2M3", "F6_E3M2", "I16", "U16", "F16", "BF16"),
        *("I32", "U32", "F32", "I64", "U64", "F64", "C64"),
    }
)
_AGAIN = "Fetch the file again"

# Tensors that tell a draft's kind or whether it fits; matched as a whole name or after a dot.
_TELLING = (
    "fc.weight",
    "eagle_linear.weight",  # the same in Mistral's own format
    "d2t",
    "lm_head.weight",
    "embed_tokens.weight",
    "hidden_norm.weight",
    "mask_hidden",
    "markov_head.markov_w1.weight",
)
_MOST_TELLING = 64  # a vision tower may repeat such names in every layer

_NAMED_HEAD = r"(?:^|\.)(?:(mtp|dspark|dflash)(?:[._]|$)|decoder\.extra_(?:heads|proj)\.)"
# Layers of the language model proper: an encoder of another modality may be deeper than it.
_LAYER = r"(?:thinker\.|llm\.)?(?:model\.|backbone\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\."
# Which of its layers a tensor of a named head belongs to: "mtp.0.", "mtp.layers.0.", "mtp_layers.0.", "mtp_block.0."
_NAMED_LAYER = r"(?:^|\.)mtp(?:_[a-z_]+)?\.(?:layers\.)?(\d+)\."
_DSPARK_MARKS = (".markov_head.", ".confidence_head.", ".main_proj.")

# Matrices that every rank holds: routers, the compressed side of latent attention, joins of hidden states.
_WHOLE = (".gate.weight", ".router.weight", "fc.weight", "eh_proj.weight", "input_proj.weight", "pos_embed.weight")
_WHOLE_IN = ("kv_a_proj", "q_a_proj", "qkv_a_proj", ".indexer.")

Header = Mapping[str, Mapping[str, Any]]


class Finding(NamedTuple):
    """What one shard contributes: tensors of heads by kind, and the telling ones."""

    heads: tuple[tuple[str, Tensor], ...]  # (how the name gave it away: "mtp", "dspark", "dflash"; tensor)
    telling: tuple[Tensor, ...]
    layers: frozenset[int] = frozenset()  # of an MTP head, counted from 0
    portions: tuple[Portion, ...] = ()


def header_length(first: bytes, size: int, place: str) -> int:
    """Bytes of the JSON header of a file of ``size`` bytes that starts with ``first`` (64 bytes tell most disguises).

    Raises IntegrityError that says what the file really is.
    """
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    room = size - LENGTH_BYTES
    if 2 <= length <= min(room, MOST_HEADER_BYTES) and first[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        return length  # asked before any disguise: the bytes of a length may spell anything
    what = disguise(first)
    if what:
        raise IntegrityError(f"{place} is no safetensors file: it is {what}", _AGAIN)
    if room < 2:
        raise IntegrityError(f"{place} is no safetensors file: it has {size} bytes, too few for a header", _AGAIN)
    if not 2 <= length <= min(room, MOST_HEADER_BYTES):
        raise IntegrityError(
            f"{place} is truncated or no safetensors file: its header claims {length} bytes and {room} follow", _AGAIN
        )
    raise IntegrityError(f"{place} is no safetensors file: its header is no JSON object", _AGAIN)


def parse_header(data: bytes, size: int, place: str) -> Header:
    """Tensor name to ``dtype``, ``shape`` and ``data_offsets``, from the file's beginning (length and header whole).

    Raises IntegrityError when the header is malformed, or the tensors do not end where the file of ``size`` bytes does.
    """
    length = header_length(data, size, place)
    header = decode_object(data[LENGTH_BYTES : LENGTH_BYTES + length], f"{place} (its header)")
    header.pop("__metadata__", None)
    end = held = 0
    types = set()
    at = ""
    try:
        for name, entry in header.items():
            at = name
            start, stop = entry["data_offsets"]
            types.add(entry["dtype"])
            held += stop - start
            if stop > end:
                end = stop
            len(entry["shape"])
    except (KeyError, TypeError, ValueError):
        raise IntegrityError(f"{place} is no safetensors file: the entry {at!r} is malformed", _AGAIN) from None
    _check_extent(end, held, size - LENGTH_BYTES - length, place)
    if not types <= _DTYPES:
        odd = sorted(map(str, types - _DTYPES))[0]
        raise IntegrityError(f"{place} holds tensors of the unknown type {odd!r}", _AGAIN)
    return header


def _check_extent(end: int, held: int, room: int, place: str) -> None:
    if end > room:
        raise IntegrityError(f"{place} is truncated: its tensors take {end} bytes and {room} are there", _AGAIN)
    if end < room:
        raise IntegrityError(f"{place} is damaged: its tensors take {end} bytes and {room} are there", _AGAIN)
    if held != end:
        raise IntegrityError(f"{place} is damaged: its tensors overlap or leave holes", _AGAIN)


def parse_index(data: bytes, place: str) -> Mapping[str, str]:
    """Tensor name to shard, from an index file.  Raises IntegrityError when it is none."""
    weight_map = decode_object(data, place).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise IntegrityError(f"{place} has no weight_map from tensors to files", _AGAIN)
    return weight_map


def check_shards(shards: Collection[str], present: Collection[str], place: str) -> None:
    """Raises IntegrityError naming the shards that an index at ``place`` lists and the folder lacks."""
    absent = sorted(set(shards) - set(present))
    if not absent:
        return
    shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
    raise IntegrityError(
        f"{place} lists {len(absent)} of {len(set(shards))} files that are not there: {shown}",
        "Fetch the missing files, or give a folder that is complete",
    )


def survey(header: Header, layers: int | None) -> Finding:
    """The head tensors and the telling ones among a shard's; ``layers`` is the depth of the model proper."""
    named, numbered = re.compile(_NAMED_HEAD).search, re.compile(_LAYER).match
    layer_of = re.compile(_NAMED_LAYER).search
    heads: list[tuple[str, Tensor]] = []
    telling = []
    held = set()
    sums: dict[tuple[str, bool, bool], int] = {}
    for name, entry in header.items():
        known = len(heads)
        match = named(name)
        if match is not None:
            heads.append((match[1] or "mtp", _tensor(name, entry)))
            if (match := layer_of(name)) is not None:
                held.add(int(match[1]))
        elif layers is not None and (match := numbered(name)) is not None and int(match[1]) >= layers:
            heads.append(("mtp", _tensor(name, entry)))
            held.add(int(match[1]) - layers)
        if name.endswith(_TELLING) and any(name == word or name.endswith("." + word) for word in _TELLING):
            telling.append(_tensor(name, entry))
        start, stop = entry.get("data_offsets", (0, 0))
        part = "head" if len(heads) > known else _part(name)
        fate = (part, _is_split(name, entry), entry.get("dtype") == "F32")
        sums[fate] = sums.get(fate, 0) + stop - start
    portions = tuple(Portion(*fate, size) for fate, size in sorted(sums.items()) if size)
    return Finding(tuple(heads), tuple(telling), frozenset(held), portions)


def portions_of(findings: Sequence[Finding]) -> tuple[Portion, ...]:
    """The portions of all shards together."""
    sums: dict[tuple[str, bool, bool], int] = {}
    for portion in (portion for finding in findings for portion in finding.portions):
        fate = (portion.part, portion.split, portion.wide)
        sums[fate] = sums.get(fate, 0) + portion.bytes
    return tuple(Portion(*fate, size) for fate, size in sorted(sums.items()))


def _part(name: str) -> str:
    if name.endswith(("lm_head.weight", "lm_head.bias")) or name in ("output.weight", "head.weight"):
        return "output"
    if name.endswith(("embed_tokens.weight", "wte.weight", "tok_embeddings.weight", "word_embeddings.weight")):
        return "embedding"
    return "layers" if ".layers." in f".{name}" or ".h." in name else "other"


def _is_split(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether vLLM's layers divide a tensor among the ranks: matrices, but those that every rank needs whole."""
    if len(entry.get("shape", ())) < 2 or name.endswith(_WHOLE):
        return False
    return not any(mark in name for mark in _WHOLE_IN)


def heads_of(findings: Sequence[Finding], hidden_size: int | None) -> tuple[Head, ...]:
    """The heads that all shards' tensors make up, in the order mtp, dspark, dflash.

    Some families keep another head under the MTP names: a Markov head marks DSpark stages, and an ``fc`` that takes
    three or more hidden states marks a DFlash head (an MTP layer joins two).
    """
    groups: dict[str, list[Tensor]] = {"mtp": [], "dspark": [], "dflash": []}
    for finding in findings:
        for kind, tensor in finding.heads:
            groups[kind].append(tensor)
    named = groups["mtp"]
    if any(mark in f".{tensor.name}" for tensor in named for mark in _DSPARK_MARKS):
        groups["dspark"] += named
        groups["mtp"] = []
    elif hidden_size and any(_joins(tensor) >= 3 * hidden_size for tensor in named):
        groups["dflash"] += named
        groups["mtp"] = []
    layers = tuple(sorted(frozenset().union(*(finding.layers for finding in findings))))
    return tuple(_head(kind, tensors, layers if kind == "mtp" else ()) for kind, tensors in groups.items() if tensors)


def telling_of(found: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(sorted(found)[:_MOST_TELLING])


def _tensor(name: str, entry: Mapping[str, Any]) -> Tensor:
    return Tensor(name, entry.get("dtype", ""), tuple(entry.get("shape", ())))


def _joins(tensor: Tensor) -> int:
    fuses = tensor.name.endswith("fc.weight") and len(tensor.shape) == 2
    return tensor.shape[1] if fuses else 0


def _head(kind: str, tensors: list[Tensor], layers: tuple[int, ...]) -> Head:
    """``dtype`` is that of most matrices; scales and norms say nothing about how a head was quantised."""
    counts: dict[str, int] = {}
    for tensor in tensors:
        if len(tensor.shape) >= 2 and "scale" not in tensor.name:
            counts[tensor.dtype] = counts.get(tensor.dtype, 0) + 1
    common = max(sorted(counts), key=lambda dtype: counts[dtype], default="")
    return Head(kind, len(tensors), min(tensor.name for tensor in tensors), common, layers)
