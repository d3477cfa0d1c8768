"""The estimate of memory: known models, shares, what fits, and the advice where it does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher import memory
from launcher.checkpoint import Checkpoint, Head, Portion, Weights, read_config
from launcher.commands import prepare
from launcher.commands.assembly import Prepared
from launcher.machine import Gpu, Machine
from launcher.memory import Demand, Estimate
from launcher.plan import document, to_text
from launcher.speculation.values import DraftReference, Speculation
from launcher.tensors import portions_of, survey
from tests.models import write

GB = 1_000_000_000
OFF = Speculation(False, None, None, None, {}, "", (), {})
H100 = Gpu(0, "NVIDIA H100", "2330:10de", 80 * GB, 79 * GB)
SMALL = Gpu(0, "NVIDIA L4", "27b8:10de", 24 * GB, 23 * GB)
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
LLAMA_70B = {**LLAMA_8B, "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80}
R1 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}
GPT_OSS = {
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 24,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
}
# 16 GB as a Llama of 8 B parameters has them.
SIXTEEN = (
    Portion("embedding", True, False, 1 * GB),
    Portion("layers", False, False, GB // 1000),
    Portion("layers", True, False, 14 * GB),
    Portion("output", True, False, 1 * GB),
)


def checkpoint(
    config: Mapping[str, Any], portions: tuple[Portion, ...] = (), size: int = 0, heads: tuple[Head, ...] = ()
) -> Checkpoint:
    size = size or sum(portion.bytes for portion in portions)
    return Checkpoint("/m", read_config(config), Weights("safetensors", size, 1, heads, (), "", portions), (), False)


def demand(
    target: Checkpoint,
    *gpus: Gpu,
    speculation: Speculation = OFF,
    draft: Checkpoint | None = None,
    device: str | None = "cuda",
    **flags: str,
) -> Demand:
    given = {f"--{name.replace('_', '-')}": (value,) for name, value in flags.items()}
    return Demand(target, draft, speculation, given, Machine(device, None, gpus))


def estimated(target: Checkpoint, *gpus: Gpu, **words: Any) -> Estimate:
    return memory.estimate(demand(target, *gpus, **words))


def speculating(method: str, tokens: int, **config: Any) -> Speculation:
    return Speculation(True, method, tokens, DraftReference("d", "/d", "", True), config, "", (), {})


@pytest.mark.parametrize(
    ("config", "flags", "rate"),
    [
        (LLAMA_8B, {}, 131072),  # the well-known 128 KiB
        (LLAMA_8B, {"kv_cache_dtype": "fp8"}, 65536),
        (LLAMA_8B, {"dtype": "float32"}, 262144),
        (LLAMA_8B, {"tensor_parallel_size": "2"}, 65536),
        (LLAMA_8B, {"tensor_parallel_size": "16"}, 16384),  # a rank has one key head at least
        (LLAMA_8B, {"pipeline_parallel_size": "3"}, 11 * 4096),  # the fullest stage has 11 of 32 layers
        (LLAMA_70B, {"tensor_parallel_size": "4"}, 81920),
        (R1, {}, 61 * 576 * 2),
        (R1, {"tensor_parallel_size": "8"}, 61 * 576 * 2),  # latent rows are not divided
        (GPT_OSS, {}, 24 * 2048),
        ({**LLAMA_8B, "quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, {}, 65536),
        ({**LLAMA_8B, "quantization_config": {"kv_cache_quant_algo": "FP8"}}, {}, 65536),
        ({**LLAMA_8B, "layers_block_type": ["mamba", "attention"] * 16}, {}, 16 * 4096),
        ({**LLAMA_8B, "full_attention_interval": 4}, {}, 8 * 4096),
        ({**LLAMA_8B, "hybrid_override_pattern": "M-*E" * 8}, {}, 8 * 4096),
        ({"text_config": LLAMA_8B}, {}, 131072),
    ],
)
def test_bytes_of_a_token(config: dict[str, Any], flags: dict[str, str], rate: int) -> None:
    assert estimated(checkpoint(config), **flags).kv_bytes_per_token == rate


@pytest.mark.parametrize(
    ("config", "flags", "tokens"),
    [
        (LLAMA_8B, {}, 131072),
        (LLAMA_8B, {"max_model_len": "32k"}, 32000),
        (LLAMA_8B, {"max_model_len": "32K"}, 32768),
        (LLAMA_8B, {"max_model_len": "auto"}, 131072),
        ({**LLAMA_8B, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {}, 262144),
        ({**LLAMA_8B, "rope_scaling": {"type": "yarn", "factor": 4.0}}, {}, 131072),
        ({**LLAMA_8B, "rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 4096}, {}, 4096),
    ],
)
def test_the_length_is_vllms(config: dict[str, Any], flags: dict[str, str], tokens: int) -> None:
    assert estimated(checkpoint(config), **flags).tokens == tokens


def test_a_sliding_layer_keeps_its_window_only() -> None:
    assert estimated(checkpoint(GPT_OSS)).kv_cache == 12 * 2048 * 131072 + 12 * 2048 * 128


def test_what_the_config_does_not_tell_is_unknown() -> None:
    found = estimated(checkpoint({"hidden_size": 8}), H100)
    assert (found.kv_cache, found.kv_bytes_per_token) == (None, None)
    assert any("the size of the KV cache" in text for text in found.unknown)
    states = estimated(checkpoint({**LLAMA_8B, "full_attention_interval": 4}), H100)
    assert states.unknown == ("memory for the states of 24 recurrent layers",)


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        ({}, 16 * GB + GB // 1000),
        ({"tensor_parallel_size": "4"}, 4 * GB + GB // 1000),  # what is not divided counts whole
        ({"pipeline_parallel_size": "2"}, 7 * GB + GB // 2000 + GB),  # half of the layers and one of the ends
        ({"tensor_parallel_size": "2", "pipeline_parallel_size": "2"}, 7 * GB // 2 + GB // 2000 + GB // 2),
    ],
)
def test_weights_of_one_rank(flags: dict[str, str], weights: int) -> None:
    assert estimated(checkpoint(LLAMA_8B, SIXTEEN), **flags).weights == weights


def test_what_vllm_does_not_load_is_not_counted() -> None:
    tied = checkpoint({**LLAMA_8B, "tie_word_embeddings": True}, SIXTEEN)
    assert estimated(tied).weights == 15 * GB + GB // 1000
    headed = checkpoint(LLAMA_8B, (*SIXTEEN, Portion("head", True, False, GB)))
    assert estimated(headed).weights == 16 * GB + GB // 1000
    wide = checkpoint(LLAMA_8B, (Portion("layers", True, True, 32 * GB),))
    assert (estimated(wide).weights, estimated(wide, dtype="float32").weights) == (16 * GB, 32 * GB)


def test_the_portions_of_a_header() -> None:
    def entry(size: int, *shape: int, dtype: str = "BF16") -> dict[str, Any]:
        return {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}

    header = {
        "model.embed_tokens.weight": entry(80, 10, 4),
        "model.layers.0.self_attn.q_proj.weight": entry(32, 4, 4),
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight": entry(16, 2, 4),
        "model.layers.0.mlp.gate.weight": entry(24, 3, 4),
        "model.layers.0.input_layernorm.weight": entry(8, 4),
        "model.layers.1.eh_proj.weight": entry(64, 4, 8),
        "model.layers.0.mlp.gate.e_score_correction_bias": entry(12, 3, dtype="F32"),
        "model.norm.weight": entry(8, 4),
        "lm_head.weight": entry(80, 10, 4),
    }
    found = portions_of([survey(header, 1), survey({"lm_head.bias": entry(20, 10)}, 1)])
    assert found == (
        Portion("embedding", True, False, 80),
        Portion("head", False, False, 64),
        Portion("layers", False, False, 48),
        Portion("layers", False, True, 12),
        Portion("layers", True, False, 32),
        Portion("other", False, False, 8),
        Portion("output", False, False, 20),
        Portion("output", True, False, 80),
    )


# Speculation ----------------------------------------------------------------------------------------------------------


def test_a_draft_has_weights_cache_and_rows_of_logits() -> None:
    draft = checkpoint({**LLAMA_8B, "num_hidden_layers": 1}, (Portion("layers", True, False, 2 * GB),))
    found = estimated(
        checkpoint(LLAMA_8B, SIXTEEN), draft=draft, speculation=speculating("eagle3", 3), max_num_seqs="64"
    )
    assert found.draft_weights == 2 * GB
    assert found.kv_bytes_per_token == 33 * 4096
    assert found.speculation == 64 * 3 * 128256 * 4
    halved = estimated(
        checkpoint(LLAMA_8B, SIXTEEN), draft=draft, speculation=speculating("eagle3", 3), tensor_parallel_size="2"
    )
    assert (halved.draft_weights, halved.kv_bytes_per_token) == (GB, 33 * 2048)
    alone = speculating("eagle3", 3, draft_tensor_parallel_size=1)
    whole = estimated(checkpoint(LLAMA_8B), draft=draft, speculation=alone, tensor_parallel_size="2")
    assert (whole.draft_weights, whole.kv_bytes_per_token) == (2 * GB, 32 * 2048 + 4096)


def test_a_head_of_the_targets_own() -> None:
    target = checkpoint(R1, (Portion("head", True, False, 3 * GB),), heads=(Head("mtp", 9, "x", "BF16", (0,)),))
    found = estimated(target, speculation=speculating("mtp", 2))
    assert (found.weights, found.draft_weights, found.kv_bytes_per_token) == (0, 3 * GB, 62 * 1152)
    off = estimated(target)
    assert (off.draft_weights, off.kv_bytes_per_token, off.speculation) == (0, 61 * 1152, 0)


def test_ngram_costs_logits_alone() -> None:
    found = estimated(checkpoint(LLAMA_8B, SIXTEEN), speculation=speculating("ngram", 3))
    assert (found.draft_weights, found.kv_bytes_per_token) == (0, 131072)
    assert found.speculation == 256 * 3 * 128256 * 4


# What fits ------------------------------------------------------------------------------------------------------------


def test_what_is_to_be_had() -> None:
    """What is free, but not above vLLM's share; of several GPUs the tightest."""
    target = checkpoint(LLAMA_8B, SIXTEEN)
    assert estimated(target, H100).available == int(80 * GB * 0.92)
    assert estimated(target, H100, gpu_memory_utilization="0.5").available == 40 * GB
    busy = H100._replace(memory_free=10 * GB, name="busy")
    assert estimated(target, H100, busy, tensor_parallel_size="2").gpu == "busy"
    assert estimated(target, H100, busy).gpu == "NVIDIA H100"


