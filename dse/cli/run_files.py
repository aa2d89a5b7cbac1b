"""The files of a run's folder: what was asked, what came out, and what it ran on."""

from __future__ import annotations

import csv
import hashlib
import io
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse import __version__
from dse.cli.json_output import dumps
from dse.report.run_directory import MANIFEST

if TYPE_CHECKING:
    from dse.result import Result
    from dse.spec.study import Target

_VERSIONS = ("jax", "jaxlib", "numpy", "pydantic")


def run_files(result: Result, document: Mapping[str, Any]) -> dict[str, bytes]:
    """Name -> bytes of every file; the manifest lists the others with their SHA-256."""
    from dse.result import flat_row
    from dse.spec.plain import dump_yaml

    rows = [flat_row(row) for row in result.designs]
    files = {
        "study.yaml": dump_yaml(result.study.resolved()).encode(),
        "result.json": (dumps(document) + "\n").encode(),
        "designs.csv": designs_csv(rows).encode(),
        **_figures(result),
    }
    return {**files, MANIFEST: (dumps(_manifest(result, files)) + "\n").encode()}


def designs_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The best designs, one a line, all their axes and metrics; the same run, the same bytes."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {
            name: f"{value:.12g}" if isinstance(value, float) else value
            for name, value in row.items()
        }
        writer.writerow(cells)
    return text.getvalue()


def _manifest(result: Result, files: Mapping[str, bytes]) -> dict[str, Any]:
    from importlib.metadata import version

    import jax

    return {
        "schema": "dse.manifest/1",
        "study": result.study.study,
        "dse": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in _VERSIONS},
        "devices": [f"{one.platform}:{one.id} {one.device_kind}" for one in jax.devices()],
        "solver": result.solver,
        "proof": result.proof,
        "seed": result.study.seed,
        "interrupted": result.interrupted,
        "inputs": [
            *({"path": one.path, "sha256": one.sha256} for one in result.inputs),
            *(one for model in result.study.model for one in _model_input(model)),
        ],
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }


def _model_input(model: str) -> list[dict[str, str]]:
    """The model's config, where it is a file on this machine."""
    from dse.arch.names import resolve
    from dse.catalog import fingerprint

    found = resolve(model)
    path = found.entry.path if found is not None else Path(model)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        return []
    one = fingerprint(file)
    return [{"path": one.path, "sha256": one.sha256}]


def _figures(result: Result) -> dict[str, bytes]:
    """Pareto front of all targets; roofline and breakdown of the best design; light and dark."""
    from dse.report.figures import breakdown_bars, pareto
    from dse.report.roofline import roofline
    from dse.report.style import COLOURS, render
    from dse.spec.metrics import SPEED

    best = result.best
    target = next(one for one in result.study.targets() if one.name == best.hardware)
    series = len(result.recommendations) > 1
    several = len(result.study.model) > 1

    def label(model: str, hardware: str) -> str:
        return f"{model} on {hardware}" if several else hardware

    points = [
        _point(label(row["model"], row["hardware"]), row["metrics"], series)
        for row in result.pareto
    ]
    stars = [
        _point(label(one.model, one.hardware), one.metrics, series)
        for one in result.recommendations
        if one.feasible
    ]
    levels = [
        _point(
            label(row["model"], row["hardware"]),
            {**row["metrics"], SPEED: row["speed_at_least"] or row["metrics"][SPEED]},
            series,
        )
        for row in result.by_speed
    ]
    kernels = _kernels(result, target)
    decode = target.decode
    peaks = {str(name): peak.value for name, peak in decode.peak_flops_per_s.items()}
    bandwidth = decode.memory_bandwidth_bytes_per_s.value
    breakdown = (best.breakdown["prefill"], best.breakdown["decode"])
    files = {}
    for theme in COLOURS:
        drawn = {
            "pareto": pareto(points, stars, levels, theme=theme),
            "roofline": roofline(
                peaks, bandwidth, kernels, title=f"Roofline of {decode.name}", theme=theme
            ),
            "breakdown": breakdown_bars(*breakdown, theme=theme),
        }
        for name, figure in drawn.items():
            stem = name if theme == "light" else f"{name}-{theme}"
            files[f"figures/{stem}.svg"] = render(figure, "svg")
            files[f"figures/{stem}.png"] = render(figure, "png")
    return files


def _point(hardware: str, metrics: Mapping[str, float], series: bool) -> dict[str, Any]:
    return {**metrics, "series": hardware if series else ""}


def _kernels(result: Result, target: Target) -> list[dict[str, Any]]:
    """Kernels of the best design, those of the chip whose roofline is drawn."""
    from dse.study import evaluate

    best = result.best
    priced = evaluate(result.study.of_model(best.model), best.design, target=best.hardware)
    phases = ("prefill", "decode") if target.prefill.name == target.decode.name else ("decode",)
    return [{**kernel, "phase": phase} for phase in phases for kernel in priced.kernels[phase]]
