"""The HTTP surface of a launch: whether vLLM gets the launcher's middleware, and what that is told (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import launcher
from launcher.arguments.values import Argument, given
from launcher.errors import ConfigurationError
from launcher.middleware.configuration import LONGEST, VARIABLE, Configuration, Cors, Model, Speculation, to_json
from launcher.plan import Artifact, PlannedProfile, masked_document
from launcher.settings.values import Settings
from launcher.speculation import values
from launcher.typing import NamedTuple
from launcher.vllm.installed import Engine
from launcher.vllm.tables import EngineTable

MIDDLEWARE = "launcher.middleware.asgi.Middleware"
FLAG = "--middleware"
RUST = "VLLM_USE_RUST_FRONTEND"
DERIVED = "derived"
_CORS_FLAGS = ("--allowed-methods", "--allowed-headers")
_SHA = 40  # digits of a commit, which a hub's cache calls a snapshot's folder by


class Served(NamedTuple):
    """A model of the launch, and the record of its files if there is one."""

    artifact: Artifact
    manifest: str | None


def check_environment(environ: Mapping[str, str], engine: Engine | None) -> None:
    """Raise ConfigurationError for what would take the middleware away without a word."""
    wish = environ.get(RUST, "").strip()
    if wish not in ("", "0") and (engine is None or engine.own):
        raise ConfigurationError(
            f"{RUST}={wish} would replace the HTTP server in which the launcher answers health checks, metrics and "
            "captures requests",
            f"Unset {RUST}",
        )


def attachment(
    engine: Engine | None, flags: Mapping[str, tuple[str, ...]], modules: Sequence[str]
) -> tuple[bool, tuple[str, ...]]:
    """Whether vLLM gets the middleware; why not, where nothing else says so.  ``modules``: sys.path."""
    if engine is not None and not engine.own:
        return False, ()  # said where the engine is looked at
    if not _is_importable(modules):
        return False, (
            f"vLLM would not find the launcher's package in {launcher.__path__[0]}: its middleware is left out; "
            "install the launcher instead of running it from its folder",
        )
    if "--grpc" in flags:
        return False, ("--grpc: vLLM opens no HTTP server, so there are no health routes, metrics or captures",)
    return "--headless" not in flags, ()


def remarks(
    attached: bool, settings: Settings, chosen: values.Speculation, flags: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """What somebody asked of the middleware, and will not get."""
    if not attached and "--headless" not in flags:
        if settings.capture is not None:
            yield "NIM_CAPTURE_ENABLE: nothing is recorded, because there is no middleware"
        if settings.cors != Cors():
            yield "NIM_CORS_EXPOSE_HEADERS and NIM_CORS_MAX_AGE have no effect, because there is no middleware"
        if settings.warmup:
            yield "NIM_WARMUP has no effect, because there is no middleware"
    if "--allowed-origins" not in flags:
        for name in _about_browsers(settings):
            yield f"{name} has no effect: no origin may call; set NIM_CORS_ALLOW_ORIGINS"
    if settings.min_acceptance is not None and chosen.enabled and "--disable-log-stats" in flags:
        yield "NIM_SPECDEC_MIN_ACCEPTANCE cannot be watched: --disable-log-stats takes vLLM's counters away"


def _about_browsers(settings: Settings) -> Iterator[str]:
    """The variables that say how browsers may call."""
    yield from (setting.origin for setting in settings.engine if setting.flag in _CORS_FLAGS)
    if settings.cors.expose_headers:
        yield "NIM_CORS_EXPOSE_HEADERS"
    if settings.cors.max_age is not None:
        yield "NIM_CORS_MAX_AGE"


def _is_importable(modules: Sequence[str]) -> bool:
    """Whether a program of our interpreter finds this package.

    The first entry of sys.path is where ``python -m launcher`` was started, or a script's folder: vLLM has another.
    """
    return launcher.__path__[0].rpartition("/")[0] in modules[1:]


def argument(table: EngineTable) -> Argument:
    flag = table.flag(FLAG)
    assert flag is not None, "every table has it"
    return given(flag, (MIDDLEWARE,), DERIVED)


def variable(
    served: Sequence[Served], chosen: values.Speculation, profile: PlannedProfile, version: str, settings: Settings
) -> dict[str, str]:
    """The variable that configures the middleware; it holds no secret.

    ``served``: the target and, if there is one, the draft.  ``version``: vLLM's.
    """
    told = Configuration(
        launcher=launcher.__version__,
        engine=version,
        models=tuple(_model(role, model) for role, model in zip(("target", "draft"), served, strict=False)),
        profile=profile._asdict(),
        speculation=_speculation(chosen),
        repository_override=settings.repository_override or "",
        min_acceptance=settings.min_acceptance,
        capture=settings.capture,
        cors=settings.cors,
        warmup=settings.warmup,
    )
    text = _encoded(told)
    if len(text) > LONGEST:
        # The steps that were not taken stand in the log and in the plan.
        brief = told.speculation._replace(considered=(), reason=told.speculation.reason[:1000])
        text = _encoded(told._replace(speculation=brief))
    return {VARIABLE: text}


def _encoded(told: Configuration) -> str:
    """Without secrets, whatever road they came by; a pattern and a path of the user's must work as they are."""
    document = told.document()
    return to_json({**masked_document(document), "capture": document["capture"], "cors": document["cors"]})


def _model(role: str, served: Served) -> Model:
    artifact = served.artifact
    name = (
        artifact.served_name.split(",")[0] if artifact.served_name else artifact.source.rstrip("/").rpartition("/")[2]
    )
    return Model(
        role=role,
        name=name,
        source=artifact.source,
        revision=artifact.revision or _cached_revision(artifact.snapshot or ""),
        folder=artifact.snapshot,
        manifest=served.manifest,
        bytes=artifact.bytes,
        proof=artifact.proof,
    )


def _cached_revision(folder: str) -> str | None:
    """The commit of a local folder that is a snapshot in a hub's cache."""
    above, _, name = folder.rstrip("/").rpartition("/")
    is_snapshot = above.endswith("/snapshots") and len(name) == _SHA and set(name) <= set("0123456789abcdef")
    return name if is_snapshot else None


def _speculation(chosen: values.Speculation) -> Speculation:
    return Speculation(
        enabled=chosen.enabled,
        method=chosen.method if chosen.enabled else None,
        num_speculative_tokens=chosen.tokens if chosen.enabled else None,
        reason=chosen.reason,
        considered=tuple(step._asdict() for step in chosen.considered),
        fallback=chosen.forgiven,
    )
