"""The link between the pools of a disaggregated deployment, and how caches travel over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from dse.spec.base import Location, Spec
from dse.spec.quantity import BytesPerS, LatencyS, Quantity

FABRICS: Final = ("scale_up", "scale_out", "host")
Ramp = Annotated[float, Quantity("bytes", 1.0, 1e11, zero=True)]

_OF_ONE_FABRIC: Final = ("bandwidth_bytes_per_s", "latency_s")


class Link(Spec):
    """How caches travel between the pools; without a fabric the topology decides.

    `scale_up` stays inside a domain (NVLink, UB), `scale_out` crosses nodes (InfiniBand, RoCE),
    `host` is staged in host memory (PCIe). `bandwidth_bytes_per_s` is one accelerator's, in one
    direction, `latency_s` that of one hop; both replace the hardware's. `ramp_bytes` replaces the
    engine's transfer_ramp_bytes. `streaming` sends what is ready by `layer`, by `chunk` of the
    prompt, or all at the end (`none`). `moves` is the `suffix` that the prefill side computed, or
    the whole `prompt` where the decode side keeps no cache of its own.
    """

    fabric: Literal["scale_up", "scale_out", "host"] | None = None
    bandwidth_bytes_per_s: BytesPerS | None = None
    latency_s: LatencyS | None = None
    ramp_bytes: Ramp | None = None
    streaming: Literal["layer", "chunk", "none"] = "layer"
    moves: Literal["suffix", "prompt"] = "suffix"

    @classmethod
    def key_faults(cls, data: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
        if data.get("fabric") is not None:
            return
        for name in _OF_ONE_FABRIC:
            if data.get(name) is not None:
                yield (
                    (name,),
                    "is of one fabric, which topology would choose design by design; "
                    f"give fabric: {', '.join(FABRICS[:-1])} or {FABRICS[-1]}",
                )
