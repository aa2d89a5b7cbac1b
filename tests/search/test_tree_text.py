"""Structures of pytrees survive as text, and text makes nothing but trees."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, NamedTuple

import jax
import pytest

from dse.search.tree_text import UnknownStructureError, name_of, structure_of, text_of
from dse.struct import static, struct
from tests.search.samples import problem_of


class Both(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


@struct
class Labelled:
    """A struct with static fields."""

    value: Any
    rest: Any = None
    mode: str = static(default="plain")
    sizes: tuple[Any, ...] = static(default=())


TREES: dict[str, Any] = {
    "a leaf": 1.0,
    "none": None,
    "containers": [1.0, (2.0, None), {"b": 3.0, "a": [4.0]}, ()],
    "keys that are no text": {2: 1.0, 1: 2.0},
    "named": Both(Both(1.0, None), [2.0]),
    "structs": Labelled(1.0, Labelled((2.0, 3.0), mode="other"), sizes=(1, ("x", 2.5), None, True)),
    "named and static": Labelled(1.0, sizes=(Both(1, (Both("x", None),)),)),
    "a problem": problem_of().system,
}


@pytest.mark.parametrize("name", list(TREES))
def test_a_structure_is_read_as_it_was_written(name: str) -> None:
    structure = jax.tree.structure(TREES[name])
    text = json.loads(json.dumps(text_of(structure)))
    assert structure_of(text) == structure


def test_what_differs_has_different_texts() -> None:
    trees = [*TREES.values(), Labelled(1.0, mode="a"), Labelled(1.0, mode="b")]
    trees += [Labelled(1.0, sizes=one) for one in ((1,), (1.0,), (True,), ((1,),), ("1",))]
    trees += [Labelled(1.0, sizes=Both(1, 2)), Labelled(1.0, sizes=(1, 2))]
    texts = {json.dumps(text_of(jax.tree.structure(tree))) for tree in trees}
    assert len(texts) == len(trees)


def test_the_order_of_keys_changes_nothing() -> None:
    one, other = ({"b": 1.0, "a": 2.0}, {"a": 1.0, "b": 2.0})
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert structure_of(text_of(jax.tree.structure(one))) == jax.tree.structure(other)


def inside() -> Any:
    class Hidden(NamedTuple):
        value: float

    return Hidden(1.0)


@pytest.mark.parametrize(
    "tree",
    [
        inside(),
        OrderedDict(a=1.0),
        {("a", object): 1.0},
        Labelled(1.0, sizes=(frozenset({1}),)),
    ],
)
def test_a_node_that_has_no_text_is_refused(tree: Any) -> None:
    with pytest.raises(UnknownStructureError):
        text_of(jax.tree.structure(tree))


@pytest.mark.parametrize(
    "text",
    [
        ["named", "os:system", "echo"],
        ["named", "builtins:tuple", 0],
        ["struct", "pathlib:Path", {}],
        ["struct", "never.loaded:Thing", {}],
        ["struct", f"{__name__}:Labelled", {"nothing": ["data", 0]}],
        ["named", f"{__name__}:Both", 0],
        ["something", 0],
        ["dict", 0],
        "x",
        [],
        1.5,
    ],
)
def test_a_text_of_no_tree_is_refused(text: Any) -> None:
    with pytest.raises(UnknownStructureError):
        structure_of(text)


def test_names_are_of_what_is_found_there() -> None:
    assert name_of(text_of) == "dse.search.tree_text:text_of"
    assert name_of(Both._make) is None
    assert name_of(lambda: None) is None
    assert name_of(inside()) is None
