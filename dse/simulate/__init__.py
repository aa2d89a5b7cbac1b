"""The referee: the same deployment played event by event, at the level of engine steps.

Step times come from the cost model; everything else (queues, batches, memory, chunks, replicas,
links) is played. `simulate` plays requests, `goodput` searches the largest rate that keeps limits.
"""

from dse.simulate.goodput import Goodput, goodput
from dse.simulate.lines import Tables
from dse.simulate.played import Played
from dse.simulate.playing import play, simulate
from dse.simulate.routing import ROUTINGS, Routing

__all__ = [
    "ROUTINGS",
    "Goodput",
    "Played",
    "Routing",
    "Tables",
    "goodput",
    "play",
    "simulate",
]
