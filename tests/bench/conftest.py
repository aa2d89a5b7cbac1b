"""Programs of benchmarks are compiled as people's are, not in a hurry as those of tests."""

from __future__ import annotations

import os

if os.environ.get("XLA_FLAGS") == os.environ.get("XLA_FLAGS_OF_TESTS", ""):
    del os.environ["XLA_FLAGS"]
