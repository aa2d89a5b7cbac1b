"""Which figure of a priced design a published number is, in the unit of the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from dse.calibrate.published.translate import Translation
from dse.errors import DseError

Metrics = Mapping[str, float]
_NODE: Final = 8
_FULL_FRAC: Final = 0.98


def reading_of(translation: Translation, metrics: Metrics) -> float:
    """The predicted number. Raises DseError where the design does not do what was measured."""
    name = translation.reading
    found = READINGS[name](translation, metrics) if name in READINGS else metrics[name]
    if name.endswith("_s") or name in ("first_token", "prompt", "transfer"):
        return found * _seconds(translation.case.unit)
    return found


def _seconds(unit: str) -> float:
    """How many of a unit a second is."""
    if unit.startswith("ms"):
        return 1e3
    if unit == "s":
        return 1.0
    raise DseError(f"unit not known: {unit!r:.40}")


def _share(translation: Translation) -> float:
    """Accelerators that a rate of the source is of: one device, a node of 8, or all."""
    case = translation.case
    if case.quantity.endswith("_per_node"):
        return _NODE
    if case.quantity.endswith("_cluster"):
        return float(case.n_devices or 1)
    return float(translation.devices)


def _space(translation: Translation, name: str) -> int:
    return int(translation.study["space"].get(name, 1))


def _ranks(translation: Translation) -> int:
    names = ("attention_tp", "attention_dp", "pp")
    tp, dp, pp = (_space(translation, name) for name in names)
    return tp * dp * pp


def _input_rate(translation: Translation, metrics: Metrics) -> float:
    """Prompt tokens/s of a full prefill worker: what it does over the share that it is busy."""
    requests = metrics["requests_per_s"] / metrics["prefill_utilization_frac"]
    tokens = requests * float(translation.study["workload"]["isl"])
    return tokens / _ranks(translation) * _share(translation)


def _decode_rate(translation: Translation, metrics: Metrics) -> float:
    """Tokens/s of full slots: requests that decode at once over the time of a token."""
    slots, resident = _space(translation, "max_batch"), metrics["resident_requests"]
    if resident < _FULL_FRAC * slots:
        raise DseError(f"cache for {resident:.0f} of the {slots} requests of a replica fits")
    return resident / metrics["tpot_mean_s"] / _ranks(translation) * _share(translation)


def _output_rate(translation: Translation, metrics: Metrics) -> float:
    found, case = metrics["output_tokens_per_s"], translation.case
    rate = case.rate_requests_per_s
    return min(found, rate * float(case.osl or 1.0)) if rate else found


READINGS: Final[Mapping[str, Callable[[Translation, Metrics], float]]] = {
    "input_rate": _input_rate,
    "decode_rate": _decode_rate,
    "output_rate": _output_rate,
    "output_rate_of_one": lambda _, m: m["output_tokens_per_s_per_accelerator"],
    "first_token": lambda _, m: m["ttft_mean_s"],
    "prompt": lambda _, m: m["prompt_steps_s"],
    "transfer": lambda _, m: m["transfer_exposed_s"],
}


def kind_of(quantity: str) -> str:
    """The family of a quantity, under which errors are averaged."""
    if re.match(r"input_throughput", quantity):
        return "prompt tokens/s"
    if "throughput" in quantity:
        return "output tokens/s"
    if quantity.startswith("tpot"):
        return "TPOT"
    if quantity == "kv_transfer_time":
        return "cache transfer"
    return "TTFT" if quantity.startswith("ttft") else "prefill steps"
