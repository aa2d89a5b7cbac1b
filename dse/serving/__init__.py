"""Serving: from step times to the rates and latencies of a deployment.

`evaluate` prices one design and judges it; everything that compares designs calls it.
"""

from dse.serving.evaluate import evaluate, step_costs
from dse.serving.reasons import REASONS, Reason, describe
from dse.serving.types import (
    CLOSED,
    FULL,
    GOODPUT,
    OPEN,
    Deployment,
    Limits,
    Outcome,
    Point,
    System,
    Traffic,
)

__all__ = [
    "CLOSED",
    "FULL",
    "GOODPUT",
    "OPEN",
    "REASONS",
    "Deployment",
    "Limits",
    "Outcome",
    "Point",
    "Reason",
    "System",
    "Traffic",
    "describe",
    "evaluate",
    "step_costs",
]
