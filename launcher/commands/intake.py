"""Everything that was said, before any model file is looked at: environment, words, engine, folders.

Problems that do not depend on each other are collected, so that one start shows all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from launcher import logs, places
from launcher.arguments.spellings import parse_words
from launcher.arguments.values import Parsed
from launcher.cache.remembered import Remembered
from launcher.commands import known
from launcher.errors import ConfigurationError, DeniedError, LauncherError, gathered, shortened
from launcher.settings.parse import early_log_setup, parse_settings
from launcher.settings.values import Given, Settings
from launcher.sources import ModelSource, parse_source
from launcher.typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from launcher.vllm import installed, tables
from launcher.vllm.tables import EngineTable

if TYPE_CHECKING:
    from launcher.nodes import Node
    from launcher.offered import Offered

T = TypeVar("T")
COMMAND_LINE = "command line"
PASSTHROUGH = "NIM_PASSTHROUGH_ARGS"
ENGINE_CONFIG = "NIM_ENGINE_CONFIG"
ENABLE = "NIM_SPECDEC_ENABLE"
MODEL_PATH = "NIM_MODEL_PATH"


class Named(NamedTuple):
    """The model to serve, and the setting that named it."""

    source: ModelSource
    origin: str
    offered: Offered | None = None  # the profile of the image's own manifest that named it


class Intake(NamedTuple):
    """All that was said."""

    environ: Mapping[str, str]
    settings: Settings
    engine: installed.Engine | None
    table: EngineTable
    places: places.Places
    command_line: Parsed
    passthrough: Parsed | None
    specdec: Parsed | None  # NIM_SPECDEC_ARGS, when the toggle lets it count
    engine_config: Parsed | None  # NIM_ENGINE_CONFIG
    model: Named
    memory: Remembered | None
    node: Node | None  # where several nodes serve the model together


class Warnings:
    """Warnings as they are found: logged at once, and kept for the plan."""

    def __init__(self, kept: list[str]) -> None:
        self.kept = kept

    def add(self, texts: Sequence[str]) -> None:
        for text in texts:
            if text not in self.kept:
                self.kept.append(text)
                logs.warning(text)


class Problems:
    """Independent problems of one pass."""

    def __init__(self) -> None:
        self.found: list[LauncherError] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        """The step's result, or None when it failed."""
        try:
            return step()
        except LauncherError as error:
            logs.add_secrets(error.secrets)
            self.found += [error, *error.others]
            return None

    def settle(self) -> None:
        """Raise what was found, if anything."""
        if self.found:
            raise gathered(self.found)


def take_in(words: Sequence[str], environ: Mapping[str, str], warnings: Warnings, problems: Problems) -> Intake | None:
    """Read everything; None when ``problems`` then holds what is wrong."""
    logs.configure(*early_log_setup(environ))
    settings = problems.attempt(lambda: parse_settings(environ, _read_text))
    engine = installed.find(environ)
    table = problems.attempt(lambda: tables.load(engine.version) if engine else tables.pinned()) or tables.pinned()
    command_line = problems.attempt(lambda: parse_words(words, table, COMMAND_LINE, _read_config))
    heard((command_line,), warnings)
    if settings is None:
        return None
    logs.configure(*settings.log_setup())
    heard((command_line,), warnings)
    _remark(settings, engine, table, warnings)
    passthrough = problems.attempt(lambda: _passthrough(settings, table))
    specdec = problems.attempt(lambda: _specdec(settings, table))
    engine_config = problems.attempt(lambda: _engine_config(settings, table))
    heard((passthrough, specdec, engine_config), warnings)
    model = problems.attempt(lambda: _model(command_line, passthrough, settings)) if command_line else None
    found = problems.attempt(lambda: _places(environ, settings))
    node = problems.attempt(lambda: _node(settings))
    if command_line is None or model is None or found is None:
        return None
    for note in found.notes:
        logs.info(note)
    return Intake(
        environ=dict(environ),
        settings=settings,
        engine=engine,
        table=table,
        places=found,
        command_line=command_line,
        passthrough=passthrough,
        specdec=specdec,
        engine_config=engine_config,
        model=model,
        memory=_memory(found),
        node=node,
    )


def heard(parts: Sequence[Parsed | None], warnings: Warnings) -> list[Parsed]:
    """The parts that are there; from here on their secrets are masked and their warnings said."""
    there = [parsed for parsed in parts if parsed is not None]
    for parsed in there:
        logs.add_secrets([value for _, value in parsed.secrets])
        warnings.add(parsed.warnings)
    return there


def is_enabled(settings: Settings) -> bool:
    """Whether the toggle is on."""
    return settings.specdec_enable is not None and settings.specdec_enable.value


