"""Module lists of quantization configs: literals, globs, regular expressions, roots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.arch.patterns import ModulePatterns

NAME = "layers.12.self_attn.q_proj"


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.12.self_attn.q_proj",
        "language_model.model.layers.12.self_attn",
        "model.language_model.layers.12.self_attn*",
        "backbone.layers.12",
        "model.layers.*.self_attn",
        "self_attn",
        "q_proj",
        "*.self_attn.*",
        "model.layers.1*",
        "re:.*self_attn.*",
        r"re:model\.layers\.\d+\.self_attn\.q_proj",
        "re:language_model.model.layers.12",
    ],
)
def test_entries_that_match(entry: str) -> None:
    assert ModulePatterns([entry]).matches(NAME)


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.1",
        "model.layers.2.self_attn.q_proj",
        "attn",
        "proj",
        "model.layers.12.mlp*",
        "re:self_attn",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
        "lm_head",
    ],
)
def test_entries_that_do_not_match(entry: str) -> None:
    assert not ModulePatterns([entry]).matches(NAME)


def test_a_dense_mlp_expression_leaves_experts_alone() -> None:
    patterns = ModulePatterns([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"])
    assert patterns.matches("layers.0.mlp.gate_proj")
    assert not patterns.matches("layers.0.mlp.experts.0.gate_proj")


@pytest.mark.parametrize("entry", ["model.layers.0.mlp", "model.layers.*.mlp", "layers.0*"])
def test_entries_for_layers_do_not_mean_draft_layers(entry: str) -> None:
    assert not ModulePatterns([entry]).matches("mtp.layers.0.mlp.up_proj")
    assert ModulePatterns(["mtp*"]).matches("mtp.layers.0.mlp.up_proj")


def test_nothing_matches_nothing() -> None:
    assert not ModulePatterns([])
    assert not ModulePatterns([]).matches(NAME)


@pytest.mark.parametrize("entry", ["re:(", "re:*", "x" * 600])
def test_bad_entries_are_value_errors(entry: str) -> None:
    with pytest.raises(ValueError, match=r"regular expression|characters"):
        ModulePatterns([entry])


@given(st.text(max_size=30))
def test_any_literal_is_safe(entry: str) -> None:
    if not entry.startswith("re:"):
        assert ModulePatterns([entry]).matches(NAME) in (True, False)
