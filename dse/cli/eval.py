"""`dse eval`: the price of one design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.cli.design_options import Request, takes_design
from dse.cli.outcome import FINE, NOTHING_FEASIBLE
from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console


@takes_design
def evaluate(session: Session, request: Request) -> int:
    """Price one design: latencies, rates, memory, and where the time goes."""
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import evaluated, reasons_of

    use_compilation_cache()
    evaluation = evaluated(request)
    document = {**evaluation.to_json(), "reasons": reasons_of(evaluation)}
    session.emit(document, lambda out: draw_evaluation(out, document))
    if not document["feasible"]:
        session.note(f"not feasible: {'; '.join(document['reasons'])}")
        return NOTHING_FEASIBLE
    return FINE


def draw_evaluation(out: Console, document: dict[str, Any]) -> None:
    """The design with its metrics and memory, then the seconds of each phase."""
    from dse.report.laws import law_line
    from dse.report.spread import interval_line
    from dse.report.tables import breakdown_table, evaluation_table
    from dse.report.trust import doubt_lines

    out.print(evaluation_table(document))
    out.print(breakdown_table(document["breakdown"], title="Where the time goes"))
    out.print(law_line(document["kernel_laws"], document["engine_fit"]), soft_wrap=True)
    if document["intervals"]:
        out.print(interval_line(document["intervals"]), soft_wrap=True)
    for warning in document["warnings"]:
        out.print(f"note: {warning}", soft_wrap=True)
    for line in doubt_lines(document["trust"]):
        out.print(line, soft_wrap=True)
