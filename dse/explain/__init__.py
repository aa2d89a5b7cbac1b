"""One design in a person's words: what limits each phase, and what would change it."""

from __future__ import annotations

from dse.explain.document import explain
from dse.explain.subject import Subject
from dse.explain.words import sentences

__all__ = ["Subject", "explain", "sentences"]
