"""What `dse simulate` leaves: warnings, files and a table."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from dse.result import Evaluation
    from dse.simulate.played import Played
    from dse.spec.study import Study


def warnings_of(played: Played, closed: Evaluation) -> list[str]:
    """What a person should know before taking the figures for more than they are."""
    found = []
    if played.status == "overloaded":
        factor = played.metrics["overload_factor"]
        found.append(
            f"overloaded: {factor:.3g} times as many requests arrived as were finished, and the "
            "queue grew to the end; latencies depend on how long it was played"
        )
    if played.refused:
        found.append(f"{played.refused} requests are longer than the cache memory: refused")
    few = played.few_measured()
    if few:
        found.append(few)
    if not closed.feasible:
        found.append(f"the closed forms refuse this load: {'; '.join(closed.reasons)}")
    return found


def write_simulation(out: Path, study: Study, document: dict[str, Any], csv: str) -> Path:
    """The folder of `--out`: manifest, resolved study, document and a line a request."""
    from dse import __version__
    from dse.cli.json_output import dumps
    from dse.report.run_directory import MANIFEST, write_run_directory
    from dse.spec.plain import dump_yaml

    files = {
        "study.yaml": dump_yaml(study.resolved()).encode(),
        "result.json": (dumps(document) + "\n").encode(),
        "requests.csv": csv.encode(),
    }
    manifest = {
        "schema": "dse.manifest/1",
        "study": study.study,
        "dse": __version__,
        "seed": document["seed"],
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return write_run_directory(out, {**files, MANIFEST: (dumps(manifest) + "\n").encode()})


def draw_simulation(out: Console, document: dict[str, Any]) -> None:
    """What was played, beside what the closed forms say."""
    from dse.report.format import quantity
    from dse.report.tables import rows_table
    from dse.report.trust import doubt_lines

    rows = []
    for name, value in document["metrics"].items():
        closed = document["analytic"].get(name)
        difference = document["difference_percent"].get(name)
        rows.append(
            {
                "metric": name,
                "played": quantity(name, value),
                "closed form": quantity(name, closed) if closed is not None else "",
                "difference": f"{difference:+.1f} %" if difference is not None else "",
            }
        )
    load = ", ".join(f"{key} {value:.4g}" for key, value in document["load"].items())
    title = f"{document['study']} on {document['hardware']}: {load}, {document['status']}"
    out.print(rows_table(rows, ("metric", "played", "closed form", "difference"), title=title))
    out.print(
        f"{document['requests']:,} requests ({document['measured']:,} measured) in "
        f"{document['wall_s']:.1f} s; steps within {document['step_error_percent']:.2g} % of the "
        "cost model"
    )
    for line in doubt_lines(document["trust"], "the closed forms"):
        out.print(line, soft_wrap=True)
