"""Rivals compute what their papers say, each formula held against a second way of computing it; and they break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from contracts.made_up import made_up_set
from shown_wheel import shown_set, shown_wheels
from surefoot.errors import InvalidInput
from surefoot.lab.pump.settings import InsulinSettings
from surefoot.lab.rivals import conformal_policy_control as cpc
from surefoot.lab.rivals import meta_gaussian, safe_opt, seldonian, titration
from surefoot.lab.rivals.gaussian import Belief, best_safe, condition
from surefoot.lab.rivals.identify_and_look_up import IdentifyAndLookUp, nearest
from surefoot.lab.rivals.tally import (
    Rival,
    Tally,
    alone,
    cell_values,
    empty_tally,
    mixture_of,
    noise_of,
    order_of_costs,
)
from surefoot.learning.method import SAFE_MIXTURE, Mixture
from surefoot.learning.posterior import chance_constrained_pair
from surefoot.methods import METHODS, RIVALS, learner
from surefoot.tasks.gridworld_tasks import gridworld
from trained_gridworld import gridworld_set

# -------------------------------------------------------------------------------------------------------- what they are


def test_rivals_are_uncertified_until_they_are_calibrated() -> None:
    for name in RIVALS:
        spec = METHODS[name]
        assert (spec.certified, spec.proof) == (False, ())
        path = spec.path(gridworld_set(), 0.05)
        assert len(path) >= 5
        for setting in path:
            assert not learner(gridworld_set(), method=name, **setting).certified
    found = sf.calibrate(
        gridworld_set(), gridworld(), method="titration", episodes=40, risk=0.3, runs=20, attempt=0, seed=0, jobs=1,
        path=[{"every": 50}, {"every": 3, "share": 1.0}],
    )  # fmt: skip
    assert found.counts[0] == ({"every": 50}, 0), "it never moves"
    assert found.counts[1][1] > found.allowed, "titration at its boldest breaks on most tasks"
    assert sf.learner(gridworld_set(), method="titration", risk=0.3, calibration=found).certified


def test_titration_and_certainty_equivalence_break_where_nothing_certified_does() -> None:
    """On a task with much noise, on which all but the most cautious candidates are above the budget."""
    task = gridworld().task([0.36])
    for name, options in (("titration", {"every": 3, "share": 1.0}), ("certainty-equivalence", {})):
        run = sf.adapt(gridworld_set(), task, method=name, episodes=300, seed=0, **options)
        assert run.unsafe_episodes > 0, name
        assert not run.certified
    assert sf.adapt(gridworld_set(), task, method="certified", episodes=300, seed=0).unsafe_episodes == 0


def test_who_needs_sampled_tasks_says_so() -> None:
    units = sf.Units(0.5, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.0]))
    bare = made_up_set(units, [(0.5, [0.5], 0.3, [0.6]), (0.7, [0.1], 0.3, [0.6])], epsilon=0.1)
    for name in ("meta-gaussian", "certainty-equivalence", "identify-and-look-up"):
        with pytest.raises(InvalidInput, match=r"policies must hold value bounds over tasks \(cells\)"):
            learner(bare, method=name)
    for name in ("safe-opt", "titration", "conformal-policy-control", "seldonian"):
        assert learner(bare, method=name).name == name
    assert order_of_costs(bare).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("meta-gaussian", {"beta": -1.0}, "beta must not be negative, got -1.0"),
        ("safe-opt", {"length": 0.0}, "length must be positive, got 0.0"),
        ("titration", {"share": 2.0}, "share must be positive and at most 1, got 2.0"),
        ("titration", {"every": 0}, "every must be a whole number of at least 1, got 0"),
        ("conformal-policy-control", {"share": 0.0}, "share must be positive and at most 1, got 0.0"),
        ("seldonian", {"delta": 1.5}, "delta must lie strictly between 0 and 1, got 1.5"),
        ("certainty-equivalence", {"slack": 1.5}, "slack must lie strictly between 0 and 1, got 1.5"),
        ("identify-and-look-up", {"after": 0}, "after must be a whole number of at least 1, got 0"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learner(gridworld_set(), method=name, **options)


# -------------------------------------------------------------------------------------------------------------- tallies


def tally_of(episodes: Sequence[tuple[int, float, float]], policies: int, density: Sequence[float]) -> Tally:
    """Of (policy, reward, cost), all drawn from one density."""
    drawn, sums = np.array([row[0] for row in episodes]), np.array([row[1:] for row in episodes])
    return empty_tally(policies, 2).add(drawn, sums).close(mixture_of(np.array(density)))


def test_a_tally_knows_what_its_episodes_were_drawn_from() -> None:
    first, second = mixture_of(np.array([0.9, 0.1, 0.0])), mixture_of(np.array([0.2, 0.2, 0.6]))
    tally = empty_tally(3, 2).add(np.array([0, 0, 1]), np.ones((3, 2))).close(first)
    tally = tally.add(np.array([2]), np.full((1, 2), 5.0)).close(second)
    np.testing.assert_allclose(tally.density, (3 * first.probabilities(3) + second.probabilities(3)) / 4)
    assert tally.count.tolist() == [2, 1, 1]
    assert tally.mean[2].tolist() == [5.0, 5.0]


def test_noise_is_a_guess_that_episodes_correct() -> None:
    rng = np.random.default_rng(0)
    rows = [(0, float(r), float(c)) for r, c in rng.normal([5.0, 1.0], [2.0, 0.5], (4000, 2))]
    before = np.full((2, 2), 100.0)
    noise = noise_of(tally_of(rows, 2, [1.0, 0.0]), before)
    np.testing.assert_allclose(noise[0], [4.0 + 100 / 401, 0.25 + 100 / 401], rtol=0.1)
    assert (noise[1] >= before[1]).all(), "nothing is known of the other but what was known before"


# ----------------------------------------------------------------------------------------------------- Gaussian beliefs


def random_belief(size: int, rng: np.random.Generator) -> Belief:
    root = rng.normal(size=(size, size))
    return Belief(rng.normal(size=size), root @ root.T + 0.1 * np.eye(size))


def test_conditioning_on_means_is_conditioning_on_every_measurement() -> None:
    """The joint Gaussian of all values and all measurements, one row each, conditioned directly."""
    rng = np.random.default_rng(1)
    belief, noise, count = random_belief(5, rng), rng.uniform(0.1, 2.0, 5), np.array([3, 0, 1, 7, 0])
    which = np.repeat(np.arange(5), count)
    measured = rng.normal(size=len(which))
    pick = np.eye(5)[which]
    spread = pick @ belief.covariance @ pick.T + np.diag(noise[which])
    cross = belief.covariance @ pick.T
    mean = belief.mean + cross @ np.linalg.inv(spread) @ (measured - pick @ belief.mean)
    covariance = belief.covariance - cross @ np.linalg.inv(spread) @ cross.T
    observed = np.array([measured[which == k].mean() if (which == k).any() else 0.0 for k in range(5)])
    found = condition(belief, count, observed, noise)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-10)


def test_a_kalman_filter_comes_to_the_same_belief() -> None:
    """One measurement after the other, by the scalar update."""
    rng = np.random.default_rng(2)
    belief, noise, count = random_belief(4, rng), rng.uniform(0.1, 2.0, 4), np.array([2, 5, 0, 1])
    which = rng.permutation(np.repeat(np.arange(4), count))
    measured = rng.normal(size=len(which))
    mean, covariance = belief.mean.copy(), belief.covariance.copy()
    for k, value in zip(which, measured, strict=True):
        gain = covariance[:, k] / (covariance[k, k] + noise[k])
        mean, covariance = mean + gain * (value - mean[k]), covariance - np.outer(gain, covariance[k])
    observed = np.array([measured[which == k].mean() if (which == k).any() else 0.0 for k in range(4)])
    found = condition(belief, count, observed, noise)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-10)


def test_the_learned_prior_has_the_moments_of_the_tasks() -> None:
    prior, values = cell_values(gridworld_set(), "")
    found, rows = meta_gaussian.learn_prior(prior, values), values.reshape(len(values), -1)
    np.testing.assert_allclose(found.mean, np.average(rows, axis=0, weights=prior))
    np.testing.assert_allclose(found.covariance, np.cov(rows.T, aweights=prior, ddof=0), atol=1e-5)
    budget, cells = gridworld_set().units.budget[0], gridworld_set().cells
    assert cells is not None
    np.testing.assert_allclose(budget - values[..., 1], (cells.lower + cells.upper)[..., 1] / 2)


def test_the_process_over_policies_is_that_of_its_kernel() -> None:
    """Costs by themselves, by kernel regression; rewards do not tell anything about them."""
    policies = gridworld_set()
    places = safe_opt.coordinates(policies)
    assert sorted(places[:, 0]) == pytest.approx(np.linspace(0, 1, len(policies.policies)))
    kernel = safe_opt.squared_exponential(places, 0.3)
    assert kernel[0, 3] == pytest.approx(np.exp(-((places[0, 0] - places[3, 0]) ** 2) / (2 * 0.3**2)))
    prior = safe_opt.process_prior(policies, kernel)
    count, observed = np.zeros((len(places), 2), dtype=int), np.zeros((len(places), 2))
    count[[0, 4]], observed[[0, 4]] = [[5, 5], [2, 2]], [[50.0, 1.1], [51.0, 1.7]]
    found = condition(prior, count.ravel(), observed.ravel(), np.full(count.size, 0.4))
    mean, covariance = found.mean.reshape(-1, 2)[:, 1], found.covariance.reshape(*count.shape, *count.shape)[:, 1, :, 1]
    budget, scale = policies.units.budget[0], np.sqrt(prior.covariance[1, 1])
    seen, full = [0, 4], scale**2 * kernel
    weights = full[:, seen] @ np.linalg.inv(full[np.ix_(seen, seen)] + np.diag([0.4 / 5, 0.4 / 2]))
    np.testing.assert_allclose(mean, budget + weights @ (np.array([1.1, 1.7]) - budget), rtol=1e-6)
    np.testing.assert_allclose(covariance, full - weights @ full[seen], atol=1e-6)


def test_policies_made_of_a_few_numbers_have_these_for_coordinates() -> None:
    units = sf.Units(0.5, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.0]))
    settings = [
        InsulinSettings(basal, 0.002, 80.0, correction) for basal, correction in ((0.1, 300), (0.3, 100), (0.2, 300))
    ]
    policies = made_up_set(units, [(0.5, [0.5], 0.3, [0.6])] * 2, epsilon=0.1, policies=settings)  # type: ignore[arg-type]
    places = safe_opt.coordinates(policies)
    assert places.tolist() == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 1.0]]))


def test_only_what_is_below_the_budget_by_beta_deviations_is_chosen() -> None:
    mean = np.array([[1.0, 0.1], [2.0, 0.5], [3.0, 0.8], [9.0, 1.1]])
    deviation = np.array([[0.1, 0.9], [0.1, 0.2], [0.1, 0.2], [0.1, 0.2]])
    budget = np.array([1.0])
    assert [best_safe(mean, deviation, budget, beta, 0.0) for beta in (0.5, 2.0, 3.0)] == [2, 1, 0]
    deviation[1, 0] = 30.0
    assert best_safe(mean, deviation, budget, 0.5, 1.0) == 1, "an optimist tries what may be best"


# --------------------------------------------------------------------------------------------------- importance weights


def test_the_bound_of_the_safety_test_is_that_of_weighted_episodes() -> None:
    """Every episode by itself, and Student's t from SciPy."""
    rng = np.random.default_rng(3)
    drawn_from, density, budget = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.6, 0.3]), np.array([1.5])
    episodes = [(int(rng.choice(3, p=drawn_from)), 0.0, float(rng.uniform(0, 3))) for _ in range(60)]
    tally = tally_of(episodes, 3, drawn_from)
    weighted = np.array([density[k] / drawn_from[k] * (budget[0] - cost) for k, _, cost in episodes])
    expected = stats.t.interval(0.9, 59, weighted.mean(), stats.sem(weighted))[0]
    assert seldonian.margin_bound(density, tally, budget, 0.05, 60)[0] == pytest.approx(expected, rel=1e-9)
    for part in (0.0, 0.5):
        mean = sum(p * density[k] / p * (budget[0] - part * k) for k, p in enumerate(drawn_from))
        assert mean == pytest.approx(budget[0] - density @ (part * np.arange(3))), "weights leave no bias"
    never = tally_of(episodes[:10], 3, [1.0, 0.0, 0.0])
    assert seldonian.margin_bound(density, never, budget, 0.05, 60)[0] == -np.inf


