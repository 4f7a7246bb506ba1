"""`surefoot calibrate`, and the file that it writes: parsing and printing only."""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Annotated

import typer

from surefoot.calibration import calibrate, recount
from surefoot.cli.families import rebuilt
from surefoot.cli.journals import read_key
from surefoot.cli.terminal import Json, Risk, Seed, numbers, print_json, print_lines, print_path, progress
from surefoot.deploy.calibration_files import write_calibration
from surefoot.files import check_file
from surefoot.learning.certified.calibrated import Calibration
from surefoot.learning.certified.choice import EVIDENCE
from surefoot.methods import MOST_EPISODES
from surefoot.policyset.policy_value_set import PolicyValueSet

Attempt = Annotated[
    int,
    typer.Option(
        min=0, help="1, one more each time that one calibrates again; 0 if there will be no other, come what may."
    ),
]
SealingKey = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="File with a key to seal it, for deploy with the same.")
]
Recount = Annotated[
    int | None,
    typer.Option(
        "--recount", min=1, metavar="N", help="Compute so many runs of the calibration again, drawn at random."
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("calibrate")
def calibrate_command(
    path: Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="JSON file for deploy --calibration.")],
    episodes: Annotated[int, typer.Option(min=1, max=MOST_EPISODES, help="The most that will be deployed.")],
    method: Annotated[str, typer.Option(help=f"One of {', '.join(EVIDENCE)}.")] = "certified-likelihood",
    risk: Risk = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="Simulated tasks at each level.")] = 2000,
    levels: Annotated[
        str | None,
        typer.Option(help="Levels to try, increasing, comma-separated; 1.2 to 6 risks by default."),
    ] = None,
    error: Annotated[
        float, typer.Option(help="Part of the risk for a calibration that goes wrong; 0: only the joint promise.")
    ] = 0.0,
    attempt: Attempt = 1,
    seed: Seed = 0,
    key: SealingKey = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
) -> None:
    """How far simulated tasks let a method's level be raised, before it is deployed.

    What is promised then is joint over the calibration, the task and at most so many episodes. Where one calibration
    is to serve for many deployments, set a part of the risk aside with --error: what is promised then holds for each.
    Whoever calibrates again after seeing the result makes another --attempt, for which less may be unsafe.
    """
    check_file(out)
    sealing = read_key(key)
    policies = PolicyValueSet.load(path)
    with progress(not as_json) as report:
        found = calibrate(
            policies,
            rebuilt(policies.recipe),
            method=method,
            episodes=episodes,
            risk=risk,
            runs=runs,
            levels=None if levels is None else numbers("levels", levels),
            error=error,
            attempt=attempt,
            seed=seed,
            jobs=jobs,
            progress=report,
        )
    content = write_calibration(out, found, sealing)
    if as_json:
        print_json(content)
        return
    print_lines(_lines(found))
    print_path(out)


def _lines(found: Calibration) -> list[str]:
    which = f"attempt {found.attempt}" if found.attempt else "the only attempt"
    tried = [
        f"level {level:g}: {unsafe:,} of {found.runs:,} simulated tasks unsafe, passed"
        if found.passes(unsafe)
        else f"level {level:g}: {unsafe:,} or more of {found.runs:,} simulated tasks unsafe, failed"
        for level, unsafe in found.counts
    ]
    tried.append(f"{which}: up to {found.allowed:,} of {found.runs:,} may be unsafe")
    if found.level is None:
        return [*tried, *_without_a_level(found)]
    return [
        *tried,
        f"{found.method} at level {found.level:g}, risk {found.risk:g}, at most {found.episodes:,} episodes",
    ]


def _without_a_level(found: Calibration) -> tuple[str, ...]:
    """What is left to do, and what it costs."""
    again = "" if found.attempt == 0 else f"; calibrating again is attempt {found.attempt + 1}"
    return (
        f"no level passed: use {found.method} as it is proved, without a calibration{again}",
        f"falling back like this has a joint risk of at most {found.fallback_risk:.3f} instead of {found.risk:g}, "
        "if the method alone keeps to it on this policy set, as is proved for tables of affine and finite families; "
        "elsewhere its risk is joint over the training",
    )


def count_again(found: Calibration, policies: PolicyValueSet, runs: int) -> tuple[Calibration, str]:
    """A calibration some of whose runs were computed again, drawn with a seed that nobody could know; and in words."""
    seed = secrets.randbits(63)
    with progress(True) as report:
        found = recount(found, policies, rebuilt(policies.recipe), runs=runs, seed=seed, progress=report)
    share = 1 - math.exp(math.log(found.risk) / runs)
    return found, (
        f"{runs:,} of {found.runs:,} runs computed again, drawn with seed {seed}: all are as the calibration says; if "
        f"{100 * share:.2g} % of them were not, this would have had a probability of at most {found.risk:g}"
    )