def test_a_gpu_in_use_is_one_that_vllm_does_not_start_on() -> None:
    target = checkpoint(LLAMA_8B, SIXTEEN)
    busy = H100._replace(memory_free=60 * GB + 5)
    assert memory.occupied(demand(target, busy)) == (
        "60.0 GB of NVIDIA H100 are free, and vLLM does not start with less than 73.6 GB (0.92 of it): end what else "
        "uses the GPU, or set --gpu-memory-utilization 0.75"
    )
    assert memory.occupied(demand(target, busy, gpu_memory_utilization="0.75")) is None
    assert memory.occupied(demand(target, H100, busy)) is None  # the second is not used
    assert "60.0 GB of NVIDIA H100" in str(memory.occupied(demand(target, H100, busy, tensor_parallel_size="2")))
    full = memory.occupied(demand(target, H100._replace(memory_free=0)))
    assert full is not None and full.endswith("end what else uses the GPU")
    assert memory.occupied(demand(target, H100)) is None


@pytest.mark.parametrize(
    ("device", "unread", "reason"),
    [
        ("cpu", "", "this vLLM runs on the processor"),
        ("cuda", "the driver sleeps", "into GPU memory: its GPUs cannot be read"),
        (None, "", "no GPU is to be seen here"),
    ],
)
def test_where_no_gpu_is_known_nothing_is_refused(device: str | None, unread: str, reason: str) -> None:
    asked = Demand(checkpoint(LLAMA_8B, SIXTEEN), None, OFF, {}, Machine(device, None, (), unread))
    found = memory.estimate(asked)
    assert (found.available, found.gpu, found.fits, found.advice) == (None, None, None, ())
    assert len(found.unknown) == 1 and reason in found.unknown[0]
    assert (memory.check(asked, found), memory.warning(found)) == (None, None)