def seldonian_choice(cost: float, episodes: int = 400) -> Mixture:
    """After episodes of which those of the candidate cost so much, and earn twice as much as the safe ones."""
    made = learner(gridworld_set(), method="seldonian").method
    assert isinstance(made, Rival)
    count, rng = len(gridworld_set().policies), np.random.default_rng(0)
    density = np.full(count, 0.5 / (count - 1))
    density[0] = 0.5
    rows = [(int(k), 50.0 + 50 * (k == 1), cost * float(k != 0)) for k in rng.choice(count, episodes, p=density)]
    parts = [tally_of(rows[::2], count, density), tally_of(rows[1::2], count, density)]
    return made.choose(made.first, *parts)


def test_a_new_distribution_must_pass_the_test() -> None:
    first = learner(gridworld_set(), method="seldonian").deployed
    assert first.weight == pytest.approx(seldonian.EXPLORE)
    passed = seldonian_choice(cost=0.0)
    assert passed.probabilities(10)[1] == pytest.approx(1 - seldonian.EXPLORE + seldonian.EXPLORE / 9)
    refused = seldonian_choice(cost=100.0)
    np.testing.assert_array_equal(refused.weights, first.weights)


# ------------------------------------------------------------------------------------------------------ weighted losses


def test_weighted_losses_are_those_of_single_episodes() -> None:
    rng = np.random.default_rng(4)
    drawn_from, density = np.array([0.8, 0.15, 0.05]), np.array([0.3, 0.1, 0.6])
    drawn, loss = rng.choice(3, 80, p=drawn_from), rng.uniform(size=80)
    weight = density[drawn] / drawn_from[drawn]
    worst = (density / drawn_from).max()
    expected = (weight @ loss + worst) / (weight.sum() + worst)
    count, lost = np.bincount(drawn, minlength=3), np.bincount(drawn, loss, minlength=3)[:, None]
    assert cpc.weighted_loss(density, drawn_from, count, lost)[0] == pytest.approx(expected)
    never = np.array([1.0, 0.0, 0.0])
    assert cpc.weighted_loss(density, never, count, lost)[0] == 1.0, "who was never drawn may lose everything"


