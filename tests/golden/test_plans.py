"""Whole plans, compared with committed ones: whatever changes in a launch shows as a difference here.

``LAUNCHER_GOLDEN=write`` writes the committed plans anew; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import hosted
from tests.integration.standin import Installation, install
from tests.models import NAMES, write

SHARED = "/dev/shm"
PLANS = Path(__file__).parent / "plans"


class Case(NamedTuple):
    """A launch; ``{models}`` in a word or value stands for the folder of embedded checkpoints."""

    words: tuple[str, ...]
    environ: dict[str, str]
    version: str = "0.32.0+cpu"
    code: int = 0
    dynamo: str | None = None  # the version of ai-dynamo beside vLLM


def speculative(**keys: object) -> tuple[str, str]:
    return ("--speculative-config", json.dumps(keys))


def hosted_on_dynamo(config: dict[str, str]) -> dict[str, str]:
    return {"NIM_ENGINE": "dynamo-vllm", "NIM_ENGINE_CONFIG": json.dumps(config)}


# The page's own draft path names no folder of these models: these name the draft that NIM_DRAFT_MODEL_PATH holds.
NAMED = {**hosted.EAGLE3, "speculative-config.model": "{models}/eagle3"}
WHOLE = {"speculative-config": hosted.WHOLE["speculative-config"].replace(hosted.DRAFT, "tuned")}

CASES = {
    "automatic-mtp": Case(("{models}/mtp",), {"NIM_SPECDEC_ENABLE": "1"}),
    "automatic-ngram": Case(("{models}/mtp-stripped",), {"NIM_SPECDEC_ENABLE": "1"}),
    "off": Case(("{models}/mtp",), {}),
    "off-with-its-metrics": Case(("{models}/mtp", "--per-request-spec-decode-metrics", "summary"), {}),
    "own-draft": Case(
        ("{models}/plain", *speculative(method="eagle3", model="eagle3_draft", num_speculative_tokens=3)),
        {"NIM_DRAFT_MODEL_PATH": "{models}/eagle3"},
    ),
    "draft-decides": Case(
        ("{models}/plain",), {"NIM_SPECDEC_ENABLE": "1", "NIM_DRAFT_MODEL_PATH": "{models}/eagle3-speculators"}
    ),
    "dspark": Case(("{models}/plain", *speculative(method="dspark", model="{models}/dspark")), {}, "0.32.0"),
    "dspark-on-cpu": Case(("{models}/plain", *speculative(method="dspark", model="{models}/dspark")), {}, code=9),
    "dflash": Case(("{models}/plain", *speculative(method="dflash", model="{models}/dflash")), {}),
    "medusa-in-0.33": Case(("{models}/plain", *speculative(method="medusa", model="{models}/medusa")), {}, "0.33.0", 2),
    "unfit-draft": Case(("{models}/plain", *speculative(method="eagle3", model="{models}/eagle3-vocab")), {}, code=8),
    "unfit-draft-with-fallback": Case(
        ("{models}/plain", *speculative(method="eagle3", model="{models}/eagle3-vocab")),
        {"NIM_SPECDEC_POLICY": "fallback"},
    ),
    "stripped-head-asked-for": Case(("{models}/mtp-stripped-quantized", *speculative(method="mtp")), {}, code=8),
    "leader-of-two": Case(
        ("{models}/plain",),
        {
            "NIM_NUM_COMPUTE_NODES": "2",
            "NIM_LEADER_ROLE": "1",
            "NIM_NODE_RANK": "0",
            "NIM_LEADER_IP_ADDRESS": "10.0.0.1",
            "NIM_TENSOR_PARALLEL_SIZE": "8",
            "NIM_PIPELINE_PARALLEL_SIZE": "2",
            "NIM_SERVER_PORT": "8123",
            "NIM_HTTP_API_PORT": "8123",
        },
        "0.32.0",
    ),
    # As NVIDIA's operator starts a worker: its own variables, and LeaderWorkerSet's.
    "worker-of-two": Case(
        ("{models}/mtp", "--master-port", "29600"),
        {
            "NIM_SPECDEC_ENABLE": "1",
            "NIM_NUM_COMPUTE_NODES": "2",
            "NIM_LEADER_ROLE": "0",
            "NIM_NODE_RANK": "1",
            "NIM_MULTI_NODE": "1",
            "NIM_TENSOR_PARALLEL_SIZE": "8",
            "NIM_PIPELINE_PARALLEL_SIZE": "2",
            "NIM_SERVER_PORT": "8123",
            "NIM_HTTP_API_PORT": "8123",
            "LWS_GROUP_SIZE": "2",
            "LWS_WORKER_INDEX": "1",
            "LWS_LEADER_ADDRESS": "llm-0.llm.default",
        },
        "0.32.0",
    ),
    "stages-refuse-a-draft": Case(
        ("{models}/mtp-stripped", *speculative(method="eagle3", model="{models}/eagle3-mla")),
        {
            "LWS_GROUP_SIZE": "2",
            "LWS_WORKER_INDEX": "0",
            "LWS_LEADER_ADDRESS": "llm-0.llm.default",
            "NIM_PIPELINE_PARALLEL_SIZE": "2",
        },
        "0.32.0",
        8,
    ),
    "many-levels": Case(
        ("{models}/mtp", "--max_num_seqs=8", "-sc.num_speculative_tokens", "2", "--hf-overrides.a.b", "1"),
        {
            "NIM_SPECDEC_ENABLE": "1",
            "NIM_SPECDEC_ARGS": '{"speculative_config": {"method": "deepseek_mtp"}, "max_num_seqs": 64, "seed": 7}',
            "NIM_PASSTHROUGH_ARGS": '--seed 3 --no-enable-prefix-caching --hf-overrides \'{"a": {"c": 2}}\'',
            "NIM_MAX_MODEL_LEN": "512",
            "NIM_SERVED_MODEL_NAME": "one,two",
            "NIM_HTTP_API_PORT": "9000",
        },
    ),
    "dynamo-mtp": Case(("{models}/mtp",), hosted_on_dynamo(hosted.MTP), "0.31.0", dynamo="1.6.1"),
    "dynamo-eagle3": Case(("{models}/plain",), hosted_on_dynamo(NAMED), "0.31.0", dynamo="1.6.1"),
    "dynamo-ngram": Case(("{models}/plain",), hosted_on_dynamo(hosted.NGRAM), "0.31.0", dynamo="1.6.1"),
    "dynamo-whole": Case(
        ("{models}/plain",),
        {**hosted_on_dynamo(WHOLE), "NIM_DRAFT_MODEL_PATH": "{models}/eagle3"},
        "0.31.0",
        dynamo="1.6.1",
    ),
    "dynamo-window": Case(("{models}/plain",), hosted_on_dynamo(hosted.WINDOW), "0.31.0", 2, "1.6.1"),
    "dynamo-server-flags": Case(
        ("{models}/plain", "--port=9000", "--max-num-seqs=8", "-tp", "2", "--enable-log-requests"),
        {
            "NIM_ENGINE": "dynamo-vllm",
            "NIM_SPECDEC_ENABLE": "1",
            "NIM_PASSTHROUGH_ARGS": "--tool-call-parser hermes --hf-overrides.a.b 1",
            "VLLM_API_KEY": "planted",
        },
        "0.31.0",
        dynamo="1.6.1",
    ),
    "dynamo-not-installed": Case(("{models}/mtp",), hosted_on_dynamo(hosted.MTP), "0.31.0"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        write(name, folder / name)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str, models: Path, tmp_path: Path) -> None:
    case = CASES[name]
    installation = install(tmp_path / "venv", case.version, dynamo=case.dynamo)
    words = [word.replace("{models}", str(models)) for word in case.words]
    environ = {key: value.replace("{models}", str(models)) for key, value in case.environ.items()}
    ran = installation.run("plan", "--json", *words, **environ)
    assert ran.code == case.code, ran.err
    found = neutral(ran.out, installation, models)
    committed = PLANS / f"{name}.json"
    if os.environ.get("LAUNCHER_GOLDEN") == "write":
        committed.write_text(found, encoding="utf-8")
    assert found == committed.read_text(encoding="utf-8")


def neutral(text: str, installation: Installation, models: Path) -> str:
    """The plan without what differs from machine to machine: paths, shared memory, what a build knows of its device."""
    plan = json.loads(text)
    if any(SHARED in warning for warning in plan["warnings"]):
        plan["warnings"] = [warning for warning in plan["warnings"] if SHARED not in warning]
        text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    if not plan.get("vllm", {}).get("version", "cpu").endswith("cpu"):
        del plan["unknown"]
        text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    return text.replace(str(models), "/models").replace(str(installation.folder), "/venv")
