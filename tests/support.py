"""Systems, designs and compiled prices shared by the tests of the cost model.

Everything is drawn in batches of `N` points and priced by one compiled function for each structure
of a model: compiling costs seconds, a point costs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import settings

from dse import catalog
from dse.arch import load_model
from dse.cost.law import Kernel
from dse.cost.step import StepCost, step, step_kernels
from dse.cost.types import DecodeLoad, Engine, Model, Pool, PrefillLoad, Target
from dse.lower.formats import FormatChoice, lower_formats
from dse.lower.laws import Laws
from dse.lower.model import lower_model
from dse.lower.target import lower_engine, lower_target
from dse.lower.traffic import lower_traffic
from dse.search import interpret
from dse.serving.evaluate import evaluate
from dse.serving.promises import percentiles
from dse.serving.tails import mean_of
from dse.serving.types import GOODPUT, Deployment, Limits, Spread, System, Traffic
from dse.spec.engine import load_engine
from dse.spec.hardware import Hardware
from dse.spec.load import load
from dse.spec.workload import Workload
from dse.struct import replace
from tests.routed import routed

N = 64
# Examples of a property whose formula is cheap, the same in every run.
SOME = settings(max_examples=25, derandomize=True, deadline=None)
NO_LIMIT = 1e9


class Family(NamedTuple):
    """A kind of model, with a target and an engine that serve it."""

    model: str
    hardware: str
    engine: str
    tp: float = 4.0


FAMILIES: dict[str, Family] = {
    "dense": Family("Llama-3.1-8B", "h100-sxm", "vllm", 2.0),
    "sliding": Family("gpt-oss-120b", "h100-sxm", "vllm", 2.0),
    "mla": Family("DeepSeek-V3", "h200-sxm", "sglang", 8.0),
    "dsa": Family("DeepSeek-V3.2", "h200-sxm", "sglang", 8.0),
    "compressed": Family("DeepSeek-V4-Flash", "b200-sxm", "sglang"),
    "delta": Family("Qwen3.5-397B-A17B", "h200-sxm", "vllm", 8.0),
    "mamba": Family("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h100-sxm", "tensorrt-llm", 2.0),
    "experts": Family("MiniMax-M2.5", "mi300x", "vllm"),
    "chunked": Family("Llama-4-Scout", "b200-sxm", "tensorrt-llm"),
}


@pytest.fixture(autouse=True, scope="module")
def float64() -> Iterator[None]:
    """Double precision for a module; a test may turn it off again around single calls."""
    with jax.enable_x64(True):
        yield


@cache
def hardware(name: str) -> Hardware:
    return load(Hardware, catalog.resolve("hardware", name)).spec


def target(name: str) -> Target:
    return lower_target(hardware(name))


def laws(name: str, vendor: str = "nvidia", **given: object) -> Laws:
    """The priors of an engine, with what a user gives."""
    return Laws.of(load_engine(name, given), vendor, given)


def engine(name: str, vendor: str = "nvidia", **given: object) -> Engine:
    return lower_engine(load_engine(name, given), laws(name, vendor, **given))


def model(name: str, *, with_draft: bool = False) -> Model:
    lowered = lower_model(load_model(name))
    return lowered if with_draft else replace(lowered, draft=None)


def formats(
    name: str,
    on: str,
    weight: str = "checkpoint",
    activation: str = "checkpoint",
    kv: str = "checkpoint",
    by: Laws | None = None,
) -> FormatChoice:
    """`by` are the laws of the engine; priors where none are given."""
    chip = hardware(on)
    of = by or laws("generic", chip.vendor)
    return lower_formats(load_model(name), chip, weight, activation, kv, of)


def pool(choice: FormatChoice, **degrees: float) -> Pool:
    """A pool with degrees of 1, 64 requests and chunks of 2048 unless said otherwise."""
    given: dict[str, float] = {
        **dict.fromkeys(("tp", "dp", "ep", "pp", "replicas"), 1.0),
        "max_batch": 64.0,
        "chunk_tokens": 2048.0,
        "draft_tokens": 0.0,
    }
    given.update({name: float(value) for name, value in degrees.items()})
    return Pool(**given, formats=choice.formats)


def with_products(served: Pool, **numbers: float) -> Pool:
    """The pool with numbers of its law of products, dense and grouped, in all formats."""
    formats = served.formats
    grouped = formats.grouped
    if grouped is not None:
        grouped = replace(grouped, product=replace(grouped.product, **numbers))
    products = replace(formats.products, **numbers)
    return replace(served, formats=replace(formats, products=products, grouped=grouped))


def without_ceilings(served: Pool) -> Pool:
    """The pool on a target whose matrix units reach their data sheet's peak."""
    return with_products(served, compute_frac=PRIORS["gemm_compute_frac"])


PRIORS = laws("generic").parameters


