"""What can be listed and shown: one `Kind` per catalogue, each with its rows and its details."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dse.errors import DseError, did_you_mean

if TYPE_CHECKING:
    from dse import catalog

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing with a name: `rows` lists all, `details` describes one, by name or alias."""

    singular: str
    columns: tuple[str, ...]  # of the table; the rows may hold more
    rows: Callable[[], list[Row]]
    details: Callable[[str], Row]
    is_file: bool = False  # people copy it: it is shown as it was written


def kind_named(name: str) -> str:
    """The kind that a word means, singular or plural. Raises DseError with the nearest."""
    folded = name.strip().casefold()
    for key, kind in KINDS.items():
        if folded in (key, kind.singular):
            return key
    hint = did_you_mean(name, KINDS)
    raise DseError(f"nothing is called {name[:60]!r}{hint or ';'} Known: {', '.join(KINDS)}")


def _hardware_rows() -> list[Row]:
    from dse import catalog
    from dse.errors import SpecError
    from dse.spec.hardware import Hardware
    from dse.spec.load import load_spec

    rows = []
    for entry in catalog.entries("hardware"):
        row: Row = {"name": entry.name, "aliases": list(entry.aliases)}
        try:
            target = load_spec(Hardware, entry.path)
        except SpecError as error:
            rows.append({**row, "description": f"faulty: {error.faults[0]}"})
            continue
        price = target.price_usd_per_hour
        row |= {
            "vendor": target.vendor,
            "generation": target.generation,
            "memory_bytes": target.memory_bytes.value,
            "memory_bandwidth_bytes_per_s": target.memory_bandwidth_bytes_per_s.value,
            "peak_flops_per_s": {k: peak.value for k, peak in target.peak_flops_per_s.items()},
            "domain_accelerators": int(target.scale_up.domain_accelerators.value),
            "power_w": target.power_w.value if target.power_w else None,
            "price_usd_per_hour": price.value if price else None,
            "description": target.description.strip(),
        }
        rows.append({**row, "bf16_flops_per_s": row["peak_flops_per_s"].get("bf16")})
    return rows


def _hardware_details(name: str) -> Row:
    from dse.spec.hardware import Hardware
    from dse.spec.load import load_named

    return load_named(Hardware, "hardware", name).spec.model_dump()


def _model_rows() -> list[Row]:
    from dse.arch import list_models

    return [
        {
            "name": entry.name,
            "aliases": list(entry.aliases),
            "model_type": entry.model_type,
            "source": entry.source,
        }
        for entry in list_models()
    ]


def _model_details(name: str) -> Row:
    from dse.arch import counts, load_model

    arch = load_model(name)
    return {
        "name": arch.name,
        "n_layers": arch.n_layers,
        "hidden": arch.hidden,
        "vocab": arch.vocab,
        "max_context_tokens": arch.max_context_tokens,
        "n_parameters": counts.total_parameters(arch),
        "n_active_parameters": counts.active_parameters(arch),
        "n_draft_parameters": counts.draft_parameters(arch),
        "weights_bytes": counts.weight_bytes(arch),
        "kv_dtype": arch.kv_dtype,
        "kv_bytes_per_token": counts.kv_bytes_per_token(arch, arch.kv_dtype),
        "state_bytes_per_request": counts.state_bytes_per_request(arch, arch.kv_dtype),
        "attention": [{"kind": mixer.kind, "n_layers": n} for mixer, n in arch.mixers],
        "parts": [
            {
                "part": part,
                "n_parameters": n,
                "weights_bytes": counts.weight_bytes_by_part(arch)[part],
                "dtype": arch.formats[part].dtype if part in arch.formats else "bf16",
            }
            for part, n in counts.parameters_by_part(arch).items()
            if n
        ],
        "warnings": list(arch.warnings),
    }


def _entry_rows(kind: catalog.Kind) -> list[Row]:
    from dse import catalog

    return [
        {"name": entry.name, "aliases": list(entry.aliases), "description": entry.description}
        for entry in catalog.entries(kind)
    ]


def _spec_details(kind: catalog.Kind, singular: str, name: str) -> Row:
    from dse.spec.load import load_named
    from dse.spec.plain import plain_data
    from dse.spec.schema import SPECS

    data: Row = plain_data(load_named(SPECS[singular], kind, name).spec)
    return data


