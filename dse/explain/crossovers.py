"""Three crossovers, each on its own axis: a dense product over its rows, experts over their rows,
and a whole decode step over its batch."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dse.cost.gemm import crossover_rows, gemm_kernels, local_shape
from dse.cost.memory import memory
from dse.cost.moe import expert_kernel, rows_per_expert
from dse.cost.types import Model
from dse.explain.experts import main_kind
from dse.explain.history import CONTEXTS
from dse.explain.subject import Side, Subject
from dse.struct import Array, Scalar

_ROWS = 2.0 ** np.arange(0.0, 20.01, 0.25)
_TOKENS = 2.0 ** np.arange(0.0, 24.01, 0.25)
BATCHES: Final[tuple[int, ...]] = tuple(2**i for i in range(18))
SMALLEST_GAIN = 0.10  # of doubling the batch; below it throughput counts as no longer growing
_PARTS = ("attention", "mlp", "shared_expert")


class Sweeps(NamedTuple):
    """Sides of the kernel law over rows and tokens, and what memory holds over contexts."""

    gemm: tuple[Array, Array]  # (compute, memory) seconds over `_ROWS`
    gemm_shape: tuple[Array, Array]  # (K, N) of one rank
    expert: tuple[Array, Array] | None  # over `_TOKENS`
    fits: Array  # [contexts] requests of one replica that memory holds


def main_gemm(model: Model) -> int:
    """The dense product inside the layers that does most work per row."""
    gemms = model.main.gemms
    columns = np.asarray(gemms.n_split) + np.asarray(gemms.n_kv) + np.asarray(gemms.n_whole)
    work = np.asarray(gemms.k) * columns * np.asarray(gemms.copies) * np.asarray(gemms.layers)
    known = [part in _PARTS for part in gemms.parts]
    return int(np.argmax(np.where(known, work, -1.0)))


def sweeps(model: Model, side: Side, contexts: Array, expert: int | None, gemm: int) -> Sweeps:
    """What the crossovers are read from, for the decode phase, beside its steps."""

    def products(rows: Scalar) -> tuple[Array, Array]:
        kernels = gemm_kernels(rows, rows, model.main.gemms, side.pool, side.target, side.engine)
        return jnp.asarray(kernels[gemm].compute_s), jnp.asarray(kernels[gemm].memory_s)

    def grouped(tokens: Scalar) -> tuple[Array, Array]:
        kind, routing = model.main.experts[expert or 0], side.pool.routing[expert or 0]
        kernel = expert_kernel(tokens, kind, routing, side.pool, side.target, side.engine)
        return jnp.asarray(kernel.compute_s), jnp.asarray(kernel.memory_s)

    def fits(context: Scalar) -> Array:
        account = memory(model, side.pool, side.target, side.engine, context)
        return account.resident_requests(side.pool.dp)

    k, n, _ = local_shape(model.main.gemms, side.pool)
    return Sweeps(
        gemm=jax.vmap(products)(jnp.asarray(_ROWS, contexts.dtype)),
        gemm_shape=(k[gemm], n[gemm]),
        expert=None if expert is None else jax.vmap(grouped)(jnp.asarray(_TOKENS, contexts.dtype)),
        fits=jax.vmap(fits)(contexts),
    )


def crossing(x: NDArray[np.float64], compute_s: Any, memory_s: Any) -> float | None:
    """The x above which compute takes longer than memory, interpolated in logs; None if never.

    0 where compute takes longer throughout.
    """
    gap = np.log(np.asarray(compute_s, float)) - np.log(np.asarray(memory_s, float))
    below = np.nonzero(gap <= 0.0)[0]
    if len(below) == 0:
        return 0.0
    i = int(below[-1])
    if i + 1 == len(x):
        return None
    at = gap[i] / (gap[i] - gap[i + 1])
    return float(np.exp(np.log(x[i]) + at * np.log(x[i + 1] / x[i])))


def last_gain(step_s: NDArray[np.float64]) -> int | None:
    """The batch from which on doubling it never again gains 10 % of throughput; None if always.

    Interpolated in logs between the powers of two that were priced.
    """
    times = np.asarray(step_s, float)
    gains = 2.0 * times[:-1] / times[1:] - 1.0
    worth = np.nonzero(gains >= SMALLEST_GAIN)[0]
    if len(worth) == 0:
        return BATCHES[0]
    i = int(worth[-1])
    if i + 1 == len(gains):
        return None
    at = float((gains[i] - SMALLEST_GAIN) / (gains[i] - gains[i + 1]))
    return math.ceil(BATCHES[i] * math.exp2(at) - 1e-9)


def contexts_of(subject: Subject) -> tuple[float, ...]:
    """The design's mean context, then the contexts of the attention sweep."""
    return (float(subject.system.traffic.mean_context), *map(float, CONTEXTS))


