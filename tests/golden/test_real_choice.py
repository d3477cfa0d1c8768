"""What published configurations speculate with where nothing but their files is known, with their heads and stripped.

The configurations are those of tests/unit/test_real_configurations.py; which of them has a head is written down there.
"""

from __future__ import annotations

import pytest

from launcher.checkpoint import Checkpoint, Config, Weights, read_config
from launcher.machine import Machine
from launcher.speculation.select import decide
from launcher.speculation.values import Request
from launcher.tensors import heads_of, survey
from launcher.vllm import tables
from tests.golden.shapes import document
from tests.golden.test_profiles import MODELS
from tests.unit.test_real_configurations import FAMILIES, load, table

TARGETS = sorted(table()["targets"])
# A name of each family's head; N stands for the number of layers.
NAMES = {
    "qwen3_5_mtp": ("mtp.fc.weight",),
    "mimo_mtp": ("model.mtp_layers.0.input_proj.weight",),
    "deepseek_mtp": ("model.layers.N.eh_proj.weight",),
    "nemotron_h_mtp": ("mtp.layers.0.eh_proj.weight",),
    "step3p5_mtp": tuple(f"model.layers.N+{layer}.eh_proj.weight" for layer in range(3)),
    "kimi_k3_mtp": ("mtp.layers.0.eh_proj.weight",),
}
DEEPSEEK_V4 = ("mtp.0.e_proj.weight",)


def names(name: str, config: Config) -> tuple[str, ...]:
    family = FAMILIES.get(name, ("", 0))[0]
    depth = config.num_hidden_layers or 0
    known = DEEPSEEK_V4 if config.model_type == "deepseek_v4" else NAMES.get(family, ())
    numbers = {f"N+{layer}": str(depth + layer) for layer in range(3)} | {"N": str(depth)}
    return tuple(".".join(numbers.get(part, part) for part in one.split(".")) for one in known)


def method(name: str, *, head: bool) -> tuple[str | None, int | None]:
    """The automatic choice's method and tokens for a target with the tensors it was published with."""
    config = load("targets", name).config
    body = ("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight")
    entry = {"dtype": "BF16", "shape": [config.hidden_size or 1] * 2, "data_offsets": (0, 0)}
    found = survey({one: entry for one in (*body, *(names(name, config) if head else ()))}, config.num_hidden_layers)
    weights = Weights("safetensors", 1000, 1, heads_of((found,), config.hidden_size), ())
    target = Checkpoint(f"/models/{name}", config, weights, (), False)
    request = Request((), True, "NIM_SPECDEC_ENABLE", None, "required", {}, False, (), "")
    chosen = decide(request, target, {}, tables.pinned(), Machine("cuda")).speculation
    return chosen.method, chosen.tokens


@pytest.mark.parametrize("name", TARGETS)
def test_the_method_of_a_published_configuration(name: str) -> None:
    depth = FAMILIES.get(name, ("", 0))[1]
    assert method(name, head=True) == (("mtp", depth) if depth else ("ngram", 3))
    assert method(name, head=False) == ("ngram", 3)


def test_with_those_of_the_profiles_they_are_more_than_sixty() -> None:
    """Siblings that share class, sizes and quantisation count once."""
    documents = [read_config(document(profile.model)) for profile in MODELS.values()]
    configs = [*(load("targets", name).config for name in TARGETS), *documents]
    sizes = {(one.architecture, one.hidden_size, one.num_hidden_layers, one.vocab_size) for one in configs}
    assert len(sizes) == 55
    assert len({(one.architecture, one.hidden_size, one.num_hidden_layers, one.quantization) for one in configs}) >= 60
