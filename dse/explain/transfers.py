"""The transfer of a cache over prompt lengths and fabrics: what takes time, and what shows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.serving.stations import Setting, front
from dse.struct import Array, Scalar, replace

FABRICS: Final = ("scale_up", "scale_out", "host")
PROMPTS: Final = tuple(2**i for i in range(7, 18))


class Swept(NamedTuple):
    """Seconds over fabrics and prompt lengths, [3, P]."""

    prefill_s: Array
    transfer_s: Array
    exposed_s: Array


def swept(setting: Setting) -> Swept:
    """Prompts alone in an idle worker, over each fabric, with the hits that the traffic states."""
    lengths = jnp.asarray(PROMPTS, jnp.result_type(float))

    def one(fabric: Array, tokens: Scalar) -> Swept:
        traffic = replace(setting.traffic, isl_tokens=tokens)
        weights = (fabric[0], fabric[1], fabric[2])
        found = front(setting._replace(traffic=traffic, fabric=weights))
        return Swept(found.alone_s, found.transfer_s, found.exposed_s)

    over_lengths = jax.vmap(one, in_axes=(None, 0))
    return jax.vmap(over_lengths, in_axes=(0, None))(jnp.eye(3, dtype=lengths.dtype), lengths)


def transfer_rows(found: Swept, in_use: tuple[Scalar, Scalar, Scalar]) -> list[dict[str, Any]]:
    """One row for each fabric and prompt length, as `dse explain --json` shows them."""
    table = {name: np.asarray(values, float) for name, values in found._asdict().items()}
    return [
        {
            "fabric": fabric,
            "of_design": bool(float(in_use[i]) > 0.5),
            "prompt_tokens": tokens,
            **{name: float(values[i, j]) for name, values in table.items()},
        }
        for i, fabric in enumerate(FABRICS)
        for j, tokens in enumerate(PROMPTS)
    ]
