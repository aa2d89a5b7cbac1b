"""Numbers of the accelerators, of the link between two pools, and of caches behind them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dse.sensitivity.handles import Parameter, number, paths, unit_of
from dse.sensitivity.places import Place, Root, at
from dse.spec.cache import Cache
from dse.spec.hardware import Hardware
from dse.spec.study import Study, Target

_SIDES: Final = {"prefill": ("source",), "decode": ("sink",)}


def hardware_numbers(target: Target, root: Root) -> Iterator[Parameter]:
    """Of one chip, or of the chips of both pools under names of their own."""
    if target.prefill.name == target.decode.name:
        yield from _chip("hardware", target.decode, ("prefill", "decode"), root)
        return
    for pool, chip in (("prefill", target.prefill), ("decode", target.decode)):
        yield from _chip(f"hardware.{pool}", chip, (pool,), root)


def _chip(prefix: str, chip: Hardware, pools: tuple[str, ...], root: Root) -> Iterator[Parameter]:
    sides = [side for pool in pools for side in _SIDES[pool]]

    def of_fields(name: str, value: float, *fields: str, more: tuple[Place, ...] = ()) -> Parameter:
        places = paths(*(("system", side, field) for side in sides for field in fields))
        unit = unit_of(name)
        return Parameter(f"{prefix}.{name}", unit, value, "hardware", (*places, *more))

    up, out = chip.scale_up, chip.scale_out
    host, net = chip.host_link_bytes_per_s.value, out.bandwidth_bytes_per_s.value
    peaks = tuple(place for pool in pools for place in _peaks(pool, root))
    memory = "usable_bytes" if chip.usable_bytes else "memory_bytes"
    yield of_fields(
        "memory_bandwidth_bytes_per_s",
        chip.memory_bandwidth_bytes_per_s.value,
        "memory_bandwidth_bytes_per_s",
    )
    yield of_fields(memory, (chip.usable_bytes or chip.memory_bytes).value, "memory_bytes")
    peak = max(number(root, place.path) for place in peaks)
    yield of_fields("peak_flops_per_s", peak, "vector_flops_per_s", more=peaks)
    yield of_fields("compute_units", chip.compute_units.value, "compute_units")
    yield of_fields(
        "scale_up.bandwidth_bytes_per_s",
        up.bandwidth_bytes_per_s.value,
        "scale_up_bytes_per_s",
        "scale_up_peer_bytes_per_s",
    )
    yield of_fields("scale_up.latency_s", up.latency_s.value, "scale_up_latency_s")
    tiers = _tiers_at(root, net) if "prefill" in pools else ()
    yield of_fields("scale_out.bandwidth_bytes_per_s", net, "scale_out_bytes_per_s", more=tiers)
    yield of_fields("scale_out.latency_s", out.latency_s.value, "scale_out_latency_s")
    tiers = _tiers_at(root, host) if "prefill" in pools else ()
    yield of_fields("host_link_bytes_per_s", host, "host_link_bytes_per_s", more=tiers)
    power = chip.power_w.value if chip.power_w else 0.0
    yield of_fields("power_w", power, "power_w", "idle_power_w")
    price = chip.price_usd_per_hour.value if chip.price_usd_per_hour else 0.0
    yield of_fields("price_usd_per_hour", price, "price_usd_per_hour")


def _peaks(pool: str, root: Root) -> Iterator[Place]:
    """Peaks of all parts and dtypes of a pool, those of its draft layers included."""
    formats = at(root, (pool, "formats"))
    bags = [(pool, "formats")] if formats.draft is None else [
        (pool, "formats"), (pool, "formats", "draft"),
    ]  # fmt: skip
    for bag in bags:
        for part in at(root, (*bag, "peak_flops_per_s")):
            yield Place((*bag, "peak_flops_per_s", part))
        yield Place((*bag, "attention_flops_per_s"))
        yield Place((*bag, "index_flops_per_s"))


def _tiers_at(root: Root, link_bytes_per_s: float) -> tuple[Place, ...]:
    """Caches that load as fast as a link of the chip does: they move with it."""
    reuse = root["system"].reuse
    tiers = reuse.tiers if reuse is not None else ()
    return tuple(
        Place(("system", "reuse", "tiers", i, "bytes_per_s"))
        for i, tier in enumerate(tiers)
        if tier.bytes_per_s >= link_bytes_per_s
    )


def transfer_numbers(study: Study, root: Root) -> Iterator[Parameter]:
    """The link between the pools where the study states one, and the caches of earlier prompts."""
    link = root["system"].link
    for field, name in (
        ("bytes_per_s", "bandwidth_bytes_per_s"),
        ("latency_s", "latency_s"),
        ("ramp_bytes", "ramp_bytes"),
    ):
        value = getattr(link, field)
        if value is not None:
            unit, place = unit_of(name), paths(("system", "link", field))
            yield Parameter(f"link.{name}", unit, float(value), "hardware", place)
    if root["system"].reuse is not None and study.cache is not None:
        yield from _tiers(study.cache, root)


def _tiers(cache: Cache, root: Root) -> Iterator[Parameter]:
    stated = [name for name in ("dram", "ssd", "remote") if getattr(cache, name) is not None]
    for i, name in enumerate(stated):
        tier, place = getattr(cache, name), ("system", "reuse", "tiers", i)
        for key, field in (
            ("capacity_bytes_per_accelerator", "bytes_per_accelerator"),
            ("capacity_bytes", "shared_bytes"),
            ("bandwidth_bytes_per_s", "bytes_per_s"),
            ("latency_s", "latency_s"),
        ):
            if getattr(tier, key, None) is not None:
                value = float(at(root, (*place, field)))
                unit = unit_of(key.removesuffix("_per_accelerator"))
                yield Parameter(
                    f"cache.{name}.{key}", unit, value, "hardware", paths((*place, field))
                )
