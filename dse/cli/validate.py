"""`dse validate ROWS.csv`: predictions against measured deployments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.session import Session
from dse.errors import DseError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from dse.calibrate.predict import Prediction

_QUANTITIES = ("tpot", "ttft", "output_tokens_per_s")
_MAX_REASONS = 12


def validate(
    session: Session,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS.csv", help="Measured deployments, one a line.", show_default=False
        ),
    ],
    predictions: Annotated[
        Path | None,
        typer.Option(
            "--predictions",
            metavar="OUT.csv",
            help="Write the predictions: id, ttft_mean_s, tpot_mean_s, "
            "output_tokens_per_s_per_accelerator.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Errors apart by mode, model, hardware, engine or weight_precision; repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write figures and validate.json.", show_default=False
        ),
    ] = None,
    refit: Annotated[
        str | None,
        typer.Option(
            "--refit",
            metavar="SPLIT",
            help="Fit the engines anew and predict each row by a fit that has not seen it: "
            "'unseen model and hardware', 'unseen configuration' or 'other loads'.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, max=20, help="Deals of held-out rows, with --refit."),
    ] = 1,
) -> None:
    """Predict measured deployments and say how far off the predictions are.

    Files with the columns of MLPerf Inference runs (scenario, requests_per_s, n_gpus) are compared
    by the rate at their limits; files with requests one by one (arrival_s, input_toks, ttft_s) are
    played; those of Ascend cases (hw, deployment, speculation) are read with the slots they state.
    """
    from dse.calibrate.audited_rows import is_audited, is_log
    from dse.calibrate.rows import read_header
    from dse.cli.validate_kinds import validate_audited, validate_logs
    from dse.cli.validate_unseen import validate_unseen
    from dse.report.atomic import require_writable

    header = read_header(rows)
    for place in (out, predictions.parent if predictions else None):
        if place is not None:
            require_writable(place)
    if is_audited(header):
        validate_audited(session, rows, predictions, by or [], out)
        return
    if is_log(header):
        validate_logs(session, rows, predictions, by or [], out)
        return
    if refit is not None:
        validate_unseen(session, rows, predictions, by or [], out, refit, range(seeds))
        return
    _validate_means(session, rows, predictions, by or [], out)


def _validate_means(
    session: Session, rows: Path, predictions: Path | None, by: list[str], out: Path | None
) -> None:
    from dse.calibrate.document import GROUPS
    from dse.calibrate.measured_rows import read_measured
    from dse.calibrate.predict import predict
    from dse.cli.cache import use_compilation_cache
    from dse.cli.progress import progress_bar

    groups = [group_named(name, list(GROUPS)) for name in by]
    measured, left_out = read_measured(rows)
    for line in left_out:
        session.note(line)
    use_compilation_cache()
    done = 0
    with progress_bar(session, "rows", len(measured)) as show:

        def more(n: int) -> None:
            nonlocal done
            done += n
            show(done, None)

        found = predict(measured, more)
    report_means(session, found, groups, predictions, out)


def report_means(
    session: Session,
    found: Sequence[Prediction],
    groups: list[str],
    predictions: Path | None,
    out: Path | None,
    **more: Any,
) -> None:
    """Write and show what was predicted; `more` goes into the document."""
    from dse.calibrate.document import GROUPS, predictions_csv, validation_document
    from dse.cli.json_output import dumps
    from dse.report.atomic import write_text

    document = validation_document(found, groups or tuple(GROUPS)) | more
    if predictions is not None:
        write_text(predictions, predictions_csv(found))
    if out is not None:
        write_text(out / "validate.json", dumps(document) + "\n")
        write_text(out / "predictions.csv", predictions_csv(found))
        _write_figures(out, found)
    for warning in document["warnings"][:_MAX_REASONS]:
        session.note(f"warning: {warning}")
    session.emit(document, lambda console: _draw(console, document, groups))


def group_named(name: str, known: list[str]) -> str:
    """A group of `--by`. Raises DseError with the nearest."""
    if name not in known:
        raise DseError(f"--by: found {name!r}{did_you_mean(name, known)} Known: {', '.join(known)}")
    return name


def _write_figures(out: Path, found: Sequence[Prediction]) -> None:
    from dse.calibrate.errors import compared
    from dse.report.style import COLOURS, save
    from dse.report.validation import validation_scatter

    pairs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in ("ttft", "tpot", "output_tokens_per_s"):
        for engine, predicted, measured in compared(found, name):
            pairs.setdefault(name, {}).setdefault(engine, []).append((measured, predicted))
    for theme in COLOURS:
        stem = "validation" if theme == "light" else f"validation-{theme}"
        save(validation_scatter(pairs, theme=theme), out / "figures" / stem)


def _draw(out: Console, document: dict[str, Any], groups: list[str]) -> None:
    from dse.report.tables import rows_table

    out.print(f"{document['predicted']:,} of {document['rows']:,} rows predicted")
    rows = [row for mode, found in document["errors"].items() for row in _rows(mode, found)]
    columns = ("rows", "quantity", "n", "mape", "median", "p90", "bias", "spearman")
    if rows:
        out.print(rows_table(rows, columns, title="Errors of all rows, in %"))
    for mode, found in document["coverage"].items():
        shares = ", ".join(f"{name.upper()} {share:.0f} %" for name, share in found.items())
        out.print(f"{mode}: within the 80 % interval lie {shares}", soft_wrap=True)
    for name in groups:
        own = [row for one, found in document["by"][name].items() for row in _rows(one, found)]
        out.print(rows_table(own, columns, title=f"By {name}, in %"))
    draw_refusals(out, document)


def draw_refusals(out: Console, document: dict[str, Any]) -> None:
    """Reasons with the number of rows that each refuses."""
    counts: dict[str, int] = {}
    for refused in document["refused"]:
        counts[refused["reason"]] = counts.get(refused["reason"], 0) + 1
    for reason, n in sorted(counts.items(), key=lambda item: -item[1])[:_MAX_REASONS]:
        out.print(f"refused {n:,}: {reason}", soft_wrap=True)
    if len(counts) > _MAX_REASONS:
        out.print(f"... and {len(counts) - _MAX_REASONS} more reasons; --json has all")


def _rows(name: str, found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "rows": name,
            "quantity": quantity,
            "n": int(found[quantity]["n"]),
            "mape": round(found[quantity]["mape_percent"], 1),
            "median": round(found[quantity]["median_ape_percent"], 1),
            "p90": round(found[quantity]["p90_ape_percent"], 1),
            "bias": round(found[quantity]["bias_percent"], 1),
            "spearman": round(found[quantity]["spearman"], 3),
        }
        for quantity in _QUANTITIES
        if quantity in found
    ]
