"""The methods by name: a learner for a real system, or a simulated run on a task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from surefoot.arrays import check_int, check_unit_interval
from surefoot.cmdp.task import Task
from surefoot.cmdp.wording import setting_in_words
from surefoot.errors import InvalidInput, did_you_mean
from surefoot.learning import posterior
from surefoot.learning.calibrated import (
    CLAIMED,
    CalibratedMethod,
    CalibratedState,
    Calibration,
    check_options,
    options_at,
    parse_calibration,
)
from surefoot.learning.certified import choice
from surefoot.learning.certified.options import DEFAULTS
from surefoot.learning.learner import Learner
from surefoot.learning.method import as_method
from surefoot.learning.paper import algorithm_2, published, safe_only
from surefoot.learning.spec import MethodArgs, MethodSpec, PlanLine, drop_withdrawn
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.simulate.plan import plan_calibration, plan_methods
from surefoot.simulate.run import Run
from surefoot.simulate.runner import JUDGED_EPISODES, Observer, run_learner
from surefoot.tasks.task_distribution import TaskDistribution, check_task


class MethodTable(Mapping[str, MethodSpec]):
    """Rows by name. Those of the laboratory are in modules that are imported when one of their rows is asked for."""

    def __init__(self, rows: Iterable[MethodSpec], elsewhere: Mapping[str, str]) -> None:
        """`elsewhere`: module -> the names of its `SPECS`, separated by spaces."""
        self._rows = {spec.name: spec for spec in rows}
        self._homes = {name: module for module, names in elsewhere.items() for name in names.split()}
        self._names = (*self._rows, *self._homes)

    def __getitem__(self, name: str) -> MethodSpec:
        if name not in self._rows:
            self._rows |= {spec.name: spec for spec in import_module(self._homes[name]).SPECS}
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without an import


# Each with the constants that its guarantee needs, and with those of the paper's figure or of its authors' code.
_BASELINES = {
    "surefoot.lab.baselines.dope": (
        "dope-theory dope-published dope-plus-theory dope-plus-published optpess-lp-theory optpess-lp-published"
    ),
    "surefoot.lab.baselines.log_barrier": "lb-sgd-theory lb-sgd-published",
    "surefoot.lab.baselines.safe_meta": "safe-meta-theory safe-meta-published",
}
BASELINES = tuple(" ".join(_BASELINES.values()).split())

# What people would use instead; none has a proof of what is promised here, and all can be calibrated.
_RIVALS = {
    f"surefoot.lab.rivals.{name.replace('-', '_')}": name
    for name in (
        "meta-gaussian",
        "safe-opt",
        "certainty-equivalence",
        "titration",
        "conformal-policy-control",
        "seldonian",
        "identify-and-look-up",
    )
}
RIVALS = tuple(_RIVALS.values())

# For networks, trained with the extra surefoot[control].
_CONTROL = {"surefoot.lab.baselines.control_specs": "safe-meta-control meta-cpo maml-penalty cpo-online"}

_LIBRARY = (*safe_only.SPECS, *algorithm_2.SPECS, *published.SPECS, *choice.SPECS, *posterior.SPECS)
METHODS: Mapping[str, MethodSpec] = MethodTable(_LIBRARY, {**_BASELINES, **_RIVALS})
CALIBRATED = tuple(spec.name for spec in _LIBRARY if spec.path)  # that say what to calibrate
CONTROL_METHODS: Mapping[str, MethodSpec] = MethodTable((), _CONTROL)
_KNOWN: Mapping[str, MethodSpec] = MethodTable(_LIBRARY, {**_BASELINES, **_RIVALS, **_CONTROL})

MOST_EPISODES = 10**8  # that commands simulate: a run keeps a few numbers per episode in memory


def learner(
    policies: PolicyValueSet,
    *,
    method: str | MethodSpec,
    episodes: int | None = None,
    risk: float = 0.05,
    seed: int = 0,
    horizon: int | None = None,
    **options: Any,
) -> Learner:
    """A learner for a new task.

    Args:
        method: one of `METHODS`, for networks also of `CONTROL_METHODS`, or the row of one's own.
        episodes: how many will be run; methods whose proof needs it in advance say so.
        risk: probability with which any deployed policy may ever break a budget.
        seed: of the component drawn in each episode.
        horizon: steps of an episode that does not end by itself, for the bias of cut-off sums and for what an
            abandoned episode may have held; by default that of the task, or as many as make the discounted tail
            negligible (`Units.episode_length`).
        options: further constants of the method.
    """
    spec = spec_of(method)
    calibration = _as_calibration(options.pop("calibration", None))
    terms = MethodArgs(
        spec.name,
        None if episodes is None else check_int("episodes", episodes),
        check_unit_interval("risk", risk),
        policies.units.steps(horizon),
    )
    seed = int(seed) if isinstance(seed, np.integer) else seed
    settings = {
        "method": spec.name,
        "episodes": terms.episodes,
        "risk": terms.risk,
        "seed": seed,
        "horizon": terms.horizon,
        **options,
    }
    classes = spec.state
    if calibration is None:
        made = spec.method(policies, terms, options)
    else:
        settings["calibration"] = calibration.plain()
        made, classes = _method_at_setting(spec, policies, terms, options, calibration), (*classes, CalibratedState)
    return Learner(made, seed=seed, horizon=terms.horizon, settings=settings, state_classes=classes)


def _method_at_setting(
    spec: MethodSpec, policies: PolicyValueSet, terms: MethodArgs, options: Mapping[str, Any], found: Calibration
) -> CalibratedMethod:
    """A method at the setting that was found for it, and for nothing else; certified unless that is only claimed."""
    if found.level is None:
        raise InvalidInput("calibration must have passed at some level, got one that passed at none; leave it out")
    if terms.risk < found.risk:
        raise InvalidInput(f"risk must be at least the {found.risk:g} of the calibration, got {terms.risk:g}")
    check_options(options)
    options = drop_withdrawn({**found.options, **options})
    asked = {**DEFAULTS, **options, "method": spec.name, "horizon": terms.horizon, "digest": policies.digest()}
    had = {"method": found.method, "horizon": found.horizon, "digest": found.digest}
    had = {**DEFAULTS, **drop_withdrawn(found.options), **had}
    for name, value in asked.items():
        if value != had.get(name):
            raise InvalidInput(f"calibration must be for {name} {value!r}, got one for {had.get(name)!r}")
    terms = replace(terms, risk=found.risk, episodes=terms.episodes or found.episodes)
    made = as_method(spec.method(policies, terms, {**options, **options_at(found.level)}))
    certified = found.standing != "claimed"
    note = f"{setting_in_words(found.level)}, calibrated for {found.episodes} episodes"
    note = note if certified else f"{note}; {CLAIMED}"
    successor = None
    if found.reserve:
        successor = as_method(spec.method(policies, replace(terms, risk=found.reserve), options))
    return CalibratedMethod(made, found, certified, f"{made.note}; {note}" if made.note else note, successor)


def adapt(
    policies: PolicyValueSet,
    task: Task,
    *,
    method: str | MethodSpec,
    episodes: int,
    risk: float = 0.05,
    seed: int,
    horizon: int | None = None,
    optimal_reward: float | None = None,
    observer: Observer | None = None,
    judged_on: int = JUDGED_EPISODES,
    **options: Any,
) -> Run:
    """Run a method on a simulated task; regret and margins in the record are exact where the task can be read, and
    otherwise estimated with an error.

    Args:
        method, horizon: as for `learner`.
        optimal_reward: V* of a task that cannot say so itself; without it the regret on such a task is unknown (NaN).
        observer: called with (episodes done, episodes in all), for progress bars.
        judged_on: where the task cannot be read, the most fresh episodes on which each deployed policy is judged; a
            quarter of them where that shows whether what was deployed keeps the budgets.
    """
    episodes = check_int("episodes", episodes)
    check_task("task", task)
    chosen = learner(policies, method=method, episodes=episodes, risk=risk, seed=seed, horizon=horizon, **options)
    return run_learner(
        chosen,
        task,
        episodes=episodes,
        seed=seed,
        optimal_reward=optimal_reward,
        observer=observer,
        judged_on=check_int("judged_on", judged_on),
    )


def plan(
    policies: PolicyValueSet,
    *,
    episodes: int,
    risk: float = 0.05,
    tasks: TaskDistribution | None = None,
    calibration: Calibration | None = None,
    method: MethodSpec | None = None,
    progress: Progress = silent,
) -> tuple[PlanLine, ...]:
    """How long each method that can tell stays on the safe policy, in a run of `episodes` episodes.

    The first line is about `certified`: which of the others it is, why, and what a stronger one would need to know.
    With a calibration the second is about its method at the setting that it allows.

    Args:
        tasks: the family that the set was trained on, to try methods on where the set alone can make no tasks.
        calibration: what `calibrate` returned or `read_calibration` read; one that is claimed certifies nothing.
        method: that it was made with, if it is one's own.
        progress: told (what is tried, how many runs are done, how many there are).
    """
    episodes = check_int("episodes", episodes)
    counted, calibrated = _as_calibration(calibration), list[PlanLine]()
    if counted is not None:
        spec = spec_of(method or counted.method)
        calibrated.append(_plan_at_setting(policies, counted, spec, episodes, risk, tasks, progress))
    lines = plan_methods(METHODS.values(), policies, episodes=episodes, risk=risk, tasks=tasks, show=progress)
    found = advice(policies)
    same = next(line for line in lines if line.method == found.method)
    certified = PlanLine("certified", same.certified, same.episodes, "; ".join(found.sentences))
    return (certified, *calibrated, *lines)


def _plan_at_setting(
    policies: PolicyValueSet,
    found: Calibration,
    spec: MethodSpec,
    episodes: int,
    risk: float,
    tasks: TaskDistribution | None,
    show: Progress,
) -> PlanLine:
    terms = MethodArgs(spec.name, episodes, check_unit_interval("risk", risk), policies.units.steps(found.horizon))
    made = _method_at_setting(spec, policies, terms, {}, found)
    return plan_calibration(made, policies, tasks=tasks, show=show)


def specs() -> tuple[MethodSpec, ...]:
    """The rows of all methods, those for networks last."""
    return tuple(_KNOWN.values())


def spec_of(method: str | MethodSpec) -> MethodSpec:
    """The row of a method by its name, or one's own."""
    if not isinstance(method, MethodSpec):
        if not isinstance(method, str) or method not in _KNOWN:
            raise InvalidInput(
                f"method must be one of {', '.join(_KNOWN)}, or a MethodSpec of your own, got {method!r}"
                + did_you_mean(method, _KNOWN)
            )
        return _KNOWN[method]
    if _KNOWN.get(method.name, method) is not method:
        raise InvalidInput(f"method must have a name of its own, got a MethodSpec named {method.name!r}")
    return method


def check_terms(method: str, given: Collection[str]) -> None:
    """Refuse terms that were given and mean nothing to the method: `risk` where no constant depends on it, `episodes`
    where nothing is planned for a number of them."""
    spec = spec_of(method)
    if "risk" in given and not spec.takes_risk:
        raise InvalidInput(f"risk must be left out for method {method!r}, which promises nothing and has no use for it")
    if "episodes" in given and not spec.needs_episodes:
        known = ", ".join(each.name for each in specs() if each.needs_episodes)
        raise InvalidInput(
            f"episodes must be left out for method {method!r}, which runs for as long as one likes; it is for {known}"
        )


def _as_calibration(given: Any) -> Calibration | None:
    """Plain data are only claimed, whatever they say of themselves."""
    if given is None or isinstance(given, Calibration):
        return given
    return replace(parse_calibration(given), standing="claimed")
