"""Condense published config.json files into the small table that tests/unit/test_real_configurations.py reads.

    python tools/make_configurations.py TARGETS DRAFTS

Each argument is a folder of files named after their model (``org--name.json``).  Of each, only what the launcher's
functions look at is kept: names, sizes, head and draft fields, and whether it is quantised.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent.parent / "tests/unit/data/configurations.json"

_KEPT = frozenset(
    {
        # who it is
        *("architectures", "model_type", "speculators_model_type", "method", "auto_map"),
        # sizes
        *("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        *("n_embd", "d_model", "n_layer", "num_layers", "n_head", "n_positions", "index_topk"),
        # heads
        *("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "use_mtp"),
        *("mtp_hybrid_override_pattern", "mtp_layers_block_type", "block_size", "dspark_block_size"),
        # drafts
        *("draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"),
        *("num_aux_hidden_states", "num_aux_layers", "target_layer_ids", "num_target_layers", "mask_token_id"),
        *("dspark_target_layer_ids", "dspark_noise_token_id", "pard_token", "ptd_token_id", "markov_rank"),
        *("medusa_num_heads", "norm_before_fc", "fc_norm", "norm_output"),
    }
)
_SECTIONS = frozenset(
    {
        *("text_config", "llm_config", "language_config", "thinker_config", "transformer_layer_config", "model"),
        *("mtp_config", "eagle_config", "speculators_config", "verifier", "decoder"),
    }
)
_WHOLE = frozenset({"dflash_config", "eagle_config", "mtp_config"})
_LAYER_PATTERNS = frozenset({"layers_block_type", "hybrid_override_pattern"})


def condensed(document: dict[str, Any]) -> dict[str, Any]:
    """The facts of one configuration, in the order of the original."""
    facts: dict[str, Any] = {}
    for key, value in document.items():
        if key in _WHOLE or (key in _KEPT and value is not None):
            facts[key] = value
        elif key in _SECTIONS and isinstance(value, dict):
            facts[key] = condensed(value)
        elif key in _LAYER_PATTERNS and value:
            facts[key] = "".join(str(layer)[0] for layer in value)  # its length is the fact
        elif key == "quantization_config" and isinstance(value, dict):
            facts[key] = {name: value[name] for name in ("quant_method", "quant_algo") if name in value}
    return facts


def table(folder: Path) -> dict[str, dict[str, Any]]:
    return {file.stem: condensed(json.loads(file.read_text("utf-8"))) for file in sorted(folder.glob("*.json"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", type=Path)
    parser.add_argument("drafts", type=Path)
    arguments = parser.parse_args()
    groups = {"targets": table(arguments.targets), "drafts": table(arguments.drafts)}
    lines = [
        f'"{group}": {{\n' + ",\n".join(f'"{name}": {json.dumps(facts)}' for name, facts in rows.items()) + "\n}"
        for group, rows in groups.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
