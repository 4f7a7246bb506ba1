"""Optuna's ask and tell over the policies of a set: a sampler that proposes what is certified, and nothing else.

    sampler = CertifiedSampler(sf.learner(policies, method="certified", episodes=90, risk=0.05))
    study = optuna.create_study(sampler=sampler, direction="maximize")
    trial = study.ask()
    speed = trial.suggest_float("speed", 40, 140)       # or suggest_categorical("policy", sampler.names)
    reward, cost = run_one_episode(speed)
    trial.set_constraint("cost", cost - budget)
    study.tell(trial, reward)

A trial is one episode. All that is known is in the study: a sampler made as before goes on where the finished trials of
a stored study end. Optuna's extra: `pip install 'surefoot[optuna]'`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, Unpack, cast

try:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState, create_trial
except ModuleNotFoundError as absent:
    raise ModuleNotFoundError(f"{absent}; install Optuna with pip install 'surefoot[optuna]'") from None

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.deploy import outcomes
from surefoot.deploy.outcomes import LONGEST_REASON, Episode
from surefoot.deploy.session import Deployment
from surefoot.errors import InvalidInput, did_you_mean
from surefoot.learning.checks import check_observed
from surefoot.learning.learner import Learner, Order

__all__ = ["CertifiedSampler"]

ORDER = "surefoot:order"  # of a trial, kept by Optuna: [episode, policy index]
OBSERVED = "observed"  # user attribute: what `Deployment.tell` takes beside sums
POLICY = "policy"  # the parameter that names a policy

log = logging.getLogger(__name__)


class CertifiedSampler(BaseSampler):
    """Every trial runs a policy that the learner orders: drawn from the mixture that is certified at that time.

    A trial that failed or was pruned is an abandoned episode: every conclusion takes the outcome that is worst for it.
    Episodes come one after the other, so a trial must be told before the next one is asked for.
    """

    def __init__(
        self,
        learner: Learner | Deployment,
        *,
        settings: Mapping[str, Mapping[str, float]] | None = None,
        constraints: Sequence[str] = ("cost",),
    ) -> None:
        """Args:
        learner: fresh, made with the same arguments whenever the study is resumed; or a deployment, whose journal then
            has every order and outcome as well.
        settings: the parameters of every policy by its name, for `suggest_float` and its relatives; by default the
            numbers that are fields of the policies, where these are dataclasses.
        constraints: by which names `set_constraint` is told the cost minus the budget, in the order of the budgets.
        """
        if isinstance(learner, Learner) and learner.state.episode:
            raise InvalidInput(f"learner must be fresh, got one that was told {learner.state.episode} episodes")
        self._orders: _Orders = learner if isinstance(learner, Deployment) else _InMemory(learner)
        method = self._orders.learner.method
        if len(constraints) != len(method.units.budget):
            raise InvalidInput(f"constraints must name {len(method.units.budget)} constraint(s), got {constraints!r}")
        if method.policies is None:
            raise InvalidInput(f"learner must choose from a policy set, got {method.name}, which has none")
        policies = method.policies.policies
        self.names: tuple[str | int, ...] = method.policies.names or tuple(range(len(policies)))
        rows = _rows(self.names, policies, settings)
        self._rows = [{POLICY: name, **row} for name, row in zip(self.names, rows, strict=True)]
        self._constraints = tuple(constraints)
        self._study: str | None = None

    def learner(self, study: Study) -> Learner:
        """The learner, told of every trial that has ended."""
        self._check_study(study)
        trials = _ordered_trials(study)
        while (trial := trials.get(self._orders.learner.state.episode)) is not None and trial.state.is_finished():
            self._tell(trial)
        return self._orders.learner

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Order a policy for the trial; one that gets none has failed, and counts for nothing."""
        try:
            order = self._order(study, trial)
        except Exception:
            study.tell(trial.number, state=TrialState.FAIL)
            raise
        study._storage.set_trial_system_attr(trial._trial_id, ORDER, [order.episode, order.policy_index])

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: each parameter is answered when it is asked for."""
        return {}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, Any]) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value that a parameter has in the policy that was ordered."""
        _, index = trial.system_attrs[ORDER]
        for row in self._rows:
            _check_distribution(row, param_name, param_distribution)
        return self._row(index)[param_name]

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Refuse an outcome that cannot be used. Optuna keeps the trial all the same: as an abandoned episode."""
        if state == TrialState.COMPLETE and values is not None and ORDER in trial.system_attrs:
            self._episode(trial, values[0])

    def _order(self, study: Study, trial: FrozenTrial) -> Order:
        if fixed := trial.system_attrs.get("fixed_params"):
            raise InvalidInput(
                f"trial {trial.number} must leave its parameters to the sampler, got {fixed} from enqueue_trial: "
                "nobody has certified them"
            )
        learner = self.learner(study)
        running = _ordered_trials(study).get(learner.state.episode)
        if running is not None:
            raise InvalidInput(
                f"trial {running.number} must be told before the next one is asked for, got none; if it is lost, "
                f"study.tell({running.number}, state=optuna.trial.TrialState.FAIL) counts it as abandoned"
            )
        return self._orders.ask()

    def _check_study(self, study: Study) -> None:
        if study.directions != [StudyDirection.MAXIMIZE]:
            got = [direction.name.lower() for direction in study.directions]
            raise InvalidInput(f"study must be created with direction='maximize', what is told is a reward, got {got}")
        if self._study not in (None, study.study_name):
            raise InvalidInput(f"sampler belongs to the study {self._study!r}, got {study.study_name!r}: make another")
        self._study = study.study_name

    def _tell(self, trial: FrozenTrial) -> None:
        """Take note of a trial that has ended."""
        order = self._orders.ask()
        if [order.episode, order.policy_index] != trial.system_attrs[ORDER]:
            raise InvalidInput(
                f"learner must be made as it was for the study, whose trial {trial.number} has the order "
                f"{trial.system_attrs[ORDER]} (episode, policy), got one that orders "
                f"{[order.episode, order.policy_index]}"
            )
        reason = f"trial {trial.number} ended as {trial.state.name}"
        if trial.state == TrialState.COMPLETE:
            try:
                self._orders.tell(order, **self._episode(trial, trial.values[0]))
                return
            except InvalidInput as error:
                reason = f"trial {trial.number} has no outcome that can be used: {error}"[:LONGEST_REASON]
        log.warning("episode %d counts as abandoned: %s", order.episode, reason)
        self._orders.abandon(order, reason)

    def _episode(self, trial: FrozenTrial, reward: float) -> Episode:
        """What a finished trial tells of its episode, checked against all that the method needs."""
        learner, (_, index) = self._orders.learner, trial.system_attrs[ORDER]
        self._check_parameters(trial, index)
        told: dict[str, Any] = dict(trial.user_attrs.get(OBSERVED, {}))
        if "rewards" not in told:
            told |= {"reward": reward, "cost": self._cost(trial)}
        units, method = learner.method.units, learner.method
        plain = outcomes.record(cast(Episode, told), len(units.budget), learner.horizon)
        outcome = outcomes.outcome_of(outcomes.with_signals(plain, method, index), units.discount)
        check_observed(Outcomes.single(outcome), method, learner.horizon)
        if outcomes.breach(plain, units):  # Optuna has it for good, so it is no slip that is told again
            told["breach"] = True
        return cast(Episode, told)

    def _cost(self, trial: FrozenTrial) -> list[float]:
        missing = [name for name in self._constraints if name not in trial.constraints]
        if missing:
            raise InvalidInput(
                f"trial {trial.number} must be told set_constraint({missing[0]!r}, cost - budget) before it is told "
                f"its value, got constraints {sorted(trial.constraints)}"
            )
        budget = self._orders.learner.method.units.budget
        return [trial.constraints[name] + float(most) for name, most in zip(self._constraints, budget, strict=True)]

    def _check_parameters(self, trial: FrozenTrial, index: int) -> None:
        """What was suggested leaves no doubt that the policy that was ordered was run."""
        row = self._row(index)
        alike = [each for each in self._rows if all(each.get(name) == told for name, told in trial.params.items())]
        if alike != [row]:
            raise InvalidInput(
                f"trial {trial.number} must run {row}: suggest {POLICY!r}, or parameters that tell the policies apart, "
                f"got {trial.params}"
            )

    def _row(self, index: int) -> dict[str, Any]:
        if index >= len(self._rows):
            raise InvalidInput("learner must choose from the policies of its set, got one that plans others on the way")
        return self._rows[index]


class _Orders(Protocol):
    """What a sampler needs of a deployment."""

    @property
    def learner(self) -> Learner: ...
    def ask(self) -> Order: ...
    def tell(self, order: Order, **episode: Unpack[Episode]) -> None: ...
    def abandon(self, order: Order, reason: str) -> None: ...


class _InMemory:
    """A learner as a deployment without a journal."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def ask(self) -> Order:
        return self.learner.ask()

    def tell(self, order: Order, **episode: Unpack[Episode]) -> None:
        method = self.learner.method
        plain = outcomes.record(episode, len(method.units.budget), self.learner.horizon)
        if episode.get("breach"):
            self.learner.distrust(order, outcomes.breach(plain, method.units) or "observed beyond a declared range")
        else:
            plain = outcomes.with_signals(plain, method, order.policy_index)
            self.learner.tell(order, outcomes.outcome_of(plain, method.units.discount))

    def abandon(self, order: Order, reason: str) -> None:
        self.learner.abandon(order)


