"""Rules that a scheduler keeps: conservation, budgets, order, memory, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from dse.simulate.events import Play, Player
from dse.simulate.memory import MemoryRule
from dse.simulate.playing import decode_steps_of, play
from dse.workload.requests import Requests
from tests.simulate.lines import Affine, line, poisson, station, varied

SHAPES = [
    {},
    {"mixes_phases": False},
    {"dp": 3},
    {"pp": 2},
    {"replicas": 3},
    {"dp": 2, "pp": 3, "mixes_phases": False},
    {"budget": "prompt", "replicas": 2, "dp": 2},
]
TIGHT = MemoryRule(budget_bytes=3_000.0, bytes_per_token=1.0, bytes_per_request=0.0)


def law() -> Affine:
    return Affine(5e-3, 2e-5, 1e-8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory", [None, TIGHT], ids=["roomy", "tight"])
def test_every_request_finishes_once_with_all_its_tokens(shape: dict, memory: object) -> None:
    requests = varied(600, 30.0)
    given = {**shape, **({"memory": memory} if memory else {})}
    player = Player(
        line(law(), **given), requests, requests.osl - 1, Play(first=0, last=10**9), None
    )
    record = player.run()
    assert player.done == len(requests)
    assert player.meter.tokens == pytest.approx(requests.osl.sum())
    assert np.all(record.finish_s >= record.first_s)
    assert np.all(record.first_s > record.arrival_s)
    for replica in player.replicas:
        assert replica.load == 0
        for rank in replica.ranks:
            assert not rank.residents
            assert rank.memory.tokens == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("shape", [one for one in SHAPES if "pp" not in one], ids=str)
def test_memory_is_never_exceeded_and_preemption_lets_all_finish(shape: dict) -> None:
    requests = varied(500, 60.0)
    player = Player(
        line(law(), memory=TIGHT, **shape),
        requests,
        requests.osl - 1,
        Play(first=0, last=10**9),
        None,
    )
    record = player.run()
    peaks = [rank.memory.peak_bytes for replica in player.replicas for rank in replica.ranks]
    assert max(peaks) <= TIGHT.budget_bytes + 1e-6
    assert max(peaks) > 0.8 * TIGHT.budget_bytes
    assert record.preemptions.sum() > 0


def test_nothing_is_preempted_where_memory_is_ample() -> None:
    assert play(line(law()), varied(500, 60.0)).preemptions.sum() == 0


def test_a_request_too_long_for_the_memory_is_refused_and_the_rest_is_served() -> None:
    requests = poisson(40, 10.0, 100, 10)
    requests.isl[7] = 5_000
    played = play(line(law(), memory=TIGHT), requests)
    assert played.refused == 1
    assert np.isnan(played.e2e_s[7])
    assert np.isfinite(np.delete(played.e2e_s, 7)).all()


@pytest.mark.parametrize("mixes", [True, False])
@pytest.mark.parametrize("dp", [1, 2])
def test_no_step_takes_more_prompt_rows_than_its_budget(mixes: bool, dp: int) -> None:
    seen = law()
    requests = varied(800, 60.0)
    play(line(seen, chunk_tokens=256, dp=dp, mixes_phases=mixes), requests)
    assert max(rank.rows for ranks, _ in seen.prompts for rank in ranks) == 256
    for ranks, decoding in seen.prompts:
        assert len(ranks) <= dp
        assert decoding is None or mixes
        for rank in ranks:
            assert rank.rows <= 256
            assert 0 <= rank.start < rank.end


def test_decoding_rows_come_out_of_the_budget_only_where_it_counts_the_step() -> None:
    def largest(budget: str) -> float:
        seen = law()
        play(line(seen, chunk_tokens=256, budget=budget), varied(800, 60.0))
        return max(
            max(rank.rows for rank in ranks) + decoding.fullest
            for ranks, decoding in seen.prompts
            if decoding is not None
        )

    assert largest("step") == 256
    assert largest("prompt") > 256


def test_prompt_rows_of_all_steps_are_all_prompt_tokens() -> None:
    seen = law()
    requests = varied(500, 40.0)
    play(line(seen, chunk_tokens=200), requests)
    rows = sum(rank.rows for ranks, _ in seen.prompts for rank in ranks)
    pairs = sum(r.rows * (r.start + r.end + 1) / 2 for ranks, _ in seen.prompts for r in ranks)
    assert rows == requests.isl.sum()
    assert pairs == pytest.approx((requests.isl * (requests.isl + 1) / 2).sum())


def test_first_tokens_come_in_the_order_of_arrival() -> None:
    requests = varied(500, 60.0)
    played = play(line(law(), chunk_tokens=128), requests)
    first = played.arrival_s + played.ttft_s
    assert np.all(np.diff(first) >= -1e-12)


def test_the_batch_limit_holds() -> None:
    requests = varied(300, 200.0)
    limited = play(line(law(), max_batch=4), requests)
    ends = np.concatenate([limited.arrival_s + limited.ttft_s, limited.arrival_s + limited.e2e_s])
    change = np.concatenate([np.ones(300), -np.ones(300)])
    # At one instant a request may leave as another gets its first token.
    order = np.lexsort((change, ends))
    assert np.cumsum(change[order]).max() == 4


def test_alternating_steps_hold_decoding_up_for_prompts() -> None:
    requests = varied(1_000, 30.0)
    mixed = play(line(law()), requests).metrics
    alternating = play(line(law(), mixes_phases=False), requests).metrics
    assert alternating["mixed_step_frac"] == 0.0
    assert alternating["prompt_step_frac"] > 0.0
    assert mixed["prompt_step_frac"] < 0.05
    assert alternating["tpot_mean_s"] > mixed["tpot_mean_s"]


def test_the_same_seed_plays_the_same_bit_for_bit() -> None:
    requests = varied(400, 30.0)
    steps = decode_steps_of(requests, 3, 0.7, seed=4)
    again = decode_steps_of(requests, 3, 0.7, seed=4)
    np.testing.assert_array_equal(steps, again)
    assert (steps != decode_steps_of(requests, 3, 0.7, seed=5)).any()
    first, second = (
        play(line(law(), dp=2, replicas=2), requests, one, routing="least_loaded")
        for one in (steps, again)
    )
    for name, column in first.columns().items():
        np.testing.assert_array_equal(column, second.columns()[name])
    assert first.metrics == second.metrics


def test_accepted_drafts_shorten_decoding_by_the_mean_accepted_length() -> None:
    requests = poisson(4_000, 1.0, 10, 201)
    steps = decode_steps_of(requests, 3, 0.6, seed=0)
    length = 1 + 0.6 + 0.36 + 0.216
    # The last step of a request may give more tokens than are still wanted.
    assert 200 / steps.mean() == pytest.approx(length, rel=0.01)
    assert 200 / steps.mean() < length
    plain = play(line(Affine(0.01)), poisson(200, 1e-3, 10, 201), warmup_frac=0.0)
    drafted = play(line(Affine(0.01)), poisson(200, 1e-3, 10, 201), steps[:200], warmup_frac=0.0)
    assert plain.metrics["tpot_mean_s"] / drafted.metrics["tpot_mean_s"] == pytest.approx(
        length, rel=0.03
    )
    assert drafted.metrics["itl_mean_s"] == pytest.approx(0.01)


def test_no_drafts_and_one_token_need_no_draws() -> None:
    requests = poisson(5, 1.0, 10, np.array([1, 2, 3, 1, 9]))
    np.testing.assert_array_equal(decode_steps_of(requests, 0, 0.9, 0), [0, 1, 2, 0, 8])
    drafted = decode_steps_of(requests, 2, 0.9, 0)
    assert drafted[0] == 0
    assert drafted[1] == 1
    assert drafted[3] == 0


def test_replicas_are_alike_in_turn_and_by_load() -> None:
    requests = varied(1_500, 60.0)
    for routing in ("round_robin", "least_loaded"):
        played = play(line(law(), replicas=3), requests, routing=routing)
        means = [played.e2e_s[played.replica == i].mean() for i in range(3)]
        assert max(means) / min(means) < 1.15
    turns = play(line(law(), replicas=3), requests, routing="round_robin").replica
    np.testing.assert_array_equal(turns, np.arange(1_500) % 3)


def test_one_replica_of_three_in_turn_is_one_replica_alone() -> None:
    requests = varied(900, 30.0)
    whole = play(line(law(), replicas=3), requests, routing="round_robin")
    third = Requests(requests.arrival_s[::3], requests.isl[::3], requests.osl[::3])
    alone = play(line(law()), third)
    np.testing.assert_allclose(alone.e2e_s, whole.e2e_s[::3], rtol=1e-9)


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    requests = varied(2_000, 1.0)
    played = play(line(law(), replicas=2), requests, clients=24)
    assert played.metrics["in_system_requests"] == pytest.approx(24.0, rel=1e-6)
    assert played.metrics["requests_per_s"] * played.metrics["e2e_mean_s"] == pytest.approx(
        24.0, rel=0.05
    )


def test_overload_is_a_status_with_its_amount() -> None:
    requests = poisson(2_000, 40.0, 1000, 20)
    law_ = Affine(0.0, 1e-4 / 2.0)  # 20 prompts/s at most
    played = play(line(law_), requests)
    assert played.status == "overloaded"
    assert played.metrics["overload_factor"] == pytest.approx(2.0, rel=0.1)
    assert play(line(law_), poisson(2_000, 10.0, 1000, 20)).status == "steady"


def test_more_room_for_prompts_never_slows_the_first_token_of_an_idle_replica() -> None:
    requests = poisson(20, 1e-3, 4_000, 2)
    waits = [
        play(line(law(), chunk_tokens=chunk), requests).metrics["ttft_mean_s"]
        for chunk in (256, 1024, 8192)
    ]
    assert waits == sorted(waits, reverse=True)


def test_stations_split_the_batch_over_ranks_rounding_up() -> None:
    assert station(law(), max_batch=10, dp=4).rank_batch == 3


def test_slots_are_the_batch_limit_or_what_memory_holds() -> None:
    one = station(law(), max_batch=40, dp=2, memory=TIGHT)
    assert one.slots(100.0) == 40.0
    assert one.slots(200.0) == pytest.approx(2 * 3_000 / 200)
