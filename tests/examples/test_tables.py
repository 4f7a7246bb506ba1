"""The lake as a table, and the families whose training is timed: they run, and adapting pays."""

from __future__ import annotations

import numpy as np
import pytest

import families
import lake
import surefoot as sf


@pytest.mark.long
def test_the_lake_is_crossed_better_and_safely(capsys: pytest.CaptureFixture[str]) -> None:
    runs = lake.main(episodes=500)
    assert list(runs) == list(lake.METHODS)
    assert all(run.unsafe_episodes == 0 for run in runs.values())
    assert runs["certified"].events[0].message.startswith("certified-likelihood")
    regret = {method: run.regret[-1] for method, run in runs.items()}
    assert regret["certified"] < 0.05 * regret["safe-only"]
    assert regret["certified"] <= regret["certified-ball"] < regret["certified-returns"] <= regret["safe-only"]
    assert f"certified             regret {regret['certified']:7.1f}   unsafe episodes 0" in capsys.readouterr().out


def paid_in_states(parameter: np.ndarray) -> sf.TabularCMDP:
    """The same lake as it had to be written before: goal and holes pay in a state of their own."""
    task = lake.build(parameter)
    squares = np.array([*lake.MAP, "sink"])
    return sf.TabularCMDP(
        task.transitions, 1.0 * (squares == "G"), 1.0 * (squares == "H"), 0.15, task.start, task.discount
    )


def paid_on_average(parameter: np.ndarray) -> sf.TabularCMDP:
    """With expected payments, which depend on the slip."""
    task = lake.build(parameter)
    return sf.TabularCMDP(task.transitions, task.reward, task.cost, 0.15, task.start, task.discount, (0, 1), (0, 1))


@pytest.mark.long
def test_how_payments_are_written_makes_no_difference_to_regret() -> None:
    """On transitions, on average or in states: within a factor of two of each other, where it was once 400."""
    regrets = []
    for build in (lake.build, paid_on_average, paid_in_states):
        tasks = sf.tasks.family(build, sf.tasks.Uniform(0.05, 0.5))
        policies = sf.train(tasks, epsilon=0.02, delta=0.05, seed=0, progress=False)
        runs = [
            sf.adapt(policies, tasks.task([slip]), method="certified", episodes=1000, risk=0.05, seed=1)
            for slip in (0.1, 0.4)
        ]
        assert all(run.unsafe_episodes == 0 for run in runs)
        regrets.append([run.regret[-1] for run in runs])
    assert (np.max(regrets, axis=0) <= 2 * np.min(regrets, axis=0)).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["lake4", "grid"])
def test_families_are_trained_without_a_hint(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    families.trained(name)
    assert "(affine), certified-likelihood" in capsys.readouterr().out
