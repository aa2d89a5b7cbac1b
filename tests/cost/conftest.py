"""Double precision for every module of this folder."""

from __future__ import annotations

from tests.support import float64

__all__ = ["float64"]
