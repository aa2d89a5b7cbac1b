"""How fast a machine prices designs, and what share of its roofline that is.

`python -m dse.grid.machine [STUDY] [--designs N]` measures three things on whatever devices jax
finds: multiply-adds per second, exponentials and logarithms per second, and designs per second of a
grid. The roofline is additive: operations over their rate plus transcendentals over theirs. One
JSON document goes to standard output; with the same study it holds the same best design on every
kind of device. `--sizes 1e5 1e6 1e7` prices grids of about so many designs instead and says what
one design of each took, and the most memory that the process had held by then: neither grows.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from dse.grid.devices import use_every_core
from dse.grid.document import GridResult
from dse.grid.operations import Work, work_of
from dse.grid.plan import leaves_of
from dse.grid.prepared import Grid, prepare
from dse.grid.program import priced_block
from dse.grid.run import price
from dse.search.sharded import OWN, Machine, whole_machine
from dse.spec.grid import GridSpec
from dse.spec.load import load_spec
from dse.spec.study import load_study

# Numbers of a device, and how often each is worked on.
_CHAIN: Final = 64
_LOOPS: Final = 200
_ROUNDS: Final = 3
# A closed load of fixed lengths on a dense model: cheap to price, rows as long as they get.
STUDY: Final[dict[str, Any]] = {
    "study": "machine",
    "model": "Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": "vllm",
    "workload": {"isl": 2048, "osl": 256, "concurrency": 32},
    "objective": {
        "maximize": "output_tokens_per_s_per_accelerator",
        "promises": {"ttft_mean": "1 s"},
    },
    "space": {
        "mode": "colocated",
        "attention_tp": [1, 2],
        "max_batch": {"range": [1, 64]},
        "chunk_tokens": {"range": [256, 16384, 256]},
    },
}


class Roofline(NamedTuple):
    """Operations per second of all devices together, in float32."""

    flops_per_s: float
    transcendentals_per_s: float

    def seconds(self, work: Work) -> float:
        """The least time of some work, if nothing overlaps."""
        return work.flops / self.flops_per_s + work.transcendentals / self.transcendentals_per_s


def roofline(machine: Machine) -> Roofline:
    """Chains of multiply-adds and of exp and log, compiled by XLA into fused loops."""
    # Enough numbers to fill an accelerator; on a CPU, few enough to stay in the caches.
    n = 1 << 15 if jax.default_backend() == "cpu" else 1 << 24

    def add(y: Any) -> Any:
        for _ in range(_CHAIN):
            y = y * 0.999 + 0.001
        return y

    def exponentiate(y: Any) -> Any:
        for _ in range(4):
            y = jnp.exp(jnp.log(y))
        return y

    flops = _rate(machine, add, 2.0 * _CHAIN, n)
    return Roofline(flops, _rate(machine, exponentiate, 8.0, n))


def _rate(machine: Machine, step: Callable[[Any], Any], operations: float, n: int) -> float:
    def own(x: Any) -> Any:
        return jax.lax.fori_loop(0, _LOOPS, lambda _, y: step(y), x)

    run = jax.jit(
        jax.shard_map(own, mesh=machine.mesh, in_specs=OWN, out_specs=OWN, check_vma=False)
    )
    x = machine.spread(np.linspace(1.0, 2.0, machine.n_devices * n, dtype=np.float32))
    run(x).block_until_ready()
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run(x).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return operations * _LOOPS * n * machine.n_devices / min(seconds)


def work_per_design(grid: Grid) -> Work:
    """Operations of one block of the first part over its designs, loops counted as they run."""
    plan = grid.whole.plans[0]
    leaves = leaves_of(grid.whole.parts[0])
    work = work_needed(lambda leaves, block: priced_block(leaves, block, plan), leaves, np.int32(0))
    return Work(work.flops / plan.block_size, work.transcendentals / plan.block_size)


def work_needed(function: Callable[..., Any], *arguments: Any) -> Work:
    """Operations of a call, without those that no result needs."""
    traced = jax.make_jaxpr(function)(*arguments)
    needed, _ = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    return work_of(ClosedJaxpr(needed, traced.consts))


def sizes(source: Any, n_designs: Sequence[int]) -> list[dict[str, Any]]:
    """What a design takes in grids of several sizes: seconds of all devices together."""
    lines = []
    for n in n_designs:
        found = _priced(source, n, tables=False)
        lines.append(
            {
                "designs": found.result.points,
                "devices": found.machine.n_devices,
                "designs_per_s": found.rate,
                "cpu_us_per_design": 1e6 * found.cpu_s / max(found.designs, 1),
                "peak_memory_bytes": _peak_memory_bytes(),
            }
        )
    return lines


def _peak_memory_bytes() -> int:
    """Most memory that this process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Priced(NamedTuple):
    """A grid and how fast it went after its first launch, which compiles."""

    grid: Grid
    machine: Machine
    result: GridResult
    designs: int
    rate: float  # designs/s
    cpu_s: float
    compile_s: float


