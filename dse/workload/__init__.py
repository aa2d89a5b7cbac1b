"""What requests look like in numbers: length nodes, burstiness, drift, reuse, and requests drawn.

Everything here is numpy; the cost model takes the arrays.
"""

from __future__ import annotations

from dse.workload.blocks import BlockLists
from dse.workload.dispersion import WINDOWS, dispersion, gamma_dispersion, work_dispersion
from dse.workload.drift import Drift, drift
from dse.workload.lengths import LengthTable, length_table, nodes
from dse.workload.requests import Requests, replay, sample
from dse.workload.reuse import ReuseCurve, hit_frac, reuse_curve
from dse.workload.summary import Summary, summarize
from dse.workload.trace import Trace, TraceReport, read_trace

__all__ = [
    "WINDOWS",
    "BlockLists",
    "Drift",
    "LengthTable",
    "Requests",
    "ReuseCurve",
    "Summary",
    "Trace",
    "TraceReport",
    "dispersion",
    "drift",
    "gamma_dispersion",
    "hit_frac",
    "length_table",
    "nodes",
    "read_trace",
    "replay",
    "reuse_curve",
    "sample",
    "summarize",
    "work_dispersion",
]
