"""NIM_ENGINE=dynamo-vllm: the worker is executed with the plan, or its absence said in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from tests import hosted
from tests.integration.standin import Installation, install


def test_the_worker_is_executed(models: Path, tmp_path: Path) -> None:
    there = install(tmp_path / "venv", "0.31.0", dynamo="1.6.1")
    words = (str(models / "mtp"), "--port=9000")
    environ = {"NIM_ENGINE": "dynamo-vllm", "NIM_ENGINE_CONFIG": json.dumps(hosted.MTP)}
    ran = there.run("serve", *words, **environ)
    assert ran.code == 0, ran.err
    # Python replaces "-m dynamo.vllm" by the path of the module that it ran.
    assert ran.argv[0].endswith("site-packages/dynamo/vllm/__main__.py")
    assert ran.argv[1:] == [
        "--model",
        str(there.folder / "workspace"),
        "--served-model-name",
        "mtp",
        "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":5}',
    ]
    assert "leaves out --port (command line): set these on Dynamo's frontend" in ran.err
    assert ran.record is not None and ran.record["environ"]["HF_HUB_OFFLINE"] == "1"
    plan = json.loads(there.run("plan", "--json", *words, **environ).out)
    assert plan["vllm"] == {
        "version": "0.31.0",
        "installed": True,
        "worker": {"package": "ai-dynamo", "version": "1.6.1"},
    }
    assert plan["argv"] == [str(there.python), "-m", "dynamo.vllm", *ran.argv[1:]]
    assert "0.31.0, in the worker of ai-dynamo 1.6.1" in there.run("plan", *words, **environ).out


def test_without_the_package_it_is_one_sentence(launcher: Installation, models: Path) -> None:
    ran = launcher.run("serve", str(models / "mtp"), NIM_ENGINE="Dynamo-vLLM")
    assert (ran.code, ran.record) == (2, None)
    assert "NIM_ENGINE is dynamo-vllm, and ai-dynamo is not installed for" in ran.last_line
    assert "pip install 'ai-dynamo[vllm]'" in ran.last_line
    planned = launcher.run("plan", "--json", str(models / "mtp"), NIM_ENGINE="dynamo-vllm")
    assert planned.code == 0
    assert "ai-dynamo is not installed here: checked against its version 1.6.1" in json.loads(planned.out)["unknown"]


def test_another_version_of_worker_or_vllm_warns(models: Path, tmp_path: Path) -> None:
    there = install(tmp_path / "venv", "0.32.0+cpu", dynamo="1.7.0")
    warnings = json.loads(there.run("plan", "--json", str(models / "mtp"), NIM_ENGINE="dynamo-vllm").out)["warnings"]
    assert warnings[0].startswith("ai-dynamo 1.7.0 is not the one that this launcher knows")
    there = install(tmp_path / "other", "0.32.0+cpu", dynamo="1.6.1")
    warnings = json.loads(there.run("plan", "--json", str(models / "mtp"), NIM_ENGINE="dynamo-vllm").out)["warnings"]
    assert warnings[0] == "ai-dynamo 1.6.1 asks for vLLM 0.31.0, and 0.32.0+cpu is here"
