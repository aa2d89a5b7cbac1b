"""`dse run STUDY`: the best design for each target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.options import Overrides, Seed, StudyName, parse_overrides
from dse.cli.outcome import FINE, INTERRUPTED, NOTHING_FEASIBLE
from dse.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from dse.result import Recommendation, Result

# Of a design that was played: label, metric, unit, units per second.
_PLAYED = (("TTFT", "ttft_p99_s", "s", 1.0), ("TPOT", "tpot_p99_s", "ms", 1e3))
_COUNTED = ("target", "mode", "reason", "designs")


def run(
    session: Session,
    study: StudyName,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write the run: manifest, study, result, designs.csv, figures.",
            show_default=False,
        ),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            "--solver",
            metavar="NAME",
            help="auto, eliminate, enumerate or relax: how the space is searched.",
        ),
    ] = "auto",
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Play the best designs event by event, and compare."),
    ] = False,
    by_speed: Annotated[
        bool,
        typer.Option(
            "--by-speed", help="Also the best design for each speed that users may be promised."
        ),
    ] = False,
    overrides: Overrides = None,
    seed: Seed = None,
) -> int:
    """Search a study's space and recommend the best design for each target."""
    pairs = parse_overrides(overrides)
    if out is not None:
        from dse.report.run_directory import check_run_directory

        check_run_directory(out)
    result = _searched(session, study, pairs, solver, seed, by_speed)
    if verify and not result.interrupted:
        result = _verified(session, result, seed)
    document = result.to_json()
    if out is not None:
        from dse.cli.run_files import run_files
        from dse.report.run_directory import write_run_directory

        place = write_run_directory(out, run_files(result, document))
        session.note(f"wrote {place}")
    for warning in document["warnings"]:
        session.note(f"warning: {warning}")
    session.emit(document, lambda console: _draw(console, result, document))
    if result.interrupted:
        session.note("interrupted; what was finished is kept")
        return INTERRUPTED
    if not result.feasible:
        for one in result.recommendations:
            session.note(f"nothing feasible for {one.label}: {_why(one)}")
        return NOTHING_FEASIBLE
    return FINE


def _searched(
    session: Session,
    study: str,
    pairs: list[tuple[str, str]],
    solver: str,
    seed: int | None,
    by_speed: bool,
) -> Result:
    from dse.cli.cache import use_compilation_cache
    from dse.cli.progress import progress_bar
    from dse.study import run as search

    use_compilation_cache()
    with progress_bar(session, "designs", None) as show:
        return search(
            study, overrides=pairs, solver=solver, seed=seed, progress=show, by_speed=by_speed
        )


def _verified(session: Session, result: Result, seed: int | None) -> Result:
    from dse.cli.progress import progress_bar
    from dse.verify import verified

    with progress_bar(session, "designs played", None) as show:
        return verified(result, seed=seed or 0, progress=show)


