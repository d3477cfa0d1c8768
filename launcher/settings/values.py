"""The values that a reading of the environment gives."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.logs import MASK, masked
from launcher.middleware.configuration import Capture, Cors
from launcher.typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
# The values of NIM_ENGINE.
VLLM, DYNAMO = "vllm", "dynamo-vllm"


class Secret:
    """A value that shows itself only to code that asks: ``str``, ``repr`` and ``format`` give ``***``."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


class Given(NamedTuple, Generic[T]):
    """A value that a user set, and the variable that it came from, as the user spelled it."""

    value: T
    origin: str


class EngineConfig(NamedTuple):
    """An engineConfig map as given, and the engine and version that its block named."""

    keys: Mapping[str, Any]
    engine: str | None = None
    version: str | None = None


class EngineSetting(NamedTuple):
    """A variable that stands for one flag of vLLM."""

    flag: str  # "--max-model-len"
    value: str | None  # None: a switch
    negated: bool  # a switch that is explicitly off: a 0 of ours beats an "on" from a lower level
    origin: str


class LogSetup(NamedTuple):
    """The arguments of `launcher.logs.configure`."""

    level: str
    jsonl: bool
    secrets: tuple[str, ...]


class NodeSettings(NamedTuple):
    """What the variables say of several nodes, NIM's own before those of LeaderWorkerSet."""

    total: Given[int] | None = None
    rank: Given[int] | None = None
    leads: Given[bool] | None = None
    leader: Given[str] | None = None  # an address
    group: Given[int] | None = None  # LeaderWorkerSet's total
    member: Given[int] | None = None  # LeaderWorkerSet's rank


class Settings(NamedTuple):
    """What the environment says.  None means that the user did not set it (an empty variable is not set)."""

    model: Given[str] | None  # NIM_MODEL_PATH, as given
    draft: Given[str] | None  # NIM_DRAFT_MODEL_PATH, as given
    served_names: Given[tuple[str, ...]] | None
    specdec_enable: Given[bool] | None
    # Runtime-config keys; a string under "speculative_config" is decoded, and None there switches speculation off.
    # Read, and its syntax checked, whether the toggle is on or not: whoever uses it asks specdec_enable first.
    specdec_args: Given[Mapping[str, Any]] | None
    engine_config: Given[EngineConfig] | None  # NIM_ENGINE_CONFIG; its keys are not looked at yet
    specdec_policy: str  # "required" or "fallback"
    cache_path: Given[str] | None  # as given; may be relative
    workspace: Given[str] | None  # as given; may be relative
    passthrough: Given[tuple[str, ...]] | None  # NIM_PASSTHROUGH_ARGS, split into words
    engine_name: str  # NIM_ENGINE: "vllm" or "dynamo-vllm"
    engine: tuple[EngineSetting, ...]
    peft_source: Given[str] | None
    nodes: NodeSettings
    health_port: Given[int] | None
    warmup: bool
    repository_override: str | None  # as given; may hold credentials
    profile: Given[str] | None  # NIM_MODEL_PROFILE, as given
    profiles_path: Given[str] | None  # NIM_PROFILES_PATH, as given
    min_acceptance: float | None  # accepted per drafted token
    capture: Capture | None  # None: nothing is recorded
    cors: Cors  # what vLLM has no flag for
    log_level: str  # one of launcher.logs.LEVELS
    jsonl: bool
    strict: bool
    disable_download: bool
    refresh: str  # "auto", "never" or "required"; offline and disable_download make it "never"
    offline: bool
    secrets: tuple[tuple[str, Secret], ...]  # (variable, value): the credentials, and all else that is named like one
    child_environment: tuple[tuple[str, Secret], ...]  # credentials the child must get: read from a file, or stripped
    drop_environment: tuple[str, ...]  # variables that the child must not see
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # worth one line at INFO

    def log_setup(self) -> LogSetup:
        return LogSetup(self.log_level, self.jsonl, tuple(secret.reveal() for _, secret in self.secrets))

    def secret(self, *names: str) -> Secret | None:
        """The first of these credentials that is set."""
        known = dict(self.secrets)
        return next((known[name] for name in names if name in known), None)

    def __repr__(self) -> str:
        """Masked: a secret may have been pasted into any of the other values."""
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return masked(f"Settings({fields})", [secret.reveal() for _, secret in self.secrets])
