"""``launcher bench``: the same traffic with speculation off and on, and what it is worth."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from launcher import logs, signals
from launcher.arguments.merge import effective
from launcher.bench import aiperf as aiperfs
from launcher.bench import client, servers
from launcher.bench.aiperf import AIPerf
from launcher.bench.client import Pace, Target
from launcher.bench.traffic import BUILT_IN, Recorded, Traffic, read_questions, read_trace
from launcher.commands.measuring import Shown, check_shown, hold_to, means, show, write
from launcher.commands.report import compared
from launcher.errors import ConfigurationError
from launcher.report import artifacts, result
from launcher.report.live import Page, Server, addresses, root
from launcher.report.render import Report
from launcher.report.run import Pair, Run
from launcher.report.scrape import State, run_between
from launcher.settings.values import Secret
from launcher.typing import NamedTuple

OFF, ON = "off", "on"
_REPLAY_WIDTH = 256  # recorded requests at once, where nobody says otherwise: their times decide
_WIDTH = 16
_WARM_TOKENS = 16
_BY_THE_SERVER = "tokens are counted by the server: not every request asked for its usage"


class Wanted(NamedTuple):
    """The words of the command line."""

    words: tuple[str, ...]  # of ``launcher serve``
    off: str | None
    on: str | None
    speed_bench: str | None
    trace: str | None
    ignore_times: bool
    categories: tuple[str, ...]
    requests: int | None
    concurrency: int | None
    max_tokens: int
    temperature: float
    model: str | None
    client: str  # "auto", "aiperf" or "built-in"
    aiperf: str | None
    tokenizer: str | None
    output: str | None
    timeout: float  # seconds, for a server to be ready and for AIPerf to be done
    format: str
    picture: str | None
    min_acceptance: str | None


class Bench(NamedTuple):
    """All that is the same for both sides."""

    traffic: tuple[Traffic, ...]
    pace: Pace
    aiperf: AIPerf | None  # None: the built-in client
    model: str | None
    key: Secret | None
    folder: str
    timeout: float
    environ: Mapping[str, str]


def run(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Measure, print the comparison, and keep the results.  Raises AcceptanceError below the floor, after printing."""
    _check(wanted)
    given = means(environ, wanted.min_acceptance)
    shown = Shown(wanted.format, wanted.picture)
    check_shown(shown)
    traffic = _traffic(wanted)
    pace = Pace(wanted.concurrency or _width(traffic), wanted.max_tokens, wanted.temperature)
    tool = _client(wanted, given.key, environ)
    method = None if wanted.off else _method(wanted.words, environ)
    folder = _folder(wanted.output)
    bench = Bench(traffic, pace, tool, wanted.model, given.key, folder, wanted.timeout, environ)
    logs.info(f"results go to {folder}")
    try:
        pace, pairs = _both_urls(bench, wanted) if wanted.off else _both_servers(bench, wanted.words)
    except signals.Stopped as stopped:
        logs.error(f"stopped by {stopped.name}; what was measured so far is in {folder}")
        return stopped.exit_code
    show(
        Report(pairs=pairs, remarks=_remarks(bench._replace(pace=pace), method)),
        shown,
        "speculative decoding, off and on",
    )
    hold_to(given.floor, [pair.on for pair in pairs])
    return 0


def _check(wanted: Wanted) -> None:
    if (wanted.off is None) != (wanted.on is None):
        raise ConfigurationError("--off and --on belong together", "Give the URL of both servers")
    if wanted.off is not None and wanted.words:
        raise ConfigurationError(
            f"--off and --on name servers, and {wanted.words[0]!r} would start others", "Give one or the other"
        )
    if wanted.off is not None and addresses(wanted.off) == addresses(wanted.on or ""):
        raise ConfigurationError("--off and --on are the same server", "Give two servers of the same model")
    if wanted.speed_bench and wanted.trace:
        raise ConfigurationError("--speed-bench and --trace do not go together", "Give one of them")
    if wanted.ignore_times and not wanted.trace:
        raise ConfigurationError("--ignore-times is for a --trace", "Questions have no times")
    if wanted.categories and wanted.trace:
        raise ConfigurationError("a trace has no categories", "Leave out --category")
    if wanted.client == "built-in" and wanted.aiperf:
        raise ConfigurationError("--client built-in and --aiperf do not go together", "Give one of them")


