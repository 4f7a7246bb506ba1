"""What sharper evidence could be worth at most: python examples/overshoot.py DIR/gridworld.policyset

Prints, for episodes of the gridworld's safe policy, by how much the logarithm of the evidence exceeds log(1/risk) after
the episode that rules out a cell: all that boosting (factors cut off at the threshold and scaled up for it) could gain.
Then how long bets on sums take, next to bets that know the task: to rule out cells, and to show that a mixture of two
controllers of the insulin pump keeps its budget, as the judge of a calibration does.
"""

import sys
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.confidence import DEFAULT_STAKES
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.learning.certified.choice import make_evidence

KINDS = ("certified-likelihood", "certified-ball", "certified-returns")
BINS = ((5, 50), (50, 200), (200, 10**9))  # cells by the episodes it takes to rule them out
RISK, ERROR, SLACKS = 0.05, 0.005, (0.05, 0.1, 0.2)  # of the cells, of the judge; how far below the budget
DAYS, REPEATS = 1500, 40  # that the law of the costs is made of; sequences drawn from it


def first_crossing(log_evidence: Floats, threshold: float) -> Floats:
    """[2, J] of [n, J]: the episode that reaches the threshold, and by how much it is exceeded then; NaN if none."""
    when = (log_evidence >= threshold).argmax(axis=0)
    found = np.stack([when + 1.0, log_evidence[when, np.arange(len(when))] - threshold])
    return np.where(found[1] >= 0, found, np.nan)


def gather_evidence(evidence: Any, outcomes: Outcomes, threshold: float) -> Floats:
    """[n, J] log-evidence after each episode of the safe policy, with new bets in each."""
    state, found = evidence.start(), np.zeros((len(outcomes), len(evidence.cells)))
    for k in range(len(outcomes)):
        state = evidence.observe(state, np.zeros(1, dtype=np.int64), outcomes[k : k + 1])
        state = evidence.settle(state, evidence.log_evidence(state) < threshold, ())
        found[k] = evidence.log_evidence(state)
    return found


def best_bets(policies: Any, outcomes: Outcomes, truth: int) -> tuple[Floats, Floats]:
    """[n, J] log-evidence of the fastest growing stakes if the true cell and the spread are known; [J] their growth."""
    known, units = policies.cells, policies.units
    bounds = (side[:, 0].transpose(2, 0, 1) for side in (known.start_lower, known.start_upper))  # of the safe policy
    first = np.searchsorted(known.first_states, outcomes.states[:, 0])
    low, high = (side[first] for side in units.scaled_sums(*bounds, units.steps(None)))  # [n, J, k]
    middle, numbers = (low + high) / 2, units.scaled(outcomes.sums)
    apart = (middle[:, [truth]] - middle).mean(axis=0)  # [J, k]
    stakes = np.linalg.solve(np.cov((numbers - middle[:, truth]).T), apart.T).T
    stakes *= 0.9 / np.maximum(-np.minimum(stakes, 0.0).sum(axis=1, keepdims=True), 0.9)
    most = np.maximum(stakes * low, stakes * high).sum(axis=2)
    return np.cumsum(np.log1p(numbers @ stakes.T) - np.log1p(most), axis=0), (apart * stakes).sum(axis=1) / 2


