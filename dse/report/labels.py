"""Labels beside points that cover neither each other nor the points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from dse.report.style import Colours

_FONT_SIZE: Final = 8
_GAP: Final = 3.0  # between a point and its label; like every length here in points
_DIRECTIONS: Final = (
    *((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)),
    *((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)),
    *((1.0, 0.5), (1.0, -0.5), (-1.0, 0.5), (-1.0, -0.5)),
)
_DISTANCES: Final = (0.0, 10.0, 20.0, 35.0, 55.0, 80.0)


Pixel = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Label:
    """A text for the point (x, y), in data coordinates, drawn with that radius."""

    x: float
    y: float
    text: str
    radius_points: float = 4.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a label stands: offset from its point, the box it covers (pixels), what it hits."""

    offset: Pixel
    distance: float
    box: Bbox
    cost: float


@dataclass(frozen=True, slots=True)
class _Around:
    """What a label must not cover (pixels): the outside of the frame, labels, other points."""

    frame: Bbox
    labels: Sequence[Bbox]
    points: Sequence[Bbox]

    def cost(self, box: Bbox, own: Pixel) -> float:
        """Area that covers something; half the box more where another point is as near as ours."""
        covered = sum(_shared(box, other) for other in (*self.labels, *self.points))
        reach = _distance(box, own) * 1.3
        misread = any(_distance(box, _centre(other)) < reach for other in self.points)
        return _area(box) - _shared(box, self.frame) + covered + 0.5 * _area(box) * misread

    def crossed(self, start: Pixel, end: Pixel) -> int:
        """How many labels and points a leader line from start to end runs through."""
        steps = [i / 12 for i in range(13)]
        path = [tuple(a + (b - a) * t for a, b in zip(start, end, strict=True)) for t in steps]
        boxes = (*self.labels, *self.points)
        return sum(any(box.contains(x, y) for x, y in path) for box in boxes)


def place_labels(
    figure: Figure,
    axes: Axes,
    labels: Sequence[Label],
    colours: Colours,
    keep_clear: Sequence[Artist] = (),
) -> None:
    """Write each label at the first free place around its point, in the order given.

    A label further away gets a leader line; where nothing is free it takes the place that overlaps
    least. The axes' limits must be final. Labels avoid the artists of `keep_clear`.
    """
    figure.draw_without_rendering()  # settles the layout, so that pixels mean something
    renderer = _renderer(figure)
    pixel = figure.dpi / 72
    frame = axes.get_window_extent(renderer)
    centres = [tuple(axes.transData.transform((label.x, label.y))) for label in labels]
    radii = [label.radius_points * pixel for label in labels]
    points = [_square(x, y, radius) for (x, y), radius in zip(centres, radii, strict=True)]
    taken = [artist.get_window_extent(renderer) for artist in keep_clear]
    for i, label in enumerate(labels):
        size = _text_size(figure, renderer, label.text)
        others = [*points[:i], *points[i + 1 :]]
        around = _Around(frame, taken, [box for box in others if box.bounds != points[i].bounds])
        place = _best_place(centres[i], label.radius_points, size, pixel, around)
        taken.append(place.box)
        _annotate(axes, label, place, colours)


def _best_place(
    centre: Pixel,
    radius: float,
    size: tuple[float, float],
    pixel: float,
    around: _Around,
) -> _Place:
    best: _Place | None = None
    for distance in _DISTANCES:
        step = radius + _GAP + distance
        for x, y in _DIRECTIONS:
            offset = (x * step, y * step)
            end = (centre[0] + offset[0] * pixel, centre[1] + offset[1] * pixel)
            box = _box(*end, offset, size)
            cost = around.cost(box, centre)
            if distance:
                cost += _area(box) * around.crossed(centre, end)
            place = _Place(offset, distance, box, cost)
            if cost < 1e-6 * _area(box):
                return place
            if best is None or cost < best.cost:
                best = place
    assert best is not None, "there is at least one candidate"
    return best


def _annotate(axes: Axes, label: Label, place: _Place, colours: Colours) -> None:
    leader = {
        "arrowstyle": "-",
        "color": colours.muted,
        "linewidth": 0.6,
        "shrinkA": 1,
        "shrinkB": label.radius_points,
        "relpos": _corner(place.offset),
    }
    horizontal, vertical = _alignment(place.offset)
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=place.offset,
        textcoords="offset points",
        horizontalalignment=horizontal,
        verticalalignment=vertical,
        fontsize=_FONT_SIZE,
        color=colours.text,
        path_effects=[withStroke(linewidth=2.5, foreground=colours.background)],
        arrowprops=leader if place.distance else None,
        zorder=6,
    )


def _corner(offset: Pixel) -> Pixel:
    """Where a leader line leaves the text, as shares of its width and height."""
    horizontal, vertical = _alignment(offset)
    return (
        {"left": 0.0, "center": 0.5, "right": 1.0}[horizontal],
        {"bottom": 0.0, "center": 0.5, "top": 1.0}[vertical],
    )


def _alignment(offset: Pixel) -> tuple[str, str]:
    x, y = offset
    horizontal = "left" if x > 0 else "right" if x < 0 else "center"
    return horizontal, "bottom" if y > 0 else "top" if y < 0 else "center"


def _box(x: float, y: float, offset: Pixel, size: tuple[float, float]) -> Bbox:
    """The box of a text of that size anchored at (x, y) on the side that faces its point."""
    width, height = size
    right, up = _corner(offset)
    return Bbox.from_bounds(x - right * width, y - up * height, width, height)


def _renderer(figure: Figure) -> RendererAgg:
    width, height = figure.bbox.size
    return RendererAgg(width, height, figure.dpi)  # type: ignore[no-untyped-call]


def _text_size(figure: Figure, renderer: RendererAgg, text: str) -> tuple[float, float]:
    probe = Text(0, 0, text, fontsize=_FONT_SIZE, figure=figure)
    box = probe.get_window_extent(renderer)
    return box.width, box.height


def _square(x: float, y: float, radius: float) -> Bbox:
    return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)


def _centre(box: Bbox) -> Pixel:
    return (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2


def _distance(box: Bbox, point: Pixel) -> float:
    x, y = point
    return math.hypot(max(box.x0 - x, 0.0, x - box.x1), max(box.y0 - y, 0.0, y - box.y1))


def _area(box: Bbox) -> float:
    return float(box.width * box.height)


def _shared(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))
