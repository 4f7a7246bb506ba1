"""One planning step of DOPE on the gridworld: its Lagrangian against the extended linear program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import SurefootError
from surefoot.lab.baselines.dope_planning import planning_problem
from surefoot.lab.baselines.empirical_model import bernstein_widths, estimate, known_support, within_reach
from surefoot.lab.baselines.extended_planning import Plan, PlanningProblem, plan_extended
from surefoot.lab.baselines.known import known_model
from surefoot.lab.bench.extended_program import extended_lp
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, duration, race
from surefoot.lab.bench.trained import gridworld_policy_set
from surefoot.report.table import MISSING
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld

HORIZON, EPISODES, LOG_TERM = 100, 20_000, 1e-3
AGREEMENT = 1e-6


def planning(sizes: Sizes) -> list[BenchRow]:
    """At a horizon that the linear program can still do, and at the one of the experiments."""
    problem, probability, widths = gridworld_planning_problem()
    short = replace(problem, horizon=sizes.program_horizon, budget=problem.budget / 2)  # so that it binds in few steps
    ours, plain = race(
        partial(_plan, short, probability, widths), partial(extended_lp, short, probability, widths), sizes.repeats
    )
    agree("optimal reward of the plan", ours.result.reward, plain.result, AGREEMENT)
    long, _ = race(partial(_plan, problem, probability, widths), lambda: None, sizes.repeats)
    what = "DOPE's plan on the gridworld, {} steps"
    found = f"both find {ours.result.reward:.6f}"
    return [
        BenchRow(
            what.format(short.horizon),
            f"{duration(ours.seconds)} (price on the cost)",
            f"{duration(plain.seconds)} (HiGHS)",
            plain.seconds / ours.seconds,
            found,
        ),
        BenchRow(what.format(HORIZON), duration(long.seconds), MISSING, None, f"duality gap {_gap(long.result):.1e}"),
    ]


def gridworld_planning_problem() -> tuple[PlanningProblem, Floats, Floats]:
    """The planning problem, P̂ and β after some episodes of random actions at noise 0.3, with a small log term."""
    policies = gridworld_policy_set()
    model = known_model(policies, "dope")
    support = known_support(model.classes)
    outcomes = Simulator(gridworld().task([0.3]), np.full(model.reward.shape, 0.25), HORIZON).run(
        EPISODES, np.random.default_rng(0), transitions=True
    )
    if outcomes.states is None or outcomes.actions is None:
        raise SurefootError("the simulator returned no transitions")
    counts = support.count(outcomes.states, outcomes.actions)
    probability, visits = estimate(counts, support.possible), counts.sum(axis=2)
    widths = within_reach(bernstein_widths(probability, visits, LOG_TERM), visits, support.possible)
    problem, _ = planning_problem(policies, model, support, HORIZON)
    return problem, probability, widths


def _plan(problem: PlanningProblem, probability: Floats, widths: Floats) -> Plan:
    plan = plan_extended(problem, probability, widths)
    if plan is None:
        raise SurefootError("the plan must be feasible, got none")
    return plan


def _gap(plan: Plan) -> float:
    return abs(plan.bound - plan.reward)