def _traffic(wanted: Wanted) -> tuple[Traffic, ...]:
    if wanted.trace is not None:
        return (read_trace(wanted.trace, wanted.requests, ignore_times=wanted.ignore_times),)
    return read_questions(wanted.speed_bench or BUILT_IN, wanted.categories, wanted.requests)


def _width(traffic: Sequence[Traffic]) -> int:
    return _REPLAY_WIDTH if traffic[0].is_timed else _WIDTH


def _client(wanted: Wanted, key: Secret | None, environ: Mapping[str, str]) -> AIPerf | None:
    """AIPerf where it is there and can be used, unless another client was asked for."""
    if wanted.client == "built-in":
        return None
    named = wanted.client == "aiperf" or wanted.aiperf is not None
    reason = None
    if key is not None:
        reason = "AIPerf takes the key on its command line, where every user of this machine can read it"
    elif wanted.trace is not None and wanted.requests is not None:
        reason = "AIPerf replays a trace as a whole, and --requests asks for a part"
    if reason is not None:
        if named:
            raise ConfigurationError(reason, "Use --client built-in")
        logs.info(f"using the built-in client: {reason}")
        return None
    found = aiperfs.find(wanted.aiperf, wanted.tokenizer, environ)
    if found is None and named:
        raise ConfigurationError("there is no aiperf on PATH", "pip install aiperf==0.13.0, or give --aiperf PATH")
    return found


