"""`surefoot calibrate`, and the file that it writes: parsing and printing only."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.bounded_json import Limits, parse_strictly
from surefoot.calibration import calibrate
from surefoot.cli.families import rebuilt
from surefoot.cli.terminal import Json, Risk, Seed, numbers, print_json, print_lines, print_path, progress
from surefoot.errors import ArtifactError
from surefoot.experiments.options import MOST_EPISODES
from surefoot.files import check_file, read_file, write_file
from surefoot.learning.certified.calibrated import Calibration
from surefoot.learning.certified.choice import EVIDENCE
from surefoot.policyset.policy_value_set import PolicyValueSet

LIMITS = Limits(size=2**16, values=1000, depth=4)

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
        typer.Option(help="Levels to try, increasing, comma-separated; 1.2 to 6 risks by default, 2 to 8 if falling."),
    ] = None,
    error: Annotated[
        float, typer.Option(help="Part of the risk for a calibration that goes wrong; 0: only the joint promise.")
    ] = 0.0,
    falling: Annotated[
        bool, typer.Option("--falling", help="Ask for more evidence early, so that larger levels may pass.")
    ] = False,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    as_json: Json = False,
) -> None:
    """How far simulated tasks let a method's level be raised, before it is deployed.

    What is promised then is joint over the calibration, the task and at most so many episodes. Where one calibration
    is to serve for many deployments, set a part of the risk aside with --error: what is promised then holds for each.
    """
    check_file(out)
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
            seed=seed,
            jobs=jobs,
            progress=report,
            **({"declared": episodes} if falling else {}),
        )
    write_file(out, json.dumps(asdict(found), indent=1).encode() + b"\n")
    if as_json:
        print_json(asdict(found))
        return
    print_lines(_lines(found))
    print_path(out)


def read_calibration(path: Path) -> dict[str, Any]:
    """What `calibrate` wrote, as plain data."""
    try:
        found: dict[str, Any] = parse_strictly(read_file(path, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"calibration: {path} is not JSON: {error}") from None
    return found


def _lines(found: Calibration) -> list[str]:
    tried = [
        f"level {level:g}: {unsafe:,} of {found.runs:,} simulated tasks unsafe, passed"
        if found.passes(unsafe)
        else f"level {level:g}: {unsafe:,} or more of {found.runs:,} simulated tasks unsafe, failed"
        for level, unsafe in found.counts
    ]
    if found.level is None:
        return [*tried, f"no level passed: use {found.method} as it is proved, without a calibration"]
    return [
        *tried,
        f"{found.method} at level {found.level:g}, risk {found.risk:g}, at most {found.episodes:,} episodes",
    ]
