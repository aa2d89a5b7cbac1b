"""`dse check FILE...`: every fault of every file, whatever kind of file it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli.options import Overrides, parse_overrides
from dse.cli.outcome import FAULTY_INPUT, FINE
from dse.cli.session import Session

if TYPE_CHECKING:
    from dse.errors import DseError, Fault
    from dse.spec.document import Document
    from dse.spec.load import Override

_MODEL_KEYS = frozenset({"model_type", "architectures"})


def check(
    session: Session,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Studies, targets, objectives, workloads, engines, kernels, models.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
) -> int:
    """Check files of any kind and tell every fault of each."""
    pairs = parse_overrides(overrides)
    reports = [_report(path, pairs) for path in files]
    faulty = [report for report in reports if report["faults"]]
    if session.json:
        session.print_json({"schema": "dse.check/1", "ok": not faulty, "files": reports})
    else:
        for report in reports:
            for fault in report["faults"]:
                session.out.print(str(fault), soft_wrap=True)
            if not report["faults"]:
                session.out.print(f"{report['file']}: fine ({report['kind']})", soft_wrap=True)
    return FAULTY_INPUT if faulty else FINE


def _report(path: Path, overrides: list[Override]) -> dict[str, Any]:
    kind, faults = _check_model(path) if _is_model(path) else _check_spec(path, overrides)
    return {"file": str(path), "kind": kind, "ok": not faults, "faults": faults}


def _is_model(path: Path) -> bool:
    """Whether a path is a model's folder or its config.json, by its keys."""
    if path.is_dir():
        return True
    if path.suffix.lower() != ".json":
        return False
    try:
        data = json.loads(path.read_bytes()[:5_000_000])
    except (OSError, ValueError, RecursionError):
        return path.name == "config.json"  # reading it as a model says what is wrong
    return isinstance(data, dict) and not _MODEL_KEYS.isdisjoint(data)


def _check_model(path: Path) -> tuple[str, list[Fault]]:
    from dse.arch import load_model
    from dse.errors import DseError

    try:
        load_model(path.resolve())
    except DseError as error:
        return "model", _faults(error, str(path))
    return "model", []


def _check_spec(path: Path, overrides: list[Override]) -> tuple[str | None, list[Fault]]:
    from dse.errors import DseError, Fault
    from dse.spec.load import load_document
    from dse.spec.schema import SPECS, kind_of
    from dse.spec.yaml_source import read_document

    try:
        document = read_document(path)
    except DseError as error:
        return None, _faults(error, str(path))
    kind = kind_of(document)
    if kind is None:
        message = f"none of its keys tells what it is; expected a {', '.join(SPECS)} or model"
        return None, [*document.faults, Fault(document.file, None, None, "", message)]
    try:
        loaded = load_document(SPECS[kind], document, overrides)
    except DseError as error:
        return kind, _faults(error, str(path))
    return kind, _unknown_models(document, getattr(loaded.spec, "model", ()))


def _unknown_models(document: Document, names: str | tuple[str, ...]) -> list[Fault]:
    """A study's models are names to the study; here they are looked up and read."""
    from dse.arch import load_model
    from dse.errors import DseError
    from dse.spec.document import locate

    found: list[Fault] = []
    place, path = locate(document.root, ("model",))
    for name in [names] if isinstance(names, str) else names:
        try:
            load_model(name)
        except DseError as error:
            faults = getattr(error, "faults", None)
            found += faults or [place.fault(path, str(error))]
    return found


def _faults(error: DseError, file: str) -> list[Fault]:
    from dse.errors import Fault

    return list(getattr(error, "faults", None) or [Fault(file, None, None, "", str(error))])
