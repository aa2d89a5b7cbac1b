"""From a priced deployment to the stations and the channel that are played."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dse.cost.memory import Memory
from dse.cost.transfer import Route, Transfer, transfer
from dse.cost.types import Engine, Model, Pool
from dse.errors import InfeasibleError
from dse.search.programs import of_any_number, program_of
from dse.serving.evaluate import accounts, effective
from dse.serving.types import Deployment, System
from dse.simulate.channel import Channel, Streaming
from dse.simulate.curve import Curve, nodes
from dse.simulate.events import Line
from dse.simulate.memory import MemoryRule
from dse.simulate.pricing import number, prompt_steps, served
from dse.simulate.station import Budget, Role, Station
from dse.simulate.step_table import StepTable

_SIZE_RATIO = 1.1


class Tables:
    """The step tables of a deployment's stations: made once, played often."""

    def __init__(self, system: System, design: Deployment, longest_tokens: float) -> None:
        model = system.model
        main = served(model, design.decode, system.sink, system.sink_engine)
        self.main = StepTable(main, context_tokens=longest_tokens)
        self.front: StepTable | None = None
        if design.mode == "disaggregated":
            front = served(model, design.prefill, system.source, system.source_engine)
            self.front = StepTable(front, context_tokens=longest_tokens)

    @property
    def error_frac(self) -> float:
        """Largest relative error of an interpolated step that was met."""
        found = self.main.error_frac
        return max(found, self.front.error_frac) if self.front is not None else found


def line_of(
    system: System,
    design: Deployment,
    tables: Tables,
    *,
    budget: Budget = "step",
    block_tokens: int = 16,
    hashed_tokens: int = 0,
) -> Line:
    """The line of one design. `hashed_tokens` is the size of the requests' hashed blocks, if any.

    Raises InfeasibleError where weights leave no memory for caches.
    """
    seen = _seen(system, design)
    prefill_memory, decode_memory = seen.prefill_memory, seen.decode_memory
    if not hashed_tokens:  # the share that the closed forms find; else blocks are looked up
        system = seen.system
    engine = system.sink_engine
    common = {"budget": budget, "block_tokens": hashed_tokens}
    hit_frac = 0.0 if hashed_tokens else number(system.traffic.prefix_hit_frac)
    main_rule = _rule(decode_memory, block_tokens)
    if design.mode == "colocated":
        main = _station(
            tables.main, design.decode, engine, main_rule, "both", hit_frac=hit_frac, **common
        )
        return Line(
            main=main,
            ttft_base_s=number(engine.ttft_base_s),
            ttft_s_per_prompt_token=number(engine.ttft_s_per_prompt_token),
        )
    assert tables.front is not None
    engine = system.source_engine
    front_rule = _rule(prefill_memory, block_tokens)
    front = _station(
        tables.front, design.prefill, engine, front_rule, "prefill", hit_frac=hit_frac, **common
    )
    fixed = prompt_steps(tables.front.of, number(design.prefill.dp), 1.0, 0.0, 1.0)
    step_fixed_s = float(fixed["launch"][0] + fixed["host"][0])
    return Line(
        main=_station(
            tables.main, design.decode, system.sink_engine, main_rule, "decode", budget=budget
        ),
        front=front,
        channel=channel_of(system, design, tables.main.largest_context),
        holds_first_token=number(engine.holds_first_token) > 0.5,
        ttft_base_s=number(engine.ttft_base_s) + number(engine.handover_s),
        ttft_s_per_prompt_token=number(engine.ttft_s_per_prompt_token),
        ttft_fixed_s=number(engine.ttft_steps) * step_fixed_s,
        moves_prefix_frac=number(system.link.moves_prefix),
    )


class _Seen(NamedTuple):
    """Memory of both pools, and the system with the prefix hits that the design's caches reach."""

    prefill_memory: Memory
    decode_memory: Memory
    system: System


def _look(system: System, design: Deployment) -> _Seen:
    return _Seen(*accounts(system, design), effective(system, design))


def _seen(system: System, design: Deployment) -> _Seen:
    narrow = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), (system, design))
    program = program_of(_look, narrow)
    found: _Seen = jax.tree.unflatten(program.structure, program.run(*narrow))
    return found


def _rule(account: Memory, block_tokens: int) -> MemoryRule:
    if not number(account.kv_budget_bytes) > 0.0:
        raise InfeasibleError("weights and activations leave no memory for the cache")
    return MemoryRule(
        budget_bytes=number(account.kv_budget_bytes),
        bytes_per_token=number(account.kv_bytes_per_token),
        bytes_per_request=number(account.state_bytes_per_request),
        block_tokens=block_tokens,
    )


def _station(
    law: StepTable, pool: Pool, engine: Engine, rule: MemoryRule, role: Role, **given: Any
) -> Station:
    return Station(
        law=law,
        memory=rule,
        role=role,
        replicas=round(number(pool.replicas)),
        dp=round(number(pool.dp)),
        pp=round(number(pool.pp)),
        max_batch=max(round(number(pool.max_batch)), 1),
        chunk_tokens=max(round(number(pool.chunk_tokens)), 1),
        rows_each=1 + round(number(pool.draft_tokens)),
        mixes_phases=engine.mixes_phases and role != "prefill",
        lost_steps=number(engine.ttft_steps) if role == "both" else 0.0,
        **given,
    )


def _moved(model: Model, route: Route, engine: Engine, tokens: Any) -> Transfer:
    return transfer(model, route, engine, tokens)


def channel_of(system: System, design: Deployment, longest_tokens: float) -> Channel:
    """The links of a two-pool deployment, by the cost model's transfer."""
    engine, model = system.source_engine, system.model
    prefill, decode = (jax.tree.map(number, pool) for pool in (design.prefill, design.decode))
    fabric = tuple(number(one) for one in design.fabric)

    route = Route(prefill, decode, system.source, system.sink, fabric, system.link)  # type: ignore[arg-type]
    tokens = nodes(1.0, longest_tokens, _SIZE_RATIO)
    given = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), (model, route, engine))
    program = program_of(_moved, (*given, of_any_number(tokens)))
    found = program.run(*given, tokens, size=len(tokens))
    columns = [np.broadcast_to(one, tokens.shape) for one in found]
    _, fixed, payload, parallel = columns
    fixed_s, payload_s = Curve(tokens, fixed), Curve(tokens, payload)
    stages = number(design.prefill.pp)

    streaming = Streaming(
        layers=number(model.main.n_layers),
        layer_s=number(engine.transfer_layer_s),
        by_layer=number(system.link.by_layer),
        by_chunk=number(system.link.by_chunk),
    )

    def exposed_s(size: float, prefill_s: float, n_chunks: float) -> float:
        stage_s = prefill_s * n_chunks / (n_chunks + stages - 1.0)  # of the last one
        return streaming.exposed_s(fixed_s(size), payload_s(size), stage_s, n_chunks)

    return Channel(float(np.median(parallel)), Curve(tokens, fixed + payload), exposed_s)