def _verification(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each design that was played; headers have the units."""
    lines = []
    for number, row in enumerate(rows, 1):
        metrics, off = row["metrics"], row["difference_percent"]
        p99 = {
            f"{name} p99 ({unit})": f"{metrics[key] * per_s:.3g} ({off.get(key, 0.0):+.0f} %)"
            for name, key, unit, per_s in _PLAYED
            if key in metrics
        }
        lines.append(
            {
                "design": str(number),
                "target": f"{row['model']} on {row['hardware']}",
                "requests/s": f"{metrics.get('requests_per_s', 0.0):.4g}",
                **p99,
                "sustains (requests/s)": _sustains(row),
            }
        )
    return lines


def _sustains(row: dict[str, Any]) -> str:
    rate, off = row.get("goodput_requests_per_s"), row.get("goodput_difference_percent")
    if rate is None:
        return "promises kept" if row.get("keeps_promises") else row.get("status", "")
    return f"{rate:.4g} ({off:+.0f} %)" if off is not None else "no rate"


def _draw(out: Console, result: Result, document: dict[str, Any]) -> None:
    from dse.report.fronts import front_table, speed_rows
    from dse.report.tables import recommendation_table, rows_table

    out.print(recommendation_table(document["recommendations"], title=result.study.study))
    for one in result.recommendations:
        if not one.feasible:
            out.print(
                f"{one.label}: nothing is feasible. The nearest design: {_why(one)}.",
                soft_wrap=True,
            )
    for line in leader_lines(result):
        out.print(line, soft_wrap=True)
    _draw_spread(out, result)
    _draw_doubts(out, result)
    _draw_laws(out, result)
    if document["pareto"]:
        out.print(front_table(document["pareto"]))
    levels = speed_rows(document["by_speed"])
    if levels:
        title = "The most that accelerators yield where users are promised a speed"
        out.print(rows_table(levels, tuple(levels[0]), title=title))
    rows = [
        {"target": target, "mode": mode, "reason": reason.replace("_", " "), "designs": n}
        for target, modes in document["counts"].items()
        for mode, reasons in modes.items()
        for reason, n in sorted(reasons.items(), key=lambda item: -item[1])
    ]
    out.print(rows_table(rows, _COUNTED, title="Designs by first broken limit"))
    if result.verification:
        lines = _verification(result.verification)
        title = "Played event by event (in brackets: closed form over simulation)"
        out.print(rows_table(lines, tuple(lines[0]), title=title))
    speed = result.designs_evaluated / max(result.wall_s, 1e-9)
    out.print(
        f"{result.designs_evaluated:,} designs in {result.wall_s:.1f} s ({speed:,.0f}/s), solver "
        f"{result.solver}, proof: {result.proof}"
    )
    _draw_searches(out, result)


def leader_lines(result: Result) -> list[str]:
    """Which target is best by the study's goal, where there are several."""
    metric, sign = result.study.objective.metric, result.study.objective.sign
    feasible = [one for one in result.recommendations if one.feasible]
    if len(feasible) < 2:
        return []
    best = result.best
    nearest = sign * max(sign * one.metrics[metric] for one in feasible if one is not best)
    by = abs(best.metrics[metric] / nearest - 1.0) if nearest else 0.0
    lead = f"by {by:.1%}" if by >= 5e-4 else "by next to nothing"
    return [f"Best by {metric}: {best.label}, {lead}."]


def _draw_searches(out: Console, result: Result) -> None:
    """How each grid was searched, where not all of it was priced."""
    for one in result.searches:
        if one["solver"] != "enumerate":
            out.print(
                f"{one['model']} on {one['hardware']}, {one['mode']}: {one['solver']} "
                f"({one['why']}), {one['priced']:,} priced, proof: {one['proof']}"
            )


def _draw_doubts(out: Console, result: Result) -> None:
    """What is in doubt of the recommended designs; nothing of designs that were played."""
    from dse.report.trust import doubt_lines

    if result.verification:
        return
    several = len(result.recommendations) > 1
    lines = []
    for one in result.recommendations:
        if one.feasible:
            lines += doubt_lines(one.trust, one.label if several else "")
    for line in lines:
        out.print(line, soft_wrap=True)
    if lines:
        out.print("--verify plays the best designs event by event.")


def _draw_spread(out: Console, result: Result) -> None:
    """Between which values the main figures should be measured, and what certainty costs."""
    from dse.report.spread import interval_line, robustness_line

    metric, several = result.study.objective.metric, len(result.recommendations) > 1
    for one in result.recommendations:
        if one.feasible and one.intervals:
            line = interval_line(one.intervals, metric)
            out.print(f"{one.label}: {line}" if several else line, soft_wrap=True)
    for row in result.robustness:
        out.print(robustness_line(row), soft_wrap=True)


def _draw_laws(out: Console, result: Result) -> None:
    """Which kernels the recommended designs are priced with."""
    from dse.report.laws import law_line

    lines: dict[str, list[str]] = {}
    for one in result.recommendations:
        lines.setdefault(law_line(one.kernel_laws, one.engine_fit), []).append(one.label)
    for line, labels in lines.items():
        of = f"{', '.join(labels)}: " if len(lines) > 1 else ""
        out.print(f"{of}{line}", soft_wrap=True)


def _why(one: Recommendation) -> str:
    """The limit that the nearest design breaks, with the degrees that do not divide."""
    from dse.arch import load_model
    from dse.explain.degrees import misfits

    return "; ".join([one.reason, *misfits(load_model(one.model), one.design)])
