"""Settings of every test: properties are judged by their truth, not by their speed."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

# Programs of tests run once: compiling them in a hurry takes half of the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# Traced programs stay: looking through all of them again and again takes a tenth of the time.
gc.set_threshold(200_000, 50, 1000)
settings.register_profile("dse", deadline=None)
settings.load_profile("dse")
