"""``launcher report``: acceptance and speed of a running server, of a benchmark, or of saved metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from launcher import logs, signals
from launcher.commands.measuring import TABLE, Means, Shown, check_shown, hold_to, means, show
from launcher.errors import ConfigurationError, IntegrityError, NetworkError
from launcher.report import artifacts
from launcher.report.live import Page, Server
from launcher.report.render import Report, acceptance_text, record
from launcher.report.run import Pair, Run
from launcher.report.scrape import run_between, run_since_start
from launcher.typing import NamedTuple

SINCE_START = "since start"


class Wanted(NamedTuple):
    """The words of the command line."""

    sources: tuple[str, ...]
    url: str | None
    scrapes: tuple[str, str] | None
    compare: tuple[str, str] | None
    interval: float  # seconds; 0: only what happened since the server's start
    watch: bool
    lines: int | None  # how many to print; None: until a signal
    format: str
    picture: str | None
    min_acceptance: str | None


def run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Print the report.  Raises AcceptanceError below the floor, after printing."""
    _check(wanted)
    given = means(environ, wanted.min_acceptance)
    shown = Shown(wanted.format, wanted.picture)
    check_shown(shown)
    if wanted.url is not None:
        server = Server(wanted.url, given.key, environ)
        try:
            return _watch(server, wanted, given) if wanted.watch else _live(server, wanted, given, shown)
        except signals.Stopped as stopped:
            return stopped.exit_code
    report = _from_files(wanted)
    show(report, shown, "speculative decoding")
    hold_to(given.floor, [*report.runs, *(pair.on for pair in report.pairs)])
    return 0


def compared(off: Sequence[Run], on: Sequence[Run]) -> tuple[Pair, ...]:
    """The runs of the same traffic in pairs, in the order of ``on``.

    Raises ConfigurationError where no traffic is in both, or the first runs speculated; what one side lacks is said.
    """
    speculated = [run.name for run in off if run.acceptance is not None]
    if speculated:
        raise ConfigurationError(
            f"the run that should be without speculation has acceptance ({speculated[0]}: {off[0].origin})",
            "Give the run without speculation first: --compare OFF ON",
        )
    if len(off) == len(on) == 1:
        return (Pair(off[0], on[0]),)
    before = {run.name: run for run in off}
    after = {run.name for run in on}
    alone = [name for name in (*before, *after) if name not in before or name not in after]
    if alone:
        logs.warning(f"only in one of the two, and left out: {', '.join(dict.fromkeys(alone))}")
    pairs = tuple(Pair(before[run.name], run) for run in on if run.name in before)
    if not pairs:
        raise ConfigurationError("the two have no traffic in common", "Give two runs of the same traffic")
    return pairs


def _check(wanted: Wanted) -> None:
    given = [name for name, value in (("--url", wanted.url), ("--scrapes", wanted.scrapes),
             ("--compare", wanted.compare), ("PATH", wanted.sources)) if value]  # fmt: skip
    if len(given) != 1:
        raise ConfigurationError(
            f"{' and '.join(given)} do not go together" if given else "nothing to report on",
            "Give --url URL, or paths of results, or --scrapes BEFORE AFTER, or --compare OFF ON",
        )
    if wanted.watch and (wanted.url is None or not wanted.interval):
        raise ConfigurationError("--watch needs --url and an --interval above 0")
    if wanted.lines is not None and not wanted.watch:
        raise ConfigurationError("--lines goes with --watch", "Add --watch, or leave it out")
    if wanted.watch and (wanted.picture or wanted.format == "csv"):
        raise ConfigurationError("--watch prints lines, as table or json", "Leave out --picture and --format csv")
    for path in (*wanted.sources, *(wanted.compare or ()), *(wanted.scrapes or ())):
        if "://" in path:
            raise ConfigurationError(
                f"{path} is an address, not a path", "Use --url for a server, and 'launcher bench' to compare two"
            )


def _from_files(wanted: Wanted) -> Report:
    if wanted.compare is not None:
        off, on = map(artifacts.read, wanted.compare)
        return Report(pairs=compared(off, on))
    if wanted.scrapes is not None:
        return Report(artifacts.read_scrapes(*wanted.scrapes))
    return Report(tuple(run for source in wanted.sources for run in artifacts.read(source)))


def _live(server: Server, wanted: Wanted, given: Means, shown: Shown) -> int:
    first = server.read()
    recent: tuple[Run, ...] = ()
    last = first
    if wanted.interval:
        time.sleep(wanted.interval)
        last = server.read()
        recent = tuple(_between(first, last, f"last {wanted.interval:g} s"))
    whole = tuple(run_since_start(state, SINCE_START, last.url) for state in last.states)
    show(Report((*recent, *whole)), shown, f"speculative decoding at {server.url}")
    drafted = [run for run in recent if run.acceptance and run.acceptance.counts and run.acceptance.counts.proposed]
    hold_to(given.floor, drafted or whole)
    return 0


def _between(before: Page, after: Page, name: str) -> Iterator[Run]:
    """A run for each model that both know."""
    then = {state.model: state for state in before.states}
    for state in after.states:
        if state.model in then:
            yield run_between(then[state.model], state, after.time - before.time, name, after.url)


def _watch(server: Server, wanted: Wanted, given: Means) -> int:
    """A line for each interval; a server that is away for a while is said and waited for."""
    first = previous = server.read()
    if wanted.format == TABLE:
        print(_line(*_TITLES), flush=True)
    done = 0
    while wanted.lines is None or done < wanted.lines:
        time.sleep(wanted.interval)
        done += 1
        try:
            page = server.read()
        except NetworkError as error:
            logs.warning(str(error))
            continue
        try:
            for run in _between(previous, page, time.strftime("%H:%M:%S")):
                print(_watch_line(run, wanted.format), flush=True)
        except IntegrityError:
            logs.warning("the server was started again: counting from here")
            first = page
        previous = page
    hold_to(given.floor, list(_between(first, previous, "")))
    return 0


_TITLES = ("time", "model", "tokens/s", "acceptance", "length", "drafted/s", "accepted/s", "by position")


def _watch_line(run: Run, form: str) -> str:
    if form != TABLE:
        import json

        return json.dumps({"time": run.name, **record(run)})
    figures = run.acceptance
    positions = " ".join(f"{rate:.2f}" for rate in figures.positions) if figures else ""
    numbers = (run.speed.tokens_per_second, run.drafted_per_second, run.accepted_per_second)
    speed, drafted, accepted = ("-" if number is None else f"{number:.1f}" for number in numbers)
    length = f"{figures.length:.2f}" if figures and figures.length is not None else "-"
    return _line(run.name, run.model, speed, acceptance_text(run), length, drafted, accepted, positions)


def _line(when: str, model: str, *columns: str) -> str:
    *numbers, positions = columns
    return f"{when:8}  {model:16}  {'  '.join(f'{number:>10}' for number in numbers)}  {positions}".rstrip()
