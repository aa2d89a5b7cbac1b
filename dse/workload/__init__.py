"""What requests look like in numbers: length nodes, burstiness, drift, reuse, and requests drawn.

Everything here is numpy; the cost model takes the arrays.
"""

from __future__ import annotations

from dse.workload.dispersion import WINDOWS, dispersion, gamma_dispersion, work_dispersion
from dse.workload.drift import Drift, drift
from dse.workload.lengths import LengthTable, length_table, nodes
from dse.workload.requests import Requests, replay, sample

__all__ = [
    "WINDOWS",
    "Drift",
    "LengthTable",
    "Requests",
    "dispersion",
    "drift",
    "gamma_dispersion",
    "length_table",
    "nodes",
    "replay",
    "sample",
    "work_dispersion",
]
