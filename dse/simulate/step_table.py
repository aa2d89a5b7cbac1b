"""Step times of one pool, tabulated once from the cost model and then interpolated.

The parts of a step are tabulated apart, by what each depends on: products, element-wise work and
collectives of a rank on its rows; experts, dispatch and combine on the rows of all ranks; the head
on the rows that need logits; attention over caches, recurrent states and drafting on (requests,
context); attention of prompts, per row, on (rows per prompt, start, length). Each is smooth or
homogeneous, so that `StepTable.error_frac`, the largest relative error of a whole step against the
cost model itself at points drawn between the nodes, stays far below one per cent.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from dse.simulate.curve import Curve, Surface, nodes
from dse.simulate.law import Decoding, Prompts
from dse.simulate.pricing import (
    CACHES,
    DRAFT_CACHES,
    DRAFT_HEAD,
    PARTS,
    Served,
    decode_steps,
    mixed_steps,
    number,
    prompt_steps,
    total_s,
)

Floats = npt.NDArray[np.float64]

# Terms by what they depend on; the others, without the cache kernels in them, on a rank's rows.
_OF_ALL_RANKS = ("experts",)
_APART = (*_OF_ALL_RANKS, "draft", "head", "launch", "host", *PARTS)
_ROW_RATIO, _CONTEXT_RATIO, _REQUEST_RATIO = 1.03, 1.08, 1.1
_POSITION_RATIO, _LENGTH_RATIO = 1.35, 1.5
_PROBES = 512
_DRAWS = 7  # the seed of the probes: the same deployment, the same stated error


class StepTable:
    """The step law of a pool, for loads up to a batch, a chunk and a context."""

    def __init__(self, of: Served, *, context_tokens: float, probes: int = _PROBES) -> None:
        pool, engine = of.pool, of.engine
        self.of = of
        self.dp, self.rows_each = number(pool.dp), 1.0 + number(pool.draft_tokens)
        self.host_s = number(engine.host_s_per_step)
        self.host_request_s = number(engine.host_s_per_request)
        self.hidden_host_s = number(engine.host_overlapped_s_per_step)
        self.largest_batch = max(np.ceil(number(pool.max_batch) / self.dp), 2.0)
        self.largest_chunk = max(number(pool.chunk_tokens), 2.0)
        self.largest_context = max(float(context_tokens), 64.0)
        self._rows: dict[tuple[int, int], Curve] = {}
        self._tabulate_rows()
        self._tabulate_decode()
        self._tabulate_prompts()
        self.error_frac = self._largest_error(probes)

    def decode_s(self, fullest: int, total: int, context: float) -> float:
        """Seconds of a step of `total` requests of a replica, `fullest` on its fullest rank."""
        row = self._rows.get((fullest, total))
        if row is None:
            row = self._rows[(fullest, total)] = self._decode_row(fullest, total)
        return row(context)

    def prompt_s(self, ranks: list[Prompts], decoding: Decoding | None) -> float:
        """Seconds of a step with the prompts of `ranks`, alone or with decoding requests."""
        attention_s = rows = logits = total = 0.0
        for part in ranks:
            attention_s = max(attention_s, self.prompt_attention_s(part))
            rows, logits = max(rows, part.rows), max(logits, part.prompts)
            total += part.rows
        device_s, requests = attention_s + self.launch_s, 0
        prompt_rows, prompts = rows, logits
        if decoding is not None:
            requests = decoding.fullest
            mine = requests * self.rows_each
            rows, logits, total = (
                rows + mine,
                logits + mine,
                total + decoding.total * self.rows_each,
            )
            device_s += self._cache_s(requests, decoding.context)
        device_s += self.of_rank(rows) + self.of_all(total) + self.head(logits)
        if self.drafts:
            device_s += self._draft_s(prompt_rows, prompts, requests)
        return device_s + self._host(device_s, requests)

    def _draft_s(self, rows: float, prompts: float, requests: float) -> float:
        """What prompt rows add to the draft layers' passes; one row of each request is in them."""
        seconds = self.draft_rank(rows + requests) + self.draft_head(prompts + requests)
        if requests:
            seconds -= self.draft_rank(requests) + self.draft_head(requests)
        return seconds

    def prompt_attention_s(self, part: Prompts) -> float:
        """Seconds of one rank's attention (and recurrent layers) over its prompts."""
        share = part.prompts / part.rows
        per_row = self.prompt_row(share, part.start, part.end - part.start)
        return self.prompt_fixed_s + part.rows * per_row

    def _host(self, device_s: float, requests: float) -> float:
        hidden = max(self.hidden_host_s - device_s, 0.0)
        return hidden + self.host_s + self.host_request_s * requests

    def _cache_s(self, requests: float, context: float) -> float:
        low = self.by_requests.x
        i = min(max(bisect_right(low, requests) - 1, 0), len(low) - 2)
        share = (requests - low[i]) / (low[i + 1] - low[i])
        below, above = self.cache_curves[i], self.cache_curves[i + 1]
        return below(context) * (1.0 - share) + above(context) * share

    def _decode_row(self, fullest: int, total: int) -> Curve:
        """Seconds over the contexts for a number of requests."""
        rows = self.rows_each
        fixed = self.of_rank(fullest * rows) + self.of_all(total * rows)
        fixed += self.head(fullest * rows) + self.launch_s
        low = np.asarray(self.by_requests.x)
        at = np.array([np.interp(fullest, low, column) for column in self.caches.T])
        if fullest > low[-1]:
            slope = (self.caches[-1] - self.caches[-2]) / (low[-1] - low[-2])
            at = self.caches[-1] + slope * (fullest - low[-1])
        device = fixed + at
        hidden = np.maximum(self.hidden_host_s - device, 0.0)
        whole = device + hidden + self.host_s + self.host_request_s * fullest
        return Curve(self.contexts, whole)

    def _tabulate_rows(self) -> None:
        most = self.largest_chunk + self.largest_batch * self.rows_each
        rank = nodes(0.0, most, _ROW_RATIO)[1:]
        every = nodes(0.0, most * self.dp, _ROW_RATIO)[1:]
        terms = decode_steps(self.of, rank * self.dp, 1.0, 1.0)
        own = sum(terms[name] for name in terms if name not in _APART) - terms[CACHES]
        self.of_rank, self.head = Curve(rank, own), Curve(rank, terms["head"])
        self.launch_s = float(terms["launch"][0])
        terms = decode_steps(self.of, every, 1.0, 1.0)
        self.of_all = Curve(every, sum(terms[name] for name in _OF_ALL_RANKS))

        self.drafts = self.of.model.draft is not None and self.rows_each > 1.0
        if self.drafts:
            terms = prompt_steps(self.of, rank * self.dp, rank * self.dp, 0.0, 1.0)
            self.draft_head = Curve(rank, terms[DRAFT_HEAD])
            own = terms["draft"] - terms[DRAFT_HEAD] - terms[DRAFT_CACHES]
            self.draft_rank = Curve(rank, own)

    def _tabulate_decode(self) -> None:
        requests = nodes(1.0, self.largest_batch, _REQUEST_RATIO)
        self.contexts = self._with_bends(nodes(1.0, self.largest_context, _CONTEXT_RATIO))
        n, context = np.meshgrid(requests, self.contexts, indexing="ij")
        terms = decode_steps(self.of, n * self.dp, context, self.rows_each)
        self.caches = (terms[CACHES] + terms["draft"]).reshape(n.shape)
        self.by_requests = Curve(requests, requests)
        self.cache_curves = [Curve(self.contexts, row) for row in self.caches]

    def _tabulate_prompts(self) -> None:
        """Attention is c + rows * a(prompts/rows, start, length): two numbers of rows tell both."""
        chunk = self.largest_chunk
        each = _geometric(1.0, chunk, _LENGTH_RATIO)
        start = np.append(0.0, _geometric(16.0, self.largest_context, _POSITION_RATIO))
        start = self._with_bends(start)
        length = self._with_bends(_geometric(1.0, self.largest_context, _LENGTH_RATIO))
        share = 1.0 / each[::-1]
        u, v, w = np.meshgrid(share, start, length, indexing="ij")
        once, twice = (
            terms[CACHES] + terms[DRAFT_CACHES]
            for terms in (
                prompt_steps(self.of, rows * self.dp, rows * self.dp * u, v, v + w)
                for rows in (chunk, 2.0 * chunk)
            )
        )
        per_row = (twice - once) / chunk
        self.prompt_fixed_s = float(np.mean(2.0 * once - twice))
        self.prompt_row = Surface(share, start, length, per_row.reshape(u.shape))

    def _with_bends(self, at: Floats) -> Floats:
        """The points with those where attention bends (or jumps, where its blocks begin anew)."""
        bends: list[float] = []
        for kind in self.of.model.main.attention:
            if kind.has_window or kind.is_chunked:
                bends.append(number(kind.window))
            if kind.is_chunked:
                bends.append(np.nextafter(number(kind.window), 0.0))
            if kind.has_top_k:
                bends.append(number(kind.top_k) * number(kind.compression))
        inside = [one for one in bends if at[0] < one < at[-1]]
        return np.unique(np.concatenate([at, inside]))

    def _largest_error(self, n: int) -> float:
        """Largest relative error of a whole step at n loads, alone and mixed, all ranks alike."""
        draw = np.random.default_rng(_DRAWS)

        def between(low: float, high: float) -> Floats:
            return np.exp(draw.uniform(np.log(low), np.log(max(high, low + 1e-9)), n))

        requests = np.ceil(between(1.0, self.largest_batch))
        context = between(16.0, self.largest_context)
        prompts = np.ceil(between(1.0, 8.0))
        rows = np.maximum(between(1.0, self.largest_chunk), prompts)
        start = np.where(draw.uniform(size=n) < 0.5, 0.0, between(16.0, self.largest_context / 2))
        end = start + rows / prompts
        dp = self.dp
        prompt = (rows * dp, prompts * dp, start, end)
        decode = (requests * dp, context, self.rows_each)
        exact = [
            total_s(terms)
            for terms in (
                decode_steps(self.of, *decode),
                prompt_steps(self.of, *prompt),
                mixed_steps(self.of, prompt, decode),
            )
        ]
        worst = 0.0
        for i in range(n):
            ranks = [Prompts(rows[i], prompts[i], start[i], end[i])] * round(dp)
            both = Decoding(int(requests[i]), int(requests[i] * dp), context[i])
            found = (self.decode_s(*both), self.prompt_s(ranks, None), self.prompt_s(ranks, both))
            for one, true in zip(found, exact, strict=True):
                worst = max(worst, abs(one / float(true[i]) - 1.0))
        return worst


def _geometric(low: float, high: float, ratio: float) -> Any:
    """Points from `low` to `high`, a factor of at most `ratio` apart."""
    count = max(int(np.ceil(np.log(high / low) / np.log(ratio))), 1)
    return np.exp(np.linspace(np.log(low), np.log(high), count + 1))
