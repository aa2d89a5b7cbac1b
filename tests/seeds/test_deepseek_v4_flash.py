"""DeepSeek-V4-Flash on Ascend 910C, bytes per layer and query, bf16 rows of (448 + 64) * 2 bytes.

Source: a study of its prefill and decode shapes on Ascend 910C (2026-09-21, SGLang b86a30af);
growth and parameter totals are arithmetic on the published config.json.
"""

from __future__ import annotations

import numpy as np
import pytest

from dse.arch import load_model
from dse.arch.counts import (
    active_parameters,
    kv_bytes_per_token,
    state_bytes_per_request,
    total_parameters,
)
from dse.arch.types import Attention
from dse.cost.attention import (
    compressed_rows,
    index_growth_bytes,
    kv_growth_bytes,
    visible_rows,
)
from dse.cost.memory import request_caches
from dse.cost.types import AttentionKind, DecodeLoad, PrefillLoad
from tests.support import Family, batched, case, formats, model, pool, replace, steps, traffic

NAME = "DeepSeek-V4-Flash"
ASCEND = "ascend-910c-die"
CONTEXTS = [8192, 32_768, 131_072, 1_048_576]
MIB = 2**20


def kinds(kv: str = "bf16", on: str = ASCEND) -> dict[str, tuple[AttentionKind, float, float]]:
    """Kind name -> (kind, bytes of a row, bytes of an index row), as lowered for a target."""
    lowered, arch = model(NAME), load_model(NAME)
    choice = formats(NAME, on, kv=kv).formats
    names = [mixer.kind for mixer, _ in arch.mixers if isinstance(mixer, Attention)]
    rows = zip(lowered.main.attention, choice.kv_row_bytes, choice.index_row_bytes, strict=True)
    return {
        name: (kind, float(row), float(index))
        for name, (kind, row, index) in zip(names, rows, strict=True)
    }


def test_a_window_is_128_rows_of_1024_bytes() -> None:
    kind, row, _ = kinds()["sliding"]
    assert row == 1024
    assert float(visible_rows(kind, 8192.0)) * row == 131_072


def test_a_c4_layer_reads_its_window_and_512_selected_rows() -> None:
    kind, row, _ = kinds()["csa"]
    for context in CONTEXTS:
        assert float(visible_rows(kind, float(context))) * row == 655_360


@pytest.mark.parametrize(
    ("context", "expected"),
    [*zip(CONTEXTS, [266_240, 1_064_960, 4_259_840, 34_078_720], strict=True)],
)
def test_a_c4_indexer_reads_a_quarter_of_the_context(context: int, expected: int) -> None:
    kind, _, index_row = kinds()["csa"]
    assert index_row == 130  # 128 int8 and one fp16 scale
    assert float(compressed_rows(kind, float(context))) * index_row == expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [*zip(CONTEXTS, [196_608, 393_216, 1_179_648, 8_519_680], strict=True)],
)
def test_a_c128_layer_reads_its_window_and_every_compressed_row(
    context: int, expected: int
) -> None:
    kind, row, _ = kinds()["hca"]
    assert float(visible_rows(kind, float(context))) * row == expected


def test_one_token_touches_its_row_of_the_compressor_state() -> None:
    found = kinds()
    # 2 * (1 + overlap) * 512 fp32, and on C4 the indexer's own compressor, 128 wide
    assert found["csa"][0].compressor_step_bytes == 8192 + 2 * 2 * 128 * 4
    assert found["hca"][0].compressor_step_bytes == 4096
    assert found["sliding"][0].compressor_step_bytes == 0


def test_growth_on_ascend() -> None:
    expected = 21 * (1024 + 130) / 4 + 20 * 1024 / 128
    assert expected == 6218.5
    assert kv_bytes_per_token(load_model(NAME), "bf16", 2) == expected
    lowered = [
        float(k.layers * (kv_growth_bytes(k, r) + index_growth_bytes(k, i)))
        for k, r, i in kinds().values()
    ]
    assert sum(lowered) == expected
    served = pool(formats(NAME, ASCEND, kv="bf16"))
    assert float(request_caches(model(NAME), served, 8192.0)[0]) == expected