def traffic(**given: Any) -> Traffic:
    """1024 tokens in, 256 out, no spread, no prefix hits, 64 clients or requests/s."""
    kind = given.pop("load_kind", GOODPUT)
    asked = {"isl_tokens": 1024.0, "osl_tokens": 256.0, "isl_cv": 0.0, "osl_cv": 0.0, **given}
    block = {
        name: {"mean": asked[f"{name}_tokens"], "cv": asked[f"{name}_cv"]}
        for name in ("isl", "osl")
    }
    lowered = lower_traffic(Workload.model_validate(block), kind, float(given.get("load", 64.0)))
    rest = {"prefix_hit_frac", "loading_s"} & set(given)
    return replace(lowered, **{name: float(given[name]) for name in rest})


def limits(**given: float) -> Limits:
    """Limits by metric name, `ttft_mean_s=2.0` or `ttft_p99_s=2.0`; none where nothing is given."""
    keys = {name.removesuffix("_s"): float(seconds) for name, seconds in given.items()}
    means = {key.removesuffix("_mean"): v for key, v in keys.items() if key.endswith("_mean")}
    return Limits(means, {key: v for key, v in keys.items() if not key.endswith("_mean")})


class Case(NamedTuple):
    """One system and one design."""

    system: System
    design: Deployment


def case(
    family: str | Family,
    *,
    mode: str = "colocated",
    with_draft: bool = False,
    asked: Traffic | None = None,
    promised: Limits | None = None,
    **degrees: float,
) -> Case:
    """A family on its target, with its own tensor parallelism unless told otherwise.

    `family` may also be a family of one's own making.
    """
    name, on, by, tp = FAMILIES[family] if isinstance(family, str) else family
    vendor = hardware(on).vendor
    choice = formats(name, on, by=laws(by, vendor))
    lowered = model(name, with_draft=with_draft)
    served = routed(pool(choice, **{"tp": tp, **degrees}), lowered)
    if not with_draft:
        served = replace(served, formats=replace(served.formats, draft=None))
    chip, engine_ = target(on), engine(by, vendor)
    system = System(
        model=lowered,
        source=chip,
        sink=chip,
        source_engine=engine_,
        sink_engine=engine_,
        traffic=asked or traffic(),
        limits=promised or limits(ttft_mean_s=2.0, tpot_mean_s=0.05),
        budget_accelerators=1e9,
    )
    prefill = replace(served, draft_tokens=0.0)
    return Case(system, Deployment(prefill, served, (1.0, 0.0, 0.0), mode))


def batched(one: Any, n: int = N) -> Any:
    """Every number of a pytree as an array of n; what has arrays of its own stays."""

    def wide(x: Any) -> Any:
        return x if isinstance(x, _WITH_ARRAYS) else np.full(n, x, np.float64)

    return jax.tree.map(wide, one, is_leaf=lambda x: isinstance(x, _WITH_ARRAYS))


# A model's stacked products and a workload's nodes have axes that are not those of the designs.
_WITH_ARRAYS = (Model, Spread)


def has_own_axes(name: str) -> bool:
    """Whether a leaf, by its path, belongs to one of these."""
    return ".model." in name or ".spread." in name or name.endswith(".dispersion")


def numbers(tree: Any) -> list[tuple[str, Any]]:
    """(path, leaf) of every number that varies by design."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    return [(name, leaf) for name, leaf in named if not has_own_axes(name)]


def scaled(tree: Any, factor: Callable[[str], Any]) -> Any:
    """The tree with every number outside the model multiplied by what `factor` says of its path."""

    def one(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        return leaf if has_own_axes(name) else np.asarray(leaf) * factor(name)

    return jax.tree_util.tree_map_with_path(one, tree)


# Shares that stay at most 1, and switches that a random factor must leave alone.
_KEPT = (
    "frac",
    "basis",
    "supported",
    "quantizes",
    "holds",
    "share",
    "fabric",
    "budget",
    "routing",
    "redundant",
)


def varied(start: Case, rng: np.random.Generator, spread: float = 0.3) -> Case:
    """N random targets, engines, loads and designs around a case: each number by its own factor.

    Degrees stay whole: tensor and expert parallelism are redrawn as powers of two.
    """

    def factor(name: str) -> Any:
        if any(word in name for word in _KEPT) or name.endswith((".tp", ".dp", ".ep", ".pp")):
            return 1.0
        if name.endswith((".draft_tokens", ".replicas", ".scale_up_dimensions")):
            return 1.0
        return np.exp(rng.uniform(-spread, spread, N))

    out: Case = scaled(batched(start), factor)
    small = rng.integers(0, 3, (4, N))

    def degrees(of: Pool) -> Pool:
        dp = 2.0 ** small[1] if start.system.model.main.experts else np.ones(N)
        ep = np.minimum(2.0 ** small[2], dp) if start.system.model.main.experts else np.ones(N)
        drawn = replace(
            of, tp=of.tp * 0.5 * 2.0 ** small[0], dp=dp, ep=ep, pp=2.0 ** (small[3] // 2)
        )
        return routed(drawn, start.system.model)

    design = replace(
        out.design, prefill=degrees(out.design.prefill), decode=degrees(out.design.decode)
    )
    return Case(out.system, design)


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function run by numpy in double precision: traced once for each structure and shape.

    Compiling the pricing of a deployment takes ten times as long as running it this way.
    """
    traced: dict[Any, Any] = {}

    def call(*args: Any) -> Any:
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(args))
        key = (jax.tree.structure(args), shapes)
        if key not in traced:
            traced[key] = interpret.trace(function, *args)
        program, structure = traced[key]
        return jax.tree.unflatten(structure, interpret.run(program, *args))

    return call