def test_disjoint_policies_leave_alpha_for_the_unknown() -> None:
    """With nothing but episodes of the safe policy all ratios are infinite: the expected loss of what is deployed, with
    everything lost wherever nothing is known, is alpha."""
    alpha, lost, count = np.array([0.04]), np.array([0.5]), 99
    safe = cpc.safe_density(lost, count, alpha, 5)
    mean = (0.5 + 1) / 100
    assert 1 - safe[0] == pytest.approx((0.04 - mean) / (1 - mean))
    assert safe @ np.array([mean, 1, 1, 1, 1]) == pytest.approx(0.04)
    new = safe[[1, 0, 2, 3, 4]]
    counts, losses = np.array([count, 0, 0, 0, 0]), np.array([[0.5], [0.0], [0.0], [0.0], [0.0]])
    np.testing.assert_array_equal(cpc.boldest_density(safe, new, np.eye(5)[0], counts, losses, alpha), safe)
    assert cpc.safe_density(np.array([0.0]), 5, alpha, 5)[0] == 1.0, "five episodes do not tell"


def test_the_boldest_cap_is_the_last_that_keeps_alpha() -> None:
    safe, alpha = np.array([0.9, 0.05, 0.05]), np.array([0.1])
    new = safe[[1, 0, 2]]
    count, loss = np.array([900, 50, 50]), np.array([[45.0], [4.0], [25.0]])
    found = cpc.boldest_density(safe, new, safe, count, loss, alpha)
    assert safe[1] < found[1] < new[1]
    assert cpc.weighted_loss(found, safe, count, loss)[0] <= alpha[0]
    bolder = found + np.array([-0.02, 0.02, 0.0])
    assert cpc.weighted_loss(bolder, safe, count, loss)[0] > alpha[0]
    harmless = cpc.boldest_density(safe, new, safe, 100 * count, loss, alpha)
    np.testing.assert_allclose(harmless, new)


