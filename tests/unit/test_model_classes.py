from __future__ import annotations

from pathlib import Path

import pytest

from tools.model_classes import Support, Tree

INTERFACES = """
class SupportsEagle3(Protocol):
    def set_aux_hidden_state_layers(self, layers): ...

class EagleModelMixin:
    supports_aux_hidden_states_over_pp = False
"""
LLAMA = """
from .interfaces import EagleModelMixin, SupportsEagle3

class LlamaModel(nn.Module, EagleModelMixin):
    supports_aux_hidden_states_over_pp = True

    def forward(self, x):
        aux_hidden_states = self._maybe_add_hidden_state([], 0, x, None)
        return x, aux_hidden_states

class LlamaForCausalLM(nn.Module, SupportsEagle3):
    def __init__(self):
        self.model = self._init_model()

    def _init_model(self):
        return LlamaModel()
"""
OTHERS = """
from vllm.model_executor.models.llama import LlamaForCausalLM, LlamaModel
from .interfaces import SupportsEagle3

class OwnForward(LlamaModel):
    def forward(self, x):
        return self.norm(x)

class Mute(LlamaForCausalLM):
    def __init__(self):
        self.model = OwnForward()

class Delegating(LlamaModel):
    supports_aux_hidden_states_over_pp = False

    def forward(self, x):
        return super().forward(x)

class Speaking(LlamaForCausalLM):
    model_cls = Delegating

    def __init__(self):
        self.model = self.model_cls()

class Plain(nn.Module):
    def __init__(self):
        self.model = LlamaModel()

class NoMixin(nn.Module):
    def forward(self, x):
        return x, self.aux_hidden_states

class Unfit(nn.Module, SupportsEagle3):
    def __init__(self):
        self.model = NoMixin()

class Wrapper(nn.Module, SupportsEagle3):
    def __init__(self, config):
        self.language_model = init_vllm_registered_model(config, architectures=["MuteForCausalLM"])

class OpenWrapper(nn.Module, SupportsEagle3):
    def __init__(self, config):
        self.language_model = init_vllm_registered_model(hf_config=config.text_config)
"""
PACKAGE = """
if current_platform.is_rocm():
    from .amd.model import ChosenForCausalLM
else:
    from .nvidia.model import ChosenForCausalLM
"""
NVIDIA = """
from vllm.model_executor.models.llama import LlamaForCausalLM

class ChosenForCausalLM(LlamaForCausalLM):
    pass
"""
MODELS = "vllm.model_executor.models"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    sources = {
        "vllm/model_executor/models/interfaces.py": INTERFACES,
        "vllm/model_executor/models/llama.py": LLAMA,
        "vllm/model_executor/models/others.py": OTHERS,
        "vllm/models/chosen/__init__.py": PACKAGE,
        "vllm/models/chosen/nvidia/model.py": NVIDIA,
        "vllm/models/chosen/amd/model.py": "class ChosenForCausalLM:\n    pass\n",
    }
    for name, text in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("module", "name", "support"),
    [
        (f"{MODELS}.llama", "LlamaForCausalLM", Support(True, True, "LlamaModel")),
        (f"{MODELS}.others", "Mute", Support(False, False, "OwnForward.forward returns no auxiliary states")),
        (f"{MODELS}.others", "Speaking", Support(True, False, "Delegating")),
        (f"{MODELS}.others", "Plain", None),
        (f"{MODELS}.others", "Unfit", Support(False, False, "NoMixin is no EagleModelMixin")),
        (f"{MODELS}.others", "Wrapper", Support(False, False, "OwnForward.forward returns no auxiliary states")),
        (f"{MODELS}.others", "OpenWrapper", Support(True, False, "the checkpoint chooses the decoder")),
        ("vllm.models.chosen", "ChosenForCausalLM", Support(True, True, "LlamaModel")),
    ],
)
def test_what_a_class_does_for_eagle3(tree: Tree, module: str, name: str, support: Support | None) -> None:
    found = tree.find(module, name)
    assert found
    assert tree.support(found, {"MuteForCausalLM": (f"{MODELS}.others", "Mute")}) == support


def test_a_class_that_is_not_there(tree: Tree) -> None:
    assert tree.find(f"{MODELS}.llama", "Llama5ForCausalLM") is None
    assert tree.find(f"{MODELS}.llama5", "LlamaForCausalLM") is None
