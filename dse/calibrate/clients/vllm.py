"""`vllm bench serve --save-result` (benchmark_serving.py before): latencies in milliseconds.

Its TPOT is (latency - TTFT) / (output tokens - 1), of requests with more than one token, mean over
requests: the definition of rows. Its ITL is between chunks, each of which may carry several tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dse.calibrate.clients.measured import MS, Client, Lengths, Load, Measured, require
from dse.calibrate.clients.source import Node


def read(node: Node) -> list[Measured]:
    """The run of a file."""
    asked = node.optional("num_prompts")
    completed = node.number("completed")
    failed = node.optional("failed")
    if failed is None:
        failed = max((asked or 0.0) - completed, 0.0)
    total_in, total_out = node.number("total_input_tokens"), node.number("total_output_tokens")
    ttft, tpot = node.number("mean_ttft_ms", scale=MS), node.number("mean_tpot_ms", scale=MS)
    rate = node.optional("request_throughput")
    require(node)
    load = load_of(node, asked)
    return [
        Measured(
            source=node.file,
            client="vllm bench serve",
            model=node.text("model_id"),
            load=load,
            completed=int(completed),
            failed=int(failed),
            isl=Lengths(total_in / completed, spread_of(node.data.get("input_lens"))),
            osl=Lengths(total_out / completed, spread_of(node.data.get("output_lens"))),
            ttft_mean_s=ttft,
            tpot_mean_s=tpot,
            ttft_median_s=node.optional("median_ttft_ms", scale=MS),
            tpot_median_s=node.optional("median_tpot_ms", scale=MS),
            requests_per_s=rate,
            e2e_mean_s=node.optional("mean_e2el_ms", scale=MS),
            notes=tuple(_notes(node, load)),
        )
    ]


def load_of(node: Node, n_requests: float | None) -> Load:
    """The load by `request_rate` and `max_concurrency`: a rate that is infinite is no rate.

    With both, requests arrive at the rate and wait in the client for one of the places.
    """
    rate = node.optional("request_rate")  # infinite: "inf" or Infinity; null in old files
    places = node.optional("max_concurrency")
    if node.data.get("request_rate") == "trace" or node.has("rps_change_events"):
        return Load("trace")
    if rate is not None and rate > 0:
        return Load("open", places, rate)
    if places is None or places < 1:
        return Load("burst", n_requests)
    if n_requests is not None and n_requests <= places:
        return Load("burst", n_requests)
    return Load("closed", places)


def _notes(node: Node, load: Load) -> list[str]:
    notes = []
    if load.kind == "open" and load.concurrency is not None:
        notes.append(
            f"requests wait in the client for one of {load.concurrency:g} places, which its TTFT "
            "leaves out"
        )
    accepted = node.optional("spec_decode_acceptance_length")
    if accepted is not None:
        notes.append(
            f"the server drafts tokens ({accepted:.2f} accepted per step): the design needs "
            "draft_tokens"
        )
    return notes


def spread_of(lengths: Any) -> float | None:
    """Spread over mean of the lengths of requests that did not fail."""
    if not isinstance(lengths, Sequence) or isinstance(lengths, str):
        return None
    numbers = [float(n) for n in lengths if isinstance(n, int | float) and 0 < n < 1e9]
    if len(numbers) < 2:
        return None
    mean = math.fsum(numbers) / len(numbers)
    return math.sqrt(math.fsum((n - mean) ** 2 for n in numbers) / len(numbers)) / mean


CLIENT: Final = Client(
    "vllm bench serve", ("num_prompts", "mean_ttft_ms", "mean_tpot_ms", "request_rate"), read
)
