"""Frozen structs that travel through jax."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from dse.struct import Scalar, replace, static, struct


@struct
class Sample:
    value: Scalar
    other: Scalar
    name: str = static(default="a")


def test_leaves_are_the_fields_that_are_not_static() -> None:
    assert jax.tree.leaves(Sample(1.0, 2.0, "b")) == [1.0, 2.0]
    doubled = jax.tree.map(lambda x: 2 * x, Sample(1.0, 2.0, "b"))
    assert doubled == Sample(2.0, 4.0, "b")


def test_a_static_field_is_part_of_the_program() -> None:
    traced = []

    @jax.jit
    def total(sample: Sample) -> Scalar:
        traced.append(sample.name)
        return sample.value + sample.other

    assert float(total(Sample(1.0, 2.0))) == 3.0
    assert float(total(Sample(3.0, 2.0))) == 5.0
    assert traced == ["a"]
    total(Sample(1.0, 2.0, "b"))
    assert traced == ["a", "b"]


def test_it_is_frozen_and_replaced_by_copies() -> None:
    sample = Sample(1.0, 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.value = 3.0  # type: ignore[misc]
    assert replace(sample, value=3.0) == Sample(3.0, 2.0)
    assert sample.value == 1.0


def test_it_maps_and_differentiates() -> None:
    batch = Sample(jnp.arange(3.0), jnp.ones(3))
    assert jax.vmap(lambda s: s.value * s.other)(batch).tolist() == [0.0, 1.0, 2.0]
    slope = jax.grad(lambda s: s.value * s.other)(Sample(3.0, 4.0))
    assert (float(slope.value), float(slope.other)) == (4.0, 3.0)
