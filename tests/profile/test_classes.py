"""Kernel names of engines and their classes."""

from __future__ import annotations

import pytest

from dse.profile.call import Call
from dse.profile.classes import CLASSES, GROUPS, class_of
from dse.profile.nsight import short_name

NAMES = {
    "communication": (
        "hcom_allReduce_", "ncclDevKernel_AllGather_RING_LL", "MoeDistributeDispatchV2",
        "MoeDistributeCombine", "vllm::cross_device_reduce_1stage", "deep_ep::intranode::dispatch",
        "multimem_all_reduce_kernel", "DispatchFFNCombine",
    ),
    "attention": (
        "FusedInferAttentionScore", "PagedAttentionOperation", "flash_fwd_splitkv_kernel",
        "fmhaSm100Kernel", "BatchDecodeWithPagedKVCacheKernel", "LightningIndexer",
        "MlaProlog", "sparse_attn_fwd", "chunk_gated_delta_rule_fwd_kernel",
    ),
    "experts": ("GroupedMatmul", "fused_moe_kernel", "GroupedMatmulSwigluQuant"),
    "routing": ("MoeGatingTopKSoftmax", "MoeInitRoutingV2", "moe_align_block_size_kernel",
                "MoeTokenUnpermute"),
    "quantization": ("DynamicQuant", "AscendQuantV2", "scaled_fp8_quant_kernel",
                     "per_token_group_quant_8bit_kernel", "RmsNormDynamicQuant"),
    "product": ("MatMulV2", "aclnnMatmul_MatMulV3Common_MatMulV3", "nvjet_tst_128x64_64x4_1x2",
                "sm90_xmma_gemm_bf16bf16", "BatchMatMul", "deep_gemm::sm90_fp8_gemm_1d2d_impl",
                "cublasLt::splitKreduce_kernel", "marlin_gemm"),
    "normalization": ("AddRmsNorm", "fused_add_rms_norm_kernel", "LayerNormV3"),
    "activation": ("SwiGlu", "silu_and_mul_kernel", "FastGelu"),
    "position": ("RotaryMul", "rotary_embedding_kernel", "ApplyRotaryPosEmb"),
    "sampling": ("ArgMaxV2", "topPSamplingFromProbs", "SoftmaxV2"),
    "data movement": ("Cast", "TransData", "reshape_and_cache_flash_kernel", "GatherV2",
                      "StridedSliceD", "CatArrayBatchedCopy"),
    "elementwise": ("Add", "Mul", "RealDiv", "vectorized_elementwise_kernel", "ReduceSum"),
    "other": ("xyzzy",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"), [(name, kind) for kind, names in NAMES.items() for name in names]
)
def test_names(name: str, expected: str) -> None:
    assert class_of(Call(name, short_name(name), "", 1e-6)) == expected


@pytest.mark.parametrize(
    ("core", "expected"),
    [("HCCL", "communication"), ("COMMUNICATION", "communication"), ("AI_CPU", "host"),
     ("memory operation", "data movement"), ("MIX_AIC", "product")],
)  # fmt: skip
def test_the_core_decides_where_it_tells(core: str, expected: str) -> None:
    assert class_of(Call("MatMul", "MatMul", core, 1e-6)) == expected


def test_every_class_has_a_group() -> None:
    assert set(CLASSES) == set(GROUPS)