# ------------------------------------------------------------------------------------- titration, certainty equivalence


def test_titration_steps_up_stays_and_steps_down() -> None:
    order, budget = np.array([0, 2, 1]), np.array([1.0])

    def after(present: int, cost: float) -> int:
        tally = tally_of([(present, 0.0, cost)] * 3, 3, [1.0, 0.0, 0.0])
        return int(titration.next_step(order, budget, 0.5, alone(present), tally).indices[0])

    assert [after(0, cost) for cost in (0.4, 0.7, 1.2)] == [2, 0, 0]
    assert [after(2, cost) for cost in (0.4, 0.7, 1.2)] == [1, 2, 0]
    assert after(1, 0.1) == 1
    assert titration.next_step(order, budget, 0.5, alone(2), empty_tally(3, 2)).indices[0] == 2
    costs = cell_values(gridworld_set(), "")
    expected = np.einsum("j,jp->p", costs[0], costs[1][..., 1])[order_of_costs(gridworld_set())]
    assert (np.diff(expected) > 0).all()


def test_certainty_equivalence_deploys_the_best_of_the_most_probable_cell() -> None:
    chosen = learner(gridworld_set(), method="certainty-equivalence")
    assert chosen.deployed.weight == SAFE_MIXTURE.weight == 0
    task, rng = gridworld().task([0.3]), np.random.default_rng(0)
    for _ in range(40):
        order = chosen.ask()
        run = task.episodes(order.policy, chosen.horizon).run(1, rng, transitions=True)
        chosen.tell(order, sf.Outcome(float(run.reward[0]), run.cost[0], run.states[0], run.actions[0]))
    made = chosen.method
    belief = made.evidence.belief(chosen.state.method.evidence)
    best = chance_constrained_pair(np.eye(len(belief))[belief.argmax()], made.cells.lower, 0.0)
    np.testing.assert_array_equal(chosen.deployed.indices, best.indices)
    np.testing.assert_allclose(chosen.deployed.weights, best.weights)
    assert chosen.deployed.weight > 0


