"""Optuna on a machine that must not stop too often: a trial is a day, and no day tries a speed that may be unsafe.

A machine makes more the faster it runs, and stops more often, the more so the more it is worn. How worn it is nobody
knows. The mean number of stopped hours a day must stay within a budget, on every day, also while the speed is being
found: `CertifiedSampler` proposes a speed only once the days before have shown that it keeps the budget. Half-way
everything but Optuna's storage is lost. At the end: what Optuna's own sampler does with the same constraint.

    pip install 'surefoot[optuna]'
    python examples/optuna_study.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import optuna

import surefoot as sf
from surefoot.optuna import CertifiedSampler

DAYS, RISK = 120, 0.05
SPEEDS = (40.0, 60.0, 80.0, 100.0, 120.0)  # pieces an hour
HOURS, BUDGET = 24, 2.0  # hours stopped a day, in the mean
RUNNING, STOPPED = 0, 1
NAMES = ("safe", *(f"speed {speed:g}" for speed in SPEEDS[1:]))
WEAR = 0.1  # of the machine at hand: nobody tells the sampler

# -------------------------------------------------------------------------------------------------- what is known of it


def machine(wear: np.ndarray) -> sf.TabularCMDP:
    """In an hour at full speed the machine stops with probability 0.6·wear; a repair takes two hours in the mean."""
    transitions = np.zeros((2, len(SPEEDS), 2))
    stops = 0.6 * wear[0] * (np.array(SPEEDS) / max(SPEEDS)) ** 2
    transitions[RUNNING, :, STOPPED], transitions[RUNNING, :, RUNNING] = stops, 1 - stops
    transitions[STOPPED] = 0.5
    made = np.array([SPEEDS, np.zeros(len(SPEEDS))])
    stopped = np.array([[0.0], [1.0]]) + np.zeros(len(SPEEDS))
    return sf.TabularCMDP(transitions, made, stopped, budget=BUDGET, start=[1, 0], discount=1.0, horizon=HOURS)


def policies() -> sf.PolicyValueSet:
    """One policy a speed; the lowest keeps the budget on any machine."""
    machines = sf.tasks.family(machine, sf.tasks.Uniform(0.02, 0.4))
    safe, *others = (np.full(2, action) for action in range(len(SPEEDS)))
    return sf.policy_set(
        machines, safe=safe, candidates=dict(zip(NAMES[1:], others, strict=True)), seed=0, progress=False
    )


# ------------------------------------------------------------------------------------------------------------ the study


def one_day(trial: optuna.Trial) -> float:
    """What the real machine would do: pieces made. The hours that it was stopped are told as a constraint."""
    speed = trial.suggest_float("speed", min(SPEEDS), max(SPEEDS))
    rng, states = np.random.default_rng([7, trial.number]), [RUNNING]
    stops = 0.6 * WEAR * (speed / max(SPEEDS)) ** 2
    for _ in range(HOURS):
        states.append(int(rng.random() < (stops if states[-1] == RUNNING else 0.5)))
    stopped = sum(states[:-1])
    trial.set_constraint("cost", stopped - BUDGET)
    if speed in SPEEDS:  # more to learn from than two sums
        transitions = {"states": states, "actions": [SPEEDS.index(speed)] * HOURS}
        trial.set_user_attr("observed", {"transitions": transitions})
    return speed * (HOURS - stopped)


def resume(folder: Path, policies: sf.PolicyValueSet, days: int) -> tuple[optuna.Study, CertifiedSampler]:
    """Until so many days are over. The sampler is made anew and reads the days before from the study."""
    learner = sf.learner(policies, method="certified", episodes=DAYS, risk=RISK, seed=1)
    settings = {name: {"speed": speed} for name, speed in zip(NAMES, SPEEDS, strict=True)}
    sampler = CertifiedSampler(learner, settings=settings)
    study = optuna.create_study(
        study_name="machine",
        storage=f"sqlite:///{folder}/machine.db",
        sampler=sampler,
        direction="maximize",
        load_if_exists=True,
    )
    study.optimize(one_day, n_trials=days - len(study.trials))
    return study, sampler


def unsafe_days(study: optuna.Study) -> int:
    """At a speed whose mean number of stopped hours is over the budget: only who knows the machine can tell."""
    task, speeds = machine(np.array([WEAR])), np.eye(len(SPEEDS))
    truth = [sf.evaluate(task, np.array([speed, speed])).cost[0] for speed in speeds]
    return sum(np.interp(trial.params["speed"], SPEEDS, truth) > BUDGET for trial in study.trials)


def main(folder: Path, days: int = DAYS) -> tuple[optuna.Study, optuna.Study]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    choices = policies()
    resume(folder, choices, days // 2)
    study, sampler = resume(folder, choices, days)
    for first in range(0, days, days // 6):
        part = study.trials[first : first + days // 6]
        speed, made = np.mean([(trial.params["speed"], trial.value) for trial in part], axis=0)
        print(f"from day {first:3}: speed {speed:3.0f} and {made:4.0f} pieces a day, in the mean")
    deployed = sampler.learner(study).deployed
    mixture = ", ".join(f"{SPEEDS[k]:g} ({w:.0%})" for k, w in zip(deployed.indices, deployed.weights, strict=True))
    print(f"certified for tomorrow: {mixture}; {unsafe_days(study)} of {days} days at an unsafe speed")
    usual = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0), direction="maximize")
    usual.optimize(one_day, n_trials=days)
    print(f"TPESampler with the same constraint: {unsafe_days(usual)} of {days} days at an unsafe speed")
    return study, usual


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
