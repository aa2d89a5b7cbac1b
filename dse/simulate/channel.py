"""The links between two pools: transfers that stream behind their prefill and queue for a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heapreplace


@dataclass(frozen=True, slots=True)
class Streaming:
    """How a cache is sent while its prompt is still computed: `dse.cost.transfer.exposed_time` in
    plain numbers, for it is asked for every request by itself."""

    layers: float
    layer_s: float  # list of pages of one layer
    by_layer: float
    by_chunk: float

    def exposed_s(
        self, fixed_s: float, payload_s: float, prefill_s: float, n_chunks: float
    ) -> float:
        """Seconds of a transfer after the end of a prefill of `n_chunks` equal chunks."""
        lists = self.layers * self.layer_s
        whole = lists + payload_s

        def arrives(pieces: float, piece_lists_s: float) -> float:
            piece = piece_lists_s + payload_s / pieces
            late = pieces * piece - (pieces - 1.0) * prefill_s / pieces
            return min(max(piece, late), whole)

        seconds = (1.0 - self.by_layer - self.by_chunk) * whole
        if self.by_layer:
            seconds += self.by_layer * arrives(self.layers * n_chunks, self.layer_s)
        if self.by_chunk:
            seconds += self.by_chunk * arrives(n_chunks, lists)
        return fixed_s - lists + seconds


Exposed = Callable[[float, float, float], float]


class Channel:
    """First come, first served, on as many links as the pools' accelerators drive at once.

    A transfer that takes x seconds in all begins x before its exposed end, behind the prefill, or
    when a link is free. With a fractional number of links, m below it whole, a link is busy for
    x m/links: the links together carry as much as the pools can.
    """

    def __init__(self, links: float, seconds: Callable[[float], float], exposed: Exposed) -> None:
        whole = max(int(links + 1e-9), 1)
        self.seconds, self.exposed = seconds, exposed
        self.occupied_frac = whole / links
        self.links = whole
        self.free_s = [0.0] * whole
        heapify(self.free_s)
        self.busy_s = 0.0

    def send(self, now: float, tokens: float, prefill_s: float, chunks: float) -> float:
        """When a prompt's cache has arrived whose prefill ended now; all in seconds and tokens."""
        whole = self.seconds(tokens)
        begins = now + self.exposed(tokens, prefill_s, chunks) - whole
        begins = max(begins, self.free_s[0])
        occupied = whole * self.occupied_frac
        heapreplace(self.free_s, begins + occupied)
        self.busy_s += occupied
        return max(begins + whole, now)
