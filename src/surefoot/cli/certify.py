"""`surefoot certify`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.certificate import MOST, certify, number_in_set
from surefoot.cli.terminal import Json, Seed, numbers, print_json, print_lines, progress
from surefoot.cli.train import rebuild_family
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.methods import MOST_EPISODES
from surefoot.policyset.policy_value_set import PolicyValueSet

Range = tuple[float, float]

app = typer.Typer(rich_markup_mode=None)


@app.command("certify")
def certify_command(
    log: Annotated[
        Path | None,
        typer.Argument(metavar="LOG", help="Episodes of the policy: .csv with a column cost, or .jsonl as told."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="On the expected cost of an episode; several separated by commas.")
    ] = None,
    cost_range: Annotated[
        Range | None, typer.Option(metavar="LOW HIGH", help="What one episode can cost, for a LOG without --policies.")
    ] = None,
    reward_range: Annotated[
        Range | None, typer.Option(metavar="LOW HIGH", help="What one episode can pay, to bound the reward too.")
    ] = None,
    policies: Annotated[
        Path | None, typer.Option("--policies", metavar="SET", help="Policy set: its budgets, and whether LOG fits it.")
    ] = None,
    policy: Annotated[
        int | None, typer.Option(min=0, help="With --policies: number of the policy; 0, the safe one.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Without LOG: simulate on the task of --policies with this parameter.")
    ] = None,
    risk: Annotated[float, typer.Option(help="Probability with which any bound is ever wrong.")] = 0.05,
    most: Annotated[
        int | None, typer.Option(min=1, max=MOST_EPISODES, help="With --task: episodes at the most; 10,000.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Bounds on one policy's cost and reward from a log, or simulated; exit code 1 unless it is within budget.

    They hold after every number of episodes at once, so that one may look, wait for more and look again.
    """
    limits = None if budget is None else numbers("budget", budget)
    if (log is None) == (task is None):
        raise InvalidInput(f"LOG or --task must be given, and one of them, got {'both' if log else 'neither'}")
    known = None if policies is None else PolicyValueSet.load(policies)
    ranges: Any = {"reward_range": reward_range, "cost_range": cost_range}
    if log is not None:
        if most is not None:
            raise InvalidInput(f"most must come with task, whose episodes are simulated, got {most} alone")
        found = certify(log, policy, limits, policies=known, risk=risk, **ranges)
    else:
        simulated = _policy_on_task(known, policy or 0, task or "")
        with progress(not as_json) as report:
            found = certify(*simulated, limits, risk=risk, most=most or MOST, seed=seed, progress=report, **ranges)
    if as_json:
        print_json(found.as_dict())
    else:
        print_lines([f"{name:<10} {sentence}" for name, sentence in found.facts()])
    if found.verdict in ("above", "undecided"):
        raise typer.Exit(1)


def _policy_on_task(policies: PolicyValueSet | None, policy: int, task: str) -> tuple[Task, Policy]:
    if policies is None:
        raise InvalidInput(f"task must come with policies, whose family it is in, got {task!r} alone")
    tasks = rebuild_family(policies.recipe)
    if tasks.digest() != policies.task_digest:
        raise ArtifactError(f"policies must be of the tasks that {dict(policies.recipe)} makes, got a set of others")
    return tasks.task(numbers("task", task)), policies.policies[number_in_set(policy, policies)]
