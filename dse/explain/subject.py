"""What is explained: a model, the lowered system and design, and the point at which it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.arch.types import Attention, ModelArch, Moe
from dse.cost.reuse import Found
from dse.cost.types import DecodeLoad, Engine, Pool, PrefillLoad, Target
from dse.lower.study import lower_study
from dse.serving.colocated import chunk_load, chunks, decode_load
from dse.serving.evaluate import accounts
from dse.serving.reuse import reused
from dse.serving.types import Deployment, System
from dse.space.designs import digit_arrays, gathered
from dse.spec.routing import RoutingSpec
from dse.spec.study import Study
from dse.struct import Array, Scalar


@dataclass(frozen=True, slots=True)
class Subject:
    """One design at its operating point: `batch` decoding requests on each decode replica."""

    arch: ModelArch
    system: System
    design: Deployment
    batch: float
    found: Found | None = None  # where cached prompts are found, where the design decides it
    routing: RoutingSpec = field(default_factory=RoutingSpec)

    @classmethod
    def of(cls, study: Study, target: str, resident_requests: float) -> Subject:
        """The only design of a study's space on one of its targets, as it was priced."""
        lowered = lower_study(study)
        problem = next(problems[0] for found, problems in lowered.problems if found.name == target)
        arrays = gathered(problem.tables, digit_arrays(problem.grid, [0]))
        design: Deployment = jax.tree.map(lambda leaf: float(np.ravel(leaf)[0]), arrays)
        batch = resident_requests / float(design.decode.replicas)
        prefill_memory, _ = accounts(problem.system, design)
        seen, found = reused(problem.system, design, prefill_memory)
        return cls(lowered.arch, seen, design, batch, found, study.routing)

    @property
    def attention_kinds(self) -> list[Attention]:
        """The model's kinds of attention, in the order of `Layers.attention`."""
        return [mixer for mixer, _ in self.arch.mixers if isinstance(mixer, Attention)]

    @property
    def expert_kinds(self) -> list[Moe]:
        """The model's kinds of expert layers, in the order of `Layers.experts`."""
        return [mlp for mlp, _ in self.arch.mlps if isinstance(mlp, Moe)]


class Side(NamedTuple):
    """One phase of a design: where it runs, and what a step of it carries."""

    pool: Pool
    target: Target
    engine: Engine
    prefill: PrefillLoad | None
    decode: DecodeLoad | None
    repeats: Scalar  # steps that the phase takes: the chunks of a prompt, or one decode step


def prefill_side(system: System, design: Deployment) -> Side:
    """One whole prompt alone on every attention rank: its chunks, one after the other."""
    load = chunk_load(system.traffic, design.prefill)
    n_chunks: Array = chunks(system.traffic, design.prefill)
    return Side(design.prefill, system.source, system.source_engine, load, None, n_chunks)


def decode_side(system: System, design: Deployment, batch: Scalar) -> Side:
    """One decode step of `batch` requests of a replica at the mean context."""
    load = decode_load(batch, system.traffic, design.decode)
    return Side(design.decode, system.sink, system.sink_engine, None, load, jnp.ones(()))
