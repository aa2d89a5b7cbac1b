"""How requests arrive in an open loop: memoryless, in bursts, or as a recorded trace did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from dse.spec.base import Location, Spec, exclusive, fault
from dse.spec.number_list import listed, some
from dse.spec.quantity import Quantity, RequestsPerS
from dse.units import describe

Scaling = Literal["time", "superpose"]

_MEAN_TOLERANCE: Final = 0.02
_OF_KIND: Final = {
    "poisson": (),
    "gamma": ("cv",),
    "trace": ("cv", "recorded_rate", "scaling", "dispersion", "windows", "autocorrelation"),
}


def _correlation(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not -1 <= raw <= 1:
        raise fault(f"found {describe(raw)}; expected a number from -1 to 1")
    return float(raw)


GapVariation = Annotated[float, Quantity("count", 0.05, 20.0, zero=True)]
Seconds = Annotated[float, Quantity("s", 1e-6, 1e8)]
Correlation = Annotated[float, BeforeValidator(_correlation)]
Sizes = Annotated[
    tuple[Annotated[float, Quantity("count", 1e-6, 1e12)], ...],
    BeforeValidator(listed),
    AfterValidator(some),
]
Relatives = Annotated[
    tuple[Annotated[float, Quantity("count", 1e-9, 1e9, zero=True)], ...],
    BeforeValidator(listed),
    AfterValidator(some),
]


class Dispersion(Spec):
    """Index of dispersion: variance over mean of the number of arrivals in a window.

    `requests` are the windows, by the number expected in them; `index` is 1 everywhere for Poisson
    arrivals. `work` is the same of prompt tokens instead of requests, in their own order:
    Var(tokens in a window) / (expected requests * E[S^2]).
    """

    requests: Sizes
    index: Relatives
    work: Relatives | None = None

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        yield from _same_length(self, "requests", "index", "work")
        falls = _first_fall(self.requests)
        if falls is not None:
            yield ("requests", falls), "found no more than before it; expected rising numbers"


class Windows(Spec):
    """Drift: the rate of each window relative to the mean, and how long its requests are.

    `window_s` is in the time of the recording; `isl` and `osl` are the window's mean lengths over
    those of all requests.
    """

    window_s: Seconds
    rate: Relatives
    isl: Relatives | None = None
    osl: Relatives | None = None

    def cross_faults(self) -> Iterator[tuple[Location, str]]:
        yield from _same_length(self, "rate", "isl", "osl")
        mean = sum(self.rate) / len(self.rate)
        if abs(mean - 1.0) > _MEAN_TOLERANCE:
            yield ("rate",), f"found relative rates with a mean of {mean:.4g}; expected 1"


class Autocorrelation(Spec):
    """Correlation of each request's lengths with the next one's, and of prompt with output."""

    isl: Correlation = 0.0
    osl: Correlation = 0.0
    isl_osl: Correlation = 0.0


class Arrivals(Spec):
    """Requests of an open loop; without a rate, the largest feasible one is searched.

    poisson: memoryless. gamma: independent gaps with coefficient of variation `cv`, 1 being Poisson
    and 0 evenly spaced, as a load generator at a fixed pace sends. trace: as recorded, by its
    `dispersion` and `windows`; another rate than the recorded one is reached by `scaling`: `time`
    (the default) plays the recording faster, which keeps its drift and is pessimistic; `superpose`
    adds shifted copies of it, which dilutes drift and is optimistic.
    """

    kind: Literal["poisson", "gamma", "trace"] = "poisson"
    rate: RequestsPerS | None = None
    cv: GapVariation | None = None
    recorded_rate: RequestsPerS | None = None
    scaling: Scaling | None = None
    dispersion: Dispersion | None = None
    windows: Windows | None = None
    autocorrelation: Autocorrelation | None = None

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        kind = data.get("kind", "poisson")
        if not isinstance(kind, str) or kind not in _OF_KIND:
            return
        own = _OF_KIND[kind]
        for key in exclusive(data, *_OF_KIND["trace"]):
            if key not in own:
                users = [name for name, keys in _OF_KIND.items() if key in keys]
                yield (key,), f"does not apply to {kind} arrivals; only to {' and '.join(users)}"
        needed = {"gamma": "cv", "trace": "dispersion"}.get(kind)
        if needed and data.get(needed) is None:
            yield (needed,), f"missing; {kind} arrivals need it"

    @property
    def scaled_by(self) -> Scaling:
        """How a trace reaches another rate than its own."""
        return self.scaling or "time"


def _same_length(block: Spec, first: str, *others: str) -> Iterator[tuple[Location, str]]:
    n_expected = len(getattr(block, first))
    for name in others:
        values = getattr(block, name)
        if values is not None and len(values) != n_expected:
            yield (name,), f"found {len(values)} values; {first} has {n_expected}"


def _first_fall(values: tuple[float, ...]) -> int | None:
    """Index of the first value that is not above the one before it."""
    pairs = pairwise(values)
    return next((i + 1 for i, (low, high) in enumerate(pairs) if high <= low), None)
