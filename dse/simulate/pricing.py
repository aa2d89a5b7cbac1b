"""Pricing many steps at once with the cost model, in float64 and without compiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dse.cost.law import Kernel
from dse.cost.step import layer_kernels, step, step_kernels
from dse.cost.types import DecodeLoad, Engine, Model, Pool, PrefillLoad, Target
from dse.search.programs import program_of

Floats = npt.NDArray[np.float64]

# Loads are priced in blocks of one size, so that each kind of step is traced once.
_BLOCK = 2048

# Kernels that read caches and states, or a prompt's own keys: all others see rows alone.
_CACHE_KERNELS = (
    "decode_attention",
    "prefill_attention",
    "latent_expansion",
    "indexer",
    "recurrent_decode",
    "recurrent_prefill",
)
# Their seconds, and those of the draft layers' passes over prompts: beside the terms that they are
# also part of.
CACHES, DRAFT_CACHES, DRAFT_HEAD = "caches", "draft_caches", "draft_head"
PARTS = (CACHES, DRAFT_CACHES, DRAFT_HEAD)


class Served(NamedTuple):
    """A pool's share of a deployment: what its steps depend on besides their load."""

    model: Model
    pool: Pool
    target: Target
    engine: Engine


def served(model: Model, pool: Pool, target: Target, engine: Engine) -> Served:
    """The same with arrays [1] as the pool's fields. Raises ValueError for several designs."""
    return Served(model, jax.tree.map(_one, pool), target, engine)


def number(leaf: Any) -> float:
    """A field of one design as a Python number."""
    return float(np.asarray(leaf, dtype=np.float64).reshape(-1)[0])


def _one(leaf: Any) -> Floats:
    values = np.asarray(leaf, dtype=np.float64).reshape(-1)
    if len(values) != 1:
        raise ValueError(f"expected one design, found {len(values)}")
    return values


def decode_steps(of: Served, requests: Any, context: Any, rows_each: float) -> dict[str, Floats]:
    """Term -> seconds [n] of steps of decoding requests [n] of a replica at their context [n]."""
    return _priced(_decode, of, (requests, context, rows_each))


def prompt_steps(of: Served, rows: Any, prompts: Any, start: Any, end: Any) -> dict[str, Floats]:
    """Term -> seconds [n] of steps of prompt rows [n] of a replica, of `prompts` prompts."""
    return _priced(_prompt, of, (rows, rows / np.maximum(prompts, 1e-12), start, end))


def mixed_steps(of: Served, prompt: tuple[Any, ...], decode: tuple[Any, ...]) -> dict[str, Floats]:
    """Term -> seconds [n] of steps that carry both: arguments of the two functions above."""
    rows, prompts, start, end = prompt
    return _priced(_mixed, of, (rows, rows / np.maximum(prompts, 1e-12), start, end, *decode))


def _decode(of: Served, requests: Any, context: Any, rows_each: Any) -> dict[str, Any]:
    load = DecodeLoad(requests=requests, rows_per_request=rows_each, context=context)
    return _seconds(of, None, load)


def _prompt(of: Served, rows: Any, rows_each: Any, start: Any, end: Any) -> dict[str, Any]:
    load = PrefillLoad(rows=rows, rows_per_prompt=rows_each, start=start, end=end)
    return _seconds(of, load, None)


def _mixed(
    of: Served, rows: Any, rows_each: Any, start: Any, end: Any, *decode: Any
) -> dict[str, Any]:
    requests, context, decode_rows = decode
    return _seconds(
        of,
        PrefillLoad(rows=rows, rows_per_prompt=rows_each, start=start, end=end),
        DecodeLoad(requests=requests, rows_per_request=decode_rows, context=context),
    )


def _seconds(of: Served, prefill: PrefillLoad | None, decode: DecodeLoad | None) -> dict[str, Any]:
    terms = vars(step(*of, prefill=prefill, decode=decode).terms)
    kernels = step_kernels(*of, prefill=prefill, decode=decode)
    zero = np.zeros(())
    parts = {CACHES: _sum(kernels, _CACHE_KERNELS), DRAFT_CACHES: zero, DRAFT_HEAD: zero}
    model, pool, target, engine = of
    if model.draft is not None and prefill is not None and decode is None:
        passes = jnp.minimum(pool.draft_tokens, model.draft_modules) / model.draft_modules
        own = list(
            layer_kernels(
                model.draft, pool.for_draft(), target, engine, prefill=prefill, decode=None
            )
        )
        parts[DRAFT_CACHES] = passes * _sum(own, _CACHE_KERNELS)
        heads = [kernel.time_s for kernel in own if kernel.term == "head"]
        parts[DRAFT_HEAD] = passes * sum(heads, zero)
    return {**terms, **parts}


def _sum(kernels: list[Kernel], names: tuple[str, ...]) -> Any:
    return sum((one.time_s for one in kernels if one.name in names), np.zeros(()))


def total_s(terms: dict[str, Floats]) -> Floats:
    """Seconds [n] of whole steps."""
    found: Floats = np.sum([one for name, one in terms.items() if name not in PARTS], axis=0)
    return found


def _priced(function: Callable[..., dict[str, Any]], of: Served, load: Any) -> dict[str, Floats]:
    columns = np.broadcast_arrays(*[np.asarray(one, dtype=np.float64) for one in load])
    n = columns[0].size
    blocks = [
        _block(function, of, [column.reshape(-1)[i : i + _BLOCK] for column in columns])
        for i in range(0, n, _BLOCK)
    ]
    return {name: np.concatenate([one[name] for one in blocks]) for name in blocks[0]}


def _block(
    function: Callable[..., dict[str, Any]], of: Served, columns: list[Floats]
) -> dict[str, Floats]:
    n = len(columns[0])
    padded = [np.concatenate([one, np.repeat(one[-1:], _BLOCK - n)]) for one in columns]
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), of)
    given = (wide, *padded)
    program = program_of(function, given)
    found: dict[str, Any] = jax.tree.unflatten(program.structure, program.run(*given))
    return {
        name: np.broadcast_to(np.asarray(value), (_BLOCK,))[:n] for name, value in found.items()
    }
