"""`surefoot train`, and the families that the command line can build: by name, or from the recipe in a policy set."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import signature
from typing import Annotated, Any

import typer

from surefoot.cli.terminal import Json, Out, Seed, console, drop_none, optional, print_json, with_options
from surefoot.errors import Infeasible, InvalidInput, did_you_mean
from surefoot.files import check_folder
from surefoot.policyset.certifiable import advice
from surefoot.policyset.storage import check_target
from surefoot.tasks.task_distribution import TaskDistribution

MOST_SAMPLES = 5 * 10**7

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Family:
    """The module and the name of a function that makes a family; imported when it is first used."""

    module: str
    function: str

    @cached_property
    def make(self) -> Callable[..., TaskDistribution]:
        found: Callable[..., TaskDistribution] = getattr(import_module(self.module), self.function)
        return found

    @cached_property
    def options(self) -> Mapping[str, str]:
        """Its arguments in words, the options of `surefoot train`: in OPTIONS of its module."""
        words: Mapping[str, str] = import_module(self.module).OPTIONS
        return {name: words[name] for name in signature(self.make).parameters}

    def default(self, option: str) -> Any:
        return signature(self.make).parameters[option].default


FAMILIES: Mapping[str, Family] = {
    "gridworld": Family("surefoot.tasks.gridworld_tasks", "gridworld"),
    "windy": Family("surefoot.lab.families.windy", "windy_gridworld"),
    "maintenance": Family("surefoot.lab.families.maintenance", "maintenance"),
    "factored": Family("surefoot.lab.families.dope_benchmarks", "factored"),
    "media": Family("surefoot.lab.families.dope_benchmarks", "media"),
    "inventory": Family("surefoot.lab.families.dope_benchmarks", "inventory"),
    "glucose": Family("surefoot.lab.pump.family", "glucose"),
    "simglucose": Family("surefoot.lab.simglucose.family", "simglucose"),
    "water": Family("surefoot.lab.water.family", "water"),
    "buildings": Family("surefoot.lab.buildings.family", "buildings"),
    "two-walls": Family("surefoot.lab.families.two_walls", "two_walls"),
}


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
    from surefoot.training.preflight import preflight  # whoever builds a family for something else need not train
    from surefoot.training.train import train

    check_folder(out)
    check_target(out, force=force, argument="out")
    given = drop_none(**options)
    tasks = build_family(family, given)
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


def build_family(name: str, given: Mapping[str, Any]) -> TaskDistribution:
    """The family of this name with the options given; those that it does not take are refused."""
    if name not in FAMILIES:
        raise InvalidInput(
            f"family must be one of {', '.join(FAMILIES)}, got {name!r}"[:400] + did_you_mean(name, FAMILIES)
        )
    family = FAMILIES[name]
    foreign = [f"{option} {value}" for option, value in given.items() if option not in family.options]
    if foreign:
        takes = f"takes only {', '.join(family.options)}" if family.options else "takes no options"
        raise InvalidInput(f"family {name!r} {takes}, got {', '.join(foreign)}")
    return family.make(**given)


def rebuild_family(recipe: Mapping[str, Any]) -> TaskDistribution:
    """The family of a policy set, from its recipe: its name, and the arguments of the function of that name."""
    name, arguments = recipe.get("family"), {key: value for key, value in recipe.items() if key != "family"}
    if not isinstance(name, str) or (name in FAMILIES and arguments.keys() != FAMILIES[name].options.keys()):
        raise InvalidInput(
            f"SET must carry the recipe of a family that the command line can build ({', '.join(FAMILIES)}), "
            f"got {reprlib.repr(dict(recipe)) if recipe else 'none'}; use this set from Python: "
            "policies = surefoot.PolicyValueSet.load(SET, controllers={...}), then surefoot.adapt(policies, "
            "tasks.task(parameter), ...) or surefoot.calibrate(policies, tasks, ...) with tasks of your own"
        )
    try:
        return build_family(name, arguments)
    except (TypeError, ArithmeticError) as error:
        raise InvalidInput(f"SET must carry a recipe with arguments of {name}, got {arguments} ({error})") from None


def _family_options() -> dict[str, Any]:
    """The options of all families; one that several take is of one type."""
    words: dict[str, list[str]] = {}
    kinds: dict[str, type] = {}
    for name, family in FAMILIES.items():
        for option, what in family.options.items():
            default = family.default(option)
            words.setdefault(option, []).append(f"{name}: {what}, {default} by default")
            kinds[option] = type(default)
    return {option: optional(kinds[option], help=f"{'; '.join(words[option])}.") for option in kinds}


app.command("train")(with_options(train_command, _family_options()))
