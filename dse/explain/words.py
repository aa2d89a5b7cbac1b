"""An explanation in a person's words, made from the document alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dse.units import format_si

Document = Mapping[str, Any]

_LIMITS = {
    "compute": "the matrix units",
    "memory bandwidth": "memory bandwidth",
    "link": "communication between accelerators",
    "launch overhead": "launches and gaps between kernels",
    "host": "the host",
}
_CHANGES = {
    "compute": "a higher compute peak, narrower weights and activations, or more ranks",
    "link": "faster links, fewer ranks that must agree, or overlap with compute",
    "launch overhead": "fewer, larger kernels: a larger batch or chunk, graphs, fusion",
    "host": "less work of the scheduler per step, or more tokens per step",
}
_WORTH_NAMING = 0.1


def sentences(document: Document) -> list[str]:
    """What limits each phase, what would change it, and where the crossovers lie."""
    phases = document["phases"]
    return [
        *_phase("Prefill of one prompt", phases["prefill"]),
        *_phase("One decode step", phases["decode"]),
        *_reuse(document.get("reuse")),
        *_link(phases["link"]),
        *_dense(document["crossovers"]["dense_gemm"]),
        *_experts(document["crossovers"]["experts"], document.get("moe")),
        *_step(document["crossovers"]["step"]),
        *_drafting(document.get("drafting")),
        *_history(document["attention"]),
    ]


def _phase(what: str, phase: Document) -> Iterator[str]:
    shares = sorted(phase["shares_frac"].items(), key=lambda item: -item[1])
    limit, share = shares[0]
    others = [
        f"{_LIMITS[name]} {_percent(value)}" for name, value in shares[1:] if value > _WORTH_NAMING
    ]
    also = f" (then {', '.join(others)})" if others else ""
    largest = phase["largest_term"]
    yield (
        f"{what} takes {format_si(phase['time_s'], 's', 3)}. It waits for {_LIMITS[limit]} "
        f"{_percent(share)} of that time{also}. The largest part is "
        f"{largest['term'].replace('_', ' ')}, {_percent(largest['share_frac'])}."
    )
    yield (
        f"What would change it: {_lever(limit, phase)}. 10 % more of {_LIMITS[limit]} saves about "
        f"{_percent(share * (1 - 1 / 1.1))}."
        if limit in ("compute", "memory bandwidth")
        else f"What would change it: {_lever(limit, phase)}."
    )


def _lever(limit: str, phase: Document) -> str:
    """What acts on the limit; for memory it depends on whether weights or caches are read."""
    if limit != "memory bandwidth":
        return _CHANGES[limit]
    by_kind = {"weights": 0.0, "caches": 0.0}
    for kernel in phase["kernels"]:
        if kernel["bound"] == "memory bandwidth":
            reads_cache = kernel["term"] in ("attention", "indexer", "recurrent", "compressor")
            by_kind["caches" if reads_cache else "weights"] += kernel["time_s"]
    if by_kind["caches"] > by_kind["weights"]:
        return (
            "narrower or fewer cached rows and shorter contexts; a larger batch helps little, "
            "since every request reads its own cache"
        )
    return "more rows per step, since all share one reading of the weights, or narrower weights"


def _reuse(reuse: Document | None) -> Iterator[str]:
    if reuse is None:
        return
    loaded = (
        f" and {_percent(reuse['tiers_frac'])} in the tiers behind it, which takes "
        f"{format_si(reuse['loading_s'], 's', 3)} of a rank's link to load"
        if reuse["tiers_frac"] > 0.0
        else ""
    )
    yield (
        f"Of a prompt {_percent(reuse['hit_frac'])} is found in caches: "
        f"{_percent(reuse['accelerator_memory_frac'])} in the accelerator memory that the design "
        f"leaves{loaded}."
    )


def _link(link: Document) -> Iterator[str]:
    if link["limit"] == "none":
        return
    size = format_si(link["kernels"][0]["bytes"], "bytes", 3)
    rate = format_si(link["rate_bytes_per_s"], "bytes_per_s", 3)
    yield (
        f"The link moves {size} per prompt at {rate} in {format_si(link['time_s'], 's', 3)}; its "
        f"{link['limit']} decides. {_percent(link['hidden_frac'])} of it hides behind the prefill, "
        f"{format_si(link['exposed_s'], 's', 3)} is added to the time to first token."
    )


def _dense(dense: Document) -> Iterator[str]:
    ideal = f"{dense['rows_ideal']:,.0f}"
    law = _rows_or_never(dense["rows"], "rows")
    yield (
        f"Dense products ({dense['gemm']}): the chip's ridge of "
        f"{dense['ridge_flops_per_byte']:,.0f} FLOP/B is reached at {ideal} rows when only weights "
        f"move; with this engine's efficiencies compute takes over {law}. The design decodes "
        f"{_rows(dense['rows_of_design'])} rows a step."
    )


def _experts(experts: Document | None, moe: Document | None) -> Iterator[str]:
    if experts is None or moe is None:
        return
    law = _rows_or_never(experts["rows"], "rows")
    tokens = "" if not experts["tokens"] else f" ({experts['tokens']:,.0f} tokens)"
    yield (
        f"Experts: the ridge is reached at {experts['rows_ideal']:,.0f} rows per expert, "
        f"{experts['tokens_ideal']:,.0f} tokens a step; with this engine's efficiencies compute "
        f"takes over {law}{tokens}."
    )
    for name in ("prefill", "decode"):
        rows = moe[name]
        yield (
            f"Rows per expert in a {name} step of {rows['tokens']:,.0f} tokens "
            f"({rows['router']} router): mean {_rows(rows['mean'])}, median {rows['median']}, p90 "
            f"{rows['p90']}, fullest {rows['max']}; {_percent(rows['empty_share_frac'])} of the "
            "experts get none."
        )
        hot = rows["hottest_rank"]
        ratio = hot["rows"] / max(hot["mean_rank_rows"], 1e-9)
        if ratio > 1.005:
            yield (
                f"The hottest rank gets {_rows(hot['rows'])} rows, {ratio:.2f} times the mean "
                f"rank's, on {_rows(hot['active_experts'])} of its {_rows(hot['slots'])} experts."
            )


def _rows(rows: float) -> str:
    """Three significant digits, or all of a large number: never 3e+03."""
    return f"{rows:,.0f}" if rows >= 100.0 else f"{rows:.3g}"


def _rows_or_never(rows: float | None, unit: str) -> str:
    if rows is None:
        return "at no size that was tried"
    if rows == 0.0:
        return "from the first row on"
    return f"at {_rows(rows)} {unit}"


def _step(step: Document) -> Iterator[str]:
    batch = "at no batch that was tried" if step["batch"] is None else f"at {step['batch']:,}"
    fits = f"{step['batch_that_fits']:,.0f}"
    yield (
        f"Whole step: throughput stops growing {batch} requests a replica (from there doubling the "
        f"batch gains under {_percent(step['smallest_gain_frac'])}) at the mean context of "
        f"{step['context_tokens']:,.0f} tokens; memory holds {fits}, the design runs "
        f"{step['batch_of_design']:,.3g}."
    )


def _drafting(drafting: Document | None) -> Iterator[str]:
    if drafting is None:
        return
    gain, batch = drafting["gain_of_design"], drafting["break_even_batch"]
    if batch is None:
        pays = "drafting pays at every batch that was tried"
    elif batch == 0.0:
        pays = "drafting pays at no batch"
    else:
        pays = f"drafting pays up to a batch of {_rows(batch)} requests a replica"
    yield (
        f"Drafts: {drafting['draft_tokens']:g} a step at an acceptance of "
        f"{_percent(drafting['acceptance_frac'])} make {drafting['accepted_tokens_per_step']:.2f} "
        f"tokens of one; at the design's batch of {_rows(drafting['batch_of_design'])} tokens come "
        f"{gain:.2f} times as fast as without, and {pays}."
    )


def _history(rows: list[Document]) -> Iterator[str]:
    """Kinds whose reads grow between the shortest and the longest context of the sweep."""
    for kind in dict.fromkeys(row["layer_kind"] for row in rows):
        own = [row for row in rows if row["layer_kind"] == kind]
        first, last = own[0], own[-1]
        growth = last["bytes"] / max(first["bytes"], 1e-9)
        if growth < 1.01:
            yield (
                f"A {kind} layer reads {format_si(first['bytes'], 'bytes', 3)} per query whatever "
                "the context."
            )
            continue
        parts = [
            f"{name} {last[f'{name}_bytes'] / first[f'{name}_bytes']:,.3g} times"
            for name in ("attention", "indexer")
            if first[f"{name}_bytes"] and last[f"{name}_bytes"] / first[f"{name}_bytes"] >= 1.01
        ]
        yield (
            f"A {kind} layer reads {format_si(first['bytes'], 'bytes', 3)} per query at "
            f"{first['context_tokens']:,} tokens and {format_si(last['bytes'], 'bytes', 3)} at "
            f"{last['context_tokens']:,}: {' and '.join(parts)} as much."
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "<1 %"
