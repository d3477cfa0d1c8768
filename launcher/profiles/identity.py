"""Who a model is (pure).  Only what says a name outright counts: sizes are shared by models that differ in all else."""

from __future__ import annotations

from launcher.checkpoint import Config
from launcher.typing import Any, NamedTuple

CARD = "README.md"
CARD_BYTES = 64 * 1024  # of a card, which can be long: its header and its title are at the top
_HUB = "models--"


class Identity(NamedTuple):
    """What a model says of itself: ``source`` in canonical spelling, and where it says so.

    ``derived``: it was made from that model (a fine-tune, a quantisation) and is not it.
    """

    source: str  # "hf://org/model"
    how: str  # "its path in a hub cache"
    derived: bool = False


def of_path(path: str) -> Identity | None:
    """A snapshot in a Hugging Face cache carries its repository in its path."""
    parts = [part for part in path.split("/") if part]
    for position in range(len(parts) - 2):
        name = parts[position]
        if name.startswith(_HUB) and parts[position + 1] == "snapshots" and name.count("--") >= 2:
            return Identity("hf://" + name[len(_HUB) :].replace("--", "/", 1), "its path in a hub cache")
    return None


def of_card(text: str) -> tuple[Identity, ...]:
    """What a model card says, best first: the name that it states, then the models that it was made from.

    A model is not made from itself: a name that is also that of its base is the base's.  Its header is read line by
    line: plain ``key: value`` and lists, which is how the hub writes it.
    """
    header, body = _parted(text)
    stated = [name for key in ("model_id", "model_name") for name in header.get(key, ()) if name.count("/") == 1]
    said = [Identity(f"hf://{name}", "its model card") for name in stated]
    title = next((line[2:].strip() for line in body if line.startswith("# ")), "")
    if title.count("/") == 1 and " " not in title:
        said.append(Identity(f"hf://{title}", "the title of its model card"))
    bases = [name for name in header.get("base_model", ()) if name.count("/") == 1]
    # A card that kept its base's title says who the base is, not who the model is.
    said = [one for one in said if one.source.lower() not in {f"hf://{name}".lower() for name in bases}]
    relation = (header.get("base_model_relation") or ("a derivative",))[0]
    made = [Identity(f"hf://{name}", f"its model card: {relation} of {name}", True) for name in bases]
    return (*said, *made)


def _parted(text: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return {}, lines
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), len(lines))
    header: dict[str, tuple[str, ...]] = {}
    key = ""
    for line in lines[1:end]:
        word = line.strip()
        if word.startswith("- ") and key:
            header[key] = (*header[key], _unquoted(word[2:]))
        elif line[:1] not in ("", " ", "#") and ":" in word:
            key, _, value = word.partition(":")
            values = value.strip().strip("[]").split(",") if value.strip() else ()
            header[key] = tuple(_unquoted(one) for one in values)
        else:
            key = ""
    return header, lines[end + 1 :]


def _unquoted(value: str) -> str:
    return value.strip().strip("\"'")


def precision_of(config: Config) -> str:
    """The precision of a checkpoint, as descriptions spell it; "mixed" where its own words are not known."""
    if config.quantization is None:
        dtype = config.text.get("dtype") or config.text.get("torch_dtype") or config.document.get("torch_dtype")
        return {"float16": "fp16", "float32": "fp32"}.get(str(dtype).removeprefix("torch."), "bf16")
    method = config.quantization
    if method in ("awq", "gptq", "auto-round", "autoround"):
        return "int4" if _bits(config) in (4, None) else f"int{_bits(config)}"
    if method == "modelopt":
        return _modelopt(config)
    if method == "compressed-tensors":
        return _compressed(config)
    return {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "gpt_oss_mxfp4": "mxfp4"}.get(method, "mixed")


def _section(config: Config) -> dict[str, Any]:
    for mapping in (config.document, config.text):
        for key in ("quantization_config", "compression_config"):
            if isinstance(mapping.get(key), dict):
                return dict(mapping[key])
    return {}


def _bits(config: Config) -> int | None:
    bits = _section(config).get("bits") or _section(config).get("w_bit")
    return bits if isinstance(bits, int) else None


def _modelopt(config: Config) -> str:
    algorithm = str(_section(config).get("quant_algo", "")).upper()
    return next((name for name in ("nvfp4", "mxfp8", "mxfp4", "fp8", "int8") if name.upper() in algorithm), "mixed")


def _compressed(config: Config) -> str:
    groups = _section(config).get("config_groups")
    known = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "int4", ("float", 4): "nvfp4"}
    found = set()
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            kind, bits = str(weights.get("type")), weights.get("num_bits")
            found.add(known.get((kind, bits if isinstance(bits, int) else 0), "mixed"))
    return found.pop() if len(found) == 1 else "mixed"