def test_what_fits_says_nothing() -> None:
    asked = demand(checkpoint(LLAMA_8B, SIXTEEN), H100)
    found = memory.estimate(asked)
    assert (found.fits, found.advice) == (True, ())
    assert (memory.check(asked, found), memory.warning(found)) == (None, None)


def test_a_cache_that_is_too_long_is_a_warning_with_the_two_best_settings() -> None:
    asked = demand(checkpoint(LLAMA_8B, SIXTEEN), SMALL)
    found = memory.estimate(asked)
    assert memory.check(asked, found) is None
    # 22.08 GB, less 16.001 GB of weights, hold 46,383 tokens of 128 KiB: 45 times 1024.
    assert found.advice == ("--max-model-len 46080", "--kv-cache-dtype fp8")
    said = memory.warning(found)
    assert said == (
        "each GPU needs about 33.2 GB (weights 16.0 GB, KV cache 17.2 GB for 131072 tokens), and 22.1 GB of NVIDIA L4 "
        "are to be had: try --max-model-len 46080 or --kv-cache-dtype fp8"
    )
    assert memory.estimate(demand(checkpoint(LLAMA_8B, SIXTEEN), SMALL, max_model_len="46080")).fits is True
    assert memory.estimate(demand(checkpoint(LLAMA_8B, SIXTEEN), SMALL, max_model_len="47104")).fits is False


