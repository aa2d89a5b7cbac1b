"""`dse workload TRACE`: a trace of requests summarized as a workload block."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.session import Session
from dse.cli.trace_options import BlockTokens, Columns, TimeUnit, roles_of
from dse.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.workload.summary import Summary
    from dse.workload.trace import TraceReport

_DISPERSION_AT = (1.0, 10.0, 100.0, 1000.0)


def workload(
    session: Session,
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="Requests, one a line: CSV with a header or JSONL, also packed by gzip.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the workload.", show_default=False),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="TEXT", help="Where the trace comes from.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the block to a file.", show_default=False
        ),
    ] = None,
    time_unit: TimeUnit = None,
    columns: Columns = None,
    block_tokens: BlockTokens = None,
) -> None:
    """Summarize a trace of requests into a workload block."""
    from dse.report.atomic import require_writable, write_text
    from dse.spec.plain import dump_yaml
    from dse.workload.summary import summarize
    from dse.workload.trace import read_trace

    roles = roles_of(columns)
    if out is not None:
        require_writable(out.parent)
    read = read_trace(trace, columns=roles, time_unit=time_unit, block_tokens=block_tokens)
    found = summarize(read, name=name, source=source)
    _require_usable(found, trace)
    text = dump_yaml(found.workload)
    if out is not None:
        write_text(out, text)
    if session.verbosity >= 0:
        _draw(session.err, found, read.report)
    document = {
        "schema": "dse.workload/1",
        "workload": found.workload,
        "summary": found.facts,
        "report": read.report,
    }
    if session.json:
        session.print_json(document)
    elif out is None:
        session.out.file.write(text)
    if out is not None:
        session.note(f"written: {out}")


def _require_usable(found: Summary, trace: Path) -> None:
    """The block must be one that every command takes. Raises SpecError in the trace's name."""
    from dataclasses import replace

    from dse.spec.load import load_spec
    from dse.spec.workload import Workload

    try:
        load_spec(Workload, found.workload)
    except SpecError as error:
        raise SpecError(replace(fault, file=str(trace)) for fault in error.faults) from None


def _draw(err: Console, found: Summary, report: TraceReport) -> None:
    from dse.report.tables import rows_table

    facts = found.facts
    err.print(f"{report.file}: {report.format}, {report.n_requests:,} requests", soft_wrap=True)
    for note in report.notes:
        err.print(f"  {note}", soft_wrap=True)
    lengths = [
        {"tokens": {"isl": "prompt", "osl": "output"}[key], **_readable(values)}
        for key, values in facts["lengths"].items()
    ]
    err.print(rows_table(lengths, list(lengths[0]), title="Lengths"))
    rows = [*_arrival_rows(facts), *_correlation_rows(facts), *_reuse_rows(facts)]
    err.print(rows_table(rows, ("quantity", "value", "meaning")))


def _readable(values: dict[str, float]) -> dict[str, str]:
    return {
        {"p100": "largest"}.get(key, key): f"{value:.3g}" if key == "cv" else f"{value:,.1f}"
        for key, value in values.items()
    }


def _row(quantity: str, value: str, meaning: str) -> dict[str, str]:
    return {"quantity": quantity, "value": value, "meaning": meaning}


def _arrival_rows(facts: dict[str, Any]) -> list[dict[str, str]]:
    import numpy as np

    arrivals = facts.get("arrivals")
    if arrivals is None:
        return [_row("arrivals", "none", "no times, or one for all: state arrivals or concurrency")]
    rows = [
        _row("rate", f"{arrivals['recorded_rate']:.4g} requests/s", "mean of the recording"),
        _row("span", f"{arrivals['span_s']:,.0f} s", "from the first to the last arrival"),
        _row("cv of gaps", f"{arrivals.get('cv', 0):.3g}", "1 for Poisson arrivals"),
    ]
    table = arrivals["dispersion"]
    for n in _DISPERSION_AT:
        index = float(np.interp(np.log(n), np.log(table["requests"]), table["index"]))
        meaning = f"variance over mean of counts where {n:g} are expected; 1 for Poisson"
        rows.append(_row(f"dispersion at {n:g}", f"{index:.3g}", meaning))
    windows = arrivals.get("windows")
    if windows is not None:
        low, high = min(windows["rate"]), max(windows["rate"])
        meaning = f"relative rate in {len(windows['rate'])} windows of {windows['window_s']:.3g} s"
        rows.append(_row("drift", f"{low:.2f} to {high:.2f}", meaning))
    meaning = "time scaling keeps drift (pessimistic); scaling: superpose dilutes it (optimistic)"
    rows.append(_row("other rates", "by time scaling", meaning))
    return rows


def _correlation_rows(facts: dict[str, Any]) -> list[dict[str, str]]:
    found = facts["correlation"]
    return [
        _row("prompt autocorrelation", f"{found['isl']:.3f}", "with the next request's"),
        _row("output autocorrelation", f"{found['osl']:.3f}", "with the next request's"),
        _row("prompt with output", f"{found['isl_osl']:.3f}", "kept by the joint nodes"),
    ]


def _reuse_rows(facts: dict[str, Any]) -> list[dict[str, str]]:
    reuse = facts.get("reuse")
    if reuse is None:
        return []
    return [
        _row("reuse", f"{reuse['unlimited_frac']:.1%}", "of prompt tokens, in an unlimited cache"),
        _row("reuse of blocks", f"{reuse['unlimited_blocks_frac']:.1%}", "partial ones counted"),
        _row("distinct tokens", f"{reuse['distinct_tokens']:,}", "what that cache holds"),
    ]
