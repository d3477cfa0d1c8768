"""The facts of a model folder, read through its source in as few reads as they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from launcher.checkpoint import (
    ADAPTER_CONFIG,
    CONFIG,
    MISTRAL_CONFIG,
    Checkpoint,
    Config,
    Weights,
    decode_object,
    has_custom_code,
    model_folders,
    parse_config,
    parse_quantization,
)
from launcher.errors import ConfigurationError, IntegrityError
from launcher.sources import Entry, Source
from launcher.tensors import (
    LENGTH_BYTES,
    Finding,
    Header,
    check_shards,
    header_length,
    heads_of,
    parse_header,
    parse_index,
    portions_of,
    survey,
    telling_of,
)
from launcher.typing import NamedTuple

RUNTIME = "runtime_config.json"
QUANTIZATION = "hf_quant_config.json"
_ADAPTER_WEIGHTS = "adapter_model."
INDEX = "model.safetensors.index.json"
MISTRAL_INDEX = "consolidated.safetensors.index.json"
_FIRST_READ = 64 * 1024  # most headers are shorter
_MOST_TEXT = 512 * 1024 * 1024  # an index of a million tensors is under 100 MB
# Left behind by training, and no weights.
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


class _Folder(NamedTuple):
    source: Source
    place: str
    files: Mapping[str, Entry]
    local: bool  # every header is checked; of a remote folder only those that a fact needs

    def where(self, name: str) -> str:
        return f"{self.place.rstrip('/')}/{name}"

    def text(self, name: str) -> bytes:
        return self.source.read(name, 0, min(self.files[name].size, _MOST_TEXT))


def read_facts(source: Source, place: str, listing: Sequence[Entry], *, local: bool, target: bool) -> Checkpoint:
    """The facts of the folder at ``place``, which has a config.json; of a target, its runtime_config.json too.

    Raises IntegrityError for files that are not what they claim to be, and ConfigurationError for an unreadable
    runtime_config.json.
    """
    folder = _Folder(source, place, {entry.path: entry for entry in listing}, local)
    name = CONFIG if CONFIG in folder.files else MISTRAL_CONFIG
    config = parse_config(folder.text(name), folder.where(name))
    if config.quantization is None and QUANTIZATION in folder.files:
        config = config._replace(quantization=parse_quantization(folder.text(QUANTIZATION), folder.where(QUANTIZATION)))
    runtime = None
    if target and RUNTIME in folder.files:
        runtime = decode_object(folder.text(RUNTIME), folder.where(RUNTIME), ConfigurationError)
    return Checkpoint(
        place=folder.place,
        config=config,
        weights=_weights(folder, config),
        drafts=model_folders(listing),
        custom_code=has_custom_code(config, frozenset(folder.files)),
        lora=_is_adapter(folder),
        runtime=runtime,
        mistral=MISTRAL_CONFIG in folder.files,
    )


def _is_adapter(folder: _Folder) -> bool:
    """Whether a LoRA adapter lies here, with no weights but its own."""
    if ADAPTER_CONFIG not in folder.files:
        return False
    return all(name.startswith(_ADAPTER_WEIGHTS) for name in _weight_files(folder)[1])


def _weights(folder: _Folder, config: Config) -> Weights:
    form, names, index = _weight_files(folder)
    size = sum(folder.files[name].size for name in names)
    if form != "safetensors":
        return Weights(form, size, len(names), (), ())
    findings = _findings(folder, names, index, config.num_hidden_layers)
    heads = heads_of(findings, config.hidden_size)
    headless = index is not None and all(head.kind != "mtp" for head in heads)
    return Weights(
        form=form,
        bytes=size,
        files=len(names),
        heads=heads,
        tensors=telling_of([tensor for finding in findings for tensor in finding.telling]),
        unlisted=_unlisted_head(folder, names, config.num_hidden_layers) if headless else "",
        portions=portions_of(findings) if folder.local or index is None else (),
    )


def _unlisted_head(folder: _Folder, listed: Sequence[str], layers: int | None) -> str:
    """The file of this folder that holds an MTP head although the index leaves it out; empty when there is none."""
    for name in sorted(folder.files) if folder.local else ():
        if "/" in name or not name.endswith(".safetensors") or name in listed or _is_consolidated(name):
            continue
        try:
            if any(kind == "mtp" for kind, _ in survey(_header(folder, name), layers).heads):
                return name
        except IntegrityError:
            continue  # nobody will load it
    return ""


def _weight_files(folder: _Folder) -> tuple[str, list[str], Mapping[str, str] | None]:
    """The files that vLLM would load, their form, and the index that chose them.

    Only the folder itself counts, not its sub-folders; Mistral's own files win wherever one exists.
    """
    own = sorted(name for name in folder.files if "/" not in name)
    mistral = any(_is_consolidated(name.rpartition("/")[2]) for name in folder.files)
    shards = [name for name in own if name.endswith(".safetensors") and (_is_consolidated(name) or not mistral)]
    index_name = MISTRAL_INDEX if mistral else INDEX
    pickles = [name for name in own if name.endswith(".bin") and not name.endswith(_NO_WEIGHTS)]
    pickles = pickles or [name for name in own if name.endswith(".pt") and not name.endswith(_NO_WEIGHTS)]
    if index_name in folder.files and (shards or not pickles):
        index = parse_index(folder.text(index_name), folder.where(index_name))
        listed = set(index.values())
        check_shards(listed, own, folder.where(index_name))
        return "safetensors", sorted(listed), index
    if shards:
        return "safetensors", shards, None
    if pickles:
        return "pickle", pickles, None
    quantised = [name for name in own if name.endswith(".gguf")]
    return ("gguf" if quantised else ""), quantised, None


def _is_consolidated(name: str) -> bool:
    return name.startswith("consolidated") and name.endswith(".safetensors")


def _findings(
    folder: _Folder, names: Sequence[str], index: Mapping[str, str] | None, layers: int | None
) -> list[Finding]:
    """From headers: an index may promise tensors that the shards lack.  A remote index is believed, and only the shards
    that hold what it promises are opened."""
    if folder.local or index is None:
        return [survey(_header(folder, name), layers) for name in names]
    promised = survey({name: {} for name in index}, layers)
    telling = {tensor.name for tensor in promised.telling} | {tensor.name for _, tensor in promised.heads[:1]}
    opened = {index[name] for name in telling}
    findings = [survey(_header(folder, name), layers) for name in sorted(opened)]
    rest = tuple((kind, tensor) for kind, tensor in promised.heads if index[tensor.name] not in opened)
    return [*findings, Finding(rest, (), promised.layers)]


def _header(folder: _Folder, name: str) -> Header:
    size, where = folder.files[name].size, folder.where(name)
    data = folder.source.read(name, 0, min(size, _FIRST_READ))
    whole = LENGTH_BYTES + header_length(data, size, where)
    if whole > len(data):
        data += folder.source.read(name, len(data), whole - len(data))
    return parse_header(data, size, where)