def _engine_details(name: str) -> Row:
    from dse.spec.engine import load_engine

    return load_engine(name).model_dump()


def _kernel_rows() -> list[Row]:
    from dse import catalog
    from dse.errors import SpecError
    from dse.spec.kernels import read_kernels

    rows = []
    for entry in catalog.entries("kernels"):
        row: Row = {"name": entry.name}
        try:
            found = read_kernels(entry.path).spec
        except SpecError as error:
            rows.append({**row, "operators": f"faulty: {error.faults[0]}"})
            continue
        operators = dict.fromkeys(one.operator for one in found.sets)
        source = f"{found.source.package} {found.source.version}"
        row |= {"version": found.version, "date": found.date, "measured by": source}
        rows.append({**row, "operators": ", ".join(operators)})
    return rows


def _kernel_details(name: str) -> Row:
    from dse import catalog
    from dse.spec.kernels import read_kernels

    found: Row = read_kernels(catalog.resolve("kernels", name)).spec.model_dump(exclude_none=True)
    return {"name": f"{found['target']}/{found['engine']}", **found}


def _deployment_rows() -> list[Row]:
    from dse import catalog
    from dse.errors import SpecError
    from dse.spec.deployments import read_deployments

    rows = []
    for entry in catalog.entries("deployments"):
        row: Row = {"name": entry.name}
        try:
            found = read_deployments(entry.path).spec
        except SpecError as error:
            rows.append({**row, "models": f"faulty: {error.faults[0]}"})
            continue
        models = dict.fromkeys(level.of.model for level in found.levels if level.of.model)
        row |= {"rows": found.n_rows, "date": found.date}
        rows.append({**row, "models": ", ".join(model.split("/")[-1] for model in models)})
    return rows


def _deployment_details(name: str) -> Row:
    from dse import catalog
    from dse.spec.deployments import read_deployments

    path = catalog.resolve("deployments", name)
    found: Row = read_deployments(path).spec.model_dump(exclude_none=True, exclude_defaults=True)
    return {"name": found["engine"], **found}


def _metric_rows() -> list[Row]:
    from dse.spec.metrics import METRICS

    return [asdict(metric) for metric in METRICS.values()]


def _metric_details(name: str) -> Row:
    rows = {row["name"]: row for row in _metric_rows()}
    return rows[_known(name, rows, "metric")]


def _known(name: str, names: Iterable[str], what: str) -> str:
    allowed = list(names)
    if name not in allowed:
        hint = did_you_mean(name, allowed)
        raise DseError(f"no {what} is named {name[:80]!r}{hint} `dse list {what}s` shows all")
    return name


def _files(kind: catalog.Kind, singular: str) -> Kind:
    return Kind(
        singular,
        ("name", "description"),
        partial(_entry_rows, kind),
        partial(_spec_details, kind, singular),
        is_file=True,
    )


_KERNEL_COLUMNS = ("name", "version", "date", "measured by", "operators")
_DEPLOYMENT_COLUMNS = ("name", "rows", "date", "models")
_HARDWARE_COLUMNS = (
    "name",
    "vendor",
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "bf16_flops_per_s",
    "domain_accelerators",
    "description",
)
KINDS: Final[dict[str, Kind]] = {
    "hardware": Kind("target", _HARDWARE_COLUMNS, _hardware_rows, _hardware_details),
    "models": Kind("model", ("name", "aliases", "model_type"), _model_rows, _model_details),
    "objectives": _files("objectives", "objective"),
    "studies": _files("studies", "study"),
    "workloads": _files("workloads", "workload"),
    "engines": Kind(
        "engine", ("name", "description"), partial(_entry_rows, "engines"), _engine_details
    ),
    "kernels": Kind(
        "set of kernels", _KERNEL_COLUMNS, _kernel_rows, _kernel_details, is_file=False
    ),
    "deployments": Kind(
        "fit of deployments",
        _DEPLOYMENT_COLUMNS,
        _deployment_rows,
        _deployment_details,
        is_file=False,
    ),
    "metrics": Kind(
        "metric", ("name", "unit", "better", "description"), _metric_rows, _metric_details
    ),
}
