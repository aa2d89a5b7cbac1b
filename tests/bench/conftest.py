"""Programs of benchmarks are compiled as people's are, not in a hurry as those of tests."""

from __future__ import annotations

import os

if os.environ.get("XLA_FLAGS") == "--xla_backend_optimization_level=0":
    del os.environ["XLA_FLAGS"]