# ------------------------------------------------------------------------------------------------- identify and look up


def test_the_estimate_is_the_task_of_the_likeliest_readings() -> None:
    """By least squares, and by the likelihood of a normal law around what is expected on each task."""
    made = learner(gridworld_set(), method="identify-and-look-up", after=3).method
    assert isinstance(made, IdentifyAndLookUp)
    rng = np.random.default_rng(0)
    for read in made.expected[rng.integers(len(made.expected), size=5)] + rng.normal(size=(5, 2)):
        likelihood = stats.norm(made.expected, np.sqrt(made.variance)).logpdf(read).sum(axis=1)
        assert nearest(read, made) == likelihood.argmax()
    assert [nearest(row, made) for row in made.expected[:4]] == [0, 1, 2, 3]


def test_what_is_deployed_is_the_best_policy_on_the_estimated_task_and_stays() -> None:
    task, rng = gridworld().task([0.3]), np.random.default_rng(1)
    chosen = learner(gridworld_set(), method="identify-and-look-up", after=20)
    sums = []
    for episode in range(30):
        assert (chosen.deployed.weight == 0) == (episode < 20)
        order = chosen.ask()
        run = task.episodes(order.policy, chosen.horizon).run(1, rng)
        chosen.tell(order, sf.Outcome(float(run.reward[0]), run.cost[0]))
        sums.append(run.sums[0])
    made = chosen.method
    assert isinstance(made, IdentifyAndLookUp)
    found = nearest(np.mean(sums[:20], axis=0), made)
    kept = made.values[found, :, 1] <= gridworld_set().units.budget[0]
    assert chosen.deployed.indices.tolist() == [int(np.argmax(np.where(kept, made.values[found, :, 0], -np.inf)))]
    cautious = learner(gridworld_set(), method="identify-and-look-up", slack=0.999).method
    assert isinstance(cautious, IdentifyAndLookUp)
    assert cautious.look_up(0) == 0


def test_signals_are_read_beside_the_sums_and_expected_within_their_bounds() -> None:
    policies = shown_set()
    made = learner(policies, method="identify-and-look-up").method
    assert isinstance(made, IdentifyAndLookUp)
    assert made.observes == "signals"
    assert policies.cells is not None
    readings: Any = policies.cells.readings
    expected = made.expected[:, 2:]
    assert (expected >= readings.lower[:, 0] - 0.02).all()
    assert (expected <= readings.upper[:, 0] + 0.02).all()
    task = shown_wheels().task([0.7])
    seen = task.episodes(policies.safe_policy, 8).run(500, np.random.default_rng(0), transitions=True)
    read = made.read(np.zeros(500, np.int64), seen)
    np.testing.assert_array_equal(read[:, :2], seen.sums)
    chosen = nearest(read.mean(axis=0), made)
    assert np.abs(read.mean(axis=0) - made.expected[chosen])[2:].max() < 0.1
