"""Which profile a model gets: by the user's word, its source, what its folder says, else the generic one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.checkpoint import read_config
from launcher.errors import HardwareError
from launcher.hardware import visible_gpus
from launcher.machine import Machine
from launcher.profiles import compile as compiling
from launcher.profiles import compiled, fits, identity
from launcher.profiles.choose import Choice, Question, choose
from launcher.profiles.compiled import Store, from_text
from launcher.profiles.generic import generic
from launcher.profiles.identity import Identity
from tests.unit.nvml import GB, Card, Library, cards
from tests.unit.test_profile_documents import GOOD

STORE = compiled.load() or compiled.EMPTY
CPU = Machine("cpu")
QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "torch_dtype": "bfloat16",
}
GLM = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "hidden_size": 6144,
    "num_hidden_layers": 78,
    "vocab_size": 154880,
    "num_attention_heads": 64,
}
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "vocab_size": 128256,
    "num_attention_heads": 64,
}
DRAFT_8B = "hf://RedHatAI/Qwen3-8B-speculator.eagle3"


def machine(*found: Card) -> Machine:
    return Machine("cuda", None, visible_gpus({}, Library(found))[0])


def one(gigabytes: int, **changes: Any) -> Card:
    return cards(1, gigabytes)[0]._replace(**changes)


NONE, SMALL, BIG, EIGHT = machine(), machine(one(24, capability=(8, 9))), machine(one(80)), machine(*cards(8, 141))
MIXED = machine(one(80), one(24, name="NVIDIA L4", uuid="GPU-x"), one(80, uuid="GPU-y"))


def chosen(
    source: str | None = "hf://Qwen/Qwen3-8B",
    config: dict[str, Any] | None = None,
    on: Machine = CPU,
    *,
    stores: tuple[Store, ...] = (STORE,),
    wish: str | None = None,
    says: tuple[Identity, ...] = (),
    **said: Any,
) -> Choice:
    place = source or "/models/own"
    asked = (wish, "NIM_MODEL_PROFILE") if wish else None
    return choose(
        Question(place, source, says, read_config(QWEN3_8B if config is None else config), on, asked, **said), stores
    )


def drafts(choice: Choice) -> list[str | None]:
    return [way.draft for way in choice.ways]


# Machines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "config", "on", "description", "runtime", "derived"),
    [
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, CPU, "vllm-bf16-tp1-pp1-qwen3-8b", {}, None),
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, NONE, "vllm-bf16-tp1-pp1-qwen3-8b", {}, None),
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, SMALL, "vllm-bf16-tp1-pp1-qwen3-8b", {}, None),
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, BIG, "vllm-bf16-tp1-pp1-qwen3-8b", {}, None),
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, EIGHT, "vllm-bf16-tp8-pp1-qwen3-8b", {"tensor_parallel_size": 8}, None),
        ("hf://Qwen/Qwen3-8B", QWEN3_8B, MIXED, "vllm-bf16-tp2-pp1-qwen3-8b", {"tensor_parallel_size": 2}, None),
        # too large for the GPUs that there are: still its profile, and the GPUs' own parallelism
        ("hf://zai-org/GLM-5.2", GLM, SMALL, "vllm-bf16-tp8-pp1-glm-5.2", {}, 1),
        ("hf://zai-org/GLM-5.2-FP8", GLM, EIGHT, "vllm-fp8-tp8-pp1-glm-5.2", {"tensor_parallel_size": 8}, None),
        # nothing is known of it
        ("hf://org/own", QWEN3_8B, CPU, "vllm-bf16-tp1-pp1", {}, None),
        ("hf://org/own", QWEN3_8B, NONE, "vllm-bf16-tp1-pp1", {}, None),
        ("hf://org/own", QWEN3_8B, BIG, "vllm-bf16-tp1-pp1", {}, 1),
        ("hf://org/own", QWEN3_8B, EIGHT, "vllm-bf16-tp8-pp1", {}, 8),
        ("hf://org/own", QWEN3_8B | {"num_attention_heads": 40}, machine(*cards(6, 80)), "vllm-bf16-tp4-pp1", {}, 4),
        ("hf://org/own", {}, machine(*cards(6, 80)), "vllm-bf16-tp4-pp1", {}, 4),
        ("hf://org/own", QWEN3_8B, MIXED, "vllm-bf16-tp2-pp1", {}, 2),
    ],
)
def test_simulated_machines(
    source: str, config: dict[str, Any], on: Machine, description: str, runtime: dict[str, int], derived: int | None
) -> None:
    choice = chosen(source, config, on)
    assert (choice.profile.description, choice.runtime, choice.derived_tp) == (description, runtime, derived)


@pytest.mark.parametrize(
    ("config", "even"),
    [
        ({"num_attention_heads": 40, "num_key_value_heads": 10}, 2),  # 10 heads among 4 do not go
        ({"num_attention_heads": 64, "num_key_value_heads": 4}, 8),  # 8 GPUs hold 4 heads twice
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, 2),
        ({"num_attention_heads": 32, "intermediate_size": 11008}, 8),
        ({"num_attention_heads": 32, "intermediate_size": 1100}, 4),
        # MiniMax-M2: 1536 columns in blocks of 128 are twelve blocks, which eight GPUs cannot share
        (
            {
                "num_attention_heads": 48,
                "intermediate_size": 1536,
                "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
            },
            4,
        ),
        ({}, 8),
    ],
)
def test_layers_are_shared_evenly_or_by_fewer(config: dict[str, Any], even: int) -> None:
    assert fits.shares(8, read_config(config)) == even
    assert [fits.shares(count, read_config({})) for count in (0, 1, 3, 6, 16)] == [1, 1, 2, 4, 16]


def test_heads_that_do_not_divide_choose_a_smaller_share() -> None:
    """24 heads among eight GPUs go; 24 among 16 would not."""
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "num_attention_heads": 20}
    assert chosen("hf://Qwen/Qwen3.5-27B", config, EIGHT).profile.tp == 4


def test_what_the_user_says_of_parallelism_is_left_alone() -> None:
    choice = chosen(on=EIGHT, tp=4)
    assert (choice.profile.tp, choice.derived_tp) == (4, None)
    own = chosen("hf://org/own", on=EIGHT, tp=3)
    assert (own.profile.description, own.derived_tp) == ("vllm-bf16-tp3-pp1", None)
    assert chosen("hf://org/own", on=EIGHT, pp=2, groups=2).derived_tp == 4
    assert chosen("hf://org/own", on=EIGHT, groups=8).derived_tp == 1


@pytest.mark.parametrize(
    ("description", "on", "verdict", "why"),
    [
        ("vllm-bf16-tp1-pp1-qwen3-8b", CPU, fits.RUNS, ""),
        ("vllm-bf16-tp2-pp1-qwen3-8b", CPU, fits.DOES_NOT, "needs 2 GPUs, and this engine runs on the CPU"),
        ("vllm-bf16-tp1-pp1-qwen3-8b", Machine(None), fits.DOES_NOT, "needs a GPU, and there is none here"),
        ("vllm-bf16-tp1-pp1-qwen3-8b", Machine("cuda", unread="no answer"), fits.RUNS, ""),
        ("vllm-bf16-tp1-pp1-qwen3-8b", machine(one(25)), fits.RUNS, ""),
        ("vllm-bf16-tp1-pp1-qwen3-8b", SMALL, fits.LOW_MEMORY, "requires >=25 GB/gpu"),
        ("vllm-bf16-tp2-pp1-qwen3-8b", SMALL, fits.DOES_NOT, "needs 2 GPUs, and there is 1 GPU"),
        ("vllm-bf16-tp4-pp1-qwen3-8b", MIXED, fits.DOES_NOT, "needs 4 GPUs, and there are 2 GPUs of one kind"),
        (
            "vllm-bf16-tp1-pp1-qwen3-32b",
            SMALL,
            fits.DOES_NOT,
            "needs 65.6 GB a GPU for the weights alone, and there are 24 GB",
        ),
        ("vllm-bf16-tp1-pp1-qwen3-32b", machine(one(75)), fits.LOW_MEMORY, "requires >=83 GB/gpu"),
        (
            "vllm-bf16-tp1-pp1-qwen3-32b",
            machine(one(90, free=10 * GB)),
            fits.LOW_MEMORY,
            "requires >=83 GB/gpu, 10 GB are free",
        ),
        ("vllm-bf16-tp1-pp1-qwen3-32b", machine(one(83)), fits.RUNS, ""),
        (
            "vllm-nvfp4-tp1-pp1-qwen3.8-27b",
            BIG,
            fits.DOES_NOT,
            "is made for compute capability 10.0, and NVIDIA H200 has 9.0",
        ),
        ("vllm-nvfp4-tp1-pp1-qwen3.8-27b", machine(one(192, capability=(10, 0))), fits.RUNS, ""),
    ],
)
def test_whether_a_machine_runs_a_profile(description: str, on: Machine, verdict: str, why: str) -> None:
    profile = next(profile for profile in STORE.all() if profile.description == description)
    assert fits.examine(profile, on)[:2] == (verdict, why)


@pytest.mark.parametrize(
    ("description", "on", "why", "instead", "tokens"),
    [
        # 16.4 GB of weights, 147456 bytes a token for 40960 of them: (16.4 + 6.04) / 0.92 is 24.4, and 37 times 1024
        # tokens take 5.59 GB
        (
            "vllm-bf16-tp1-pp1-qwen3-8b",
            SMALL,
            "requires >=25 GB/gpu",
            "try --max-model-len=37888 to reduce to >=24 GB/gpu",
            37888,
        ),
        # 70.6 GB and 163840 bytes a token on each of two; 131072 tokens take 21.5 GB, 17408 take 2.9
        (
            "vllm-bf16-tp2-pp1-llama-3.3-70b-instruct",
            machine(*cards(2, 80)),
            "requires >=101 GB/gpu",
            "try --max-model-len=17408 to reduce to >=80 GB/gpu",
            17408,
        ),
        # latent attention: 61 layers keep 1152 bytes of a token on every GPU, however many there are
        (
            "vllm-fp8-tp8-pp1-deepseek-r1",
            machine(*cards(8, 96)),
            "requires >=106 GB/gpu",
            "try --max-model-len=36864 to reduce to >=96 GB/gpu",
            36864,
        ),
        # every fourth of 64 layers keeps a cache: 65536 bytes a token, 17.2 GB for 262144
        (
            "vllm-bf16-tp1-pp1-qwen3.5-27b",
            machine(one(70)),
            "requires >=80 GB/gpu",
            "try --max-model-len=134144 to reduce to >=70 GB/gpu",
            134144,
        ),
        # the weights fit, but not into the share that vLLM takes unless told
        (
            "vllm-bf16-tp1-pp1-llama-3.3-70b-instruct",
            machine(one(150)),
            "requires >=201 GB/gpu, 150 GB are free",
            "try --gpu-memory-utilization=0.97, or more GPUs",
            None,
        ),
        # what a token takes is not known
        (
            "vllm-mxfp4-tp1-pp1-gpt-oss-120b",
            machine(one(75)),
            "requires >=80 GB/gpu, 75 GB are free",
            "try a smaller --max-model-len, or more GPUs",
            None,
        ),
    ],
)
def test_low_memory_names_the_context_that_fits(
    description: str, on: Machine, why: str, instead: str, tokens: int | None
) -> None:
    profile = next(profile for profile in STORE.all() if profile.description == description)
    assert fits.examine(profile, on) == (fits.LOW_MEMORY, why, instead, tokens)


def test_what_fits_no_number_of_the_gpus_has_the_largest_share() -> None:
    choice = chosen("hf://meta-llama/Llama-3.3-70B-Instruct", LLAMA_70B, machine(*cards(4, 24)))
    assert (choice.profile.tp, choice.derived_tp) == (4, 4)
    assert choice.warnings == (
        "the profile vllm-bf16-tp4-pp1-llama-3.3-70b-instruct does not fit this machine: it needs 35.3 GB a GPU for "
        "the weights alone, and there are 24 GB: share it among more GPUs, or use a smaller precision",
    )


def test_low_memory_is_left_to_the_plan_which_measures_it() -> None:
    assert chosen(on=SMALL).warnings == ()


def test_a_named_profile_in_another_precision_than_the_folder_is_said() -> None:
    says = (Identity("hf://Qwen/Qwen3-8B", "its path in a hub cache"),)
    made = "NIM_MODEL_PROFILE names a profile for fp8, and /models/own is bf16"
    assert chosen(None, says=says, wish="vllm-fp8-tp1-pp1").warnings == (made,)
    assert chosen(None, says=says, wish="vllm-bf16-tp1-pp1").warnings == ()


# Who a model is ------------------------------------------------------------------------------------------------------


def test_the_exact_source_brings_the_published_draft() -> None:
    choice = chosen()
    assert choice.reason == "made for hf://Qwen/Qwen3-8B"
    assert drafts(choice) == [DRAFT_8B] and choice.note == "" and choice.ways[0].tokens == 3
    assert not choice.ways[0].pinned


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/c/hub/models--Qwen--Qwen3-8B/snapshots/abc", "hf://Qwen/Qwen3-8B"),
        ("/c/models--org--a--b/snapshots/abc/sub", "hf://org/a--b"),
        ("/c/models--gpt2/snapshots/abc", None),
        ("/models/Qwen3-8B", None),
    ],
)
def test_a_path_in_a_hub_cache(path: str, source: str | None) -> None:
    found = identity.of_path(path)
    assert (found.source if found else None) == source


CARD = """\
---
license: apache-2.0
base_model:
  - Qwen/Qwen3-8B
{more}---
# {title}
"""


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("", []),
        ("# Qwen3-8B\n", []),
        ("# Qwen/Qwen3-8B\n", [("hf://Qwen/Qwen3-8B", False)]),
        ("---\nmodel_name: Qwen/Qwen3-8B\n---\n", [("hf://Qwen/Qwen3-8B", False)]),
        (CARD.format(more="", title="My tune"), [("hf://Qwen/Qwen3-8B", True)]),
        (
            CARD.format(more="base_model_relation: quantized\n", title="org/tune"),
            [("hf://org/tune", False), ("hf://Qwen/Qwen3-8B", True)],
        ),
        ("---\nbase_model: [a/b, 'c/d']\n", [("hf://a/b", True), ("hf://c/d", True)]),
        # a derivative whose card kept the title, or the name, of its base
        (CARD.format(more="", title="Qwen/Qwen3-8B"), [("hf://Qwen/Qwen3-8B", True)]),
        (CARD.format(more="model_name: qwen/qwen3-8b\n", title="x"), [("hf://Qwen/Qwen3-8B", True)]),
    ],
)
def test_what_a_model_card_says(card: str, said: list[tuple[str, bool]]) -> None:
    assert [(one.source, one.derived) for one in identity.of_card(card)] == said


def test_a_folder_is_what_it_says_it_is() -> None:
    says = (Identity("hf://Qwen/Qwen3-8B", "its path in a hub cache"),)
    choice = chosen(None, says=says)
    assert choice.reason == "/models/own is Qwen/Qwen3-8B, says its path in a hub cache"
    assert drafts(choice) == [DRAFT_8B]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"hidden_size": 5120}, "hidden_size is 5120, not 4096"),
        ({"vocab_size": 152000}, "vocab_size is 152000, not 151936"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "its class is Qwen2ForCausalLM, not Qwen3ForCausalLM"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "it is int4, not bf16"),
    ],
)
def test_what_differs_keeps_the_draft_out_and_is_said(changes: dict[str, Any], what: str) -> None:
    says = (Identity("hf://Qwen/Qwen3-8B", "its model card"),)
    choice = chosen(None, QWEN3_8B | changes, says=says)
    assert choice.ways == ()
    assert what in choice.note and DRAFT_8B in choice.note
    assert "name it as NIM_DRAFT_MODEL_PATH to use it all the same" in choice.note


def test_a_derivative_and_a_sibling_get_no_draft() -> None:
    tune = chosen(
        "hf://org/tune", says=(Identity("hf://Qwen/Qwen3-8B", "its model card: finetune of Qwen/Qwen3-8B", True),)
    )
    assert tune.ways == () and tune.profile.is_generic
    assert tune.note.startswith(f"its model card: finetune of Qwen/Qwen3-8B, whose published draft {DRAFT_8B} was not")
    same_shape = chosen("hf://org/70b", LLAMA_70B)
    assert same_shape.ways == ()
    assert same_shape.reason.endswith("its class and sizes are those of llama-3.1-70b-instruct, llama-3.3-70b-instruct")
    assert same_shape.note.startswith("nothing says that hf://org/70b is the model that hf://RedHatAI/Llama-3.3-70B")
    assert chosen("hf://org/other", {"architectures": ["X"], "hidden_size": 1}).note == ""


# The user's word -----------------------------------------------------------------------------------------------------


def profile_of(description: str) -> str:
    return next(profile.id for profile in STORE.all() if profile.description == description)


FP8 = "vllm-bf16-tp1-pp1-qwen3-8b"


@pytest.mark.parametrize(
    "wish",
    [
        profile_of(FP8),
        FP8,
        "vllm-bf16-tp1-pp1",
        f"{profile_of(FP8)} ({FP8})",
        f"- {profile_of(FP8)} ({FP8}) [requires >=20 GB/gpu]",
        f"{profile_of(FP8)} (vllm-bf16-tp1-pp1)",
        profile_of(FP8).upper(),
    ],
)
def test_id_description_or_both_as_printed(wish: str) -> None:
    choice = chosen(wish=wish)
    assert choice.profile.description == FP8
    assert choice.reason == "NIM_MODEL_PROFILE names it" and drafts(choice) == [DRAFT_8B]


def test_the_user_says_who_a_folder_is() -> None:
    choice = chosen(None, wish=FP8)
    assert drafts(choice) == [DRAFT_8B]
    other = chosen(None, LLAMA_70B, wish=FP8)
    assert other.ways == () and "its class is LlamaForCausalLM, not Qwen3ForCausalLM" in other.note


def test_a_generic_profile_can_be_named() -> None:
    choice = chosen("hf://org/own", on=EIGHT, wish="vllm-bf16-tp2-pp4")
    assert choice.runtime == {"tensor_parallel_size": 2, "pipeline_parallel_size": 4}
    assert choice.profile == generic("bf16", 2, 4) and choice.derived_tp is None


@pytest.mark.parametrize(
    ("wish", "on", "what"),
    [
        (
            "vllm-bf16-tp1-pp1-qwen3-9b",
            CPU,
            "no profile is called vllm-bf16-tp1-pp1-qwen3-9b. The nearest is vllm-bf16-",
        ),
        (
            "vllm-fp4-tp1-pp1",
            CPU,
            "no profile of this model is called vllm-fp4-tp1-pp1. The checkpoint is bf16: its own generic profile is "
            "vllm-bf16-tp1-pp1",
        ),
        ("vllm-bf16-tp1", CPU, "no profile is called vllm-bf16-tp1. The nearest is vllm-bf16-tp"),
        ("0" * 64, CPU, f"no profile has the id {'0' * 64}. The model's own are "),
        ("a b", CPU, "'a b' names no profile. Give one id or description"),
        (
            f"{profile_of(FP8)} (vllm-bf16-tp2-pp1)",
            CPU,
            "is that of vllm-bf16-tp1-pp1-qwen3-8b, not of vllm-bf16-tp2-pp1",
        ),
        ("vllm-bf16-tp8-pp1", BIG, "the profile vllm-bf16-tp8-pp1-qwen3-8b needs 8 GPUs, and there is 1 GPU"),
        ("vllm-bf16-tp2-pp1", CPU, "needs 2 GPUs, and this engine runs on the CPU. Use one with tp1"),
    ],
)
def test_a_wish_that_cannot_be(wish: str, on: Machine, what: str) -> None:
    with pytest.raises(HardwareError) as caught:
        chosen(wish=wish, on=on)
    assert caught.value.code == 9 and what in str(caught.value)
    assert str(caught.value).startswith("NIM_MODEL_PROFILE: ")


def test_a_profile_of_the_same_model_in_another_precision_is_said() -> None:
    choice = chosen(wish="vllm-fp8-tp1-pp1")
    assert choice.profile.description == "vllm-fp8-tp1-pp1-qwen3-8b" and drafts(choice) == [DRAFT_8B]
    made = "names a profile for hf://RedHatAI/Qwen3-8B-FP8-dynamic, and hf://Qwen/Qwen3-8B is served"
    assert choice.warnings == (f"NIM_MODEL_PROFILE {made}",)


def test_another_models_profile_is_taken_and_its_draft_is_not() -> None:
    choice = chosen(wish="vllm-bf16-tp1-pp1-qwen3-32b")
    about = "NIM_MODEL_PROFILE names a profile of qwen3-32b, and hf://Qwen/Qwen3-8B is qwen3-8b"
    assert (choice.ways, choice.note, choice.warnings) == ((), about, (about,))


# The user's folder ---------------------------------------------------------------------------------------------------


def test_the_users_own_profile_wins_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        GOOD.replace("hf://org/tiny]", "hf://Qwen/Qwen3-8B]").replace("    sizes: {hidden_size: 128}\n", "")
    )
    own = from_text(compiling.text_of(compiling.compiled(str(tmp_path))))
    choice = chosen(stores=(own, STORE), config=QWEN3_8B | {"architectures": ["LlamaForCausalLM"]})
    assert choice.reason == f"made for hf://Qwen/Qwen3-8B ({path})"
    assert choice.profile.description == "vllm-bf16-tp1-pp1-tiny-1b"
    assert choice.runtime == {"max_num_seqs": 64} and choice.ways[0].pinned


def test_a_model_and_a_draft_inside_an_image(tmp_path: Path) -> None:
    text = GOOD.replace("hf://org/tiny]", "/models/own]").replace("hf://org/draft", "/models/draft")
    (tmp_path / "own.yaml").write_text(text.replace("0123456789abcdef0123456789abcdef01234567", "null"))
    own = from_text(compiling.text_of(compiling.compiled(str(tmp_path))))
    choice = chosen("/models/own", {"architectures": ["LlamaForCausalLM"]}, stores=(own, STORE))
    assert choice.reason == f"made for /models/own ({tmp_path}/own.yaml)"
    assert drafts(choice) == ["/models/draft"] and choice.ways[0].pinned


def test_without_any_profile_there_is_the_generic_one(tmp_path: Path) -> None:
    assert chosen(stores=()).profile.description == "vllm-bf16-tp1-pp1"
    assert compiled.load("/nowhere/profiles.json") is None
    (tmp_path / "older.json").write_text('[\n{"format": 0, "sources": {}},\n]\n')
    assert compiled.load(str(tmp_path / "older.json")) is None


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"text_config": {"dtype": "float32", "hidden_size": 1}}, "fp32"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8"),
        ({"quantization_config": {"quant_method": "awq"}}, "int4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "mixed"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": {"type": "float", "num_bits": 8}}},
                }
            },
            "fp8",
        ),
    ],
)
def test_precision_of_a_checkpoint(config: dict[str, Any], precision: str) -> None:
    assert identity.precision_of(read_config(config)) == precision


def test_the_ids_of_generic_profiles_are_those_of_their_content() -> None:
    profiles = [generic(name, tp) for name in ("bf16", "fp8", "mixed") for tp in (1, 2, 16)]
    assert [STORE.generic[one.description] for one in profiles] == [one.id for one in profiles]
    assert generic("bf16", 3, 2).id not in STORE.generic.values()
