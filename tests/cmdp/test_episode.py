"""Outcomes of episodes and their discounted sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import seeds
from surefoot.cmdp.episode import Observed, Outcome, Outcomes, discounted_sum


@given(seed=seeds, steps=st.integers(0, 30), tail=st.sampled_from([(), (3,), (2, 4)]), discount=st.floats(0.01, 0.999))
def test_discounted_sum_is_the_plain_loop(seed: int, steps: int, tail: tuple[int, ...], discount: float) -> None:
    values = np.random.default_rng(seed).normal(size=(steps, *tail))
    total = np.zeros(tail)
    for value in reversed(list(values)):
        total = value + discount * total  # Horner: no powers of the discount
    assert discounted_sum(values, discount) == pytest.approx(total, rel=1e-12, abs=1e-12)
    assert np.shape(discounted_sum(values, discount)) == tail


def test_the_first_step_counts_in_full() -> None:
    assert discounted_sum(np.array([1.0, 0, 0]), 0.9) == 1
    assert discounted_sum(np.array([0, 1.0, 0]), 0.9) == 0.9
    assert discounted_sum(np.ones(200), 0.9) == pytest.approx((1 - 0.9**200) / 0.1, rel=1e-14)


def test_a_block_is_its_episodes() -> None:
    rng = np.random.default_rng(0)
    block = Outcomes(rng.random(5), rng.random((5, 2)), rng.integers(9, size=(5, 4)), rng.integers(3, size=(5, 3)))
    assert len(block) == 5
    for part in (slice(1, 3), slice(None, 0), np.array([4, 0, 4])):
        cut = block[part]
        assert len(cut) == len(cut.cost) == len(np.arange(5)[part])
        for name in ("reward", "cost", "states", "actions"):
            assert np.array_equal(getattr(cut, name), getattr(block, name)[part])
    sums_only = Outcomes(block.reward, block.cost)[:2]
    assert (len(sums_only), sums_only.states, sums_only.actions) == (2, None, None)


def test_what_was_drawn_is_cut_and_joined_with_what_was_taken() -> None:
    """Where nothing else is known, what was taken was drawn."""
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=(n, steps, 1)) for n, steps in ((2, 3), (3, 2))]
    moved, free = (
        Observed(np.zeros((n, steps + 1, 2)), each.clip(-0.5, 0.5).astype(np.float32), np.full(n, steps), drawn=own)
        for (n, steps), each, own in zip(((2, 3), (3, 2)), drawn, (drawn[0], None), strict=True)
    )
    joined = Observed.joined([moved, free])
    assert joined.drawn is not None
    assert joined.drawn.shape == joined.actions.shape == (5, 3, 1)
    assert np.array_equal(joined.drawn[:2], drawn[0])
    assert np.array_equal(joined.drawn[2:, :2], free.actions)
    assert np.array_equal(joined[np.array([4, 1])].as_drawn, joined.drawn[[4, 1]])
    assert Observed.joined([free, free]).drawn is None
    assert free[:1].as_drawn.tolist() == free.actions[:1].tolist()


def test_a_single_episode_is_a_block_of_one() -> None:
    outcome = Outcome(1.5, np.array([0.5, 2.0]), np.array([0, 1, 2]), np.array([1, 1]))
    block = Outcomes.single(outcome)
    assert len(block) == 1
    assert block.reward.tolist() == [1.5]
    assert block.cost.tolist() == [[0.5, 2.0]]
    assert block.states is not None
    assert block.states.tolist() == [[0, 1, 2]]
    assert block.actions is not None
    assert block.actions.tolist() == [[1, 1]]
    bare = Outcomes.single(Outcome(1, [3]))
    assert bare.cost.dtype == np.float64
    assert (bare.cost.shape, bare.states, bare.actions) == ((1, 1), None, None)
