"""From the environment to `Settings`: read once, all problems shown together.

The rules are those of docs/variables.md, which is made from the same table.  Nothing is read but the mapping and,
through the injected ``read_text``, the files that NAME_FILE variables name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from launcher.errors import ConfigurationError, gathered
from launcher.middleware.configuration import Capture, Cors
from launcher.settings import names, scalars
from launcher.settings.credentials import read_credentials
from launcher.settings.reading import Reading
from launcher.settings.values import EngineConfig, EngineSetting, Given, LogSetup, NodeSettings, Secret, Settings
from launcher.settings.variables import USED, VARIABLES, Variable
from launcher.typing import Any

__all__ = [
    "EngineSetting",
    "Given",
    "LogSetup",
    "Secret",
    "Settings",
    "early_health_port",
    "early_log_setup",
    "parse_settings",
]

_PORTS = 65535


def parse_settings(environ: Mapping[str, str], read_text: Callable[[str], str]) -> Settings:
    """Read every variable of the table.

    ``read_text`` gives the content of a file, and raises OSError or UnicodeDecodeError.
    Raises the gathered LauncherError of everything that is wrong: code 2, or 3 or 4 for a NAME_FILE that is missing or
    not readable.  No text, whether raised or returned, holds a secret.
    """
    reading = Reading(environ)
    settings = _settings(reading, read_text)
    _remark_names(reading, settings.strict)
    if reading.problems:
        raise gathered([problem.reworded(reading.mask) for problem in reading.problems])
    return settings._replace(
        warnings=tuple(map(reading.mask, reading.warnings)), notes=tuple(map(reading.mask, reading.notes))
    )


def early_log_setup(environ: Mapping[str, str]) -> LogSetup:
    """How to log until `parse_settings` has succeeded, and when it does not.

    Never fails: an unreadable variable counts as not set.
    """
    reading = Reading(environ)
    return LogSetup(_log_level(reading), reading.is_on("NIM_JSONL_LOGGING"), tuple(reading.hidden))


def early_health_port(environ: Mapping[str, str]) -> Given[int] | None:
    """NIM_HEALTH_PORT, before anything else is read.  Never fails: `parse_settings` reports an unreadable one."""
    return _health_port(Reading(environ))


def _health_port(reading: Reading) -> Given[int] | None:
    return reading.read("NIM_HEALTH_PORT", lambda text: scalars.whole(text, 1, _PORTS))


def _log_level(reading: Reading) -> str:
    return reading.choice("NIM_LOG_LEVEL").replace("TRACE", "DEBUG")


def _settings(reading: Reading, read_text: Callable[[str], str]) -> Settings:
    """Everything but the remarks, which are complete only when all has been read."""
    credentials = read_credentials(reading, read_text)
    specdec_enable = reading.boolean("NIM_SPECDEC_ENABLE")
    disable_download, offline = reading.is_on("NIM_DISABLE_MODEL_DOWNLOAD"), _offline(reading)
    refresh = reading.choice("NIM_REFRESH")
    return Settings(
        model=reading.given("NIM_MODEL_PATH"),
        draft=reading.given("NIM_DRAFT_MODEL_PATH"),
        served_names=reading.read("NIM_SERVED_MODEL_NAME", scalars.names),
        specdec_enable=specdec_enable,
        specdec_args=_specdec_args(reading, specdec_enable is not None and specdec_enable.value),
        engine_config=_engine_config(reading, read_text),
        specdec_policy=reading.choice("NIM_SPECDEC_POLICY"),
        cache_path=reading.given("NIM_CACHE_PATH"),
        workspace=reading.given("NIM_WORKSPACE"),
        passthrough=reading.read("NIM_PASSTHROUGH_ARGS", scalars.words),
        engine_name=reading.choice("NIM_ENGINE"),
        engine=(*_engine(reading), *_front(reading)),
        peft_source=reading.given("NIM_PEFT_SOURCE"),
        nodes=_nodes(reading),
        health_port=_health_port(reading),
        warmup=reading.is_on("NIM_WARMUP"),
        repository_override=_text(reading, "NIM_REPOSITORY_OVERRIDE"),
        profile=reading.given("NIM_MODEL_PROFILE"),
        profiles_path=reading.given("NIM_PROFILES_PATH"),
        min_acceptance=_number(reading, "NIM_SPECDEC_MIN_ACCEPTANCE"),
        capture=_capture(reading),
        cors=_cors(reading),
        log_level=_log_level(reading),
        jsonl=reading.is_on("NIM_JSONL_LOGGING"),
        strict=reading.is_on("NIM_STRICT"),
        disable_download=disable_download,
        refresh="never" if offline or disable_download else refresh,
        offline=offline,
        secrets=credentials.secrets,
        child_environment=credentials.child_environment,
        drop_environment=_to_drop(reading),
    )


def _text(reading: Reading, name: str) -> str | None:
    given = reading.given(name)
    return given and given.value


def _number(reading: Reading, name: str) -> float | None:
    given = reading.read(name, scalars.fraction)
    return given and float(given.value)


def _capture(reading: Reading) -> Capture | None:
    if not (reading.is_set("NIM_CAPTURE_ENABLE") or reading.is_set("NIM_CAPTURE_ARGS")):
        return None
    from launcher.settings.capture_args import read_capture  # lazy: few starts record

    return read_capture(reading)


def _cors(reading: Reading) -> Cors:
    exposed = reading.read("NIM_CORS_EXPOSE_HEADERS", scalars.header_names)
    age = reading.read("NIM_CORS_MAX_AGE", lambda text: scalars.whole(text, 0))
    return Cors(exposed.value if exposed else (), age.value if age else None)


def _offline(reading: Reading) -> bool:
    """Hugging Face's own rule: the second variable counts where the first is not set."""
    given = reading.boolean("HF_HUB_OFFLINE")
    other = reading.boolean("TRANSFORMERS_OFFLINE")
    decisive = given or other
    return decisive is not None and decisive.value


