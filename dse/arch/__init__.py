"""Models as tables of exact shapes and bytes, read from Hugging Face `config.json` files."""

from __future__ import annotations

from dse.arch.load import load_model
from dse.arch.names import ModelEntry, list_models
from dse.arch.reader import read_config
from dse.arch.types import ModelArch

__all__ = ["ModelArch", "ModelEntry", "list_models", "load_model", "read_config"]
