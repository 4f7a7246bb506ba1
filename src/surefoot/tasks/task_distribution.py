"""A family of tasks: a function from a parameter to a task, and a distribution over parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, assign, finite_array, flag
from surefoot.bounded_json import plain
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.distribution import Finite, ParameterDistribution

Build: TypeAlias = Callable[[Floats], Any]  # a Task; its kind is known to whoever wrote the function
Coordinates: TypeAlias = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class TaskDistribution:
    """The paper's distribution D over CMDPs, through their parameters.

    All tasks must have the same spaces and units, so that one policy and one value scale fit all: a `build` function
    should declare its reward_range and cost_range. They may be tables (`TabularCMDP`) or anything else that can be
    simulated (`Task`).

    Attributes:
        build: task of a parameter [d].
        distribution: of the parameter.
        coordinates: parameters [n, d] to points [n, d'] such that the paper's distance d between two tasks is the
            maximum norm of the difference of their points; None if no such map is known.
        safe_parameter: [d] of the task whose optimal policy is to be the safe policy; None to search for one.
        recipe: plain JSON data from which the command line can build this family again; empty if it cannot.
        affine: (P₀ [S, A, S], G [d, S, A, S]) if transitions are P_θ = P₀ + Σ_k θ_k G_k for every θ that can be drawn
            and nothing else depends on θ; None otherwise. Rows of P₀ sum to 1, those of G to 0. Parameters at which P_θ
            has a negative entry are those of no task; the box around the others may hold such.
        shared_costs: whether what an episode costs has the same law on all tasks, with every policy, so that only
            rewards depend on the parameter. Where tasks must be simulated, bounds on costs then follow from the
            episodes of all of them together, and safety rests on this being true.
    """

    build: Build
    distribution: ParameterDistribution
    coordinates: Coordinates | None = None
    safe_parameter: Floats | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    affine: tuple[Floats, Floats] | None = None
    shared_costs: bool = False

    def __post_init__(self) -> None:
        if not callable(self.build):
            raise InvalidInput(f"build must be a function from a parameter to a task, got {self.build!r}")
        if not isinstance(self.distribution, ParameterDistribution):
            raise InvalidInput(
                f"distribution must be a parameter distribution such as Normal or Uniform, got {self.distribution!r}"
            )
        if self.coordinates is not None and not callable(self.coordinates):
            raise InvalidInput(f"coordinates must be a function of parameters [n, d], got {self.coordinates!r}")
        if self.safe_parameter is not None:
            safe = self._parameter("safe_parameter", self.safe_parameter)
            assign(self, safe_parameter=safe)
        if not isinstance(self.recipe, Mapping):
            raise InvalidInput(f"recipe must be a mapping, got {self.recipe!r}")
        assign(self, recipe=plain("recipe", self.recipe))
        _check_affine(self.affine, self.dimension)
        flag("shared_costs", self.shared_costs)

    @property
    def dimension(self) -> int:
        """d, the length of a parameter."""
        return self.distribution.dimension

    @property
    def units(self) -> Units:
        """The units that all tasks share."""
        return self.example.units

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        """[n, d] parameters of independent tasks."""
        return self.distribution.sample(n, rng)

    def task(self, parameter: ArrayLike) -> Any:
        """The `Task` of a parameter [d], inside the support or not (a bare number will do when d = 1)."""
        task = _build(self.build, self._parameter("parameter", parameter))
        _check_same_kind(f"the task of parameter {np.ravel(parameter).tolist()}", task, self.example)
        return task

    def digest(self) -> str:
        """SHA-256 that tells families apart: of the distribution's description and of the tasks at its probes.

        The probes of a box are its extreme corners, its centre, the ends of each axis through the centre and a few
        fixed points in between; those of a finite distribution are all its points. Two families that agree on all
        probes have one digest even if they differ elsewhere.
        """
        sha = hashlib.sha256(json.dumps(self.distribution.describe(), sort_keys=True).encode())
        for parameter in self.distribution.probes():
            sha.update(_digest(self.task(parameter)))
        return sha.hexdigest()

    @cached_property
    def example(self) -> Task:
        """One of the tasks: what holds for its kind holds for all."""
        return _build(self.build, self.distribution.probes()[0])

    def _parameter(self, name: str, value: Any) -> Floats:
        array = finite_array(name, value)
        array = array[None] if array.ndim == 0 else array
        if array.shape != (self.dimension,):
            raise InvalidInput(f"{name} must have shape [{self.dimension}], got {list(np.shape(value))}")
        return array


def family(build: Build, distribution: ParameterDistribution, **options: Any) -> TaskDistribution:
    """Any function from parameters to tasks as a task distribution; the options are the attributes of one."""
    return TaskDistribution(build, distribution, **options)


def from_arrays(cmdps: Sequence[Task], weights: ArrayLike | None = None) -> TaskDistribution:
    """A finite distribution over given tasks, equally likely unless weights [n]; a task's parameter is its index."""
    if not isinstance(cmdps, Sequence) or not len(cmdps):
        raise InvalidInput(f"cmdps must be a sequence of at least one task, got {cmdps!r}")
    tasks = tuple(cmdps)
    for k, task in enumerate(tasks):
        check_task(f"cmdps[{k}]", task)
        _check_same_kind(f"cmdps[{k}]", task, tasks[0])
    return TaskDistribution(partial(_task_at, tasks), Finite(np.arange(len(tasks)), weights))


def _task_at(tasks: tuple[Task, ...], parameter: Floats) -> Task:
    index = float(parameter[0])
    if not index.is_integer() or not 0 <= index < len(tasks):
        raise InvalidInput(f"parameter must be the index of a task, 0..{len(tasks) - 1}, got {index!r}")
    return tasks[int(index)]


# -------------------------------------------------------------------------------------------------------------- checks


def _digest(task: Task) -> bytes:
    found = task.digest()
    try:
        return bytes.fromhex(found)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"digest() of a task must return hexadecimal digits, as hashlib's hexdigest() does, got {found!r}"
        ) from None


