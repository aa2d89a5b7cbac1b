"""Measured runs and their deployment as rows of CSV, with what is refused and what to know."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dse.calibrate.clients.deployment import Deployed
from dse.calibrate.clients.detect import stem_of
from dse.calibrate.clients.measured import PER_REQUEST, Measured

# Columns of measured rows, then what the client saw besides: for people, not for predictions.
COLUMNS: Final = (
    "id", "mode", "model", "hardware", "engine", "engine_version", "weight_precision",
    "kv_precision", "isl_tokens", "osl_tokens", "length_fraction_mean", "concurrency",
    "n_accelerators", "accelerators_per_replica", "attention_tp", "attention_dp", "moe_ep",
    "prefill_workers", "prefill_accelerators_per_worker", "prefill_attention_tp",
    "prefill_attention_dp", "prefill_moe_ep", "decode_workers", "decode_accelerators_per_worker",
    "decode_attention_tp", "decode_attention_dp", "decode_moe_ep", "mtp_draft_tokens",
    "decode_slots", "ttft_mean_s", "tpot_mean_s",
    "client", "load", "rate_requests_per_s", "in_flight_mean", "requests_completed",
    "requests_failed", "ttft_median_s", "tpot_median_s", "tpot_mean_over", "open_ttft_mean_s",
    "source",
)  # fmt: skip
# More failures than this, and the load that was kept up is not the load that was asked for.
_MOST_FAILED_FRAC: Final = 0.05
_FEW_ROUNDS: Final = 4.0
_UNDERUSED_FRAC: Final = 0.8
_SKEWED_FRAC: Final = 0.25
_LARGEST_CV: Final = 1.0 / math.sqrt(3.0)  # of lengths from zero to twice the mean
_SMALL_CV: Final = 0.01
_ALIKE_CV: Final = 0.05


@dataclass
class Table:
    """Rows, and the runs that are none with the reason; notes name the row that they are about."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_csv(self) -> str:
        """The rows as CSV."""
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(row.get(name)) for name in COLUMNS} for row in self.rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """The document that `dse rows --json` prints."""
        return {
            "schema": "dse.rows/1",
            "rows": self.rows,
            "refused": self.refused,
            "notes": self.notes,
        }


def table_of(runs: Sequence[Measured], where: Deployed) -> Table:
    """Every run as a row of the deployment, or refused."""
    table = Table(notes=list(where.notes))
    names = _names(runs)
    for name, run in zip(names, runs, strict=True):
        reason = _refusal(run)
        if reason:
            table.refused.append({"id": name, "source": run.source, "reason": reason})
            continue
        version = where.columns["engine_version"] or run.engine_version
        columns = {**where.columns, "engine_version": version}
        table.rows.append({"id": name, **columns, **_measured(run)})
        table.notes += [f"{name}: {note}" for note in [*run.notes, *_remarks(run, where)]]
    return table


def _names(runs: Sequence[Measured]) -> list[str]:
    """A name for each: its file's, with a number where a file or several files give the same."""
    stems = [stem_of(run.source.partition(": ")[0].partition(" line ")[0]) for run in runs]
    seen: dict[str, int] = {}
    names = []
    for stem in stems:
        seen[stem] = seen.get(stem, 0) + 1
        names.append(f"{stem}-{seen[stem]}" if stems.count(stem) > 1 else stem)
    return names


def _refusal(run: Measured) -> str:
    sent = run.completed + run.failed
    if run.completed < 1:
        return f"none of {sent} requests came back"
    if run.failed > _MOST_FAILED_FRAC * sent:
        return (
            f"{run.failed} of {sent} requests failed or were cut off: those that came back did not "
            "meet the load that was asked for"
        )
    if run.load.kind == "burst":
        return (
            f"all {sent} requests were sent at once: neither a closed loop nor a rate; run with "
            "fewer clients than requests (--max-concurrency, --concurrency)"
        )
    if run.load.kind == "trace":
        return "requests came at recorded or changing times; play them: dse simulate --trace"
    if run.osl.mean <= 1.0:
        return "one output token a request: there is no time per output token"
    if run.load.kind == "open" and run.in_flight_mean is None:
        return "an open loop without a request rate achieved: its requests in flight are unknown"
    return ""


