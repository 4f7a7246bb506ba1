"""One network for all tasks, trained with domain randomisation (Tobin et al., IROS 2017), never adapted: what one has
after the steps of meta-training if the safe policy is trained for longer instead. *Uncertified*: it is trained to keep
the budget on some tasks, and not tested on others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.lab.baselines.rollout_buffer import first_network
from surefoot.learning.method import SAFE, Certificate, Method, Mixture, Step
from surefoot.learning.spec import MethodArgs, MethodSpec, PlanLine
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class FixedNetwork(Method):
    """`network` is deployed for ever."""

    name: str
    policies: PolicyValueSet
    network: Policy

    def start(self) -> None:
        return None

    def mixture(self, state: None) -> Mixture:
        return Mixture(np.array([1]), np.array([1.0]))

    def policy(self, state: None, index: int) -> Policy:
        return self.policies.safe_policy if index == SAFE else self.network

    def update(self, state: None, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return Step(None, len(outcomes))

    def abandon(self, state: None, episode: int, drawn: int) -> Step:
        return Step(None, 1)

    def certificate(self, state: None) -> Certificate:
        return Certificate(0, 0, None)


def _make(policies: PolicyValueSet, terms: MethodArgs, start: Any = None) -> FixedNetwork:
    return FixedNetwork(terms.name, policies, first_network(policies, start))


def _plan(policies: PolicyValueSet, terms: MethodArgs) -> PlanLine:
    return PlanLine(terms.name, False, math.inf, "never adapts, and never runs the safe policy")


# For the experiment on robots, which trains such networks.
DOMAIN_RANDOMISED = MethodSpec(
    "domain-randomised",
    _make,
    certified=False,
    why="trained to keep the budget on some tasks, and not tested on others",
    needs="networks",
    costs="nothing: it never adapts",
    options=("start",),
    takes_risk=False,
    plan=_plan,
)