def test_more_gpus_and_less_speculation_are_advice_too() -> None:
    tight = checkpoint(LLAMA_8B, (Portion("layers", True, False, 21 * GB),))
    found = estimated(tight, SMALL, SMALL)
    assert found.advice == ("--tensor-parallel-size 2", "--max-model-len 8192")
    drafted = estimated(
        tight,
        SMALL,
        speculation=speculating("eagle3", 3),
        draft=checkpoint({**LLAMA_8B, "num_hidden_layers": 1}, (Portion("layers", True, False, 9 * GB),)),
        max_model_len="2048",
        kv_cache_dtype="fp8",
    )
    assert drafted.advice == ("--speculative-config none", "--gpu-memory-utilization 0.97")


def test_weights_that_cannot_fit_are_refused_with_the_size_that_would() -> None:
    heavy = checkpoint(LLAMA_70B, (Portion("layers", True, False, 140 * GB),))
    asked = demand(heavy, H100)
    refused = memory.check(asked, memory.estimate(asked))
    assert refused is not None and refused.error is not None
    assert (refused.name, refused.error.code) == ("memory", 9)
    assert str(refused.error) == (
        "the weights of /m take at least 140.0 GB, and 73.6 GB of NVIDIA H100 are to be had. Share them with "
        "--tensor-parallel-size 2, or use a smaller or quantised checkpoint."
    )
    tripled = demand(
        checkpoint(LLAMA_70B, (Portion("layers", True, False, 420 * GB),)), *[H100] * 2, tensor_parallel_size="2"
    )
    told = memory.check(tripled, memory.estimate(tripled))
    assert told is not None and told.message.startswith(
        "the weights of /m take at least 210.0 GB on each of 2 GPUs, and"
    )
    assert told.error is not None and "--tensor-parallel-size 8" in told.error.todo
    nearly = demand(checkpoint(LLAMA_70B, (Portion("layers", True, False, 75 * GB),)), H100)
    close = memory.check(nearly, memory.estimate(nearly))  # 0.92 of 80 GB is too little, 0.97 is enough
    assert close is not None and close.error is not None
    assert close.error.todo == (
        "Give vLLM more of the GPU with --gpu-memory-utilization 0.97, or share them with --tensor-parallel-size 2, or "
        "use a smaller or quantised checkpoint"
    )
    spread = demand(heavy, H100, H100, tensor_parallel_size="2")
    assert memory.check(spread, memory.estimate(spread)) is None


@pytest.mark.parametrize("flag", ["cpu_offload_gb", "quantization", "hf_overrides", "kv_cache_memory_bytes"])
def test_nothing_is_refused_where_the_weights_may_be_others(flag: str) -> None:
    asked = demand(checkpoint(LLAMA_70B, (Portion("layers", True, False, 140 * GB),)), H100)
    asked = asked._replace(flags={f"--{flag.replace('_', '-')}": ("1",)})
    assert memory.check(asked, memory.estimate(asked)) is None


