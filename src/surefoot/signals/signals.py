"""Signals: bounded functions of an observed episode, fixed before deployment (docs/guarantees.md, Theorem 7).

A signal reads an episode of policy p by features f, standardised and clipped, a linear map y = w·f + b fitted in
simulation, and a window: (y - low)/(high - low), clipped to [0, 1]. Narrow windows matter: of a quantity that is known
to lie in [0, 1] nothing more can be concluded than its mean allows, and what is spread over a tenth of its range hardly
has one. What a signal is costs power or brings it. That it is computed here and in no other way, in simulation as
in deployment, is what safety rests on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, assign, assign_as_shape, check_indices, raise_at
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.errors import InvalidInput
from surefoot.signals.features import moments, payments, transitions

# f(observations [H+1, ...], actions [H, ...]) of one episode -> [F]
OwnFunction: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], Any]

Kind: TypeAlias = Literal["moments", "transitions", "own"]

# A feature beyond so many of its spreads counts as that far off.
FURTHEST = 5.0
# Own features must be recognised to so many digits: other processors round differently.
RECOGNISED = 1e-9


@dataclass(frozen=True, eq=False)
class OwnFeatures:
    """Features of one's own. The code stays with its owner; it is recognised by its values at stored episodes.

    Attributes:
        name: for messages.
        probes: a few episodes, and values [n, F] there.
        function: None if it is not here: signals can then be told, not computed.
    """

    name: str
    probes: Observed
    values: Floats
    function: OwnFunction | None = None

    def __call__(self, observed: Observed, /) -> Floats:
        if self.function is None:
            raise InvalidInput(
                f"features {self.name!r} must be here for signals to be computed: load the policy set with "
                "features=..., or tell signals"
            )
        alike = Observed(
            _as_probed("observations", observed.observations, self.probes.observations),
            _as_probed("actions", observed.actions, self.probes.actions),
            observed.steps,
        )
        return own_values(self.function, self.name, alike)

    def found(self, function: OwnFunction) -> OwnFeatures:
        """The same with its function, if it is that one."""
        values = own_values(function, self.name, self.probes)
        near = values.shape == self.values.shape and bool(
            (np.abs(values - self.values) <= RECOGNISED * np.maximum(1.0, np.abs(self.values))).all()
        )
        if not near:
            raise InvalidInput(
                f"features must be those that the policy set was made with, {self.name!r}, got a function with other "
                "values at the stored episodes"
            )
        return replace(self, function=function)


@dataclass(frozen=True, eq=False)
class Signals:
    """q signals of an episode of each of P policies.

    Attributes:
        kind: of features: moments of observations and actions, counts of transitions, or one's own.
        centre, scale: [P, F] of features.
        weights, offset: [P, R, F] and [P, R] of R linear maps.
        source: [q] the map that a signal looks at; low, high: [q] its window.
        steps: of an episode; an episode cut off earlier has other signals.
        keys: [·, 3] transitions that are counted; None for other kinds.
        own: features of one's own; None for other kinds.
        paid: whether the last 1+m features are what the steps paid.
    """

    kind: Kind
    centre: Floats
    scale: Floats
    weights: Floats
    offset: Floats
    source: Integers
    low: Floats
    high: Floats
    steps: int
    keys: Integers | None = None
    own: OwnFeatures | None = None
    paid: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(f"kind of signals must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        sizes: dict[str, int] = {}
        for name, axes in (("centre", "P F"), ("scale", "P F"), ("weights", "P R F"), ("offset", "P R")):
            assign_as_shape(self, name, axes, sizes)
        assign_as_shape(self, "source", "q", sizes, np.int64)
        for name in ("low", "high"):
            assign_as_shape(self, name, "q", sizes)
        check_indices("source", self.source, sizes["R"])
        raise_at("scale", self.scale, self.scale <= 0, "must be positive")
        raise_at("high", self.high, self.high <= self.low, "must exceed low")
        if (self.keys is None) == (self.kind == "transitions") or (self.own is None) == (self.kind == "own"):
            raise InvalidInput(f"signals of kind {self.kind} must come with what they count or call, and no others")
        if self.keys is not None:
            assign_as_shape(self, "keys", "counted three" if self.paid else "F three", sizes, np.int64)
        assign(self, steps=int(self.steps))

    def __len__(self) -> int:
        return len(self.source)

    def of(self, policy: int, observed: Observed) -> Floats:
        """[n, q] of n episodes of one policy."""
        return self.transform(policy, self.features(observed))

    def transform(self, policy: int, features: Floats) -> Floats:
        """[n, q] of features [n, F]."""
        features = np.clip((features - self.centre[policy]) / self.scale[policy], -FURTHEST, FURTHEST)
        # Not a matrix product: its rounding depends on the number of rows.
        mapped = (features[:, None, :] * self.weights[policy]).sum(axis=-1) + self.offset[policy]  # [n, R]
        windowed: Floats = np.clip((mapped[:, self.source] - self.low) / (self.high - self.low), 0.0, 1.0)
        if np.isnan(windowed).any():
            raise InvalidInput("observations must be of a size that signals can be computed from, got some too large")
        return windowed

    def of_outcomes(self, drawn: Integers, outcomes: Outcomes) -> Floats:
        """[n, q] of outcomes of the policies drawn [n]: as they were told, or computed."""
        if outcomes.signals is not None:
            if outcomes.signals.shape[1:] != (len(self),):
                raise InvalidInput(f"signals must be {len(self)} numbers, got shape {list(outcomes.signals.shape[1:])}")
            return outcomes.signals
        observed, found = outcomes.watched(), np.empty((len(outcomes), len(self)))
        for policy in np.unique(drawn):
            rows = np.flatnonzero(drawn == policy)
            found[rows] = self.of(int(policy), observed[rows])
        return found

    def features(self, observed: Observed) -> Floats:
        """[n, F]"""
        found = features_of(observed, self.keys, self.own, self.paid)
        if found.shape[1] != self.centre.shape[1]:
            raise InvalidInput(
                f"observations and actions must be as those of the training tasks, with {self.centre.shape[1]} "
                f"features, got {found.shape[1]} from shapes {list(observed.observations.shape[2:])} and "
                f"{list(observed.actions.shape[2:])}"
            )
        return found


def _as_probed(name: str, rows: NDArray[Any], probed: NDArray[Any]) -> NDArray[Any]:
    """[n, H, ...] in the type of the stored episodes, in which the function was shown what it was fitted on."""
    if rows.shape[2:] != probed.shape[2:]:
        raise InvalidInput(
            f"{name} must have the shape of those in the training tasks at every step, {list(probed.shape[2:])}, "
            f"got {list(rows.shape[2:])}"
        )
    if rows.dtype == probed.dtype:
        return rows
    same = rows.astype(probed.dtype)
    if same.dtype.kind != "f":
        raise_at(name, rows, same != rows, f"must be of type {same.dtype} as in the training tasks")
    return same


def features_of(observed: Observed, keys: Integers | None, own: OwnFeatures | None, paid: bool) -> Floats:
    """[n, F] counts of the transitions `keys`, features of one's own, or moments; and what the steps paid."""
    if paid:
        return np.concatenate([features_of(observed, keys, own, False), payments(observed)], axis=1)
    if keys is not None:
        return transitions(observed, keys)
    return moments(observed) if own is None else own(observed)


def own_values(function: OwnFunction, name: str, observed: Observed) -> Floats:
    """[n, F] of features of one's own, one episode after the other."""
    rows: list[Floats] = []
    for seen, acted, steps in zip(observed.observations, observed.actions, observed.steps.tolist(), strict=True):
        row = np.asarray(function(seen[: steps + 1], acted[:steps]), dtype=np.float64)
        if row.ndim != 1 or not row.size or not np.isfinite(row).all() or (rows and row.shape != rows[0].shape):
            raise InvalidInput(
                f"features {name!r} must return finite numbers [F], as many each time, got {row!r}"[:300]
            )
        rows.append(row)
    return np.stack(rows)


def bins(edges: Floats, numbers: Floats) -> Integers:
    """[n, k] which of the L bins between edges [k, L-1] each of the numbers [n, k] is in."""
    columns = [np.searchsorted(own, column, side="right") for own, column in zip(edges, numbers.T, strict=True)]
    return np.stack(columns, axis=1)