def interpreted_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function run by numpy in single precision, traced as often as `interpreted` does."""
    traced: dict[Any, Any] = {}

    def call(*args: Any) -> Any:
        single = jax.tree.map(np.float32, args)
        leaves = jax.tree.leaves(single)
        key = (jax.tree.structure(single), tuple(np.shape(leaf) for leaf in leaves))
        if key not in traced:
            with jax.enable_x64(False):
                program, shapes = jax.make_jaxpr(function, return_shape=True)(*single)
            traced[key] = program, jax.tree.structure(shapes)
        program, structure = traced[key]
        with np.errstate(all="ignore"):
            found = interpret.run_flat(program, leaves)
        return jax.tree.unflatten(structure, found)

    return call


@cache
def _priced(n_refinements: int) -> Any:
    def call(system: System, design: Deployment) -> Any:
        found = evaluate(system, design, n_refinements)
        # Distributions have an axis of nodes before that of the batch.
        return replace(found, point=replace(found.point, tails={}))

    return interpreted(call)


def price(at: Case, n_refinements: int = 6) -> Any:
    """`evaluate` of a batch: an Outcome with arrays of its length, without the distributions."""
    return spread_out(_priced(n_refinements)(at.system, at.design))


@interpreted
def _whole(system: System, design: Deployment) -> Any:
    found = evaluate(system, design, 6)
    metrics = {**found.metrics, **percentiles(found.point.tails)}
    # The means of the distributions, to hold against those of the formulas.
    means = {name: mean_of(tail) for name, tail in found.point.tails.items()}
    return replace(found, metrics=metrics, point=replace(found.point, tails={})), means


def price_whole(at: Case) -> tuple[Any, dict[str, Any]]:
    """`price` with every percentile among the metrics, and the means of the distributions."""
    found: tuple[Any, dict[str, Any]] = spread_out(_whole(at.system, at.design))
    return found


def price_few(at: Case, n: int) -> Any:
    """`price` of a case whose arrays hold n points: in the batch that is compiled already."""

    def longer(path: Any, leaf: Any) -> Any:
        return leaf if has_own_axes(jax.tree_util.keystr(path)) else np.resize(leaf, N)

    found = price(jax.tree_util.tree_map_with_path(longer, at))
    return jax.tree.map(lambda x: x[:n], found)


def spread_out(found: Any) -> Any:
    """The tree on the host, every leaf with the shape of the batch."""
    shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(found)))
    return jax.tree.map(lambda x: np.broadcast_to(x, shape), jax.device_get(found))


class Steps(NamedTuple):
    """A mixed step and its kernels."""

    kernels: list[Kernel]
    cost: StepCost


@interpreted
def _steps(
    model: Model,
    pool: Pool,
    target: Target,
    engine: Engine,
    prefill: PrefillLoad | None,
    decode: DecodeLoad | None,
) -> Steps:
    kernels = step_kernels(model, pool, target, engine, prefill=prefill, decode=decode)
    return Steps(kernels, step(model, pool, target, engine, prefill=prefill, decode=decode))


def steps(at: Case, prefill: PrefillLoad | None, decode: DecodeLoad | None) -> Steps:
    """A step of the decode pool of a case with the given loads."""
    system, served = at.system, at.design.decode
    found = _steps(system.model, served, system.sink, system.sink_engine, prefill, decode)
    out: Steps = spread_out(found)
    return out


def loads(rng: np.random.Generator, n: int = N) -> tuple[PrefillLoad, DecodeLoad]:
    """Random prompt chunks behind random prefixes, and random decoding batches."""
    rows = np.exp(rng.uniform(np.log(16.0), np.log(8192.0), n))
    start = rng.integers(0, 2, n) * np.exp(rng.uniform(0.0, np.log(65536.0), n))
    prefill = PrefillLoad(rows=rows, rows_per_prompt=rows, start=start, end=start + rows)
    decode = DecodeLoad(
        requests=np.exp(rng.uniform(0.0, np.log(512.0), n)),
        rows_per_request=rng.integers(1, 4, n).astype(np.float64),
        context=np.exp(rng.uniform(0.0, np.log(262144.0), n)),
    )
    return prefill, decode