def _measured(run: Measured) -> dict[str, Any]:
    """The columns that the client knows."""
    closed = run.load.kind == "closed"
    fraction = _length_fraction(run)
    in_flight = run.in_flight_mean
    return {
        "isl_tokens": run.isl.mean / fraction,
        "osl_tokens": run.osl.mean / fraction,
        "length_fraction_mean": fraction,
        "concurrency": run.load.concurrency if closed else in_flight,
        "ttft_mean_s": run.ttft_mean_s if closed else None,
        "tpot_mean_s": run.tpot_mean_s,
        "client": run.client,
        "load": run.load.kind,
        "rate_requests_per_s": None if closed else run.load.rate_per_s,
        "in_flight_mean": in_flight,
        "requests_completed": run.completed,
        "requests_failed": run.failed,
        "ttft_median_s": run.ttft_median_s,
        "tpot_median_s": run.tpot_median_s,
        "tpot_mean_over": run.tpot_mean_over,
        "open_ttft_mean_s": None if closed else run.ttft_mean_s,
        "source": run.source,
    }


def _length_fraction(run: Measured) -> float:
    """f of lengths uniform on (2f - 1, 1) times the nominal ones; 1 where a row cannot say it."""
    isl, osl = run.isl.cv, run.osl.cv
    if isl is None or osl is None or abs(isl - osl) > _ALIKE_CV:
        return 1.0
    spread = (isl + osl) / 2.0
    return 1.0 / (1.0 + math.sqrt(3.0) * spread) if _SMALL_CV < spread <= _LARGEST_CV else 1.0


def _remarks(run: Measured, where: Deployed) -> list[str]:
    """What a reader of the row should know."""
    found = []
    if run.failed:
        found.append(f"{run.failed} of {run.completed + run.failed} requests failed")
    if run.model and not _same_model(run.model, where.model):
        found.append(f"the client asked for {run.model!r}; the row says {where.model}, as given")
    own = where.columns.get("accelerators_per_replica")
    if run.accelerators is not None and own is not None and run.accelerators != own:
        found.append(
            f"the server says that a replica has {run.accelerators} accelerators; the row says "
            f"{own}"
        )
    version = where.columns["engine_version"]
    if run.engine_version and version and run.engine_version != version:
        found.append(f"the server says {run.engine_version}; the row says {version}, as given")
    spreads = [s for s in (run.isl.cv, run.osl.cv) if s is not None]
    if max(spreads, default=0.0) > _ALIKE_CV and _length_fraction(run) == 1.0:
        spread = " and ".join(f"{s:.0%}" for s in spreads)
        found.append(f"lengths vary by {spread} of their mean, which a row cannot hold: fixed")
    if run.tpot_mean_over != PER_REQUEST:
        found.append(f"TPOT is a {run.tpot_mean_over}: long outputs weigh more")
    found += _load_remarks(run)
    for label, mean, median in (
        ("TTFT", run.ttft_mean_s, run.ttft_median_s),
        ("TPOT", run.tpot_mean_s, run.tpot_median_s),
    ):
        if mean and median and abs(mean / median - 1.0) > _SKEWED_FRAC:
            found.append(f"mean {label} is {mean / median:.2f} of its median; the row has the mean")
    return found


def _load_remarks(run: Measured) -> list[str]:
    in_flight, clients = run.in_flight_mean, run.load.concurrency
    if run.load.kind == "open":
        rate = "an unknown rate" if run.load.rate_per_s is None else f"{run.load.rate_per_s:g}/s"
        return [
            f"an open loop at {rate}: concurrency is the mean in flight ({in_flight:.3g}); its "
            "TTFT holds queueing that a closed loop has not, and stands under open_ttft_mean_s"
        ]
    found = []
    if clients and run.completed < _FEW_ROUNDS * clients:
        found.append(
            f"{run.completed} requests of {clients:g} clients: the start, when all prompts come "
            "at once, weighs in TTFT"
        )
    if clients and in_flight is not None and in_flight < _UNDERUSED_FRAC * clients:
        found.append(f"{in_flight:.3g} requests in flight on average, of {clients:g} clients")
    return found


def _same_model(first: str, second: str) -> bool:
    def last(name: str) -> str:
        return name.rstrip("/").rpartition("/")[2].casefold().replace("_", "-")

    one, other = last(first), last(second)
    return one == other or one.startswith(other) or other.startswith(one)


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.8g}" if isinstance(value, float) else value