def _remark(settings: Settings, engine: installed.Engine | None, table: EngineTable, warnings: Warnings) -> None:
    for note in settings.notes:
        logs.info(note)
    warnings.add(settings.warnings)
    warnings.add(tuple(_about_engine(engine, table)))
    if settings.specdec_args is not None and not is_enabled(settings):
        warnings.add((f"{settings.specdec_args.origin} is ignored, all of it: set {ENABLE}=1 to let it count",))


def _passthrough(settings: Settings, table: EngineTable) -> Parsed | None:
    words = settings.passthrough
    return words and parse_words(words.value, table, words.origin, _read_config)


def _specdec(settings: Settings, table: EngineTable) -> Parsed | None:
    args = settings.specdec_args
    if args is None or not is_enabled(settings):
        return None
    from launcher.arguments.runtime import from_runtime_config  # lazy: few starts have one

    return from_runtime_config(args.value, table, args.origin)


def _engine_config(settings: Settings, table: EngineTable) -> Parsed | None:
    config = settings.engine_config
    if config is None:
        return None
    from launcher import engine_config  # lazy: few starts have one

    return engine_config.read(config.value, table, settings.engine_name, config.origin)


def _read_config(path: str) -> Mapping[str, Any]:
    from launcher.arguments.config_file import read_config  # lazy: few command lines name a file

    return read_config(path)


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8-sig") as file:
        return file.read()


def _about_engine(engine: installed.Engine | None, table: EngineTable) -> Iterator[str]:
    if engine is None:
        return
    if not table.exact:
        yield (
            f"vLLM {engine.version} is newer than what this launcher knows: checked against the table of "
            f"{table.version}, unknown flags and keys pass"
        )
    if not engine.own:
        yield (
            f"{engine.executable} (vLLM {engine.version}) belongs to another Python than the launcher: "
            "the launcher's middleware is left out"
        )


def _places(environ: Mapping[str, str], settings: Settings) -> places.Places:
    cache, workspace = _absolute(settings.cache_path), _absolute(settings.workspace)
    if workspace == "/":
        raise ConfigurationError(
            "NIM_WORKSPACE is the root folder", "Give a folder for the links, such as /opt/nim/workspace"
        )
    return places.find_places(environ, cache, workspace)


def _node(settings: Settings) -> Node | None:
    if not any(settings.nodes):
        return None
    from launcher.nodes import place  # lazy: most starts are alone

    return place(settings.nodes)


def _absolute(wish: Given[str] | None) -> str | None:
    if wish is None:
        return None
    if not wish.value.startswith("/"):
        raise ConfigurationError(
            f"{wish.origin}: {shortened(wish.value)!r} is a relative path", "Give an absolute path"
        )
    return os.path.normpath(wish.value)


def _memory(found: places.Places) -> Remembered | None:
    """Where facts are remembered: under the cache, if that is a folder which nobody else could have filled."""
    if found.cache == found.scratch:
        try:
            places.make_private(found.scratch)
        except DeniedError:
            return None  # whoever cannot do without the folder says why
    return Remembered(f"{found.cache}/facts")


def _model(command_line: Parsed, passthrough: Parsed | None, settings: Settings) -> Named:
    """The model: the command line's beats the variable's; two in arguments are an error."""
    said = _model_word(command_line, passthrough, settings)
    return _implied(command_line, settings) if said is None else Named(parse_source(said[0], said[1]), said[1])


def _implied(command_line: Parsed, settings: Settings) -> Named:
    """The model that a profile implies, where nobody named one."""
    implied = known.implied_model(settings)
    if implied is not None:
        return Named(parse_source(implied.source, implied.origin), implied.origin, implied.offered)
    behind = (
        f"; {shortened(command_line.rest[1])!r} stands behind '--', where only vLLM reads"
        if command_line.rest[1:]
        else ""
    )
    raise ConfigurationError(
        f"no model is named{behind}",
        f"Set {MODEL_PATH} or give the model first on the command line; an image with a model inside is made by "
        f"deriving from this one and setting {MODEL_PATH} there",
    )


def _model_word(command_line: Parsed, passthrough: Parsed | None, settings: Settings) -> tuple[str, str] | None:
    named = command_line.positionals
    hidden = passthrough.positionals if passthrough else ()
    if hidden and (named or settings.model):
        first = named[0] if named else settings.model and settings.model.value
        raise ConfigurationError(
            f"{PASSTHROUGH} names a second model, {shortened(hidden[0])!r} beside {shortened(str(first))!r}",
            "Name one model",
        )
    if named:
        return named[0], COMMAND_LINE
    if hidden:
        return hidden[0], PASSTHROUGH
    if settings.model is not None:
        return settings.model
    return None
