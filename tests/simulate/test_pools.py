"""Two pools: the prefill workers, the link, and the decode workers."""

from __future__ import annotations

import numpy as np
import pytest

from dse.simulate.channel import Channel
from dse.simulate.events import Line
from dse.simulate.playing import play
from tests.simulate.lines import Affine, poisson, station, varied


def channel(links: float = 1e6, seconds: float = 0.05) -> Channel:
    """Transfers of a fixed time that nothing hides."""
    return Channel(links, lambda _: seconds, lambda *_: seconds)


def pools(link: Channel, *, holds: bool = True, workers: int = 1, **front: object) -> Line:
    return Line(
        main=station(Affine(0.01, 1e-4), role="decode", replicas=2),
        front=station(
            Affine(0.02, 1e-5), role="prefill", replicas=workers, mixes_phases=False, **front
        ),
        channel=link,
        holds_first_token=holds,
    )


def test_a_held_first_token_waits_for_the_transfer_and_a_first_step() -> None:
    requests = poisson(50, 1e-2, 1_000, 11)
    played = play(pools(channel()), requests, warmup_frac=0.0)
    prompt, step = 0.02 + 1_000 * 1e-5, 0.01 + 1e-4
    np.testing.assert_allclose(played.ttft_s, prompt + 0.05 + step, rtol=1e-9)
    np.testing.assert_allclose(played.tpot_s, step, rtol=1e-9)
    np.testing.assert_allclose(played.e2e_s, prompt + 0.05 + 11 * step, rtol=1e-9)


def test_a_token_that_is_not_held_comes_with_the_prompt_and_the_next_one_late() -> None:
    requests = poisson(50, 1e-2, 1_000, 11)
    played = play(pools(channel(), holds=False), requests, warmup_frac=0.0)
    prompt, step = 0.02 + 1_000 * 1e-5, 0.01 + 1e-4
    np.testing.assert_allclose(played.ttft_s, prompt, rtol=1e-9)
    np.testing.assert_allclose(played.tpot_s, step + 0.05 / 10, rtol=1e-9)


def test_a_single_token_needs_no_transfer() -> None:
    link = channel()
    played = play(pools(link), poisson(20, 1e-2, 500, 1), warmup_frac=0.0)
    np.testing.assert_allclose(played.e2e_s, 0.02 + 500 * 1e-5, rtol=1e-9)
    assert link.busy_s == 0.0


def test_transfers_queue_for_the_link() -> None:
    requests = varied(1_500, 15.0)
    free = play(pools(channel(1e6)), requests).metrics
    one = play(pools(channel(1.0)), requests).metrics
    assert one["ttft_mean_s"] > free["ttft_mean_s"] + 0.02
    # An M/D/1-like queue at load 0.75: the prefill before it spaces arrivals a little.
    expected = 0.75 * 0.05 / (2 * 0.25)
    wait = one["ttft_mean_s"] - free["ttft_mean_s"]
    assert wait == pytest.approx(expected, rel=0.3)
    assert one["link_utilization_frac"] == pytest.approx(0.75, rel=0.1)


def test_links_of_a_fraction_carry_that_fraction_more() -> None:
    link = channel(1.5)
    for _ in range(300):
        link.send(0.0, 100, 0.0, 1.0)
    assert link.free_s[0] == pytest.approx(300 * 0.05 / 1.5)


def test_a_transfer_behind_its_prefill_is_hidden_and_never_ends_before_it() -> None:
    link = Channel(1.0, lambda _: 0.05, lambda *_: 0.01)
    assert link.send(1.0, 100, 0.2, 1.0) == pytest.approx(1.01)
    # The link was taken from 0.96 to 1.01: the next begins then, not at its own 0.97.
    assert link.send(1.01, 100, 0.2, 1.0) == pytest.approx(1.06)


def test_decoding_feels_no_prompts() -> None:
    played = play(pools(channel(), workers=4), varied(1_500, 30.0))
    assert played.metrics["mixed_step_frac"] == 0.0
    slowest = np.nanmax(played.tpot_s[played.counted])
    assert slowest < 0.01 + 1e-4 * 60


def test_workers_batch_prompts_within_their_budget() -> None:
    seen = Affine(0.05, 1e-5)
    front = station(seen, role="prefill", mixes_phases=False, chunk_tokens=1_000)
    line = Line(
        main=station(Affine(0.01), role="decode"), front=front, channel=channel(), ttft_base_s=0.03
    )
    play(line, poisson(600, 40.0, 300, 20))
    sizes = [ranks[0].rows for ranks, _ in seen.prompts]
    assert max(sizes) == 1_000
    assert np.mean([ranks[0].prompts for ranks, _ in seen.prompts]) > 1.5


def test_a_closed_loop_of_two_pools_keeps_its_clients_busy() -> None:
    played = play(pools(channel(), workers=2), varied(1_000, 1.0), clients=16)
    assert played.metrics["in_system_requests"] == pytest.approx(16.0, rel=1e-6)


def test_replicas_of_both_pools_are_recorded() -> None:
    played = play(pools(channel(), workers=3), varied(300, 20.0))
    assert set(played.prefill_replica) == {0, 1, 2}
    assert set(played.replica[played.osl > 1]) == {0, 1}
    assert set(played.replica[played.osl == 1]) <= {-1}


def test_a_found_prefix_travels_only_where_the_link_moves_it() -> None:
    sizes: list[float] = []

    def seconds(tokens: float) -> float:
        sizes.append(tokens)
        return 0.01

    for moves in (0.0, 1.0):
        link = Channel(1e6, seconds, lambda *_: 0.01)
        line = Line(
            main=station(Affine(0.01), role="decode"),
            front=station(Affine(0.02), role="prefill", hit_frac=0.75),
            channel=link,
            moves_prefix_frac=moves,
        )
        play(line, poisson(5, 0.1, 400, 3))
    assert sizes == [100.0] * 5 + [400.0] * 5
