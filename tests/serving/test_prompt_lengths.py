"""What a prompt adds to a step does not depend on its length through those who decode beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dse.cost.step import step
from dse.cost.types import DecodeLoad, PrefillLoad
from dse.lower.traffic import lower_traffic
from dse.serving.colocated import Setting, _price
from dse.serving.types import OPEN, Limits
from dse.spec.load import load_spec
from dse.spec.workload import Workload
from tests.support import case, interpreted


def test_prompts_of_every_priced_length_beside_the_same_decoding_requests() -> None:
    """w(S) = chunks (step with a chunk of S - step without), decoding rows at the mean context.

    Were the context of those who decode scaled with the prompt, a short prompt would seem free and
    a long one several times as dear.
    """
    spread = load_spec(Workload, {"isl": {"mean": 1500, "cv": 0.8}, "osl": 200})
    traffic = lower_traffic(spread, OPEN, 1.0)
    whole, design = case("dense", asked=traffic)
    nothing = Limits(means={})
    chip, engine = whole.sink, whole.sink_engine
    s = Setting(whole.model, design.decode, chip, engine, traffic, nothing, np.float64(256.0))
    # The last row is the share of it that goes to experts: none in a dense model.
    *found, to_experts = interpreted(_price)(s, np.float64(128.0)).prompt_s
    decode = DecodeLoad(requests=128.0, rows_per_request=1.0, context=traffic.mean_context)

    @interpreted
    def with_prompt(rows: Any, tokens: Any) -> Any:
        chunk = PrefillLoad(rows=rows, rows_per_prompt=rows, start=0.0, end=tokens)
        both = step(s.model, s.pool, chip, engine, prefill=chunk, decode=decode)
        alone = step(s.model, s.pool, chip, engine, decode=decode)
        return both.total_s - alone.total_s

    assert len(found) == 3
    assert float(to_experts) == 0.0
    for factor, seconds in zip(traffic.spread.prompt_points, found, strict=True):
        tokens = 1500.0 * float(factor)
        chunks = max(tokens / float(s.pool.chunk_tokens), 1.0)
        assert float(seconds) == pytest.approx(
            chunks * float(with_prompt(tokens / chunks, tokens)), rel=0.01
        )
