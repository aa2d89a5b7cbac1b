"""Files that lie beside a file of cases and state deployments in full: slots, degrees, requests.

- `ascend_cases.csv`: the deployments of Ascend CI runs, found by their test file and their load;
- `mlperf_cases.csv`: audited runs as `dse validate` reads them, found by system, benchmark and
  scenario;
- `llmservingsim_vllm_requests.csv`: requests one by one, as `dse validate` plays them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from dse.calibrate.audited_logs import Log, read_logs
from dse.calibrate.audited_rows import AuditedRow
from dse.calibrate.published.case import Case
from dse.calibrate.rows import read_models

_SAME_FRAC: Final = 0.01
_BENCHMARK: Final = re.compile(
    r"closed/([^/]+)/results/([^/]+)/([^/]+)/(Server|Interactive|Offline)/"
)


class AscendRow(BaseModel):
    """One CI run; columns that are not needed are ignored. Empty cells take their defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    source: str
    deployment: str
    isl: float = 0.0
    concurrency: float = 0.0
    speculation: str = ""
    prefix_hit: float = 0.0
    output_tokens_per_s: float = 0.0


class SystemRow(AuditedRow):
    """An audited run with the name of the system that it ran on."""

    submitter: str
    system: str


@dataclass(frozen=True)
class Companions:
    """What the files beside the cases say; empty where they are missing."""

    ascend: tuple[AscendRow, ...] = ()
    audited: tuple[SystemRow, ...] = ()
    logs: tuple[Log, ...] = field(default=())

    def ascend_of(self, case: Case) -> AscendRow | None:
        """The deployment of a CI run: same test file, prompt length and clients."""
        file = Path(case.source.rpartition(" ")[2] or case.source).stem.casefold()
        return next(
            (
                row
                for row in self.ascend
                if file in row.source.casefold()
                and case.isl == row.isl
                and case.clients == row.concurrency
                and isinstance(case.value, float)
                and abs(row.output_tokens_per_s / case.value - 1.0) < _SAME_FRAC
            ),
            None,
        )

    def audited_of(self, case: Case) -> SystemRow | None:
        """The audited run of the same system, benchmark and scenario."""
        found = _BENCHMARK.search(case.source)
        if found is None:
            return None
        submitter, system, benchmark, scenario = found.groups()
        plain = re.sub(r"-99(\.9)?$", "", benchmark).replace("llama3_1", "llama3.1")
        wanted = (submitter, system, plain, scenario)
        for row in self.audited:
            if (row.submitter, row.system, row.model, row.scenario) == wanted:
                return row
        return None

    def log_of(self, case: Case) -> Log | None:
        """The log of the same model on the same hardware."""
        chip = case.hardware.replace(" ", "").replace("-", "").casefold()
        model = case.model.removesuffix("-Instruct-2507")
        for log in self.logs:
            same = log.hardware.replace("-", "").casefold() == chip
            if same and log.model.casefold() == model.casefold():
                return log
        return None


def companions_of(path: str | Path) -> Companions:
    """The companions of a file of cases. Raises SpecError for a faulty one."""
    folder = Path(path).parent
    ascend, audited, logs = (
        folder / name
        for name in ("ascend_cases.csv", "mlperf_cases.csv", "llmservingsim_vllm_requests.csv")
    )
    return Companions(
        tuple(read_models(AscendRow, ascend, ("id", "source", "deployment")))
        if ascend.is_file()
        else (),
        tuple(read_models(SystemRow, audited, ("id", "submitter", "system", "gpu")))
        if audited.is_file()
        else (),
        tuple(read_logs(logs)) if logs.is_file() else (),
    )
