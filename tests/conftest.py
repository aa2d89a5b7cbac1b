"""Settings of every test: properties are judged by their truth, not by their speed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dse", deadline=None)
settings.load_profile("dse")
