"""The longest request that a server must take: the context that it is started with."""

from __future__ import annotations

import math
from typing import Final

from dse.spec.lengths import Lengths
from dse.spec.workload import Workload

_Z: Final = 3.0902  # of a lognormal length the quantile that one request in a thousand exceeds
_SPARE_TOKENS: Final = 64  # special tokens, and what tokenizing random text again adds
_STEP_TOKENS: Final = 256


def context_tokens(workload: Workload, limit_tokens: int | None) -> tuple[int, str]:
    """(tokens of a server's context, what was cut off; empty where nothing was).

    Prompt and output of the longest request, rounded up to 256 tokens; of lengths without an end,
    of one request in a thousand. Never more than the model's own limit.
    """
    if workload.joint is not None:
        longest = max(p + o for p, o in zip(workload.joint.isl, workload.joint.osl, strict=True))
    else:
        longest = _longest(workload.isl) + _longest(workload.osl)
    rounded = math.ceil((longest + _SPARE_TOKENS) / _STEP_TOKENS) * _STEP_TOKENS
    if limit_tokens is not None and rounded > limit_tokens:
        cut = f"requests of up to {math.ceil(longest):,} tokens: the model ends at {limit_tokens:,}"
        return limit_tokens, cut if longest > limit_tokens else ""
    return rounded, ""


def _longest(lengths: Lengths) -> float:
    if lengths.quantiles:
        return max(lengths.quantiles.values())
    sigma2 = math.log1p(lengths.cv**2)
    return lengths.mean * math.exp(_Z * math.sqrt(sigma2) - sigma2 / 2.0 * (lengths.cv > 0.0))