def crossovers_document(
    subject: Subject, side: Side, priced: Sweeps, step_s: NDArray[np.float64]
) -> dict[str, Any]:
    """The three crossovers with both the textbook's figure and the kernel law's.

    `step_s` are seconds of decode steps, [contexts, batches].
    """
    return {
        "dense_gemm": _dense(subject, side, priced),
        "experts": _experts(subject, side, priced),
        "step": _step(subject, priced, step_s),
    }


def _ideal(side: Side, part: str) -> dict[str, float]:
    formats = side.pool.formats
    ridge = float(formats.peak_flops_per_s[part] / side.target.memory_bandwidth_bytes_per_s)
    weight = float(formats.weight_bytes[part])
    return {
        "ridge_flops_per_byte": ridge,
        "weight_bytes_per_parameter": weight,
        "rows_ideal": float(crossover_rows(ridge, weight)),
    }


def _dense(subject: Subject, side: Side, priced: Sweeps) -> dict[str, Any]:
    gemms = subject.system.model.main.gemms
    i = main_gemm(subject.system.model)
    return {
        "gemm": gemms.names[i],
        "k": float(priced.gemm_shape[0]),
        "n": float(priced.gemm_shape[1]),
        **_ideal(side, gemms.parts[i]),
        "rows": crossing(_ROWS, *priced.gemm),
        "rows_of_design": _rows(side),
    }


def _rows(side: Side) -> float:
    assert side.decode is not None
    return float(side.decode.requests * side.decode.rows_per_request / side.pool.dp)


def _experts(subject: Subject, side: Side, priced: Sweeps) -> dict[str, Any] | None:
    found = main_kind(subject)
    if found is None or priced.expert is None:
        return None
    _, kind = found
    ideal = _ideal(side, "expert")
    tokens = crossing(_TOKENS, *priced.expert)

    def rows(n: float | None) -> float | None:
        return None if n is None else float(rows_per_expert(n, kind.top_k, kind.n_experts))

    return {
        **ideal,
        "tokens_ideal": ideal["rows_ideal"] * kind.n_experts / kind.top_k,
        "rows": rows(tokens),
        "tokens": tokens,
        "rows_of_design": rows(_rows(side) * float(side.pool.dp)),
    }


def _step(subject: Subject, priced: Sweeps, times: NDArray[np.float64]) -> dict[str, Any]:
    fits = np.asarray(priced.fits, float)
    contexts = contexts_of(subject)
    by_context = [
        {
            "context_tokens": context,
            "batch": last_gain(times[i]),
            "batch_that_fits": float(fits[i]),
            "step_s": [float(t) for t in times[i]],
        }
        for i, context in enumerate(contexts)
    ]
    return {
        "batch": by_context[0]["batch"],
        "batch_that_fits": by_context[0]["batch_that_fits"],
        "batch_of_design": subject.batch,
        "context_tokens": contexts[0],
        "smallest_gain_frac": SMALLEST_GAIN,
        "batches": list(BATCHES),
        "by_context": by_context,
    }
