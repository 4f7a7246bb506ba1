"""The families that the command line can build: by name, or from the recipe in a policy set."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from surefoot.errors import InvalidInput, meant
from surefoot.tasks import factored, glucose, gridworld, inventory, maintenance, media, two_walls, windy_gridworld
from surefoot.tasks.task_distribution import TaskDistribution


@dataclass(frozen=True)
class Family:
    """A function that makes a family, and its arguments in words: the options of `surefoot train`."""

    make: Callable[..., TaskDistribution]
    options: Mapping[str, str] = field(default_factory=dict)

    def default(self, option: str) -> Any:
        return signature(self.make).parameters[option].default


FAMILIES: Mapping[str, Family] = {
    "gridworld": Family(
        gridworld,
        {
            "kernel": "published or text",
            "std": "standard deviation of the noise",
            "safe_noise": "noise whose optimal policy is the safe policy",
        },
    ),
    "windy": Family(
        windy_gridworld,
        {
            "slip_std": "standard deviation of the slip",
            "wind_std": "standard deviation of the wind",
            "safe_slip": "slip of the task whose optimal policy is the safe policy",
            "safe_wind": "wind of that task",
        },
    ),
    "maintenance": Family(
        maintenance,
        {
            "wear_std": "standard deviation of the wear",
            "scrap_std": "standard deviation of the scrap",
            "safe_wear": "wear whose optimal policy is the safe policy",
        },
    ),
    "factored": Family(factored, {"most_failure": "largest failure"}),
    "media": Family(media, {"low": "least drain", "high": "largest drain"}),
    "inventory": Family(inventory, {"most_shift": "largest shift of the demand"}),
    "glucose": Family(
        glucose,
        {
            "least_sensitivity": "least sensitivity to insulin, over the mean",
            "most_sensitivity": "largest sensitivity to insulin, over the mean",
            "fastest": "least time of absorption of insulin, in minutes",
            "slowest": "largest time of absorption of insulin, in minutes",
        },
    ),
    "two-walls": Family(two_walls, {"low": "least noise", "high": "largest noise"}),
}


def built(name: str, given: Mapping[str, Any]) -> TaskDistribution:
    """The family of this name with the options given; those that it does not take are refused."""
    if name not in FAMILIES:
        raise InvalidInput(f"family must be one of {', '.join(FAMILIES)}, got {name!r}"[:400] + meant(name, FAMILIES))
    family = FAMILIES[name]
    foreign = [f"{option} {value}" for option, value in given.items() if option not in family.options]
    if foreign:
        takes = f"takes only {', '.join(family.options)}" if family.options else "takes no options"
        raise InvalidInput(f"family {name!r} {takes}, got {', '.join(foreign)}")
    return family.make(**given)


def rebuilt(recipe: Mapping[str, Any]) -> TaskDistribution:
    """The family of a policy set, from its recipe: its name, and the arguments of the function of that name."""
    name, arguments = recipe.get("family"), {key: value for key, value in recipe.items() if key != "family"}
    if not isinstance(name, str) or (name in FAMILIES and arguments.keys() != FAMILIES[name].options.keys()):
        raise InvalidInput(
            f"SET must carry the recipe of a family that the command line can build ({', '.join(FAMILIES)}), "
            f"got {reprlib.repr(dict(recipe)) if recipe else 'none'}; use this set from Python"
        )
    try:
        return built(name, arguments)
    except (TypeError, ArithmeticError) as error:
        raise InvalidInput(f"SET must carry a recipe with arguments of {name}, got {arguments} ({error})") from None
