"""Numbers that the lowering turns into tables: how lengths, arrivals and experts scatter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from dse.sensitivity.handles import Varied
from dse.spec.lengths import LARGEST_CV
from dse.spec.study import Study

_MOST_SIGMA: Final = 4.0
_MOST_GAP_CV: Final = 20.0


def varied_of(study: Study, *, routed: bool) -> list[Varied]:
    """Spreads of the workload, what its prompts repeat, and of the routing of a model's experts."""
    return [
        *_lengths(study),
        *_arrivals(study),
        *_reuse(study),
        *(_routing(study) if routed else ()),
    ]


def _number(
    name: str, value: float, changed: Callable[[Study, float], Study], most: float, unit: str
) -> Iterator[Varied]:
    if value > 0.0:
        yield Varied(name, unit, value, "workload", changed, most)


def _lengths(study: Study) -> Iterator[Varied]:
    """Of lognormal lengths; quantiles and joint nodes have no such number."""
    workload = study.workload
    if workload.joint is not None:
        return
    for name in ("isl", "osl"):
        lengths = getattr(workload, name)
        if not lengths.quantiles:
            changed = partial(_with_length_cv, name)
            yield from _number(f"workload.{name}.cv", lengths.cv, changed, LARGEST_CV, "count")


def _with_length_cv(name: str, study: Study, factor: float) -> Study:
    old = getattr(study.workload, name)
    return _with_workload(study, {name: _copy(old, cv=old.cv * factor)})


def _arrivals(study: Study) -> Iterator[Varied]:
    arrivals = study.workload.arrivals
    if arrivals is not None and arrivals.kind == "gamma" and arrivals.cv:
        yield from _number("workload.arrivals.cv", arrivals.cv, _with_gap_cv, _MOST_GAP_CV, "count")


def _with_gap_cv(study: Study, factor: float) -> Study:
    old = study.workload.arrivals
    assert old is not None, "only open loops have the number"
    assert old.cv is not None, "only gamma arrivals have the number"
    return _with_workload(study, {"arrivals": _copy(old, cv=old.cv * factor)})


def _reuse(study: Study) -> Iterator[Varied]:
    """All shares of the curve by cache size move together, its largest at most to 1."""
    reuse = study.workload.reuse
    if reuse is not None:
        most = float(max(*reuse.hit_frac, reuse.unlimited_frac))
        yield from _number("workload.reuse.hit_frac", most, _with_hits, 1.0, "frac")


def _with_hits(study: Study, factor: float) -> Study:
    old = study.workload.reuse
    assert old is not None, "only workloads that repeat have the number"
    changed = _copy(
        old,
        hit_frac=tuple(factor * one for one in old.hit_frac),
        unlimited_frac=factor * old.unlimited_frac,
    )
    return _with_workload(study, {"reuse": changed})


def _routing(study: Study) -> Iterator[Varied]:
    """Deviation of ln popularity, in all classes of layers with that law."""
    found = [one.sigma for one in study.routing.classes if one.sigma]
    if found:
        name = "routing.popularity.sigma"
        yield from _number(name, max(found), _with_sigma, _MOST_SIGMA, "count")


def _with_sigma(study: Study, factor: float) -> Study:
    changed = tuple(
        _copy(one, sigma=one.sigma * factor) if one.sigma else one for one in study.routing.classes
    )
    return study.model_copy(update={"routing": _copy(study.routing, popularity=changed)})


def _with_workload(study: Study, update: dict[str, Any]) -> Study:
    return study.model_copy(update={"workload": _copy(study.workload, **update)})


def _copy(spec: Any, **update: Any) -> Any:
    return spec.model_copy(update=update)