def _ordered_trials(study: Study) -> dict[int, FrozenTrial]:
    """By episode; should two processes have asked at once, the first counts."""
    trials = reversed(study.get_trials(deepcopy=False))
    return {trial.system_attrs[ORDER][0]: trial for trial in trials if ORDER in trial.system_attrs}


def _rows(
    names: Sequence[Any], policies: Sequence[Any], settings: Mapping[str, Mapping[str, float]] | None
) -> list[dict[str, float]]:
    """The parameters of every policy; the same ones of all."""
    if settings is None:
        found = [_numeric_fields(policy) for policy in policies]
        shared = set.intersection(*(set(row) for row in found))
        return [{name: value for name, value in row.items() if name in shared} for row in found]
    if set(settings) != set(names):
        raise InvalidInput(f"settings must be of the policies {list(names)}, got {list(settings)}")
    rows = [dict(settings[name]) for name in names]
    for name, row in zip(names, rows, strict=True):
        if set(row) != set(rows[0]) or POLICY in row:
            raise InvalidInput(f"settings[{name!r}] must hold {sorted(set(rows[0]) - {POLICY})}, got {sorted(row)}")
    return rows


def _numeric_fields(policy: Any) -> dict[str, Any]:
    """Of a policy that is a dataclass, or of the controller that it stands for."""
    if isinstance(policy, ExternalPolicy):
        policy = policy.controller and policy.controller.function
    if not is_dataclass(policy) or isinstance(policy, type):
        return {}
    found = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _check_distribution(row: Mapping[str, Any], name: str, distribution: BaseDistribution) -> None:
    """Every policy must be within what was suggested: which one is ordered is known to nobody beforehand."""
    if name not in row:
        raise InvalidInput(f"{name!r} must be one of {list(row)}, which the policies have{did_you_mean(name, row)}")
    try:
        create_trial(value=0.0, params={name: row[name]}, distributions={name: distribution})
    except ValueError:
        raise InvalidInput(
            f"{name} must be suggested with all values that policies have, {row[name]!r} of {row[POLICY]!r} among "
            f"them, got {distribution}"
        ) from None
