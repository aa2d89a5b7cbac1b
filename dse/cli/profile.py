"""`dse profile FILE`: a profiler's export, kernel by kernel, beside the model."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from dse.cli.design_options import (
    FLAGS,
    Design,
    Function,
    Study,
    TargetName,
    flag_annotation,
    request_of,
)
from dse.cli.options import Overrides, whole
from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.spec.hardware import Hardware

_MOST_KERNELS: Final = 20
_COLUMNS: Final = (
    "name", "class", "calls", "time_s", "share_frac", "bound", "memory_bound", "roofline_frac",
    "shapes",
)  # fmt: skip
_BESIDE: Final = (
    "group", "measured_share_frac", "predicted_share_frac", "measured_s", "predicted_s", "ratio",
)  # fmt: skip
_MOST_SHAPE: Final = 38

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Ascend kernel_details or op_summary, nsys or ncu CSV, or a torch.profiler trace.",
        show_default=False,
    ),
]
Phase = Annotated[
    Literal["prefill", "decode"],
    typer.Option("--phase", help="Which phase of the design was profiled."),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        parser=whole(1, 10_000_000),
        metavar="N",
        help="Forward passes in the profile, to compare seconds beside shares.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write profile.json, kernels.csv, calibration.csv and figures.",
        show_default=False,
    ),
]


def _profile(session: Session, **values: Any) -> None:
    """Classify the kernels of a profile: time, what limits each, distance to the roofline, gaps.

    With --hardware against that target's roofs; with a study and its design, or --model and the
    other flags, beside the predicted breakdown of that design.
    """
    from dse.profile.detect import read_profile
    from dse.profile.summary import document_of, groups_of
    from dse.report.atomic import require_writable

    out: Path | None = values["out"]
    if out is not None:
        require_writable(out)
    profile = read_profile(values["file"])
    if values["model"] is None and values["study"] is None:
        _refuse_more_than_hardware(values)
        hardware = None if values["hardware"] is None else _hardware(values["hardware"])
        document = document_of(profile, hardware)
    else:
        hardware, breakdown = _priced(values)
        document = document_of(profile, hardware)
        from dse.profile.compare import comparison

        steps = values["steps"] or profile.n_steps
        document["comparison"] = comparison(document, breakdown, values["phase"], steps)
    if out is not None:
        _write(out, document, groups_of(profile), hardware)
    for note in document["notes"]:
        session.note(f"note: {note}")
    session.emit(document, lambda console: _draw(console, document, out))


def _signature() -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    named: dict[str, tuple[Any, Any]] = {
        "file": (File, inspect.Parameter.empty),
        "study": (Study, None),
        "design": (Design, None),
        "target": (TargetName, None),
        **{flag.name: (flag_annotation(flag), None) for flag in FLAGS},
        "overrides": (Overrides, None),
        "phase": (Phase, "decode"),
        "steps": (Steps, None),
        "out": (Out, None),
    }
    session = inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in named.items()
    ]
    return inspect.Signature([session, *options])


profile: Function = _profile
profile.__signature__ = _signature()  # type: ignore[attr-defined]
profile.__name__ = "profile"


def _refuse_more_than_hardware(values: dict[str, Any]) -> None:
    given = [flag.option for flag in FLAGS if values.get(flag.name) is not None]
    given += [f"--{name}" for name in ("design", "target", "steps") if values[name] is not None]
    rest = [name for name in given if name != "--hardware"]
    if rest:
        raise DseError(
            f"found {', '.join(rest)} without a design to compare with; give --model and the "
            "other flags of dse eval, or a study: dse profile FILE STUDY --design FILE"
        )


def _hardware(name: str) -> Hardware:
    from dse import catalog
    from dse.spec.hardware import Hardware
    from dse.spec.load import load

    return load(Hardware, catalog.resolve("hardware", name)).spec


def _priced(values: dict[str, Any]) -> tuple[Hardware, dict[str, float]]:
    """The target of the profiled phase, and seconds by term of the design. Raises DseError."""
    from dse.cli.cache import use_compilation_cache
    from dse.cli.design import evaluated

    use_compilation_cache()
    evaluation = evaluated(request_of(values))
    targets = {one.name: one for one in evaluation.study.targets()}
    target = targets[evaluation.hardware]
    phase = values["phase"]
    chip = target.prefill if phase == "prefill" else target.decode
    return chip, dict(evaluation.breakdown[phase])


def _write(out: Path, document: dict[str, Any], groups: Any, hardware: Hardware | None) -> None:
    import csv
    import io

    from dse.cli.json_output import dumps
    from dse.profile.points import points_csv, points_of
    from dse.report.atomic import write_text

    text = io.StringIO()
    names = list(document["kernels"][0])
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(document["kernels"])
    write_text(out / "kernels.csv", text.getvalue())
    points = points_of(groups)
    if points:
        write_text(out / "calibration.csv", points_csv(points))
    document["calibration_points"] = len(points)
    write_text(out / "profile.json", dumps(document) + "\n")
    _write_figures(out, document, hardware)


def _write_figures(out: Path, document: dict[str, Any], hardware: Hardware | None) -> None:
    from dse.profile.bounds import Roof
    from dse.report.profile import class_shares, shares_beside
    from dse.report.roofline import roofline
    from dse.report.style import COLOURS, save

    for theme in COLOURS:
        suffix = "" if theme == "light" else f"-{theme}"
        folder = out / "figures"
        shares = class_shares(document["classes"], document["gaps_s"], theme=theme)
        save(shares, folder / f"classes{suffix}")
        if document.get("comparison"):
            beside = shares_beside(document["comparison"]["rows"], theme=theme)
            save(beside, folder / f"comparison{suffix}")
        placed = [_placed(kernel) for kernel in document["kernels"] if kernel["flops"]]
        placed = [kernel for kernel in placed if kernel["bytes"]]
        if hardware is not None and placed:
            roof = Roof.of(hardware)
            title = f"Kernels under the roofs of {hardware.name}"
            figure = roofline(
                roof.peaks, roof.bandwidth_bytes_per_s, placed, title=title, theme=theme
            )
            save(figure, folder / f"roofline{suffix}")


def _placed(kernel: dict[str, Any]) -> dict[str, Any]:
    """A kernel of a roofline: all its calls together."""
    n = kernel["calls"]
    return {
        "name": kernel["name"],
        "phase": kernel["class"],
        "flops": n * (kernel["flops"] or 0.0),
        "bytes": n * (kernel["bytes"] or 0.0),
        "time_s": kernel["time_s"],
    }


def _draw(out: Console, document: dict[str, Any], folder: Path | None) -> None:
    from dse.report.format import quantity
    from dse.report.tables import rows_table

    gaps = document["gaps_s"]
    line = f"{document['tool']}: {document['n_calls']:,} launches"
    line += f", {quantity('time_s', document['kernels_s'])} in kernels"
    if gaps is not None:
        share = gaps / document["span_s"] if document["span_s"] else 0.0
        longest = quantity("time_s", document["longest_gap_s"])
        line += f"; nothing ran for {quantity('time_s', gaps)} of "
        line += f"{quantity('time_s', document['span_s'])} ({share:.1%}), longest {longest}"
    out.print(line, soft_wrap=True)
    columns = ("class", "calls", "time_s", "share_frac")
    out.print(rows_table(document["classes"], columns, title="By class"))
    kernels = [_shown(kernel) for kernel in document["kernels"][:_MOST_KERNELS]]
    out.print(rows_table(kernels, _COLUMNS, title="Kernels, the longest"))
    left = len(document["kernels"]) - len(kernels)
    if left > 0:
        out.print(f"... and {left} more; --json or --out has all")
    found = document.get("comparison")
    if found:
        title = f"Beside the predicted {found['phase']} step"
        out.print(rows_table(found["rows"], _BESIDE, title=title))
        if found["n_steps"] is None:
            out.print("shares only: --steps N says how many forward passes the profile holds")
    if folder is not None:
        points = document["calibration_points"]
        out.print(f"written: {folder} ({points} calibration points)", soft_wrap=True)


def _shown(kernel: dict[str, Any]) -> dict[str, Any]:
    shapes = kernel["shapes"]
    ratio = kernel["memory_bound"]
    return {
        **kernel,
        "name": kernel["name"][:40],
        "bound": kernel["bound"] or "N/A",
        "memory_bound": "N/A" if ratio is None else f"{ratio:.2f}",
        "shapes": shapes if len(shapes) <= _MOST_SHAPE else shapes[: _MOST_SHAPE - 3] + "...",
    }
