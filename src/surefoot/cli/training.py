"""`surefoot train`: parsing and printing only."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

from surefoot.cli.families import FAMILIES, built
from surefoot.cli.signatures import with_options
from surefoot.cli.terminal import Json, Out, Seed, console, print_json
from surefoot.errors import Infeasible, InvalidInput
from surefoot.files import check_folder
from surefoot.policyset.certifiable import advice
from surefoot.policyset.storage import check_target
from surefoot.training.preflight import preflight
from surefoot.training.train import train

MOST_SAMPLES = 5 * 10**7

app = typer.Typer(rich_markup_mode=None)


def train_command(
    family: Annotated[str, typer.Argument(help=f"Task family: {', '.join(FAMILIES)}.")],
    out: Out,
    epsilon: Annotated[float, typer.Option(help="Radius of the cover in the paper's distance.")] = 0.005,
    delta: Annotated[float, typer.Option(help="The paper's δ.")] = 0.05,
    xi: Annotated[float | None, typer.Option(help="Margin of the safe policy, unit scale.")] = None,
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a policy set that is at --out already.")] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Algorithm 1: a policy-value set for a family of tasks, saved to --out."""
    check_folder(out)
    check_target(out, force=force, argument="out")
    given = {name: value for name, value in options.items() if value is not None}
    tasks = built(family, given)
    guard = preflight(tasks, epsilon=epsilon, delta=delta, xi=xi)
    if guard.samples is not None and guard.samples > MOST_SAMPLES:
        raise InvalidInput(
            f"epsilon and delta must be larger, got {epsilon:g} and {delta:g}: a cover as fine as that takes about "
            f"{guard.samples:.2g} sampled tasks, and {MOST_SAMPLES:.2g} is the most that the command line samples"
        )
    if not as_json:
        for line in guard.lines:
            console().print(line, highlight=False, soft_wrap=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the guard has just been printed
        try:
            policies = train(tasks, epsilon=epsilon, delta=delta, xi=xi, seed=seed, progress=not as_json)
        except Infeasible as error:
            asked = ", ".join(f"{name} {value}" for name, value in {**given, "xi": xi}.items())
            raise Infeasible(f"{asked}: {error}", error.least_cost) from None
    policies.save(out, force=force)
    made = {"policies": len(policies), "xi": policies.xi, "safe_risk": policies.safe_risk}
    if as_json:
        print_json({**made, **policies.training, "path": str(out), "advice": advice(policies).as_dict()})
    else:
        console().print(
            f"{len(policies)} policies from {policies.training['samples']:,} tasks, safe margin ξ = {policies.xi:.4g}, "
            f"infeasible safe policy on a fresh task with probability at most {policies.safe_risk:.2g} → {out}",
            highlight=False,
            soft_wrap=True,
        )


def _family_options() -> dict[str, Any]:
    """The options of all families; one that several take is of one type."""
    words: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    for name, family in FAMILIES.items():
        for option, what in family.options.items():
            default = family.default(option)
            words.setdefault(option, []).append(f"{name}: {what}, {default} by default")
            kinds[option] = float | None if isinstance(default, float) else str | None
    return {option: Annotated[kinds[option], typer.Option(help=f"{'; '.join(words[option])}.")] for option in kinds}


app.command("train")(with_options(train_command, _family_options()))
