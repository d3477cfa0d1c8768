"""A Prometheus of the test's own: it scrapes the given servers each second and answers queries."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.engine.server import die_with_parent
from tests.missing import missing
from tools.install_measuring_tools import PROMETHEUS

CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
"""
JOB = "  - {{job_name: {job}, metrics_path: /v1/metrics, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"


class Prometheus(NamedTuple):
    url: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series, now."""
        with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': expression})}", timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
        assert document["status"] == "success", document
        return [(item["metric"], float(item["value"][1])) for item in document["data"]["result"]]


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, int], rules: Path) -> Iterator[Prometheus]:
    """``jobs`` are names and ports of servers on this machine."""
    program = PROMETHEUS / "prometheus"
    if not program.exists():
        missing("run tools/install_measuring_tools.py prometheus")
    targets = "".join(JOB.format(job=job, port=port) for job, port in jobs.items())
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(rules=rules) + targets)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{cast('int', probe.getsockname()[1])}"
    words = [
        str(program),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=die_with_parent)
    try:
        server = Prometheus(f"http://{address}")
        _wait(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.terminate()
        process.wait(20)


def _wait(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        assert process.poll() is None, log.read_text()
        try:
            if server.query("up"):
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus has scraped nothing:\n{log.read_text()}")