def _build(build: Build, parameter: Floats) -> Task:
    task = build(parameter)
    check_task(f"what build returns for {parameter.tolist()}", task)
    return task  # type: ignore[no-any-return]


def check_task(name: str, task: Any) -> None:
    """Refuse what is no task; an environment is told how to become one."""
    missing = [part for part in ("units", "spaces", "digest", "episodes") if not hasattr(task, part)]
    if not missing:  # what `isinstance(task, Task)` says, in a fifth of its time: families build tasks by the thousand
        return
    env = all(callable(getattr(task, part, None)) for part in ("reset", "step"))
    wrap = "; an environment becomes a task in a family made by surefoot.tasks.from_gym" if env else ""
    raise InvalidInput(
        f"{name} must be a task, such as TabularCMDP or anything with units, spaces, digest and episodes, "
        f"got {type(task).__name__} without {', '.join(missing)}{wrap}"
    )


def _check_same_kind(name: str, task: Task, example: Task) -> None:
    if task.spaces != example.spaces:
        raise InvalidInput(f"{name} must have the family's spaces, {example.spaces}, got {task.spaces}")
    if not task.units.same_as(example.units):
        raise InvalidInput(
            f"{name} must share the family's discount, horizon, budget, reward_range and cost_range (declare the "
            f"ranges when building tasks), got {task.units} instead of {example.units}"
        )


def _check_affine(affine: Any, dimension: int) -> None:
    if affine is None:
        return
    shapes = [np.shape(part) for part in affine] if isinstance(affine, tuple) else []
    if len(shapes) != 2 or len(shapes[0]) != 3 or shapes[1] != (dimension, *shapes[0]):
        raise InvalidInput(f"affine must be a pair of arrays [S, A, S] and [{dimension}, S, A, S], got shapes {shapes}")
