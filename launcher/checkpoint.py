"""Facts about a model folder, from bytes that somebody else read: config.json and its neighbours.

Opens nothing, imports no engine.  `launcher.facts` reads the bytes; `launcher.tensors` reads headers and indexes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.errors import IntegrityError, LauncherError
from launcher.sources import Entry
from launcher.typing import Any, NamedTuple

CONFIG = "config.json"
MISTRAL_CONFIG = "params.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_HINT = "Name the folder above it as NIM_PEFT_SOURCE to serve it beside its model"


class Config(NamedTuple):
    """config.json: the document and what nearly every check asks of it.

    ``text`` is the nested language-model configuration (``text_config`` and its like) or the document itself; the sizes
    are read from it.  A size that the file does not state is None.
    """

    document: Mapping[str, Any]
    text: Mapping[str, Any]
    architectures: tuple[str, ...]
    model_type: str
    hidden_size: int | None
    vocab_size: int | None
    num_hidden_layers: int | None
    num_attention_heads: int | None
    max_position_embeddings: int | None
    quantization: str | None  # quant_method, or None for an unquantised checkpoint

    @property
    def architecture(self) -> str:
        """The first architecture (the one vLLM keys on), or an empty string."""
        return self.architectures[0] if self.architectures else ""


class Tensor(NamedTuple):
    """One tensor that a fit check looks at."""

    name: str
    dtype: str  # safetensors spelling: "BF16", "F8_E4M3" …; "" where only the index was read
    shape: tuple[int, ...]


class Head(NamedTuple):
    """Tensors of a bundled speculative head."""

    kind: str  # "mtp", "dspark" or "dflash"
    tensors: int  # how many
    example: str  # the first name, for messages
    dtype: str  # of the head's matrices; "" if unknown
    layers: tuple[
        int, ...
    ] = ()  # of an MTP head: the layers that tensors name, counted from 0; () if names do not tell


class Portion(NamedTuple):
    """Tensors that share a fate when a model is spread over GPUs: ``bytes`` is the sum of their sizes in the files."""

    part: str  # "embedding", "layers", "output", "head" (a bundled speculative one) or "other"
    split: bool  # tensor parallelism divides them; else each rank holds them whole
    wide: bool  # of 32-bit floats, which an engine may load as 16-bit ones
    bytes: int


class Weights(NamedTuple):
    """What the weight files hold, as vLLM would load them (only indexed shards count when there is an index)."""

    form: str  # "safetensors", "pickle", "gguf", or "" when there are none
    bytes: int  # sum of the weight files' sizes
    files: int
    heads: tuple[Head, ...]
    tensors: tuple[Tensor, ...]  # the few that fit checks need (fc, lm_head, embed_tokens, d2t …), sorted by name
    unlisted: str = ""  # a file beside them that holds an MTP head and which the index does not list: vLLM skips it
    portions: tuple[Portion, ...] = ()  # every tensor; () where not every header was read

    def head(self, kind: str) -> Head | None:
        return next((head for head in self.heads if head.kind == kind), None)

    def tensor(self, suffix: str) -> Tensor | None:
        """The first tensor whose name is ``suffix`` or ends in ``.suffix``."""
        return next((t for t in self.tensors if t.name == suffix or t.name.endswith("." + suffix)), None)


class Checkpoint(NamedTuple):
    """A model folder, target or draft."""

    place: str  # where it is, for messages: a path or a source
    config: Config
    weights: Weights
    drafts: tuple[str, ...]  # sub-folders with a config.json of their own, relative, sorted
    custom_code: bool  # config.json's auto_map names Python files in the folder, or code in another repository
    lora: bool = False  # the folder holds a LoRA adapter, and no weights but the adapter's
    runtime: Mapping[str, Any] | None = None  # runtime_config.json, decoded
    mistral: bool = False  # the folder has the params.json of Mistral's own format


def model_folders(listing: Sequence[Entry]) -> tuple[str, ...]:
    """The sub-folders with a config.json of their own, sorted."""
    end = "/" + CONFIG
    return tuple(sorted(entry.path[: -len(end)] for entry in listing if entry.path.endswith(end)))


# Where configurations of several parts keep the language model; a thinker holds a text_config of its own.
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")

# A size and its other names in older or unusual families, most usual first.
_SIZES = (
    ("hidden_size", "n_embd", "d_model", "dim"),
    ("vocab_size", "padded_vocab_size"),
    ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"),
)
# Hybrid families may state their depth only through one entry a layer.
_LAYER_PATTERNS = ("layers_block_type", "hybrid_override_pattern")

# How files begin that are no JSON and no safetensors, and what they are in words.
_DISGUISES = (
    (b"version https://git-lfs.github.com/", "a Git-LFS pointer; the file itself was never fetched (git lfs pull)"),
    (b"/annex/objects/", "a git-annex pointer; the file itself was never fetched (git annex get)"),
    (b"<!doctype", "an HTML page, as a web server sends in place of a file"),
    (b"<html", "an HTML page, as a web server sends in place of a file"),
    (b"<?xml", "an XML document, as an object store sends with an error"),
    (b"<error", "an XML document, as an object store sends with an error"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"PK\x03\x04", "a zip archive, such as PyTorch's own format"),
    (b"GGUF", "a GGUF file"),
    (b'{"', "a JSON text"),
)


def disguise(first: bytes) -> str:
    """What a file really is, by its first bytes, or an empty string."""
    if not first:
        return "empty"
    start = first[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return next((what for magic, what in _DISGUISES if start.startswith(magic.lower())), "")


def decode_object(data: bytes, place: str, refusal: type[LauncherError] = IntegrityError) -> dict[str, Any]:
    """A JSON object from a file's bytes.

    Raises ``refusal``, naming the file and, where it can be known, the line and column.  NaN and Infinity are accepted,
    as the engine accepts them.
    """
    import json

    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        what = _not_json(data) or f"no UTF-8 text (byte {error.start})"
        raise refusal(f"{place} is {what}", "Fetch the file again") from None
    except json.JSONDecodeError as error:
        what = _not_json(data) or "no valid JSON"
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise refusal(f"{place} is {what} ({where})", "Repair the file or fetch it again") from None
    except (ValueError, RecursionError) as error:
        raise refusal(f"{place} is no usable JSON ({type(error).__name__})", "Fetch the file again") from None
    if not isinstance(document, dict):
        raise refusal(f"{place} holds a JSON {_kind(document)} where an object belongs", "Fetch the file again")
    return document


def parse_config(data: bytes, place: str) -> Config:
    """config.json.  Raises IntegrityError naming ``place`` when it is not a JSON object."""
    return read_config(decode_object(data, place))


def read_config(document: Mapping[str, Any]) -> Config:
    """A decoded config.json (or the params.json of Mistral's own format)."""
    text = _text_part(document)
    hidden, vocabulary, layers, heads, positions = (_size(text, document, names) for names in _SIZES)
    if layers is None:
        patterns = (text.get(name) for name in _LAYER_PATTERNS)
        layers = next((len(pattern) for pattern in patterns if isinstance(pattern, (list, str))), None)
    model_type = document.get("model_type")
    return Config(
        document=document,
        text=text,
        architectures=_architectures(document),
        model_type=model_type if isinstance(model_type, str) else "",
        hidden_size=hidden,
        vocab_size=vocabulary,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=positions,
        quantization=_quantization(document) or _quantization(text),
    )


def parse_quantization(data: bytes, place: str) -> str | None:
    """The method in hf_quant_config.json, which older ModelOpt checkpoints carry in place of an entry in the config."""
    document = decode_object(data, place)
    section = document.get("quantization")
    algorithm = section.get("quant_algo") if isinstance(section, dict) else None
    return "modelopt" if isinstance(algorithm, str) else None


def has_custom_code(config: Config, files: frozenset[str]) -> bool:
    """Whether auto_map points at Python code: a file of this folder, or (``repo--module.Class``) another repository."""
    auto_map = config.document.get("auto_map")
    if not isinstance(auto_map, dict):
        return False
    for value in auto_map.values():
        for name in value if isinstance(value, list) else (value,):
            if isinstance(name, str) and ("--" in name or f"{name.partition('.')[0]}.py" in files):
                return True
    return False


def _text_part(document: Mapping[str, Any]) -> Mapping[str, Any]:
    keys: tuple[str, ...] = _NESTED
    if isinstance(document.get("speculators_config"), dict):
        keys = ("transformer_layer_config",)
    elif document.get("model_type") == "eagle":
        keys = ("model",)
    for key in keys:
        nested = document.get(key)
        if isinstance(nested, dict) and nested:
            return _text_part(nested)
    return document


def _size(text: Mapping[str, Any], document: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for mapping in (text, document):
        for name in names:
            value = mapping.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _architectures(document: Mapping[str, Any]) -> tuple[str, ...]:
    names = document.get("architectures")
    if isinstance(names, list):
        return tuple(name for name in names if isinstance(name, str))
    if "dim" in document and "n_layers" in document:  # params.json names none; vLLM goes by its parts
        experts = document.get("moe")
        if not isinstance(experts, dict):
            return ("MistralForCausalLM",)
        return ("MistralLarge3ForCausalLM" if experts.get("num_shared_experts") else "MixtralForCausalLM",)
    return ()


def _quantization(mapping: Mapping[str, Any]) -> str | None:
    for key in ("quantization_config", "compression_config"):
        section = mapping.get(key)
        if isinstance(section, dict) and section:
            method = section.get("quant_method")
            return method if isinstance(method, str) else "modelopt" if "quant_algo" in section else "unknown"
    return None


def _not_json(data: bytes) -> str:
    return "" if data.lstrip().startswith(b"{") else disguise(data)


def _kind(value: object) -> str:
    return {list: "list", str: "string", bool: "boolean", type(None): "null"}.get(type(value), "number")
