"""The files of a grid's folder; only the manifest tells when and on what it was made."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dse import __version__
from dse.cli.json_output import dumps
from dse.cli.run_files import designs_csv

if TYPE_CHECKING:
    from dse.grid.document import GridResult

_VERSIONS: Final = ("jax", "jaxlib", "numpy", "pydantic")


def write_files(
    folder: Path, result: GridResult, document: Mapping[str, Any], run: Mapping[str, Any]
) -> None:
    """Write results, tables and figures, each whole; the manifest, with their SHA-256, last.

    Raises WriteError; the checkpoint stays, so that the same command writes them again.
    """
    from dse.report.atomic import write_bytes

    hashes = {}
    for name, data in _files(result, document):
        write_bytes(folder / name, data)
        hashes[name] = hashlib.sha256(data).hexdigest()
    manifest = {
        "schema": "dse.manifest/1",
        "dse": __version__,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _VERSIONS},
        "run": dict(run),
        "fingerprint": result.grid.fingerprint,
        "files": hashes,
    }
    write_bytes(folder / "manifest.json", (dumps(manifest) + "\n").encode())


def _files(result: GridResult, document: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    from dse.grid.tables import histogram_csv, lines_of
    from dse.report.style import COLOURS, render
    from dse.result import flat_design, flat_row
    from dse.spec.plain import dump_yaml, plain_data

    grid = result.grid
    yield (
        "study.yaml",
        dump_yaml({**grid.study.resolved(), "grid": plain_data(grid.spec)}).encode(),
    )
    yield "result.json", (dumps(document) + "\n").encode()
    for table in result.tables:
        name = "-".join(dimension.name for dimension in table.dimensions)
        lines = []
        for line in lines_of(grid.whole, table):
            design = {f"best_{k}": v for k, v in flat_design(line.pop("best_design", {})).items()}
            lines.append({**line, **design})
        yield f"tables/{name}.csv", designs_csv(lines).encode()
    for metric, found in result.histograms.items():
        yield f"tables/histogram-{metric}.csv", histogram_csv(**found).encode()
    if result.pareto:
        beaten_by_none = [flat_row(_crossed(row)) for row in result.pareto]
        yield "tables/pareto.csv", designs_csv(beaten_by_none).encode()
    for theme in COLOURS:
        for name, figure in result.figures(theme):
            ending = "" if theme == "light" else f"-{theme}"
            yield f"figures/{name}{ending}.svg", render(figure, "svg")
            yield f"figures/{name}{ending}.png", render(figure, "png")


def _crossed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the Pareto set, which is feasible, with a column for each what-if axis."""
    of_any = {key: row[key] for key in ("model", "hardware")}
    return {**of_any, **row["what_if"], "design": row["design"], "metrics": row["metrics"]}
