"""What ``report`` and ``bench`` have in common: the key, the floor, and where results go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from errno import ENOSPC

from launcher import logs
from launcher.errors import AcceptanceError, ConfigurationError, DeniedError, NoSpaceError, NotFoundError, gathered
from launcher.report import picture
from launcher.report.render import Report, table, to_csv, to_json
from launcher.report.run import Run, together
from launcher.settings import scalars
from launcher.settings.credentials import read_credential
from launcher.settings.reading import Reading
from launcher.settings.values import Given, Secret
from launcher.settings.variables import BY_NAME
from launcher.typing import NamedTuple

TABLE = "table"
FORMATS = {TABLE: table, "json": to_json, "csv": to_csv}
_FLOOR = "NIM_SPECDEC_MIN_ACCEPTANCE"


class Shown(NamedTuple):
    """Where a report goes: stdout in a format, and a picture besides."""

    format: str  # a key of FORMATS
    picture: str | None  # a path that ends in .svg or .png


class Means(NamedTuple):
    """What the environment says."""

    key: Secret | None  # VLLM_API_KEY
    floor: Given[float] | None


def means(environ: Mapping[str, str], floor: str | None) -> Means:
    """The clients' key and the floor; ``floor`` is the one of the command line, which wins.

    Raises the LauncherError of the variables that cannot be read.  Only these two are looked at: a report is also made
    where nothing is served.
    """
    reading = Reading(environ)
    key = read_credential(reading, BY_NAME["VLLM_API_KEY"], _read_text)
    given = reading.read(_FLOOR, scalars.fraction) if floor is None else _floor_of(floor)
    if reading.problems:
        raise gathered(reading.problems)
    if key is not None:
        logs.add_secrets([key])
    return Means(None if key is None else Secret(key), given and Given(float(given.value), given.origin))


def check_shown(shown: Shown) -> None:
    """Refuse a picture that cannot be drawn before anything is measured."""
    if shown.picture is None:
        return
    if not shown.picture.endswith((".svg", ".png")):
        raise ConfigurationError(f"--picture: {shown.picture!r} ends neither in .svg nor in .png", "Name it so")
    if shown.picture.endswith(".png"):
        picture.png(picture.svg(Report(), ""))
    _refuse_missing_folder(shown.picture)


def show(report: Report, shown: Shown, title: str) -> None:
    """Print, and draw where a picture was asked for."""
    print(FORMATS[shown.format](report), flush=True)
    if shown.picture is not None:
        drawn = picture.svg(report, title)
        write(shown.picture, picture.png(drawn) if shown.picture.endswith(".png") else drawn.encode())


def hold_to(floor: Given[float] | None, runs: Sequence[Run]) -> None:
    """Raise AcceptanceError where the runs together accept less than the floor, or do not speculate at all."""
    if floor is None:
        return
    asked = f"the floor of {floor.value:g} ({floor.origin})"
    speculating = [run for run in runs if run.acceptance is not None]
    if not speculating:
        raise AcceptanceError(
            f"speculation is off, so there is no acceptance to hold against {asked}",
            "Switch it on, for example with NIM_SPECDEC_ENABLE=1",
        )
    whole = speculating[0] if len(speculating) == 1 else together("", speculating)
    rate = whole.acceptance.rate if whole.acceptance else None
    if rate is None:
        logs.warning(f"nothing was drafted, so there is nothing to hold against {asked}")
    elif rate < floor.value:
        rates = [(run.name, run.acceptance.rate) for run in speculating if run.acceptance]
        below = [f"{name} {low:.3f}" for name, low in rates if low is not None and low < floor.value]
        where = f" ({', '.join(below)})" if len(speculating) > 1 and below else ""
        raise AcceptanceError(
            f"acceptance {rate:.3f} is below {asked}{where}",
            "Try fewer tokens, another method or a draft trained on this traffic, or switch speculation off "
            "(docs/benchmarking.md)",
        )


def write(path: str, data: bytes) -> None:
    """Write a file whole or not at all.  Raises NotFoundError, DeniedError or NoSpaceError."""
    _refuse_missing_folder(path)
    aside = f"{path}.{os.getpid()}.new"
    try:
        try:
            with open(aside, "wb") as file:
                file.write(data)
            os.replace(aside, path)
        except BaseException:
            if os.path.exists(aside):
                os.unlink(aside)
            raise
    except OSError as error:
        kind = NoSpaceError if error.errno == ENOSPC else DeniedError
        raise kind(f"{path} cannot be written: {error.strerror}", "Choose another place") from None


def _refuse_missing_folder(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise NotFoundError(f"the folder {folder} of {path} does not exist", "Make it first")


def _floor_of(text: str) -> Given[str]:
    try:
        return Given(scalars.fraction(text.strip()), "--min-acceptance")
    except scalars.Unreadable as problem:
        raise ConfigurationError(
            f"--min-acceptance is {text!r}, which is not {problem.expected}", problem.todo
        ) from None


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
