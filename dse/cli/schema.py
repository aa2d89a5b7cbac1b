"""`dse schema KIND`: JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from dse.cli.session import Session


def schema(
    session: Session,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="One of study, hardware, objective, workload, engine; all of them without it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from dse.spec.schema import SPECS, schema_for

    if kind is not None:
        session.print_json(schema_for(kind))
        return
    session.print_json({"schema": "dse.schema/1", **{name: schema_for(name) for name in SPECS}})
