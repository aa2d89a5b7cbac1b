"""`dse explain`: what limits each phase of one design, and what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.cli.design_options import Request, takes_design
from dse.cli.outcome import FINE, NOTHING_FEASIBLE
from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

_KERNELS = ("name", "flops", "bytes", "intensity", "ridge", "time_s", "bound")
_ATTENTION = (
    "layer_kind",
    "context_tokens",
    "window_s",
    "selected_s",
    "indexer_s",
    "compressor_s",
    "attention_bytes",
    "indexer_bytes",
)
_MOST_KERNELS = 12


@takes_design
def explain(session: Session, request: Request) -> int:
    """Say what limits one design, phase by phase, and what would change it.

    Of a study, its recommended design.
    """
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import explained_design, reasons_of
    from dse.explain import Subject
    from dse.explain import explain as explained

    use_compilation_cache()
    evaluation = explained_design(session, request)
    priced = evaluation.to_json()
    resident = evaluation.metrics["resident_requests"]
    subject = Subject.of(evaluation.study, evaluation.hardware, resident)
    document = {
        "schema": "dse.explain/1",
        "study": priced["study"],
        "hardware": priced["hardware"],
        "feasible": priced["feasible"],
        "reasons": reasons_of(evaluation),
        "design": priced["design"],
        "metrics": priced["metrics"],
        "memory": priced["memory"],
        "kernel_laws": priced["kernel_laws"],
        "engine_fit": priced["engine_fit"],
        "warnings": priced["warnings"],
        **explained(subject),
        "trust": priced["trust"],
    }
    session.emit(document, lambda out: _draw(out, document))
    if not document["feasible"]:
        session.note(f"not feasible: {'; '.join(document['reasons'])}")
        return NOTHING_FEASIBLE
    return FINE


def _draw(out: Console, document: dict[str, Any]) -> None:
    from dse.explain import sentences
    from dse.report.laws import law_line
    from dse.report.tables import breakdown_table, rows_table
    from dse.report.trust import doubt_lines

    for sentence in [*sentences(document), *doubt_lines(document["trust"])]:
        out.print(f"- {sentence}", soft_wrap=True)
    out.print(law_line(document["kernel_laws"], document["engine_fit"]), soft_wrap=True)
    phases = document["phases"]
    terms = {name: phase["terms"] for name, phase in phases.items() if phase["terms"]}
    out.print(breakdown_table(terms, title="Where the time goes"))
    for name in ("prefill", "decode"):
        kernels = [_kernel(row) for row in phases[name]["kernels"][:_MOST_KERNELS]]
        out.print(rows_table(kernels, _KERNELS, title=f"Kernels of {name}, the longest"))
    if document["attention"]:
        title = "Attention of one layer over contexts (times of a step, bytes of one query)"
        out.print(rows_table(document["attention"], _ATTENTION, title=title))


def _kernel(row: dict[str, Any]) -> dict[str, Any]:
    intensity = row["intensity_flops_per_byte"]
    return {
        **row,
        "flops": f"{row['flops']:.3g}",
        "bytes": f"{row['bytes']:.3g}",
        "intensity": None if intensity is None else float(f"{intensity:.3g}"),
        "ridge": float(f"{row['ridge_flops_per_byte']:.3g}"),
    }
