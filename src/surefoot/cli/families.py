"""The families that the command line can build: by name, or from the recipe in a policy set."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import signature
from typing import Any

from surefoot.errors import InvalidInput, meant
from surefoot.tasks.task_distribution import TaskDistribution


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
        """Its arguments in words, the options of `surefoot train`: OPTIONS of its module."""
        found: Mapping[str, str] = import_module(self.module).OPTIONS
        return found

    def default(self, option: str) -> Any:
        return signature(self.make).parameters[option].default


FAMILIES: Mapping[str, Family] = {
    "gridworld": Family("surefoot.tasks.gridworld_tasks", "gridworld"),
    "windy": Family("surefoot.lab.families.windy", "windy_gridworld"),
    "maintenance": Family("surefoot.lab.families.maintenance", "maintenance"),
    "factored": Family("surefoot.lab.families.factored", "factored"),
    "media": Family("surefoot.lab.families.media", "media"),
    "inventory": Family("surefoot.lab.families.inventory", "inventory"),
    "glucose": Family("surefoot.lab.pump.family", "glucose"),
    "two-walls": Family("surefoot.lab.families.two_walls", "two_walls"),
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
