"""One compiled loop over blocks of designs, on every device of a mesh: of searches and of grids.

A block is a row of neighbouring designs, for a grid those of one or more scenarios. Its shape does
not depend on how many devices there are, so that every number is the same whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dse.struct import Array

DEVICES: Final = "devices"
_Spec: Any = PartitionSpec
EVERY: Final = _Spec()
OWN: Final = _Spec(DEVICES)
# XLA's CPU compiler drops barriers before it fuses, and then makes what is kept apart within the
# loop that joins or adds it up, number by number: one design takes four times as long.
_ON_CPU: Final = {"xla_disable_hlo_passes": "cse_barrier_expander"}


class Blocks(Protocol):
    """What a loop does with each block. Hashable: each value compiles a program of its own."""

    def start(self) -> Any:
        """The state before any block."""

    def after(self, state: Any, leaves: Any, block: Array) -> Any:
        """The state after a block, by its number; `leaves` are the program's arrays."""


@dataclass(frozen=True)
class Machine:
    """A mesh over all devices, and this process' part in it."""

    mesh: Mesh

    @property
    def n_devices(self) -> int:
        return len(self.mesh.devices.reshape(-1))

    @property
    def n_processes(self) -> int:
        return int(jax.process_count())

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return jax.process_index() == 0

    @property
    def kind(self) -> str:
        return str(self.mesh.devices.flat[0].device_kind)

    def placed(self, tree: Any) -> Any:
        """The same arrays on every device."""
        return jax.device_put(tree, NamedSharding(self.mesh, EVERY))

    def spread(self, values: np.ndarray) -> Any:
        """One entry of an array on each device."""
        sharding = NamedSharding(self.mesh, OWN)
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    def fetched(self, tree: Any) -> Any:
        """The arrays of all devices on every process, the devices along their first axis."""
        if self.n_processes == 1:
            return jax.device_get(tree)
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(tree, tiled=True)

    def agreed(self, value: float) -> float:
        """The first process' number, on all of them."""
        if self.n_processes == 1:
            return value
        from jax.experimental import multihost_utils

        return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def whole_machine() -> Machine:
    """All devices that jax sees, of all processes."""
    return Machine(Mesh(np.asarray(jax.devices()), (DEVICES,)))


def launch_blocks(leaves: Any, firsts: Any, counts: Any, *, blocks: Blocks, mesh: Mesh) -> Any:
    """What consecutive blocks hold: device d has `counts[d]` of them from `firsts[d]` on.

    Each leaf of the state has the devices as its first axis. Everything but `blocks`, the mesh and
    shapes is traced.
    """

    def own(leaves: Any, first: Array, count: Array) -> Any:
        def body(i: Array, state: Any) -> Any:
            return blocks.after(state, leaves, first[0] + i)

        state = jax.lax.fori_loop(0, count[0], body, blocks.start())
        return jax.tree.map(lambda leaf: leaf[None], state)

    return on_devices(own, mesh)(leaves, firsts, counts)


def on_devices(own: Callable[..., Any], mesh: Mesh) -> Any:
    """`own(leaves, first, count)` on each device, with its own entry of the last two."""
    specs = (EVERY, OWN, OWN)
    return jax.shard_map(own, mesh=mesh, in_specs=specs, out_specs=OWN, check_vma=False)


def compiled(function: Callable[..., Any], *static: str) -> Any:
    """The function, compiled for the devices there are; jax starts with the first call."""

    @cache
    def found() -> Any:
        options = _ON_CPU if jax.default_backend() == "cpu" else None
        return jax.jit(function, static_argnames=static, compiler_options=options)

    def call(*args: Any, **named: Any) -> Any:
        return found()(*args, **named)

    return call


launch = compiled(launch_blocks, "blocks", "mesh")


def shares(first: int, end: int, n_devices: int) -> tuple[np.ndarray, np.ndarray]:
    """(first block, number of blocks) of each device: neighbours, as even as they go."""
    each, more = divmod(end - first, n_devices)
    counts = np.full(n_devices, each, np.int32)
    counts[:more] += 1
    return (first + np.cumsum(counts) - counts).astype(np.int32), counts


def narrowed(tree: Any) -> Any:
    """Every leaf in single precision."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float32), tree)


def longest_block() -> int:
    """Designs of a block: on a CPU what stays in its caches, on an accelerator what fills it."""
    return 2_048 if jax.default_backend() == "cpu" else 262_144
