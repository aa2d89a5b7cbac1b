"""`dse rows RESULT...`: results of load clients as measured rows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dse.cli.design_options import FLAGS, Flag, Function, TargetName, flag_annotation
from dse.cli.options import Overrides
from dse.cli.outcome import FAULTY_INPUT, FINE
from dse.cli.session import Session
from dse.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

    from dse.calibrate.clients.deployment import Deployed
    from dse.calibrate.clients.table import Table

# The client knows the workload; the rest of a study is of no matter to a measurement.
_LEFT_OUT: Final = ("workload", "objective", "pools")
_FLAGS: Final = tuple(flag for flag in FLAGS if flag.path.split(".")[0] not in _LEFT_OUT)
_SHOWN: Final = (
    "id", "client", "load", "isl_tokens", "osl_tokens", "concurrency", "requests_completed",
    "requests_failed", "ttft_mean_s", "tpot_mean_s",
)  # fmt: skip

Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RESULT...",
        help="Results of vllm bench serve, SGLang's bench_serving, aiperf, genai-perf or guidellm.",
        show_default=False,
    ),
]
StudyOption = Annotated[
    str | None,
    typer.Option(
        "--study",
        metavar="STUDY",
        help="The study that the deployment belongs to; else give --model, --hardware and so on.",
        show_default=False,
    ),
]
Design = Annotated[
    Path | None,
    typer.Option(
        "--design",
        metavar="FILE",
        help="The design that was deployed: JSON or YAML, or the result.json of a run.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="ROWS.csv",
        help="Write the rows, for dse validate and dse calibrate engine.",
        show_default=False,
    ),
]


def _rows(session: Session, **values: Any) -> int:
    """Turn results of load clients into measured rows, each client's definitions converted.

    What was deployed is not in such a file: say it by flags, or with a study and a design.
    """
    from dse.calibrate.clients.detect import read_results
    from dse.calibrate.clients.table import table_of
    from dse.report.atomic import require_writable, write_text

    out = values["out"]
    if out is not None:
        require_writable(out.parent)
    runs = [run for path in values["results"] for run in read_results(path)]
    where = _deployed(values, next((run.model for run in runs if run.model), ""))
    table = table_of(runs, where)
    if out is not None and table.rows:
        write_text(out, table.to_csv())
    for note in table.notes:
        session.note(f"note: {note}")
    written = str(out) if out is not None and table.rows else None
    session.emit({**table.to_json(), "written": written}, lambda c: _draw(c, table, written))
    if not table.rows:
        session.note("no run can be a row: nothing is written")
        return FAULTY_INPUT
    return FINE


def _signature() -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    named: dict[str, tuple[Any, Any]] = {
        "results": (Results, inspect.Parameter.empty),
        "study": (StudyOption, None),
        "design": (Design, None),
        "target": (TargetName, None),
        **{flag.name: (flag_annotation(flag), None) for flag in _FLAGS},
        "overrides": (Overrides, None),
        "out": (Out, None),
    }
    session = inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, (kind, default) in named.items()
    ]
    return inspect.Signature([session, *options])


rows: Function = _rows
rows.__signature__ = _signature()  # type: ignore[attr-defined]
rows.__name__ = "rows"


def _deployed(values: dict[str, Any], asked: str) -> Deployed:
    """What was deployed, by flags or by a study and a design. Raises DseError."""
    from dse.calibrate.clients.deployment import deployed
    from dse.cli.design import study_spec
    from dse.cli.design_options import Request, request_of
    from dse.study import fixed_space

    given: dict[Flag, Any] = {f: values[f.name] for f in _FLAGS if values.get(f.name) is not None}
    request: Request
    if values["study"] is None:
        values = {**values, "isl": 1.0, "osl": 2.0}
        if values["model"] is None and _is_known(asked):
            values["model"] = asked
        _require_deployment(values, asked)
    request = request_of(values)
    study = study_spec(request)
    if len(study.model) > 1:
        raise DseError(f"the study has several models; say which: --set model={study.model[0]}")
    slots = request.design is not None or not request.from_flags
    slots = slots or any(flag.path.endswith("max_batch") for flag in given)
    space = fixed_space(study.space, request.design or {})
    study = study.model_copy(update={"space": space})
    return deployed(study, request.target, slots_given=slots)


def _require_deployment(values: dict[str, Any], asked: str) -> None:
    """Refuse what is missing in words of this command."""
    if values["design"] is not None:
        raise DseError("--design needs the study that the design belongs to: --study STUDY")
    missing = [f"--{name}" for name in ("model", "hardware") if values[name] is None]
    if missing:
        known = f"; the client asked for {asked!r}, a name that only its server knows"
        hint = known if asked and values["model"] is None else ""
        raise DseError(f"missing: {', '.join(missing)} (or --study STUDY --design FILE){hint}")


def _is_known(model: str) -> bool:
    """Whether the catalogue has the model that a client names: servers may call it anything."""
    from dse.arch.names import resolve

    return bool(model) and resolve(model) is not None


def _draw(out: Console, table: Table, written: str | None) -> None:
    from dse.report.tables import rows_table

    if table.rows:
        out.print(rows_table(table.rows, _SHOWN, title=f"{len(table.rows)} measured rows"))
    for one in table.refused:
        out.print(f"refused {one['id']}: {one['reason']}", soft_wrap=True)
    if written is not None:
        out.print(f"written: {written}", soft_wrap=True)
    elif table.rows:
        out.print("not written: --out ROWS.csv writes them", soft_wrap=True)
