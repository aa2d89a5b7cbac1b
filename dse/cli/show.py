"""`dse show KIND NAME`: everything known about one thing, with sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.list import KindName
from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console


def show(
    session: Session,
    kind: KindName,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A name, an alias or a path.", show_default=False),
    ],
) -> None:
    """Show all that is known about one of them, with sources."""
    from dse.cli.kinds import KINDS, kind_named

    key = kind_named(kind)
    if KINDS[key].is_file and not session.json:
        _print_file(session, key, name)
        return
    details = KINDS[key].details(name)
    document = {"schema": "dse.show/1", "kind": key, "name": details.get("name", name)}
    session.emit({**document, "value": details}, lambda out: _draw(out, details))


def _print_file(session: Session, kind: Any, name: str) -> None:
    from dse import catalog
    from dse.spec.yaml_source import read_bytes

    path = catalog.resolve(kind, name)
    session.note(f"# {path}")
    session.out.print(read_bytes(path).decode("utf-8", "replace").rstrip("\n"), soft_wrap=True)


def _draw(out: Console, details: Mapping[str, Any]) -> None:
    from dse.report.tables import rows_table

    facts = list(_facts(details))
    columns = ("name", "value", "status", "source", "note")
    kept = [column for column in columns if any(fact.get(column) for fact in facts)]
    out.print(rows_table([{**dict.fromkeys(kept, ""), **fact} for fact in facts], kept))
    for name, rows in details.items():
        if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping):
            out.print(rows_table(rows, list(rows[0]), title=name))
        elif isinstance(rows, list | tuple) and name in ("conflicts", "warnings"):
            for text in rows:
                out.print(f"{name.removesuffix('s')}: {text}")


def _facts(values: Mapping[str, Any], prefix: str = "") -> Iterator[dict[str, str]]:
    """One row per leaf: its dotted name and value, with the source where the value has one."""
    from dse.report.format import quantity

    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "value" in value and "status" in value:
            sourced = {at: str(value.get(at) or "") for at in ("status", "source", "note")}
            yield {"name": name, "value": quantity(name, value["value"]), **sourced}
        elif isinstance(value, Mapping):
            yield from _facts(value, f"{name}.")
        elif isinstance(value, list | tuple):
            if value and not isinstance(value[0], Mapping) and key not in ("conflicts", "warnings"):
                yield {"name": name, "value": quantity(name, value)}
        elif value not in (None, ""):
            yield {"name": name, "value": quantity(name, value)}