def _priced(source: Any, n_designs: int, *, tables: bool = True) -> _Priced:
    study = load_study(source)
    axes = _axes(n_designs) if tables else {**_axes(n_designs), "heat": []}
    spec = study.grid or load_spec(GridSpec, axes)
    machine, grid = whole_machine(), prepare(study, spec)
    marks: list[tuple[int, float, float]] = []

    def mark(done: int, _: int) -> None:
        marks.append((done, time.perf_counter(), time.process_time()))

    result = GridResult(grid, price(grid, machine, None, mark))
    (first, began, cpu), (last, ended, cpu_end) = marks[0], marks[-1]
    rate = (last - first) / (ended - began) if last > first else 0.0
    compile_s = result.outcome.wall_s - (ended - began)
    return _Priced(grid, machine, result, last - first, rate, cpu_end - cpu, compile_s)


def measure(source: Any, n_designs: int) -> dict[str, Any]:
    """The figures of this machine, as a document."""
    found = _priced(source, n_designs)
    machine, result, rate = found.machine, found.result, found.rate
    work, bound = work_per_design(found.grid), roofline(machine)
    return {
        "schema": "dse.grid-machine/1",
        "devices": machine.n_devices,
        "device_kind": machine.kind,
        "backend": jax.default_backend(),
        "designs": result.points,
        "designs_per_s": rate,
        "compile_s": found.compile_s,
        "flops_per_design": work.flops,
        "transcendentals_per_design": work.transcendentals,
        "flops_per_s": bound.flops_per_s,
        "transcendentals_per_s": bound.transcendentals_per_s,
        "roofline_share_frac": rate * bound.seconds(work),
        "counts": result.to_json()["counts"],
        "best": [
            {key: row[key] for key in ("score", "what_if", "design")} for row in result.best[:4]
        ],
    }


def _axes(n_designs: int) -> dict[str, Any]:
    """Axes over prompt lengths and bandwidths with about so many designs of `STUDY`."""
    # As many values of each: lowering a value takes time and memory, crossing them takes none.
    points = max(round(math.sqrt(n_designs / (2 * 64 * 64))), 2)
    return {
        "axes": {
            "workload.isl.mean": {"log": [128, 16384], "points": points},
            "hardware.memory_bandwidth_bytes_per_s": f"x0.5..x2:{points}",
        },
        "heat": [["workload.isl.mean", "hardware.memory_bandwidth_bytes_per_s"]],
        "top": 4,
    }


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dse.grid.machine", description=__doc__)
    parser.add_argument("study", nargs="?", help="a study with a grid: block")
    parser.add_argument("--designs", type=int, default=1_000_000, help="without a study")
    parser.add_argument("--sizes", type=float, nargs="+", help="grids of so many designs")
    options = parser.parse_args(arguments)
    use_every_core()
    source = Path(options.study) if options.study else STUDY
    if options.sizes:
        json.dump(sizes(source, [int(n) for n in options.sizes]), sys.stdout, indent=2)
        print()
        return
    json.dump(measure(source, options.designs), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
