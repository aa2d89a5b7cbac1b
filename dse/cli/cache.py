"""Traced and compiled programs kept between runs, so that the second one starts in seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

VARIABLE = "DSE_CACHE_DIR"


def cache_folder() -> Path:
    """Where programs are kept: `DSE_CACHE_DIR`, else the user's cache folder."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dse"


def use_compilation_cache() -> None:
    """Keep what is traced and compiled; without a writable folder it is made each time instead.

    `JAX_ENABLE_COMPILATION_CACHE=false` turns both off.
    """
    import jax

    from dse.search import program_store

    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if getattr(jax.config, "jax_enable_compilation_cache", True):
        program_store.keep_in(folder / "programs")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        update: Callable[[str, object], None] = jax.config.update
        update("jax_compilation_cache_dir", str(folder))
        update("jax_persistent_cache_min_compile_time_secs", 0.2)


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)
