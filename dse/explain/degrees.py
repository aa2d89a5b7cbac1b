"""Which parallel degree does not divide which count, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dse.arch.types import Attention, ModelArch, Moe


def misfits(arch: ModelArch, design: Mapping[str, Any]) -> list[str]:
    """What `dse.serving.feasible.degrees_fit` refuses of a design, each with its numbers."""
    pools = {"": design}
    if design.get("mode") == "disaggregated":
        pools = {f"{name}.": design[name] for name in ("prefill", "decode")}
    found = [text for prefix, pool in pools.items() for text in _of_pool(arch, pool, prefix)]
    if design.get("draft_tokens") and arch.draft is None:
        found.append(f"draft_tokens {design['draft_tokens']}: {arch.name} has no draft layers")
    return list(dict.fromkeys(found))


def _of_pool(arch: ModelArch, pool: Mapping[str, Any], prefix: str) -> Iterator[str]:
    tp, dp, ep, pp = (pool[name] for name in ("attention_tp", "attention_dp", "moe_ep", "pp"))
    redundant = pool.get("redundant_experts", 0)
    placement = pool.get("expert_placement", "contiguous")
    for mixer, _ in arch.mixers:
        heads = mixer.q_heads if isinstance(mixer, Attention) else mixer.heads
        if heads % tp:
            yield f"{prefix}attention_tp {tp} does not divide {heads} heads"
        elif isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
            yield f"{prefix}attention_tp {tp} and {mixer.kv_heads} key-value heads do not divide"
    if pp > arch.n_layers:
        yield f"{prefix}pp {pp} is more than {arch.n_layers} layers"
    experts = [mlp for mlp, _ in arch.mlps if isinstance(mlp, Moe)]
    if not experts:
        if ep > 1:
            yield f"{prefix}moe_ep {ep}: {arch.name} has no experts"
        if dp > 1:
            yield f"{prefix}attention_dp {dp}: without experts use replicas or workers instead"
        if redundant:
            yield f"{prefix}redundant_experts {redundant}: {arch.name} has no experts"
        return
    if redundant and placement != "eplb":
        yield (
            f"{prefix}redundant_experts {redundant} need a plan; expert_placement is {placement}, "
            "expected eplb"
        )
    if (tp * dp) % ep:
        yield f"{prefix}moe_ep {ep} does not divide attention_tp * attention_dp = {tp * dp}"
        return
    for moe in experts:
        if (moe.n_experts + redundant) % ep:
            more = f" and {redundant} redundant" if redundant else ""
            yield f"{prefix}moe_ep {ep} does not divide {moe.n_experts}{more} experts"
        if moe.intermediate % (tp * dp // ep):
            width = tp * dp // ep
            yield f"{prefix}expert tensor parallelism {width} does not divide {moe.intermediate}"
