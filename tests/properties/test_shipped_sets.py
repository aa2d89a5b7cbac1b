"""Every parameter set of the catalogue keeps to physics.

`test_fitted_laws` holds floors and monotony for any law within its ranges: what ships lies within
them. Whole steps on what ships, kernels and deployments together, are held against floors here.
"""

from __future__ import annotations

import numpy as np
import pytest

from dse import catalog
from dse.arch import load_model
from dse.errors import SpecError
from dse.lower.deployed import generation_of
from dse.lower.fitted import catalogue_laws
from dse.lower.target import lower_engine
from dse.spec.deployments import load_deployments
from dse.spec.engine import load_engine
from dse.spec.kernels import read_kernels
from dse.struct import replace
from tests.properties.test_fitted_laws import RANGES, SLACK
from tests.routed import routed
from tests.support import Case, batched, case, formats, hardware, loads, pool, steps

KERNELS = [entry.name for entry in catalog.entries("kernels")]
ENGINES = [entry.name for entry in catalog.entries("deployments")]
CHIPS = {"hopper": "h200-sxm", "blackwell": "b200-sxm", "cdna3": "mi300x", "cdna4": "mi355x"}


@pytest.mark.parametrize("name", KERNELS)
def test_every_fitted_number_lies_where_laws_are_proved(name: str) -> None:
    for one in read_kernels(catalog.resolve("kernels", name)).spec.sets:
        for field, value in one.parameters.items():
            low, high = RANGES[field]
            assert low <= value <= high, f"{one.operator} {one.dtype} {one.kernel_source} {field}"


def _subjects() -> list[tuple[str, str, str]]:
    """(engine, target, model) of every model that a deployment was measured of."""
    out = []
    for engine in ENGINES:
        found = load_deployments(engine)
        for level in found.spec.levels if found is not None else ():
            chip = CHIPS.get(level.of.generation or "")
            if level.of.model is not None and level.of.precision is None and chip is not None:
                out.append((engine, chip, level.of.model))
    return out


@pytest.mark.parametrize(("engine", "chip", "name"), _subjects())
def test_no_step_on_what_ships_beats_its_target(engine: str, chip: str, name: str) -> None:
    """Kernels and levels together, on loads from one token to a full batch of long prompts."""
    n, target = 16, hardware(chip)
    try:
        arch = load_model(name)
    except SpecError:
        pytest.skip(f"{name} is a level of measured rows and no model of the catalogue")
    assert generation_of(target) in CHIPS
    laws = catalogue_laws(load_engine(engine), target, arch)
    assert laws.fitted_to
    plain = case((name, chip, engine, 8.0))
    served = routed(pool(formats(name, chip, by=laws), tp=8.0), plain.system.model)
    served = replace(served, formats=replace(served.formats, draft=None))
    system = replace(plain.system, sink_engine=lower_engine(load_engine(engine), laws))
    at = batched(Case(system, replace(plain.design, decode=served)), n)
    found = steps(at, *loads(np.random.default_rng(3), n))
    bandwidth = system.sink.memory_bandwidth_bytes_per_s
    for kernel in found.kernels:
        floor = np.maximum(kernel.flops / kernel.peak_flops_per_s, kernel.bytes / bandwidth)
        assert np.all(np.isfinite(kernel.time_s)), kernel.name
        assert np.all(kernel.time_s >= floor * (1 - SLACK)), kernel.name
    np.testing.assert_allclose(sum(vars(found.cost.terms).values()), found.cost.total_s, rtol=1e-9)
