"""A report as a picture: bars, drawn as SVG; a PNG is the same drawing, rasterised."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from launcher.errors import ConfigurationError
from launcher.report.render import Report, acceptance_text
from launcher.report.run import Run
from launcher.typing import NamedTuple

_BAR, _GAP, _ROW_GAP = 14, 2, 12  # pixels
_PANEL, _BETWEEN, _VALUE = 210, 40, 56  # width of a panel, between two, and of the figure behind a bar
_LETTER = 7.2  # pixels, a wide mean of the letters of a 12 pixel sans-serif
_TOP, _MARGIN = 64, 16
_GREY, _BLUE = "#9aa5b1", "#1f6feb"
_SHADES = ("#0b3d91", "#1f6feb", "#5b9bf5", "#8fbcf8", "#b9d5fb", "#d9e8fd")  # positions, first to last


class Bar(NamedTuple):
    value: float | None  # None: no bar, the text alone
    text: str
    colour: str


class Panel(NamedTuple):
    """``rows`` has the bars of each row of the picture; bars are as long as their share of the panel's largest."""

    title: str
    rows: tuple[tuple[Bar, ...], ...]
    full: float | None = None  # what the longest bar stands for; None: the largest value


def svg(report: Report, title: str) -> str:
    """The report as an SVG document."""
    names = [run.name for run in report.runs] or [pair.on.name for pair in report.pairs]
    panels = _pair_panels(report) if report.pairs else _run_panels(report)
    heights = [max(len(panel.rows[row]) for panel in panels) * (_BAR + _GAP) + _ROW_GAP for row in range(len(names))]
    label = max(60.0, max((len(name) for name in names), default=0) * _LETTER)
    left = _MARGIN + label + 12
    width = left + len(panels) * (_PANEL + _VALUE + _BETWEEN) - _BETWEEN + _MARGIN
    height = _TOP + sum(heights) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="12" fill="#1b1f24">',
        f'<rect width="{width:.0f}" height="{height}" fill="#ffffff"/>',
        _text(_MARGIN, 26, title, weight="bold", size=15),
    ]
    y = float(_TOP)
    for name, row_height in zip(names, heights, strict=True):
        parts.append(_text(left - 12, y + (row_height - _ROW_GAP) / 2 + 4, name, anchor="end"))
        y += row_height
    for number, panel in enumerate(panels):
        parts += _panel(panel, left + number * (_PANEL + _VALUE + _BETWEEN), heights)
    return "\n".join((*parts, "</svg>", ""))


def png(document: str) -> bytes:
    """An SVG document as a PNG of twice its size.  Raises ConfigurationError where nothing is installed for it."""
    try:
        import cairosvg
    except (ImportError, OSError):  # the library behind it may be missing too
        raise ConfigurationError(
            "a PNG needs CairoSVG and the library cairo", "Write an .svg, or pip install 'specdec-launcher[png]'"
        ) from None
    drawn: bytes = cairosvg.svg2png(bytestring=document.encode(), scale=2)
    return drawn


def _run_panels(report: Report) -> tuple[Panel, ...]:
    runs = report.runs
    panels = [*_acceptance_panels(runs)]
    if any(run.speed.tokens_per_second is not None for run in runs):
        panels.insert(0, Panel("output tokens a second", tuple((_speed(run, _BLUE),) for run in runs)))
    return tuple(panels)


def _pair_panels(report: Report) -> tuple[Panel, ...]:
    rows = []
    for pair in report.pairs:
        on = _speed(pair.on, _BLUE)
        faster = "" if pair.speedup is None else f"  {pair.speedup:.2f}x"
        rows.append((_speed(pair.off, _GREY), on._replace(text=f"{on.text}{faster}")))
    speed = Panel("output tokens a second: off, on", tuple(rows))
    return (speed, *_acceptance_panels([pair.on for pair in report.pairs]))


def _acceptance_panels(runs: Sequence[Run]) -> tuple[Panel, ...]:
    lengths = [run.acceptance.length if run.acceptance else None for run in runs]
    panels = [
        Panel(
            "acceptance rate",
            tuple((Bar(run.acceptance.rate if run.acceptance else None, acceptance_text(run), _BLUE),) for run in runs),
            1.0,
        ),
        Panel("mean acceptance length", tuple((_bar(length, 2, _BLUE),) for length in lengths)),
    ]
    if any(run.acceptance and run.acceptance.positions for run in runs):
        panels.append(Panel("acceptance by position", tuple(map(_position_bars, runs)), 1.0))
    return tuple(panels)


def _position_bars(run: Run) -> tuple[Bar, ...]:
    rates = run.acceptance.positions if run.acceptance else ()
    return tuple(_bar(rate, 2, _SHADES[min(i, len(_SHADES) - 1)]) for i, rate in enumerate(rates))


def _speed(run: Run, colour: str) -> Bar:
    return _bar(run.speed.tokens_per_second, 1, colour)


def _bar(value: float | None, digits: int, colour: str) -> Bar:
    return Bar(value, "" if value is None else f"{value:.{digits}f}", colour)


def _panel(panel: Panel, x: float, heights: Sequence[int]) -> list[str]:
    largest = panel.full or max((bar.value or 0.0 for row in panel.rows for bar in row), default=0.0)
    bottom = _TOP + sum(heights) - _ROW_GAP
    parts = [
        _text(x, _TOP - 12, panel.title, weight="bold"),
        f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{bottom + 4}" stroke="#d0d7de"/>',
    ]
    top = _TOP
    for bars, height in zip(panel.rows, heights, strict=True):
        y = top + (height - _ROW_GAP - len(bars) * (_BAR + _GAP)) / 2
        for bar in bars:
            length = _PANEL * (bar.value or 0.0) / largest if largest else 0.0
            if bar.value is not None:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR}" fill="{bar.colour}"/>'
                )
            parts.append(_text(x + length + 6, y + _BAR - 3, bar.text))
            y += _BAR + _GAP
        top += height
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
