"""Families of models: one module per group, each turning fields into layers.

A family is found by `model_type`, or by the class in `architectures` where the type is unknown
(hand-trimmed copies of a config carry made-up types).
"""

from __future__ import annotations
