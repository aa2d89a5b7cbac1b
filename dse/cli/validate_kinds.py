"""`dse validate` of audited runs and of logs of requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = ("rows", "n", "median", "p90", "bias", "mape", "spearman")
_FIRST_GROUPS = ("model_scenario", "lengths")


def validate_audited(
    session: Session, rows: Path, predictions: Path | None, by: list[str], out: Path | None
) -> None:
    """Runs of MLPerf Inference: the rate at the limits on percentiles."""
    from dse.calibrate.audited import predict_audited
    from dse.calibrate.audited_document import GROUPS, audited_csv, audited_document
    from dse.calibrate.audited_rows import read_audited
    from dse.cli.json_output import dumps
    from dse.cli.progress import progress_bar
    from dse.cli.validate import group_named
    from dse.report.atomic import write_text

    groups = [group_named(name, list(GROUPS)) for name in by]
    measured = read_audited(rows)
    done = 0
    with progress_bar(session, "runs", len(measured)) as show:

        def more(n: int) -> None:
            nonlocal done
            done += n
            show(done, None)

        found = predict_audited(measured, more)
    document = audited_document(found, groups or tuple(GROUPS))
    if predictions is not None:
        write_text(predictions, audited_csv(found))
    if out is not None:
        write_text(out / "validate.json", dumps(document) + "\n")
        write_text(out / "predictions.csv", audited_csv(found))
    for warning in document["warnings"]:
        session.note(f"warning: {warning}")
    shown = groups or list(_FIRST_GROUPS)
    session.emit(document, lambda console: _draw_audited(console, document, shown))


def _draw_audited(out: Console, document: dict[str, Any], groups: list[str]) -> None:
    from dse.cli.validate import draw_refusals
    from dse.report.tables import rows_table

    out.print(f"{document['predicted']:,} of {document['rows']:,} audited runs predicted")
    if document["errors"]:
        whole = _lines(document["errors"])
        title = "Errors of the rate at the limits, in %"
        out.print(rows_table(whole, _COLUMNS, title=title))
    for name in groups:
        own = _lines(document["by"][name])
        out.print(rows_table(own, _COLUMNS, title=f"By {name.replace('_', ' and ')}, in %"))
    draw_refusals(out, document)


def _lines(found: dict[str, dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    return [
        {
            "rows": name,
            "n": int(one["n"]),
            "median": round(one["median_ape_percent"], 1),
            "p90": round(one["p90_ape_percent"], 1),
            "bias": round(one["bias_percent"], 1),
            "mape": round(one["mape_percent"], 1),
            "spearman": round(one["spearman"], 3),
        }
        for name, by_quantity in found.items()
        for one in by_quantity.values()
    ]


def validate_logs(
    session: Session, rows: Path, predictions: Path | None, by: list[str], out: Path | None
) -> None:
    """Requests one by one: the same arrivals and lengths, played."""
    from dse.calibrate.audited_logs import compare, logs_document, read_logs
    from dse.cli.json_output import dumps
    from dse.cli.progress import progress_bar
    from dse.report.atomic import write_text

    if by or predictions is not None:
        raise DseError("--by and --predictions do not apply to logs: every run is told by itself")
    logs = read_logs(rows)
    found = []
    with progress_bar(session, "runs", len(logs)) as show:
        for log in logs:
            found.append(compare(log))
            show(len(found), None)
    document = logs_document(found)
    if out is not None:
        write_text(out / "validate.json", dumps(document) + "\n")
    session.emit(document, lambda console: _draw_logs(console, document))


def _draw_logs(out: Console, document: dict[str, Any]) -> None:
    from dse.cli.validate import draw_refusals
    from dse.report.format import quantity
    from dse.report.tables import rows_table

    columns = ("metric", "measured", "played", "error", "in scaled time")
    for run in document["runs"]:
        lines = [
            {
                "metric": name,
                "measured": quantity(name, value),
                "played": quantity(name, run["played"][name]),
                "error": f"{run['error_percent'][name]:+.1f} %",
                "in scaled time": f"{run['scaled_error_percent'][name]:+.1f} %",
            }
            for name, value in run["measured"].items()
        ]
        title = f"{run['run']}: {run['requests']} requests, time scaled by {run['time_scale']:.3f}"
        out.print(rows_table(lines, columns, title=title))
        if run["closed_form_refusal"]:
            out.print(f"closed forms: {run['closed_form_refusal']}", soft_wrap=True)
    draw_refusals(out, document)