def test_sizes_of_files_serve_for_a_bound_with_some_room() -> None:
    """Files may hold a head that is not loaded, so a tenth is taken off before anything is refused."""
    files = checkpoint(LLAMA_70B, size=80 * GB)
    assert memory.estimate(demand(files)).weights == 80 * GB
    asked = demand(files, H100)
    assert memory.check(asked, memory.estimate(asked)) is None
    heavy = demand(checkpoint(LLAMA_70B, size=90 * GB), H100)
    assert memory.check(heavy, memory.estimate(heavy)) is not None


def test_experts_over_data_parallel_ranks_lower_the_bound() -> None:
    heavy = checkpoint(R1, (Portion("layers", True, False, 140 * GB),))
    asked = demand(heavy, H100, H100, data_parallel_size="2", enable_expert_parallel="true")
    assert memory.check(asked, memory.estimate(asked)) is None


# In a plan ------------------------------------------------------------------------------------------------------------


def planned(folder: Path, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, *words: str) -> Prepared:
    """A plan of the embedded target on a machine with one such GPU."""
    model = write("plain", folder / "model")
    monkeypatch.setattr(prepare, "_machine", lambda engine, environ: Machine("cuda", None, (gpu,)))
    environ = {**os.environ, "NIM_CACHE_PATH": str(folder / "cache"), "NIM_WORKSPACE": str(folder / "workspace")}
    return prepare.prepare([str(model), *words], environ)


def test_a_plan_tells_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path, H100, monkeypatch, "--max-model-len", "512").plan
    shown = document(plan)["memory"]
    assert (plan.error, shown["fits"], shown["gpu"], shown["tokens"]) == (None, True, "NVIDIA H100", 512)
    assert shown["weights"] == 533888  # the tensors of model.safetensors, its header left out
    assert shown["total"] == 533888 + 512 * 5 * 512
    assert shown["available"] == int(80 * GB * 0.92)
    line = "weights 533.9 kB, KV cache 1.3 MB for 512 tokens (2.6 kB a token): 1.8 MB; NVIDIA H100 has 73.6 GB"
    assert f"memory       {line}\n" in to_text(plan)


def test_a_plan_that_cannot_fit_is_refused_with_code_nine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Gpu(0, "a tiny GPU", "0:0", 500_000, 500_000)
    plan = planned(tmp_path, tiny, monkeypatch).plan
    assert plan.error is not None and plan.error.code == 9
    assert document(plan)["checks"][-1]["name"] == "memory"


def test_a_plan_that_is_tight_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Gpu(0, "a small GPU", "0:0", 4_000_000, 4_000_000)
    plan = planned(tmp_path, small, monkeypatch).plan
    assert plan.error is None
    assert [text for text in plan.warnings if "--max-model-len 1024" in text]


@pytest.mark.parametrize(
    "odd",
    [
        {"num_hidden_layers": 0},
        {"num_attention_heads": 0, "num_key_value_heads": None},
        {"num_key_value_heads": [8, 4]},
        {"head_dim": "128"},
        {"layer_types": 3},
        {"layer_types": [None, {}]},
        {"sliding_window": [1], "use_sliding_window": "yes"},
        {"rope_scaling": {"type": "linear", "factor": "two"}},
        {"rope_scaling": {"type": "dynamic", "factor": float("inf")}},
        {"rope_scaling": [], "max_position_embeddings": None},
        {"quantization_config": []},
        {"full_attention_interval": -1},
        {"kv_lora_rank": "512", "qk_rope_head_dim": 64},
    ],
)
def test_odd_configurations_end_in_an_estimate_all_the_same(odd: dict[str, Any]) -> None:
    for flags in ({}, {"gpu_memory_utilization": "nan"}, {"kv_cache_dtype": "nvfp4"}, {"max_model_len": "-1"}):
        found = estimated(checkpoint({**LLAMA_8B, **odd}, SIXTEEN), SMALL, **flags)
        assert found.total >= 16 * GB
