"""The catalogue of objectives: limits as published, goals that exist."""

from __future__ import annotations

import pytest

from tests.catalog.files import load_objective, names

GOODPUT = "goodput_requests_per_s_per_accelerator"

# milliseconds on the 99th percentile of (first token, each further token), MLPerf Inference v5.1
MLPERF: dict[str, tuple[float, float]] = {
    "mlperf-server-llama2-70b": (2000, 200),
    "mlperf-interactive-llama2-70b": (450, 40),
    "mlperf-server-llama3.1-8b": (2000, 100),
    "mlperf-interactive-llama3.1-8b": (500, 30),
    "mlperf-server-llama3.1-405b": (6000, 175),
    "mlperf-interactive-llama3.1-405b": (4500, 80),
    "mlperf-server-mixtral-8x7b": (2000, 200),
    "mlperf-server-deepseek-r1": (2000, 80),
}
# milliseconds on means
OURS: dict[str, tuple[str, dict[str, float]]] = {
    "interactive-chat": (GOODPUT, {"ttft": 2000, "tpot": 50}),
    "interactive-chat-per-usd": ("goodput_requests_per_usd", {"ttft": 2000, "tpot": 50}),
    "agentic-long-context": (GOODPUT, {"ttft": 5000, "tpot": 25}),
    "code-completion": (GOODPUT, {"ttft": 250, "tpot": 20}),
    "batch-offline": ("output_tokens_per_s_per_accelerator", {}),
}


def test_tables_cover_exactly_the_catalogue() -> None:
    assert names("objectives") == sorted([*MLPERF, *OURS])


@pytest.mark.parametrize("name", names("objectives"))
def test_every_objective_is_named_described_and_sourced(name: str) -> None:
    objective = load_objective(name)
    assert objective.name == name
    assert len(objective.description) > 40
    assert len(objective.source) > 40


@pytest.mark.parametrize(("name", "limits_ms"), MLPERF.items())
def test_mlperf_limits_bind_the_99th_percentile(name: str, limits_ms: tuple[float, float]) -> None:
    objective = load_objective(name)
    first, further = limits_ms
    assert objective.percentile_limits() == pytest.approx(
        {"ttft_p99": first / 1e3, "tpot_p99": further / 1e3}, rel=1e-12
    )
    assert objective.mean_limits() == {}
    assert (objective.metric, objective.sign) == (GOODPUT, 1)
    assert "MLPerf Inference v5.1" in objective.source


@pytest.mark.parametrize(("name", "goal"), OURS.items())
def test_limits_on_means(name: str, goal: tuple[str, dict[str, float]]) -> None:
    objective = load_objective(name)
    metric, limits_ms = goal
    assert (objective.metric, objective.sign) == (metric, 1)
    assert objective.mean_limits() == pytest.approx(
        {latency: limit / 1e3 for latency, limit in limits_ms.items()}, rel=1e-12
    )
    assert objective.percentile_limits() == {}


def test_interactive_limits_are_tighter_than_server_limits() -> None:
    for model in ("llama2-70b", "llama3.1-8b", "llama3.1-405b"):
        tight = load_objective(f"mlperf-interactive-{model}").promises
        loose = load_objective(f"mlperf-server-{model}").promises
        assert all(tight[key] < loose[key] for key in loose)
