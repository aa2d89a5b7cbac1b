"""How figures look: two themes, a palette that colour-blind readers can tell apart, and saving."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from dse.report.atomic import write_bytes

Theme = Literal["light", "dark"]
Format = Literal["svg", "png"]


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of one theme; `series` is in the order of use, `best` marks recommendations."""

    background: str
    text: str
    muted: str
    grid: str
    best: str
    series: tuple[str, ...]


# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), without the yellow that vanishes on
# white and with the black left to text; the dark theme starts with the brighter half.
_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9",
)  # fmt: skip
COLOURS: Final[dict[Theme, Colours]] = {
    "light": Colours(
        background="#ffffff",
        text="#1b1f24",
        muted="#57606a",
        grid="#d8dee4",
        best="#1b1f24",
        series=(_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY),
    ),
    "dark": Colours(
        background="#14181d",
        text="#e6edf3",
        muted="#9aa4ae",
        grid="#30363d",
        best="#ffffff",
        series=(_SKY, _ORANGE, _GREEN, _PURPLE, _VERMILION, "#F0E442"),
    ),
}
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
"""One per colour, so that series differ in print and for every eye."""


@contextmanager
def themed(theme: Theme) -> Iterator[Colours]:
    """matplotlib's defaults plus the theme, whatever the user's matplotlibrc says."""
    colours = COLOURS[theme]
    with mpl.rc_context():
        mpl.rcdefaults()
        for name, value in _settings(colours).items():
            mpl.rcParams[name] = value
        yield colours


def _settings(colours: Colours) -> dict[Any, Any]:
    return {
        "figure.facecolor": colours.background,
        "axes.facecolor": colours.background,
        "savefig.facecolor": colours.background,
        "text.color": colours.text,
        "axes.labelcolor": colours.text,
        "axes.edgecolor": colours.muted,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.labelsize": 10,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": colours.grid,
        "grid.linewidth": 0.7,
        "xtick.color": colours.muted,
        "ytick.color": colours.muted,
        "xtick.labelcolor": colours.text,
        "ytick.labelcolor": colours.text,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "font.size": 9,
        "svg.hashsalt": "dse",  # the same figure gives the same bytes
        "svg.fonttype": "path",
    }


def new_figure(width_in: float = 6.4, height_in: float = 4.2) -> Figure:
    """An empty figure, laid out so that nothing is cut off."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def save(
    figure: Figure, stem: str | Path, formats: Sequence[Format] = ("svg", "png")
) -> list[Path]:
    """Write `stem`.svg and `stem`.png, each whole or not at all; raises WriteError."""
    written = []
    for kind in formats:
        written.append(write_bytes(f"{stem}.{kind}", render(figure, kind)))
    return written


def render(figure: Figure, kind: Format) -> bytes:
    """The figure's bytes in one format; the same figure always gives the same bytes."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    # matplotlib makes some ticks only when it draws: they follow the theme as well.
    with themed(_theme_of(figure)):
        figure.savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _theme_of(figure: Figure) -> Theme:
    colour = to_hex(figure.get_facecolor())
    return next((theme for theme, own in COLOURS.items() if own.background == colour), "light")
