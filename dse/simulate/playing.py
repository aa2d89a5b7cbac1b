"""Playing requests on a deployment, event by event: the referee of the closed forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dse.serving.types import Deployment, System
from dse.simulate.events import Line, Play, Player
from dse.simulate.lines import Tables, line_of
from dse.simulate.played import Played, played_of
from dse.simulate.pricing import number
from dse.simulate.routing import Routing
from dse.workload.requests import Requests

Progress = Callable[[int, int], None]

_DRAWN_AT_ONCE = 1 << 20


def simulate(
    system: System,
    design: Deployment,
    requests: Requests,
    *,
    routing: Routing = "least_loaded",
    seed: int = 0,
    progress: Progress | None = None,
    tables: Tables | None = None,
    **options: Any,
) -> Played:
    """Plays requests on one design.

    The design's fields hold one number each. Options: `clients` (a closed loop of so many, in the
    order of the requests; else their arrivals are played), `warmup_frac` and `cooldown_frac` (share
    of the requests at either end that is played but not measured, 0.1 and 0 unless given; a closed
    loop leaves out its last `clients` too), `budget` ("step": decoding rows count against the
    chunk; "prompt": they do not), `block_tokens` (of paging). `seed` draws accepted drafts;
    everything else is given by the requests. Raises InfeasibleError where weights do not fit.
    """
    longest = float(np.max(requests.isl + requests.osl)) + 2.0
    found = tables or Tables(system, design, longest)
    line = line_of(
        system,
        design,
        found,
        budget=options.pop("budget", "step"),
        block_tokens=options.pop("block_tokens", 16),
        hashed_tokens=(requests.block_tokens or 0) if requests.blocks is not None else 0,
    )
    steps = decode_steps_of(
        requests,
        round(number(design.decode.draft_tokens)),
        number(system.sink_engine.draft_acceptance_frac),
        seed,
    )
    played = play(line, requests, steps, routing=routing, progress=progress, **options)
    return replace(played, error_frac=found.error_frac)


def play(
    line: Line,
    requests: Requests,
    steps: npt.NDArray[np.int64] | None = None,
    *,
    routing: Routing = "least_loaded",
    progress: Progress | None = None,
    clients: int | None = None,
    warmup_frac: float = 0.1,
    cooldown_frac: float = 0.0,
) -> Played:
    """Plays requests on a line of stations; `steps` are each request's decode steps (O - 1)."""
    n = len(requests)
    last = n - round(cooldown_frac * n) - (clients or 0)
    first = min(round(warmup_frac * n), n - 1)
    if last <= first:
        last = n
    how = Play(routing=routing, clients=clients, first=first, last=last)
    taken = requests.osl - 1 if steps is None else steps
    player = Player(line, requests, taken, how, progress)
    player.run()
    return played_of(player)


def decode_steps_of(
    requests: Requests, draft_tokens: int, acceptance: float, seed: int
) -> npt.NDArray[np.int64]:
    """Steps [n] in which each request gets its O - 1 tokens.

    Of m drafted tokens the first that is refused ends a step, which gives one token more than were
    accepted: P(more than i) = a^i for i up to m. Drawn request by request from the seed.
    """
    gaps = np.asarray(requests.osl, dtype=np.int64) - 1
    if draft_tokens <= 0 or acceptance <= 0.0:
        return gaps
    draw = np.random.default_rng(seed)
    steps = np.zeros(len(gaps), dtype=np.int64)
    ends = np.cumsum(gaps)
    first = 0
    while first < len(gaps):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + _DRAWN_AT_ONCE)), first + 1)
        here = gaps[first:last]
        tokens = np.minimum(
            draw.geometric(max(1.0 - acceptance, 1e-12), int(here.sum())), draft_tokens + 1
        )
        steps[first:last] = _needed(tokens, here)
        first = last
    return steps


def _needed(tokens: npt.NDArray[np.int64], gaps: npt.NDArray[np.int64]) -> Any:
    """How many of its own draws each request needs to reach its gaps; it has one per gap."""
    starts = np.concatenate([[0], np.cumsum(gaps)[:-1]])
    total = np.concatenate([[0], np.cumsum(tokens)])
    reached = np.searchsorted(total, total[starts] + gaps, side="left")
    return np.where(gaps > 0, reached - starts, 0)