def _engine(reading: Reading) -> tuple[EngineSetting, ...]:
    """The variables that stand for a flag of vLLM each, in the order of the table."""
    found: list[EngineSetting] = []
    for row in VARIABLES:
        if row.flag is None or row.status != USED:
            continue
        if row.type == "bool":
            switch = reading.boolean(row.name)
            if switch:
                found.append(EngineSetting(row.flag, None, not switch.value, switch.origin))
        elif row.type in _NUMBERS:
            number = reading.read(row.name, _NUMBERS[row.type])
            if number:
                found.append(EngineSetting(row.flag, number.value, False, number.origin))
    return tuple(found)


def _front(reading: Reading) -> tuple[EngineSetting, ...]:
    if not any(reading.is_set(name) for name in _FRONT):
        return ()
    from launcher.settings.front import front_settings  # lazy: few starts serve over TLS or to browsers

    return front_settings(reading)


_FRONT = tuple(row.name for row in VARIABLES if row.name.startswith(("NIM_SSL_", "NIM_CORS_ALLOW_")))
_NUMBERS: dict[str, Callable[[str], str]] = {
    "int": lambda text: str(scalars.whole(text, 1)),
    "port": lambda text: str(scalars.whole(text, 1, _PORTS)),
    "length": scalars.length,
    "fraction": scalars.fraction,
}


def _nodes(reading: Reading) -> NodeSettings:
    return NodeSettings(
        total=reading.read("NIM_NUM_COMPUTE_NODES", lambda text: scalars.whole(text, 1)),
        rank=reading.read("NIM_NODE_RANK", lambda text: scalars.whole(text, 0)),
        leads=reading.boolean("NIM_LEADER_ROLE"),
        leader=reading.given("NIM_LEADER_IP_ADDRESS") or reading.given("LWS_LEADER_ADDRESS"),
        group=reading.read("LWS_GROUP_SIZE", lambda text: scalars.whole(text, 1)),
        member=reading.read("LWS_WORKER_INDEX", lambda text: scalars.whole(text, 0)),
    )


def _specdec_args(reading: Reading, enabled: bool) -> Given[Mapping[str, Any]] | None:
    if not reading.is_set("NIM_SPECDEC_ARGS"):
        return None
    from launcher.settings.specdec_args import read_specdec_args  # lazy: few starts have them

    return read_specdec_args(reading, enabled)


def _engine_config(reading: Reading, read_text: Callable[[str], str]) -> Given[EngineConfig] | None:
    if not reading.is_set("NIM_ENGINE_CONFIG"):
        return None
    from launcher.settings.engine_config import read_engine_config  # lazy: few starts have one

    return read_engine_config(reading, read_text)


def _to_drop(reading: Reading) -> tuple[str, ...]:
    """What would mislead the child.

    An empty variable means "not set" here, but not to every program; Kubernetes' Service links under vLLM's prefix
    stop it (VLLM_PORT=tcp://…); and vLLM complains about names under its prefix that it does not know.
    """
    blank = [name for name in sorted(reading.environ) if names.is_foreign(name) and not reading.environ[name].strip()]
    links = [name for name in reading.links if name.startswith("VLLM_")]
    files = [file for row in VARIABLES for file in row.files if file.startswith("VLLM_")]
    return (*blank, *links, *(name for name in files if name in reading.environ))


def _remark_names(reading: Reading, strict: bool) -> None:
    for service, links in names.services(reading.links).items():
        others = f" and {len(links) - 1} more" if len(links) > 1 else ""
        reading.warnings.append(
            f"{links[0]}{others}: set by Kubernetes for a Service named {service}, not by you, and ignored; "
            "rename the Service or set enableServiceLinks: false"
        )
    for row in VARIABLES:
        if row.status != USED and reading.is_set(row.name):
            _remark_without_effect(reading, row)
    for name in names.unknown_names(reading.environ, reading.links):
        close = names.nearest_name(name)
        if strict:
            todo = f"Did you mean {close}?" if close else "Unset it, or unset NIM_STRICT"
            reading.problems.append(ConfigurationError(f"{name} is not a known variable", todo))
        else:
            hint = f"; did you mean {close}?" if close else ""
            reading.warnings.append(f"{name} is not a known variable and is ignored{hint}")


def _remark_without_effect(reading: Reading, row: Variable) -> None:
    if row.flag:
        # Somebody tunes something: that deserves more than a note.
        reading.warnings.append(f"{row.name} has no effect here: put {row.flag} into NIM_PASSTHROUGH_ARGS ({row.help})")
    else:
        reading.notes.append(f"{row.name} has no effect here: {row.help}")