def rule_out_cells(policies: Any, episodes: int, tasks: int) -> dict[str, Floats]:
    """[2, N] episodes and overshoot of the cells ruled out, by kind of evidence; "waits": episodes of present and best
    bets against more dangerous cells, those that the best ones should rule out within a third of the episodes."""
    known, family, threshold = policies.cells, sf.tasks.gridworld(), float(np.log(1 / RISK))
    steps, rows = policies.units.steps(None), {kind: list[Floats]() for kind in (*KINDS, "waits")}
    for seed, parameter in enumerate(family.sample(tasks, np.random.default_rng(1))):
        played = family.task(parameter).episodes(policies.safe_policy, steps)
        outcomes = played.run(episodes, np.random.default_rng([seed, 2]), transitions=True)
        for kind in KINDS:
            evidence = make_evidence(policies, kind, known, steps)
            found = first_crossing(gather_evidence(evidence, outcomes, threshold), threshold)
            rows[kind].append(found[:, np.isfinite(found[0])])
        truth = int(np.argmin(np.abs(known.centre[:, 0] - parameter[0])))
        best, growth = best_bets(policies, outcomes, truth)
        growth[known.danger <= known.danger[truth]] = 0.0
        chosen = (growth >= 3 * threshold / episodes) & (growth <= threshold / 50)
        waits = np.stack([found[0], first_crossing(best, threshold)[0]])[:, chosen]
        rows["waits"].append(np.where(np.isnan(waits), episodes, waits))
    return {kind: np.concatenate(each, axis=1) for kind, each in rows.items()}


def days_until_shown(slack: float, rng: np.random.Generator) -> Floats:
    """[3] mean days with the stakes of `Betting`, with stakes that follow the days before, and with the best stake."""
    task = sf.tasks.glucose().task([1.0, 55.0])
    played = (task.episodes(AVERAGE_SETTINGS.scaled(gain), task.units.episode_length) for gain in (0.8, 1.6))
    weak, strong = (each.run(DAYS, rng).cost[:, 0] for each in played)
    budget, threshold = task.units.budget[0], float(np.log(1 / ERROR))
    share = ((1 - slack) * budget - weak.mean()) / (strong.mean() - weak.mean())
    law, stakes = (1 - share) * weak + share * strong, DEFAULT_STAKES

    def growth(cost: Floats, stake: Any) -> Any:
        return np.log1p(-stake * cost) - np.log1p(-stake * budget)

    best = minimize_scalar(lambda stake: -growth(law, stake).mean(), bounds=(1e-5, 1 - 1e-6), method="bounded").x
    cost = rng.choice(law, (int(6 * threshold / growth(law, best).mean()), REPEATS))
    mixed = np.logaddexp.reduce([np.cumsum(growth(cost, stake), axis=0) for stake in stakes]) - np.log(len(stakes))
    count = np.arange(len(cost))[:, None] + 10.0  # as if ten days had been seen, a tenth below the budget
    mean = (np.cumsum(cost, axis=0) - cost + 9 * budget) / count
    square = (np.cumsum(cost**2, axis=0) - cost**2 + 20 * budget**2) / count
    bet = np.clip((budget - mean) / (square - 2 * budget * mean + budget**2), 0.0, 0.9)
    followed = np.cumsum(np.log1p(bet * (budget - cost)), axis=0)
    waits = [first_crossing(each, threshold)[0] for each in (mixed, followed, np.cumsum(growth(cost, best), axis=0))]
    return np.array([np.where(np.isnan(wait), len(cost), wait).mean() for wait in waits])


def main(policies: Any, episodes: int = 600, tasks: int = 3, slacks: tuple[float, ...] = SLACKS) -> dict[str, Floats]:
    found = rule_out_cells(policies, episodes, tasks)
    for kind, (least, most) in [(kind, part) for kind in KINDS for part in BINS]:
        over = found[kind][1, (found[kind][0] >= least) & (found[kind][0] < most)]
        if over.size:
            share = np.mean(over / (np.log(1 / RISK) + over))
            print(f"{kind}, cells ruled out in episode {least} or later: {over.mean():.3f} nats too many, {share:.1%}")
    present, best = found["waits"].mean(axis=1)
    print(f"certified-returns: cells ruled out after {present:.0f} episodes, by the best bets after {best:.0f}")
    for slack in slacks:
        found[f"{slack:g}"] = days = days_until_shown(slack, np.random.default_rng(3))
        print(f"{slack:.0%} below the budget: {days[0]:.0f} days, {days[1]:.0f} following, {days[2]:.0f} at best")
    return found


if __name__ == "__main__":
    main(sf.PolicyValueSet.load(sys.argv[1]))
