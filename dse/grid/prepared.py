"""A grid that is ready to be priced: its study, its parts and programs, and what names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from dse import __version__
from dse.grid import checkpoint
from dse.grid.axes import Studies, own_lists, what_ifs
from dse.grid.plan import Whole, plan_grid
from dse.grid.scenarios import parts_of
from dse.lower.goal import load_remarks
from dse.spec.grid import GridSpec
from dse.spec.study import Study, load_study


@dataclass(frozen=True)
class Grid:
    """A grid to be priced."""

    study: Study  # without its grid block, its lists set to the axes that are lists
    spec: GridSpec
    whole: Whole
    numbers: tuple[tuple[float, ...] | None, ...]  # values of the what-if axes in SI

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a checkpoint must agree with; names are for people."""
        plain = self.spec.model_dump(mode="json", exclude={"axes"})
        blocks = [[plan.n_blocks, plan.block_size, part.size] for part, plan in self._pairs()]
        return {
            "the study": checkpoint.digest(self.study.resolved()),
            "the axes": checkpoint.digest({path: list(v) for path, v in self.spec.axes.items()}),
            "what is kept": checkpoint.digest(plain),
            "the sizes": checkpoint.digest(blocks),
            "the version of dse": __version__,
            "the version of jax": jax.__version__,
            "the kind of device": jax.default_backend(),
        }

    @property
    def remarks(self) -> list[str]:
        """What the scores are no measure of."""
        bases = [part.base for part in self.whole.parts]
        found = [load_remarks(one.goal, one.system.traffic) for one in bases]
        return list(dict.fromkeys(remark for remarks in found for remark in remarks))

    def _pairs(self) -> Any:
        return zip(self.whole.parts, self.whole.plans, strict=True)


def prepare(study: Study, spec: GridSpec) -> Grid:
    """Axes to arrays and programs. Raises DseError with what is wrong with them."""
    lists = own_lists(spec.axes)
    study = study.model_copy(update={"grid": None})
    if lists:
        study = load_study(study.resolved(), lists)
    axes = what_ifs(spec.axes)
    whole = plan_grid(parts_of(study, axes), axes, spec)
    studies = Studies(study, axes)
    numbers = tuple(studies.numbers(i) for i in range(len(axes)))
    return Grid(study, spec, whole, numbers)
