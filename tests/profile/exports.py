"""Profiler exports, written for the tests in the columns that the tools document.

Two figures are of public samples of Ascend's kernel_details.csv: the product of 4096 x 12288 and
4608 x 12288 took 1478.18 us with 89.3 % of the cube's cycles and 473.25 Gflop by its counter; a
MatMulV2 had mac 0.824 and mte2 0.964.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

HEAD = (
    "Step Id", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)",
    "Wait Time(us)", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Output Formats",
)  # fmt: skip
PIPES = ("aic_mac_ratio", "aic_mte2_ratio", "aiv_vec_ratio", "aiv_mte2_ratio")
PARTS = ("aic_mac_fp16_ratio", "aic_mac_int8_ratio", "aiv_vec_fp32_ratio", "aiv_vec_fp16_ratio")
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)
SUMMARY = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
NCU = (
    '"ID","Kernel Name","Context","Stream","Section Name","Metric Name","Metric Unit",'
    '"Metric Value"'
)


def matmul(**changed: Any) -> dict[str, Any]:
    """A product with the columns of both layouts."""
    return {
        "Step Id": "1",
        "Name": "aclnnMatmul_MatMulV2",
        "Type": "MatMulV2",
        "Accelerator Core": "AI_CORE",
        "Start Time(us)": "1736413971558972.912\t",
        "Duration(us)": "1478.18",
        "Wait Time(us)": "1.5",
        "Input Shapes": '"4096,12288;4608,12288"',
        "Input Data Types": "FLOAT16;FLOAT16",
        "Input Formats": "FORMAT_ND;FORMAT_ND",
        "Output Shapes": '"4096,4608"',
        "Output Data Types": "FLOAT16",
        "Output Formats": "FORMAT_ND",
        "aic_mac_ratio": "0.824",
        "aic_mte2_ratio": "0.964",
        "aiv_vec_ratio": "0",
        "aiv_mte2_ratio": "0",
        **changed,
    }


def communication(**changed: Any) -> dict[str, Any]:
    """A collective, which has no counters."""
    return {
        **dict.fromkeys((*HEAD, *PIPES, *PARTS), "N/A"),
        "Step Id": "1",
        "Name": "hcom_allReduce__445_0",
        "Type": "hcom_allReduce_",
        "Accelerator Core": "HCCL",
        "Start Time(us)": "1736413971560461.092",
        "Duration(us)": "200",
        "Wait Time(us)": "0",
        **changed,
    }


def ascend(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (*HEAD, *PIPES)) -> str:
    """kernel_details.csv."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def trace_row(start: int, duration: int, name: str, device: str = "H200 (0)") -> str:
    quoted = name.replace('"', '""')
    return f'{start},{duration},1,1,1,1,128,1,1,32,0,0,,,,,{device},1,,7,"{quoted}"'


def torch(events: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)})


def kernel_event(start: Any, duration: Any, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": start,
        "dur": duration,
        "args": {"device": 0, "stream": 7, **arguments},
    }
