"""All devices of one or many processes as one mesh."""

from __future__ import annotations

import os
from typing import Any, Final

import jax

from dse.errors import DseError

AUTO: Final = "auto"
_EXPECTED: Final = "coordinator:port,process_id,n_processes, or auto"


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
