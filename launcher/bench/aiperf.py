"""AIPerf as the client: its command, its environment, and what it says when it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from shutil import which

from launcher.bench.client import Pace, Target
from launcher.bench.processes import ended, starting
from launcher.bench.traffic import Traffic
from launcher.errors import ConfigurationError, NotFoundError
from launcher.typing import NamedTuple

# With these, AIPerf takes a tokenizer's folder for the name of a repository and refuses it.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_LOG = "aiperf.log"


class AIPerf(NamedTuple):
    executable: str
    version: str
    tokenizer: str | None  # a folder, or a name; None: AIPerf asks the hub for the served name


def find(named: str | None, tokenizer: str | None, environ: Mapping[str, str]) -> AIPerf | None:
    """The AIPerf that was named, else the one on PATH.  Raises NotFoundError for a named one that does not run."""
    executable = named or which("aiperf", path=environ.get("PATH"))
    if executable is None:
        return None
    try:
        done = subprocess.run([executable, "--version"], env=dict(environ), capture_output=True, text=True, timeout=120)
        version = done.stdout.split()[-1] if done.returncode == 0 and done.stdout.split() else None
    except (OSError, subprocess.TimeoutExpired):
        version = None
    if version is None:
        if named:
            raise NotFoundError(f"--aiperf: {named} does not run", "Give the path of the program aiperf")
        return None
    return AIPerf(executable, version, tokenizer)


def command(aiperf: AIPerf, traffic: Traffic, target: Target, pace: Pace, metrics: str, folder: str) -> list[str]:
    """The words that measure ``traffic``; ``metrics`` is the URL of the server's metrics page."""
    words = [
        aiperf.executable, "profile",
        "--model", target.model,
        "--endpoint-type", _endpoint(traffic), "--streaming",
        "--url", target.url,
        "--custom-dataset-type", _dataset(traffic),
        "--input-file", traffic.file,
        "--server-metrics", metrics,
        "--output-artifact-dir", folder,
        "--ui", "none",
    ]  # fmt: skip
    if not traffic.is_timed:
        words += ["--concurrency", str(pace.concurrency)]
    if traffic.is_recorded:
        words += [] if traffic.is_timed else ["--request-count", str(len(traffic.requests))]
        words += ["--no-fixed-schedule"] if traffic.times_ignored else []
    else:
        words += ["--num-conversations", str(len(traffic.requests)), "--osl", str(pace.max_tokens)]
        words += ["--extra-inputs", f"temperature:{pace.temperature:g}"]
    return words if aiperf.tokenizer is None else [*words, "--tokenizer", aiperf.tokenizer]


def environment(aiperf: AIPerf, environ: Mapping[str, str]) -> dict[str, str]:
    """Without what breaks a tokenizer's folder, and without our credentials, of which it needs none."""
    folder = aiperf.tokenizer is not None and os.path.isdir(aiperf.tokenizer)
    return {name: value for name, value in environ.items()
            if not (folder and name in _OFFLINE) and not name.startswith(("VLLM_API_KEY", "NGC_", "AWS_"))}  # fmt: skip


def measure(
    aiperf: AIPerf, traffic: Traffic, target: Target, pace: Pace, metrics: str, folder: str, patience: float
) -> None:
    """Leave AIPerf's artifacts in ``folder``.  Raises ConfigurationError with AIPerf's last words when it fails."""
    os.makedirs(folder)
    log = f"{folder}/{_LOG}"
    words = command(aiperf, traffic, target, pace, metrics, folder)
    with starting(words, environment(aiperf, target.environ), log) as process:
        code = ended(process, patience)
    if code is None:
        raise ConfigurationError(f"AIPerf was not done after {patience:.0f} s", f"See {log}, or raise --timeout")
    if code != 0:
        raise ConfigurationError(f"AIPerf ended with {code}: {_last_error(log)}", f"See {log}")


def _endpoint(traffic: Traffic) -> str:
    return "completions" if traffic.is_recorded and "prompt" in _first_payload(traffic) else "chat"


def _dataset(traffic: Traffic) -> str:
    if not traffic.is_recorded:
        return f"speed_bench_{traffic.name}"
    with open(traffic.file, encoding="utf-8") as lines:
        first = next((line for line in lines if line.strip()), "")
    return "mooncake_trace" if '"payload"' in first else "raw_payload"


def _first_payload(traffic: Traffic) -> Mapping[str, object]:
    return getattr(traffic.requests[0], "payload", {})


def _last_error(log: str) -> str:
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if " ERROR " in line or line.startswith("Error")]
    return (errors or lines or ["it said nothing"])[-1][:300]
