"""Closed loops: clients that move in step, and ranks that share what comes in one wave."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.serving.prompts import Load, Prompts, budget_tokens, with_experts
from dse.serving.sums import node_sum
from dse.serving.types import CLOSED
from dse.serving.waiting import in_step, together_frac
from dse.struct import Array, Scalar


class Waves(NamedTuple):
    """What a closed loop of clients that start together does to its prompts."""

    prompts: Prompts  # shared by the ranks as they come
    whole_s: Array  # what a prompt takes from decoding, fixed part included
    share: Array  # y, of the clients that move in step, prompts and decoding apart
    first_s: Array  # mean time from a wave's start to a first token
    rest_s: Array  # mean time from a first token to the wave's end


def waves(at: Load, p: Prompts, clients: Scalar, whole_s: Array, accepted: Array) -> Waves:
    """Waves of N clients that have a slot.

    A wave of N prompts fills m = max(1, N E[S]/budget) steps and lasts T = N w + m F, w shared by
    the ranks as N prompts share it. A first token comes with its step, after (m + 1)/(2 m) T on
    average. Whether or not prompts stop decoding, those that were prefilled together end together
    where outputs are alike (`together_frac`): the ranks share what comes in one wave.
    """
    engine, pool = at.engine, at.pool
    spread = at.prompt[-1]
    alone_frac = 1.0 - spread * (1.0 - 1.0 / pool.dp)
    # Routing by load deals a wave out evenly.
    even = jnp.maximum(1.0 / p.pieces.groups, 1.0 / jnp.maximum(clients, 1.0))
    frac = with_experts(pool, even, spread) / alone_frac
    steps = jnp.maximum(clients * p.pieces.tokens / budget_tokens(at), 1.0)
    fixed_s = node_sum(p.weights * p.fixed_s)
    work_s = (node_sum(p.weights * (p.whole_s - p.fixed_s)) + p.beside_s) * frac
    wave_s = clients * work_s + steps * fixed_s
    decoding_s = at.traffic.gaps * at.decode[0] / accepted
    together = together_frac(at.traffic, engine, wave_s, decoding_s)
    share = jnp.zeros(())
    if at.traffic.load_kind == CLOSED:
        share = in_step(engine, together)
    in_waves = jnp.maximum(share, together)
    mean_frac = p.shared_frac + in_waves * (frac - p.shared_frac)
    shared = p._replace(work_s=p.work_s * mean_frac / p.shared_frac, shared_frac=mean_frac)
    return Waves(
        prompts=shared,
        whole_s=whole_s + in_waves * (wave_s / clients - whole_s),
        share=share,
        first_s=wave_s * (steps + 1.0) / (2.0 * steps),
        rest_s=wave_s * (steps - 1.0) / (2.0 * steps),
    )
