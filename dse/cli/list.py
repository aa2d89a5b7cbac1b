"""`dse list KIND`: the names that the catalogue knows."""

from __future__ import annotations

from typing import Annotated

import typer

from dse.cli.session import Session

KindName = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="One of hardware, models, objectives, studies, workloads, engines, kernels, "
        "deployments, metrics.",
        show_default=False,
    ),
]


def list_names(session: Session, kind: KindName) -> None:
    """List the names of a kind, with their main facts."""
    from dse.cli.kinds import KINDS, kind_named

    key = kind_named(kind)
    rows = KINDS[key].rows()
    if session.json:
        session.print_json({"schema": "dse.list/1", "kind": key, "items": rows})
        return
    from dse.report.tables import rows_table

    session.out.print(rows_table(rows, KINDS[key].columns))