def test_growth_on_cuda_with_an_fp8_cache() -> None:
    arch = load_model(NAME)
    assert kv_bytes_per_token(arch, "fp8") == 3850.25
    assert kv_bytes_per_token(arch, "fp8", index_dtype="nvfp4") == 3514.25
    served = pool(formats(NAME, "b200-sxm", kv="fp8"))
    assert float(request_caches(model(NAME), served, 8192.0)[0]) == 3850.25


def test_constant_part_on_cuda_with_an_fp8_cache() -> None:
    windows, rings = 3.07, 11.64
    arch = load_model(NAME)
    found = state_bytes_per_request(arch, "fp8") / MIB
    assert found == pytest.approx(windows + rings, rel=0.01)
    # speculation doubles the rings, not the windows
    doubled = state_bytes_per_request(arch, "fp8", ring_factor=2) / MIB
    assert doubled - found == pytest.approx(rings, rel=0.01)
    assert found - (doubled - found) == pytest.approx(windows, rel=0.01)
    served = pool(formats(NAME, "b200-sxm", kv="fp8"))
    fixed = float(request_caches(model(NAME), served, 8192.0)[1]) / MIB
    assert fixed == pytest.approx(windows + rings, rel=0.01)


def test_parameters() -> None:
    arch = load_model(NAME)
    assert total_parameters(arch) == pytest.approx(284.332e9, rel=2e-3)
    assert active_parameters(arch) == pytest.approx(13.270e9, rel=2e-3)


def test_the_first_output_token_comes_from_prefill() -> None:
    asked = traffic(isl_tokens=2048, osl_tokens=512)
    assert asked.gaps == 511


def die() -> Family:
    return Family(NAME, ASCEND, "sglang", 1.0)


def test_prefill_sweep() -> None:
    rows = np.asarray([128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0])
    at = batched(case(die(), dp=16, ep=16), len(rows))
    load = PrefillLoad(rows=16 * rows, rows_per_prompt=rows, start=np.zeros_like(rows), end=rows)
    total = steps(at, load, None).cost.total_s
    assert np.all(np.isfinite(total))
    assert np.all(np.diff(total) > 0)
    # a prompt's fixed costs are spread over its rows until attention takes over
    per_row = total / rows
    assert np.all(np.diff(per_row[:4]) < 0)


def test_decode_sweep() -> None:
    batch = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    context = np.asarray([8192.0, 32_768.0, 131_072.0])
    requests, tokens = (x.ravel() for x in np.meshgrid(batch, context, indexing="ij"))
    at = batched(case(die(), dp=16, ep=16), requests.size)
    load = DecodeLoad(16 * requests, np.ones_like(requests), tokens)
    cost = steps(at, None, load).cost
    total = cost.total_s.reshape(len(batch), len(context))
    assert np.all(np.diff(total, axis=0) > 0)
    assert np.all(np.diff(total, axis=1) > 0)
    # the indexer grows with context; attention on selected rows and windows hardly does
    index = cost.terms.indexer.reshape(total.shape)
    attention = cost.terms.attention.reshape(total.shape)
    assert np.all(index[-1, 2] - index[-1, 0] > attention[-1, 2] - attention[-1, 0])


def test_the_draft_layer_does_not_count_until_it_is_used() -> None:
    with_draft = model(NAME, with_draft=True)
    served = pool(formats(NAME, ASCEND, kv="bf16"))
    idle = float(request_caches(with_draft, served, 8192.0)[0])
    assert idle == 6218.5
    used = replace(served, draft_tokens=1.0)
    assert float(sum(request_caches(with_draft, used, 8192.0))) > float(
        sum(request_caches(with_draft, served, 8192.0))
    )
