"""Gathering: the facts of a model folder through its source, in as few reads as they need."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from launcher.cache.remembered import Remembered
from launcher.checkpoint import (
    Checkpoint,
    Config,
    Weights,
    decode_object,
    has_custom_code,
    parse_config,
    parse_quantization,
)
from launcher.errors import ConfigurationError, NotFoundError
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
    survey,
    telling_of,
)

CONFIG = "config.json"
MISTRAL_CONFIG = "params.json"
RUNTIME = "runtime_config.json"
QUANTIZATION = "hf_quant_config.json"
ADAPTER = "adapter_config.json"
INDEX = "model.safetensors.index.json"
MISTRAL_INDEX = "consolidated.safetensors.index.json"
_FIRST_READ = 64 * 1024  # most headers are shorter
_MOST_TEXT = 512 * 1024 * 1024  # an index of a million tensors is under 100 MB
# Left behind by training, and no weights.
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


class SubFolder(NamedTuple):
    """A folder of a source, as a source."""

    source: Source
    folder: str

    def listing(self) -> tuple[Entry, ...]:
        return tuple(_below(self.source.listing(), self.folder))

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.source.read(f"{self.folder}/{path}", offset, length)


def gather_checkpoint(source: Source, place: str, memory: Remembered | None = None) -> Checkpoint:
    """The facts of the target at ``place``, its runtime_config.json included.

    Raises NotFoundError without a config.json, IntegrityError for files that are not what they claim to be, and
    ConfigurationError for an unreadable runtime_config.json.
    """
    listing = source.listing()
    if not _has_config(listing):
        raise _no_config(place, listing)
    return _gather(source, place, listing, memory, target=True)


def gather_draft(source: Source, place: str, memory: Remembered | None = None) -> Checkpoint:
    """The facts of a draft.  Its ``place`` is that of the only child with a config.json where the folder has none.

    Raises as `gather_checkpoint` does, and ConfigurationError where several children could be meant.
    """
    listing = source.listing()
    child = draft_folder(listing, place)
    if child:
        source, place, listing = SubFolder(source, child), f"{place.rstrip('/')}/{child}", _below(listing, child)
    return _gather(source, place, listing, memory, target=False)


def draft_folder(listing: Sequence[Entry], place: str) -> str:
    """Which folder of a draft's listing is the draft: "" for itself, or the only child with a config.json."""
    if _has_config(listing):
        return ""
    children = [folder for folder in model_folders(listing) if "/" not in folder]
    if len(children) > 1:
        raise ConfigurationError(
            f"{place} has no {CONFIG} of its own and holds several drafts: {', '.join(children)}",
            f"Name one of them, such as {place.rstrip('/')}/{children[0]}",
        )
    if not children:
        raise _no_config(place, listing)
    return children[0]


def model_folders(listing: Sequence[Entry]) -> tuple[str, ...]:
    """The sub-folders with a config.json of their own, sorted."""
    end = "/" + CONFIG
    return tuple(sorted(entry.path[: -len(end)] for entry in listing if entry.path.endswith(end)))


def _below(listing: Sequence[Entry], folder: str) -> tuple[Entry, ...]:
    start = folder + "/"
    return tuple(entry._replace(path=entry.path[len(start) :]) for entry in listing if entry.path.startswith(start))


def _has_config(listing: Sequence[Entry]) -> bool:
    return any(entry.path in (CONFIG, MISTRAL_CONFIG) for entry in listing)


def _no_config(place: str, listing: Sequence[Entry]) -> NotFoundError:
    folders = model_folders(listing)
    if folders:
        more = f" and {len(folders) - 3} more" if len(folders) > 3 else ""
        return NotFoundError(
            f"{place} has no {CONFIG}, but these of its folders have one: {', '.join(folders[:3])}{more}",
            f"Give the model's own folder, such as {place.rstrip('/')}/{folders[0]}",
        )
    if not listing:
        return NotFoundError(f"{place} is empty", "Is the volume mounted? Check the path and the mount")
    return NotFoundError(f"{place} has no {CONFIG}: it is no model folder", "Give the folder that holds config.json")


def _gather(
    source: Source, place: str, listing: Sequence[Entry], memory: Remembered | None, *, target: bool
) -> Checkpoint:
    local = all(entry.inode for entry in listing)
    memory = memory if local else None  # without inode and time nothing says that a file is still the same
    key = place if target else f"{place} as a draft"
    known = None if memory is None else memory.recall(key, listing)
    if known is not None:
        return known
    checkpoint = _read(_Folder(source, place, {entry.path: entry for entry in listing}, local), target)
    if memory is not None:
        memory.keep(checkpoint, key, listing)
    return checkpoint


class _Folder(NamedTuple):
    source: Source
    place: str
    files: Mapping[str, Entry]
    local: bool  # every header is checked; of a remote folder only those that a fact needs

    def where(self, name: str) -> str:
        return f"{self.place.rstrip('/')}/{name}"

    def text(self, name: str) -> bytes:
        return self.source.read(name, 0, min(self.files[name].size, _MOST_TEXT))


def _read(folder: _Folder, target: bool) -> Checkpoint:
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
        drafts=model_folders(tuple(folder.files.values())),
        custom_code=has_custom_code(config, frozenset(folder.files)),
        lora=ADAPTER in folder.files,
        runtime=runtime,
    )


def _weights(folder: _Folder, config: Config) -> Weights:
    form, names, index = _weight_files(folder)
    size = sum(folder.files[name].size for name in names)
    if form != "safetensors":
        return Weights(form, size, len(names), (), ())
    findings = _findings(folder, names, index, config.num_hidden_layers)
    return Weights(
        form=form,
        bytes=size,
        files=len(names),
        heads=heads_of([pair for finding in findings for pair in finding.heads], config.hidden_size),
        tensors=telling_of([tensor for finding in findings for tensor in finding.telling]),
    )


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
    return [*findings, Finding(rest, ())]


def _header(folder: _Folder, name: str) -> Header:
    size, where = folder.files[name].size, folder.where(name)
    data = folder.source.read(name, 0, min(size, _FIRST_READ))
    whole = LENGTH_BYTES + header_length(data, size, where)
    if whole > len(data):
        data += folder.source.read(name, len(data), whole - len(data))
    return parse_header(data, size, where)
