"""Finding a model by name or path."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.arch.names import Resolved, resolve, suggestion
from dse.arch.quant import named_formats
from dse.arch.source import read_model_files
from dse.arch.types import ModelArch, Part
from dse.errors import DseError, SpecError

_QUANTIZED: tuple[Part, ...] = ("attention", "mlp", "shared_expert", "expert", "indexer")
_HUB_TIMEOUT_S = 5


def load_model(name_or_path: str | os.PathLike[str]) -> ModelArch:
    """Read a model by shipped name, path of a `config.json` or of its directory, or hub id.

    A hub id needs `huggingface_hub` and a network. Raises `SpecError` for a faulty file and
    `DseError` for an unknown name, with the nearest shipped ones.
    """
    text = os.fspath(name_or_path)
    if not _looks_like_path(text):
        found = resolve(text)
        if found is not None:
            return _shipped(found, text)
    path = Path(text)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if exists and text:
        return read_model_files(path)
    if _looks_like_path(text):
        raise SpecError.of("no such file or directory", file=text[:300])
    return _from_hub(text)


def _looks_like_path(text: str) -> bool:
    return text.endswith(".json") or text.startswith((".", "/", "~")) or "\0" in text


def _shipped(found: Resolved, asked: str) -> ModelArch:
    """A shipped model, with its weights stored as the name asks where its own config has not."""
    arch = read_model_files(found.entry.path, found.entry.name)
    if found.storage is None:
        return arch
    base, expert = named_formats(found.storage)
    wanted = {part: expert if part == "expert" else base for part in _QUANTIZED}
    main: Part = "expert" if "expert" in arch.formats else "mlp"
    kept = arch.formats[main]
    if (kept.dtype, kept.activation_dtype) == (wanted[main].dtype, wanted[main].activation_dtype):
        return arch
    stored = " and ".join(sorted({weight_format.dtype for weight_format in wanted.values()}))
    warning = (
        f"no config of {asked!r} is shipped: the shapes are those of {arch.name}, with all its "
        f"large matrices stored as {stored}"
    )
    return replace(
        arch,
        name=asked,
        formats={part: wanted.get(part, own) for part, own in arch.formats.items()},
        activation_dtype=base.activation_dtype,
        kv_dtype="int8" if found.storage.endswith("c8") else arch.kv_dtype,
        warnings=(*arch.warnings, warning),
    )


def _from_hub(name: str) -> ModelArch:
    """Fetch the two small files of a hub id; a `DseError` where that cannot be done."""
    reason = "it is not a path, and not a hub id of the form owner/name"
    if name.count("/") == 1 and all(name.split("/")):
        config, reason = _fetch(name, "config.json")
        if config is not None:
            _fetch(name, "hf_quant_config.json")  # lands beside config.json where it exists
            return read_model_files(config, name)
    hint = suggestion(name) or "; `dse list models` shows the shipped ones"
    raise DseError(f"unknown model {name[:200]!r}: no shipped model of that name, {reason}{hint}")


def _fetch(repo: str, file: str) -> tuple[Path | None, str]:
    """A file of a hub repository, or the reason why it could not be had."""
    try:
        import huggingface_hub
    except ImportError:
        return None, "and huggingface_hub, which could fetch it, is not installed"
    download: Any = huggingface_hub.hf_hub_download
    try:
        return Path(download(repo, file, etag_timeout=_HUB_TIMEOUT_S)), ""
    except Exception as error:  # the library's own, requests', httpx', the system's
        return None, f"and the hub did not give its {file} ({type(error).__name__})"
