"""All devices of one or many processes as one mesh."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding

from dse.errors import DseError
from dse.grid.program import DEVICES, EVERY, OWN

AUTO: Final = "auto"
_EXPECTED: Final = "coordinator:port,process_id,n_processes, or auto"


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
        return multihost_utils.process_allgather(tree, tiled=True)

    def agreed(self, value: float) -> float:
        """The first process' number, on all of them."""
        if self.n_processes == 1:
            return value
        return float(multihost_utils.broadcast_one_to_all(np.float32(value)))


def whole_machine() -> Machine:
    """All devices that jax sees, of all processes."""
    return Machine(Mesh(np.asarray(jax.devices()), (DEVICES,)))


def use_every_core() -> None:
    """On a CPU one device for each core this process may use; nothing once jax has started.

    At least two: for a single device XLA compiles in another way, and the last bit may differ.
    """
    update: Any = jax.config.update
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    if "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    try:
        update("jax_num_cpu_devices", max(count or 1, 2))
    except RuntimeError:  # the devices are known already, and stay as they are
        return


def join_processes(written: str) -> None:
    """Join the other processes: `host:port,process,processes`, or what the environment says.

    Raises DseError where the text or the environment does not say it, or no one answers.
    """
    update: Any = jax.config.update
    update("jax_cpu_collectives_implementation", "gloo")
    if written == AUTO:
        arguments: dict[str, Any] = {}
    else:
        address, _, rest = written.partition(",")
        numbers = rest.split(",")
        if ":" not in address or len(numbers) != 2 or not all(n.strip().isdigit() for n in numbers):
            raise DseError(f"--distributed: found {written!r:.80}; expected {_EXPECTED}")
        process, n_processes = map(int, numbers)
        if process >= n_processes:
            raise DseError(
                f"--distributed: found process {process} of {n_processes}; they count from 0"
            )
        arguments = {
            "coordinator_address": address.strip(),
            "process_id": process,
            "num_processes": n_processes,
        }
    try:
        jax.distributed.initialize(**arguments)
    except (RuntimeError, ValueError) as error:
        raise DseError(f"--distributed: the processes did not come together: {error}") from error
