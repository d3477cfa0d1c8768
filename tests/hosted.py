"""The examples of a hosted service's page on speculative decoding, as its users have them in their deployments."""

from __future__ import annotations

DRAFT = "/tmp/model/speculator/tuned"

MTP = {"speculative-config.method": "mtp", "speculative-config.num_speculative_tokens": "5"}
EAGLE3 = {
    "speculative-config.method": "eagle3",
    "speculative-config.model": DRAFT,
    "speculative-config.num_speculative_tokens": "3",
    "speculative-config.draft_tensor_parallel_size": "1",
}
NGRAM = {"speculative-config.method": "ngram", "speculative-config.num_speculative_tokens": "5"}
WINDOW = {**NGRAM, "speculative-config.prompt_lookup_min": "3", "speculative-config.prompt_lookup_max": "5"}
WHOLE = {"speculative-config": f'{{"method": "eagle3", "model": "{DRAFT}", "num_speculative_tokens": 3}}'}
