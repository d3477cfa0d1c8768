"""One method under examination, with all that a check may look at."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.checkpoint import Checkpoint
from launcher.machine import Machine
from launcher.speculation.values import Request
from launcher.typing import Any, NamedTuple
from launcher.vllm.tables import EngineTable

# vLLM's suffixes for counts: lower case decimal, upper case binary.
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


class Case(NamedTuple):
    """``config`` is complete: method, token count and every key that vLLM will get, less the draft's path."""

    method: str
    config: Mapping[str, Any]
    target: Checkpoint
    draft: Checkpoint | None
    named: bool  # somebody named the draft (True where there is none)
    request: Request
    table: EngineTable
    machine: Machine

    @property
    def tokens(self) -> int:
        return int(self.config["num_speculative_tokens"])

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor of the engine's table."""
        return self.table.release

    @property
    def runner(self) -> int | None:
        """The model runner that vLLM takes, 1 or 2; None where the device decides and is not known."""
        if self.machine.device == "cpu":
            return 1
        if self.request.model_runner is not None:
            return self.request.model_runner
        if not self.runs_on_v2:
            return 1
        return 2 if self.machine.device == "cuda" else None

    @property
    def runs_on_v2(self) -> bool:
        """Whether model runner V2 of this version has the method with these keys."""
        if self.config.get("parallel_drafting") and self.method not in ("dflash", "dspark"):
            return False
        if self.config.get("use_heterogeneous_vocab") and self.version >= (0, 32):
            return False
        return self.method in self.table.v2_methods

    def value(self, flag: str) -> str | None:
        """The last word of a vLLM flag, or None when it is not given or takes none."""
        values = self.request.flags.get(flag, ())
        return values[-1] if values else None

    def on(self, flag: str) -> bool:
        """Whether a switch is given and not negated."""
        return flag in self.request.flags and (self.value(flag) or "true").lower() not in ("false", "0")

    def off(self, flag: str) -> bool:
        """Whether a switch is negated, as ``--no-…`` or with the value false."""
        return f"--no-{flag.removeprefix('--')}" in self.request.flags or (self.value(flag) or "").lower() == "false"

    def number(self, flag: str) -> int | None:
        """The count that a flag gives (``8k`` is 8000), or None."""
        text = (self.value(flag) or "").strip()
        factor = _SUFFIXES.get(text[-1:], 1)
        digits = text[:-1] if factor > 1 else text
        try:
            return int(float(digits) * factor) if len(digits) <= 20 else None
        except (ValueError, OverflowError):
            return None

    def above(self, flag: str, most: int) -> bool:
        """Whether a flag gives a count above ``most``."""
        number = self.number(flag)
        return number is not None and number > most

    @property
    def loads_nothing(self) -> bool:
        """Whether weights are made up at start (--load-format dummy), so that none are needed."""
        return self.value("--load-format") == "dummy"
