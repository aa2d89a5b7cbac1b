"""Settling most of a grid by one question: does this design carry the best rate found so far?

Where a score is a rate over a constant of the design (goodput per accelerator, per USD), a design
beats the best one only if it keeps every promise at the rate that would tie. Latencies grow with
the load, so one operating point under that open load decides: a fraction of the work of finding
the design's own largest rate. And they only shrink where a batch limit is lifted, so one question
settles all limits at once. What remains is priced in full, in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from dse.lower.study import Problem
from dse.search.exact import Scored, score_designs
from dse.search.found import Found, reduced
from dse.search.groups import SCALES, Groups, asked_designs, blocks
from dse.search.neighbours import around, drawn
from dse.serving.reasons import Reason
from dse.serving.types import GOODPUT

Progress = Callable[[int, int], None]

# Designs drawn at first, and neighbours scored together.
BLOCK: Final = 256
# Smaller grids are priced whole, and have a whole Pareto front.
SMALL: Final = 4096
# The rate that must be carried is this share of the best: what the search's own error is below.
_SLACK: Final = 0.99
_ROUNDS: Final = 6
_MOST_GROUPS: Final = 4096
_WHOLE_GROUPS: Final = 64
# Scores of one group that differ by less differ by the search's own error.
_EQUAL: Final = 1e-4
_MISSES: Final = tuple(
    int(code)
    for code in (
        Reason.SATURATED,
        Reason.TTFT,
        Reason.TPOT,
        Reason.ITL,
        Reason.E2E,
        Reason.ATTAINMENT,
    )
)


def applies(problem: Problem) -> bool:
    """Whether a rate is maximized under promises on percentiles or on single requests."""
    limits, goal = problem.system.limits, problem.goal
    promised = bool(limits.percentiles) or bool(limits.each)
    rated = goal.metric in SCALES and goal.sign > 0
    return promised and rated and problem.system.traffic.load_kind == GOODPUT


class _Pricing:
    """Designs scored so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.order: list[int] = []
        self.parts: list[Scored] = []
        self.scores: dict[int, float] = {}

    def add(self, indices: Iterable[int]) -> None:
        """Scores what was not scored before."""
        new = [index for index in dict.fromkeys(indices) if index not in self.scores]
        if new:
            found = score_designs(self.problem, new)
            self.parts.append(found)
            self.order += new
            self.scores.update(zip(new, found.score.tolist(), strict=True))

    def score_of(self, index: int) -> float:
        """The score of a design; -inf where it is not feasible or was not priced."""
        return self.scores.get(index, -np.inf)

    def best(self, n: int) -> list[int]:
        """The best n feasible designs."""
        found = sorted(self.scores, key=lambda index: (-self.scores[index], index))[:n]
        return [index for index in found if np.isfinite(self.scores[index])]

    def joined(self) -> Scored:
        """All of them, in order."""
        return Scored(*(np.concatenate(leaves) for leaves in zip(*self.parts, strict=True)))


def _climb(pricing: _Pricing) -> None:
    """A draw of the grid, then the neighbours of the best until nothing improves."""
    grid = pricing.problem.grid
    pricing.add(drawn(grid, BLOCK))
    best = None
    for _ in range(_ROUNDS):
        top = pricing.best(4)
        if not top or top[0] == best:
            return
        best = top[0]
        near = [index for index in around(grid, top) if index not in pricing.scores]
        pricing.add(near[:BLOCK])