def _method(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """How the second server will speculate.  Raises what would stop either, before anything is started."""
    from launcher.commands.prepare import prepare  # lazy: servers that run already need none of it

    given = servers.environment(environ)
    plain = prepare([*words, *servers.WITHOUT_SPECULATION], given, []).plan
    plan = prepare(words, given, []).plan
    for problem in (plan.error, plain.error):
        if problem is not None:
            raise problem
    elsewhere = [flag for flag in effective(plan.merged) if flag in servers.ELSEWHERE]
    if elsewhere:
        raise ConfigurationError(
            f"a server with {elsewhere[0]} cannot be asked over HTTP on loopback, as here",
            "Leave it out, or give two servers that run with --off and --on",
        )
    if plain.speculation.enabled:
        raise ConfigurationError(
            "speculation stays on with --speculative-config none: parts of the words switch it on again",
            "Give one whole --speculative-config, or two servers with --off and --on",
        )
    if not plan.speculation.enabled:
        raise ConfigurationError(
            f"speculation is off in these settings, so there is nothing to compare: {plan.speculation.reason}",
            "Set NIM_SPECDEC_ENABLE=1, or give --speculative-config",
        )
    return f"{plan.speculation.method}, num_speculative_tokens={plan.speculation.tokens}"


def _folder(named: str | None) -> str:
    if named is None:
        return tempfile.mkdtemp(prefix=f"launcher-bench-{time.strftime('%Y%m%d-%H%M%S')}-")
    try:
        os.makedirs(named, exist_ok=True)
        if os.listdir(named):
            raise ConfigurationError(f"--output: {named} is not empty", "Old and new results must not mix")
    except OSError as error:
        raise ConfigurationError(f"--output: {named} cannot be made: {error.strerror}", "Choose another") from None
    return named


def _both_urls(bench: Bench, wanted: Wanted) -> tuple[Pace, tuple[Pair, ...]]:
    """Two servers that run: side by side, category by category, so that what changes with time hits both alike.

    Gives the pace at which both were asked, too.
    """
    sides = {side: _target(bench, url or "") for side, url in ((OFF, wanted.off), (ON, wanted.on))}
    bench = _fitting(bench, *sides.values())
    for target in sides.values():
        _warm_up(bench, target)
    runs: dict[str, list[Run]] = {OFF: [], ON: []}
    for traffic in bench.traffic:
        for side, target in sides.items():
            runs[side].append(_measured(bench, traffic, target, side))
    return bench.pace, _paired(runs[OFF], runs[ON])


def _both_servers(bench: Bench, words: Sequence[str]) -> tuple[Pace, tuple[Pair, ...]]:
    """Two servers of our own, one after the other: a device holds one model at a time."""
    runs: dict[str, list[Run]] = {OFF: [], ON: []}
    for side, extra in ((OFF, servers.WITHOUT_SPECULATION), (ON, ())):
        with _server(bench, [*words, *extra], side) as url:
            target = _target(bench, url)
            bench = _fitting(bench, target)
            _warm_up(bench, target)
            runs[side] = [_measured(bench, traffic, target, side) for traffic in bench.traffic]
    return bench.pace, _paired(runs[OFF], runs[ON])


def _server(bench: Bench, words: Sequence[str], side: str) -> AbstractContextManager[str]:
    what = f"with speculation {side}"
    logs.info(f"starting the server {what}")
    os.makedirs(f"{bench.folder}/{side}")
    return servers.serving(words, bench.environ, f"{bench.folder}/{side}/server.log", bench.timeout, what)


def _paired(off: Sequence[Run], on: Sequence[Run]) -> tuple[Pair, ...]:
    silent = [run.name for run in on if run.acceptance is None]
    if silent:
        raise ConfigurationError(
            "the server that should speculate does not", "Check its log; 'launcher plan' shows what it would do"
        )
    return compared(off, on)


def _target(bench: Bench, url: str) -> Target:
    """The server, and the model to ask.  Raises ConfigurationError where the traffic and the server do not fit."""
    address = root(url)
    models = client.served(address, bench.key, bench.environ)
    names = [name for name, _ in models]
    wanted = _recorded_models(bench.traffic) or {bench.model or names[0]}
    unknown = sorted(wanted - set(names))
    if unknown:
        raise ConfigurationError(
            f"{address} does not serve {unknown[0]!r} but {', '.join(names)}", "Serve it under that name too"
        )
    model = sorted(wanted)[0]
    return Target(address, model, bench.key, bench.environ, dict(models)[model])


def _recorded_models(traffic: Sequence[Traffic]) -> set[str]:
    """Recorded requests are sent as they are, the name of the model included."""
    requests = [request for item in traffic for request in item.requests]
    return {str(request.payload.get("model")) for request in requests if isinstance(request, Recorded)}


def _warm_up(bench: Bench, target: Target) -> None:
    """The first requests of a server compile and allocate; nobody's figures should have that in them."""
    first = bench.traffic[0]
    warm = first._replace(requests=first.requests[:1])
    client.measure(warm, target, bench.pace._replace(max_tokens=_WARM_TOKENS))


def _measured(bench: Bench, traffic: Traffic, target: Target, side: str) -> Run:
    folder = f"{bench.folder}/{side}/{traffic.name}"
    logs.info(f"{traffic.name}, speculation {side}: {len(traffic.requests)} requests to {target.url}")
    server = Server(target.url, bench.key, bench.environ)
    if bench.aiperf is not None:
        page = server.read()
        aiperfs.measure(bench.aiperf, traffic, target, bench.pace, page.url, folder, bench.timeout)
        return artifacts.read(folder)[0]._replace(name=traffic.name)
    before = server.read()
    measured = client.measure(traffic, target, bench.pace)
    after = server.read()
    counted = run_between(_state(before, target), _state(after, target), None, traffic.name, folder)
    speed, notes = measured.speed, (*counted.notes, *measured.notes)
    if speed.tokens is None:
        speed, notes = speed._replace(tokens=counted.speed.tokens), (*notes, _BY_THE_SERVER)
    done = counted._replace(model=target.model, speed=speed, answers=measured.answers, notes=notes)
    os.makedirs(folder)
    write(f"{folder}/{result.FILE}", result.to_text(done).encode())
    return done


def _state(page: Page, target: Target) -> State:
    """What the page says of the model; metrics carry its first name only."""
    return next((state for state in page.states if state.model == target.model), page.states[0])


def _fitting(bench: Bench, *targets: Target) -> Bench:
    """A server refuses a request whose longest answer leaves no room for the question; both are asked alike."""
    longest = min((target.longest for target in targets if target.longest is not None), default=None)
    pace = bench.pace
    if longest is None or pace.max_tokens <= longest // 2 or bench.traffic[0].is_recorded:
        return bench
    logs.warning(f"--max-tokens {longest // 2} instead of {pace.max_tokens}: the server takes {longest} tokens in all")
    return bench._replace(pace=pace._replace(max_tokens=longest // 2))


def _remarks(bench: Bench, method: str | None) -> tuple[str, ...]:
    name = "the built-in client" if bench.aiperf is None else f"AIPerf {bench.aiperf.version}"
    recorded = bench.traffic[0].is_recorded
    how = (
        "recorded requests as they are"
        if recorded
        else (f"temperature {bench.pace.temperature:g}, at most {bench.pace.max_tokens} tokens an answer")
    )
    timed = bench.traffic[0].is_timed
    width = "at their recorded times: compare the latencies" if timed else f"{bench.pace.concurrency} at once"
    lines = [f"measured with {name}: {how}, {width}"]
    return (*lines, f"on: {method}") if method else tuple(lines)
