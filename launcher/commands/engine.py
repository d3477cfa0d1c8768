"""Which program carries a plan out: vLLM's own server, or the worker of ai-dynamo around the same engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launcher.arguments.values import Argument
from launcher.errors import ConfigurationError
from launcher.plan import EngineFacts
from launcher.settings.values import DYNAMO
from launcher.typing import TYPE_CHECKING, NamedTuple
from launcher.vllm import tables
from launcher.vllm.installed import Engine
from launcher.vllm.tables import EngineTable

if TYPE_CHECKING:
    from launcher.vllm.dynamo import Worker, WorkerTable

DERIVED = "derived"
API_KEY = "VLLM_API_KEY"


class Program(NamedTuple):
    """A program, and what it takes of the arguments."""

    facts: EngineFacts
    arguments: tuple[Argument, ...]
    rest: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def program(
    name: str, engine: Engine | None, table: EngineTable, arguments: tuple[Argument, ...], rest: tuple[str, ...]
) -> Program:
    """The program that ``name``, the value of NIM_ENGINE, stands for; ``engine`` is the vLLM that was found."""
    version = engine.version if engine else table.version
    unknown = () if engine else (f"no vllm is installed here: checked against the table of {table.version}",)
    if name == DYNAMO:
        return _worker(engine, version, arguments, rest, unknown)
    start = (engine.executable if engine else "vllm", "serve")
    return Program(EngineFacts(start, version, engine is not None), arguments, rest, (), unknown)


def _worker(
    engine: Engine | None,
    version: str,
    arguments: tuple[Argument, ...],
    rest: tuple[str, ...],
    unknown: tuple[str, ...],
) -> Program:
    from launcher.vllm import dynamo  # lazy: few starts take it

    worker, known = dynamo.find(engine), dynamo.load()
    facts = EngineFacts(worker.start, version, engine is not None and worker.installed, worker.version)
    taken = tuple(argument for argument in arguments if argument.flag not in known.not_taken)
    left_out = [argument for argument in arguments if argument.flag in known.not_taken]
    warnings = (*_remarks(worker, known, engine), *_left_out(left_out, rest))
    if not worker.installed:
        unknown = (*unknown, f"ai-dynamo is not installed here: checked against its version {known.version}")
    return Program(facts, taken, (), warnings, unknown)


def missing(name: str, engine: Engine | None) -> ConfigurationError | None:
    """What keeps the program from being started at all."""
    if engine is None:
        return ConfigurationError(
            "no vllm beside this Python or on PATH", "Install it: pip install 'specdec-launcher[vllm]'"
        )
    if name != DYNAMO:
        return None
    from launcher.vllm import dynamo  # lazy: few starts take it

    worker = dynamo.find(engine)
    if worker.installed:
        return None
    python = worker.python or "the Python of this vllm"
    return ConfigurationError(
        f"NIM_ENGINE is {name}, and ai-dynamo is not installed for {python}",
        "Install it: pip install 'ai-dynamo[vllm]', or unset NIM_ENGINE",
    )


def _remarks(worker: Worker, known: WorkerTable, engine: Engine | None) -> Iterator[str]:
    if worker.installed and worker.version != known.version:
        yield (
            f"ai-dynamo {worker.version} is not the one that this launcher knows: its arguments are taken to be "
            f"those of {known.version}"
        )
    elif worker.installed and engine is not None and tables.minor(engine.version) != tables.minor(known.vllm):
        yield f"ai-dynamo {worker.version} asks for vLLM {known.vllm}, and {engine.version} is here"


def _left_out(arguments: Sequence[Argument], rest: Sequence[str]) -> Iterator[str]:
    """One warning for all that belongs to the HTTP server, which Dynamo's frontend is instead of vLLM."""
    said = [f"{argument.flag} ({argument.origin})" for argument in arguments if argument.origin != DERIVED]
    said += ["what follows -- (command line)"] if rest else []
    if said:
        yield (
            f"{DYNAMO} has no HTTP server of its own and leaves out {', '.join(dict.fromkeys(said))}: "
            "set these on Dynamo's frontend"
        )