def settle(problem: Problem, progress: Progress | None = None, *, small: int) -> Found | None:
    """The best designs of a grid, most of them settled by the rate of the best.

    None where no design is found feasible or the bound leaves too many: the grid must be
    enumerated then.
    """
    pricing = _Pricing(problem)
    _climb(pricing)
    groups = Groups(problem)
    for _ in range(_ROUNDS):
        top = pricing.best(1)
        if not top:
            return None
        score = _SLACK * pricing.scores[top[0]]
        open_groups, counts = _open_groups(groups, score, progress, small)
        if len(open_groups) <= _MOST_GROUPS:
            break
        # Many groups pass: a better design is among them.
        some = open_groups[:: max(len(open_groups) // BLOCK, 1)]
        pricing.add(groups.members(group)[-1] for group in some)
        if pricing.best(1) == top:
            return None
    else:
        return None
    _price_groups(pricing, groups, open_groups, score)
    if progress is not None:
        progress(problem.grid.size, problem.grid.size)
    return _found(problem, pricing, counts)


def _open_groups(
    groups: Groups, score: float, progress: Progress | None, small: int
) -> tuple[list[int], Counter[int]]:
    """(groups that may reach `score`, how many designs fail for which reason)."""
    spans = groups.compiled if groups.grid.size > small else groups.interpreted
    found: list[int] = []
    counts: Counter[int] = Counter()
    done, size = 0, groups.problem.grid.size
    for kept, reasons, asked in spans(score):
        found += kept
        counts.update({code: n * groups.size for code, n in reasons.items()})
        done += asked * groups.size
        if progress is not None:
            progress(min(done, size - 1), size)
    return found, counts


def _price_groups(pricing: _Pricing, groups: Groups, open_groups: list[int], score: float) -> None:
    """Prices what may win of the groups that may carry `score`.

    Of every group the smallest, the middle and the largest limit that carry it are priced; of those
    that come close to the best, the limits between two that differ as well.
    """
    carrying = _carrying(groups, open_groups, score)
    pricing.add(i for found in carrying for i in {found[0], found[len(found) // 2], found[-1]})
    best = pricing.best(1)
    if not best:
        return
    near = _SLACK * pricing.scores[best[0]]
    close = [found for found in carrying if max(map(pricing.score_of, found)) >= near]
    spans = [(found, 0, len(found) - 1) for found in close[:_WHOLE_GROUPS]]
    while spans:
        # Where a limit does not bind, all that are larger score alike: nothing lies between them.
        spans = [
            half
            for found, low, high in spans
            for half in _halves(low, high, pricing.score_of(found[low]), found, pricing)
        ]
        pricing.add(found[i] for found, low, high in spans for i in (low, high))


def _halves(
    low: int, high: int, score: float, found: list[int], pricing: _Pricing
) -> list[tuple[list[int], int, int]]:
    """The two halves of a span of members whose ends differ in score."""
    if high - low < 2 or abs(pricing.score_of(found[high]) - score) <= _EQUAL * abs(score):
        return []
    middle = (low + high) // 2
    return [(found, low, middle), (found, middle, high)]


def _carrying(groups: Groups, open_groups: list[int], score: float) -> list[list[int]]:
    """The members of each group that carry `score`; groups with none are left out.

    A larger limit shortens waits and takes memory, so those that carry it lie in a row. Its ends
    are found from members at powers of two; a group without one there is asked whole.
    """
    probes = sorted(
        {min((1 << n) - 1, groups.size - 1) for n in range(groups.size.bit_length() + 1)}
    )
    members = [groups.members(group) for group in open_groups]
    known = _asked(groups, [group[i] for group in members for i in probes], score)
    whole = [group for group in members if not any(known[group[i]] for i in probes)]
    rest = [index for group in whole for index in group]
    for group in members:
        held = [i for i in probes if known[group[i]]]
        if held:
            below = max((i for i in probes if i < held[0]), default=-1)
            above = min((i for i in probes if i > held[-1]), default=groups.size)
            rest += [group[i] for i in (*range(below + 1, held[0]), *range(held[-1] + 1, above))]
    known |= _asked(groups, rest, score)
    found = []
    for group in members:
        held = [i for i, index in enumerate(group) if known.get(index)]
        if held:
            found.append(group[held[0] : held[-1] + 1])
    return found


def _asked(groups: Groups, indices: list[int], score: float) -> dict[int, bool]:
    """Whether designs of the grid carry a score."""
    problem = groups.problem
    found: dict[int, bool] = {}
    for block in blocks(list(dict.fromkeys(indices))):
        reasons = asked_designs(problem, problem.tables, problem.grid, block, score, None)
        found.update(zip(block, (reasons == int(Reason.OK)).tolist(), strict=True))
    return found


def _found(problem: Problem, pricing: _Pricing, counts: Counter[int]) -> Found:
    """The reduction of what was scored, with all other designs in the counts."""
    order = pricing.order
    whole = pricing.joined()
    part = reduced(*whole)
    feasible = int(np.sum(whole.reason == int(Reason.OK)))
    # Designs that miss a promise at the best rate may keep it at a lower one: settled, not refused.
    settled = Counter({code: n for code, n in counts.items() if code not in _MISSES})
    settled[int(Reason.OK)] = feasible
    settled[int(Reason.BOUNDED)] = max(problem.grid.size - sum(settled.values()), 0)
    return Found(
        top=tuple((score, order[i]) for score, i in part.top),
        front={key: (value, order[i]) for key, (value, i) in part.front.items()},
        counts={code: n for code, n in settled.items() if n},
    )
