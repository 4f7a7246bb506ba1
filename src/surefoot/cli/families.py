"""The families that the command line can build: by name, or from the recipe in a policy set."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.errors import InvalidInput
from surefoot.tasks import factored, gridworld, inventory, maintenance, media, two_walls, windy_gridworld
from surefoot.tasks.family import TaskDistribution

# The arguments of each function are the options of its family.
FAMILIES: Mapping[str, Callable[..., TaskDistribution]] = {
    "gridworld": gridworld,
    "windy": windy_gridworld,
    "maintenance": maintenance,
    "factored": factored,
    "media": media,
    "inventory": inventory,
    "two-walls": two_walls,
}


def built(name: str, given: Mapping[str, Any]) -> TaskDistribution:
    """The family of this name with the options given; those that it does not take are refused."""
    if name not in FAMILIES:
        raise InvalidInput(f"family must be one of {', '.join(FAMILIES)}, got {name!r}"[:400])
    options = _options(name)
    foreign = [f"{option} {value}" for option, value in given.items() if option not in options]
    if foreign:
        takes = f"takes only {', '.join(options)}" if options else "takes no options"
        raise InvalidInput(f"family {name!r} {takes}, got {', '.join(foreign)}")
    return FAMILIES[name](**given)


def rebuilt(recipe: Mapping[str, Any]) -> TaskDistribution:
    """The family of a policy set, from its recipe: its name, and the arguments of the function of that name."""
    name, arguments = recipe.get("family"), {key: value for key, value in recipe.items() if key != "family"}
    if not isinstance(name, str) or (name in FAMILIES and set(arguments) != set(_options(name))):
        raise InvalidInput(
            f"SET must carry the recipe of a family that the command line can build ({', '.join(FAMILIES)}), "
            f"got {reprlib.repr(dict(recipe)) if recipe else 'none'}; run this set with surefoot.adapt from Python"
        )
    try:
        return built(name, arguments)
    except (TypeError, ArithmeticError) as error:
        raise InvalidInput(f"SET must carry a recipe with arguments of {name}, got {arguments} ({error})") from None


def _options(name: str) -> list[str]:
    return list(inspect.signature(FAMILIES[name]).parameters)
