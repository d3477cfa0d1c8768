"""Runs inside an interpreter of its own: what the real vLLM holds of models, on CPU.

    python memory_probe.py CASES ANSWER

CASES is a JSON file of name -> {"model", "speculative_config", "max_model_len"}.  vLLM is imported once; each model
gets a child of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def parameters(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def probe(case: dict[str, Any], answer: Path) -> None:
    import torch
    from vllm import LLM
    from vllm.model_executor.model_loader import base_loader

    # The CPU build packs matrices anew after loading, and drops them as parameters.
    loaded: list[int] = []
    finish = base_loader.process_weights_after_loading

    def counted(model: Any, *rest: Any) -> Any:
        loaded.append(parameters(model))
        return finish(model, *rest)

    base_loader.process_weights_after_loading = counted
    if hasattr(torch.cpu, "_init_amx"):
        torch.cpu._init_amx()
    engine = LLM(enforce_eager=True, disable_log_stats=True, **case)
    cache = engine.llm_engine.vllm_config.cache_config
    found = {
        "parameters": loaded,
        "blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "tokens": cache.kv_cache_size_tokens,
    }
    answer.write_text(json.dumps(found))


def main(cases: str, answer: str) -> None:
    import vllm.entrypoints.llm  # noqa: F401  # once, for all children

    found = {}
    for name, case in json.loads(Path(cases).read_text()).items():
        single = Path(f"{answer}.{name}")
        child = os.fork()
        if child == 0:
            probe(case, single)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{name}: the child ended with status {status}")
        found[name] = json.loads(single.read_text())
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
