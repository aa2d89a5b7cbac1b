"""One decorator for the frozen dataclasses that travel through jax as pytrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, cast, dataclass_transform

import jax

Array = jax.Array
# A number that jax may trace: what every non-static field of a struct holds.
Scalar = jax.Array | float

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_barrier: Any = jax.lax.optimization_barrier


def static(**kwargs: Any) -> Any:
    """A field that is part of the program's shape (strings, flags): changing it compiles anew."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def struct(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree whose leaves are its non-static fields."""
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)  # type: ignore[arg-type]
    meta = [f.name for f in fields if f.metadata.get("static")]
    data = [f.name for f in fields if not f.metadata.get("static")]
    jax.tree_util.register_dataclass(frozen, data_fields=data, meta_fields=meta)
    return frozen


def kept(values: T) -> T:
    """The same arrays, computed once: a compiler must not repeat their making for each use.

    Each by itself, so that one that nobody uses is not made.
    """
    held: T = jax.tree.map(_barrier, values)
    return held


def traced_once(function: F) -> F:
    """The function, traced once for all calls with arguments of the same shapes.

    A program calls a step's formulas again and again, and most programs have them in common:
    tracing them anew each time would take more time than all else before a small search.
    """
    return cast(F, jax.jit(function))


def replace(instance: T, **changes: Any) -> T:
    """A copy of a struct with some fields changed."""
    return dataclasses.replace(instance, **changes)  # type: ignore[type-var]
