"""What DOPE, DOPE+ and OptPess-LP learn of the transitions: counts, estimates and confidence widths.

n(s, a) counts visits, P̂(s'|s, a) = n(s, a, s')/n(s, a). All arrays over successors are [S, A, D], the possible
successors of each row padded to the widest one; L is a logarithmic term, H a horizon, K a number of episodes, δ a risk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, check_indices
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.known import base_states

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Support:
    """Which transitions are possible at all, known in advance.

    Attributes:
        successors: [S, A, D] state of each slot; 0 where a row has fewer than D successors.
        possible: [S, A, D] False at those padded slots.
        slot: [S·A·S] place of a transition in the flattened [S, A, D]; -1 if it is impossible.
        layers: number of layers whose copies of a state are pooled; None for a task that has none.
        ending: [S] states at which an episode counts as ended, with one visit to each of their actions; None for none.
    """

    successors: Integers
    possible: NDArray[np.bool_]
    slot: Integers
    layers: int | None
    ending: NDArray[np.bool_] | None = None

    def count(self, states: Integers, actions: Integers) -> Counts:
        """[S, A, D] transitions in episodes with states [n, T+1] and actions [n, T]."""
        here, action, there, _ = self._steps(states, actions)
        size, width = self.successors.shape[:2]
        found = np.bincount((here * width + action) * size + there, minlength=self.slot.size)
        strange = np.flatnonzero((found > 0) & (self.slot < 0))
        if strange.size:
            row, successor = divmod(int(strange[0]), size)
            raise InvalidInput(
                f"states must follow the possible transitions of the policy set, got one from state {row // width} "
                f"under action {row % width} to state {successor}"
            )
        counts = np.zeros(self.possible.size, dtype=np.int64)
        known = self.slot >= 0
        counts[self.slot[known]] = found[known]
        return counts.reshape(self.possible.shape)

    def visits_by_episode(self, states: Integers, actions: Integers) -> Counts:
        """[n, S, A] visits in each episode, as `count` has them in all."""
        here, action, _, episode = self._steps(states, actions)
        size, width = self.successors.shape[:2]
        index = (episode * size + here) * width + action
        return np.bincount(index, minlength=len(states) * size * width).reshape(len(states), size, width)

    def _steps(self, states: Integers, actions: Integers) -> tuple[Counts, Counts, Counts, Counts]:
        """(state, action, next state, episode) of all steps; the last layer's lead to the end, which is known."""
        size, width = self.successors.shape[:2]
        total = size if self.layers is None else size * self.layers + 1
        for name, values, limit in (("states", states, total), ("actions", actions, width)):
            check_indices(name, values, limit)
        here, there = states[:, :-1].astype(np.int64).ravel(), states[:, 1:].astype(np.int64).ravel()
        action = actions.astype(np.int64).ravel()
        episode = np.repeat(np.arange(len(states)), actions.shape[1])
        if self.layers is not None:
            inner = here < size * (self.layers - 1)
            here, action, there, episode = here[inner] % size, action[inner], there[inner] % size, episode[inner]
        if self.ending is not None:
            final = states[:, -1]
            ended = np.repeat(np.flatnonzero(self.ending[final]), width)
            last, each = final[ended].astype(np.int64), np.tile(np.arange(width), len(ended) // width)
            inner = ~self.ending[here]
            here, there = np.append(here[inner], last), np.append(there[inner], last)
            action, episode = np.append(action[inner], each), np.append(episode[inner], ended)
        return here, action, there, episode


def known_support(classes: Integers, layers: int | None = None, ends: bool = False) -> Support:
    """The support of a family from `KnownModel.classes` [S, A, S].

    Args:
        layers: state h·S + s is state s in layer h and the last state ends every episode; the support is the one
            between the first two layers (`known.check_layers` refuses tasks whose others differ).
        ends: an episode counts as ended in a state that cannot be left.
    """
    if layers is not None:
        size = base_states(len(classes), layers)
        classes = classes[:size, :, size : 2 * size]
    states, actions, _ = classes.shape
    row, successor = np.nonzero(classes.reshape(states * actions, states) >= 0)
    each = np.bincount(row, minlength=states * actions)
    if not each.all():
        raise InvalidInput(f"classes must leave every row a successor, got none in row {int(np.argmin(each))}")
    place = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    shape = (states * actions, int(each.max()))
    successors, possible = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    successors[row, place], possible[row, place] = successor, True
    slot = np.full(states * actions * states, -1, dtype=np.int64)
    slot[row * states + successor] = row * shape[1] + place
    elsewhere = successor != row // actions
    ending = np.bincount(row[elsewhere] // actions, minlength=states) == 0
    whole = (states, actions, shape[1])
    return Support(successors.reshape(whole), possible.reshape(whole), slot, layers, ending if ends else None)


# ---------------------------------------------------------------------------------------------------------- formulas


def estimate(counts: Counts, possible: NDArray[np.bool_]) -> Floats:
    """P̂ [S, A, D]; uniform over the support where n(s, a) = 0."""
    visits = counts.sum(axis=2, keepdims=True)
    uniform = possible / possible.sum(axis=2, keepdims=True)
    found: Floats = np.where(visits > 0, counts / np.maximum(visits, 1), uniform)
    return found


def bernstein_widths(probability: Floats, visits: Counts, log_term: float) -> Floats:
    """DOPE's empirical Bernstein width β(s, a, s') [S, A, D] = 2 √(L P̂(1-P̂)/(n∨1)) + 14 L/(3 (n∨1))."""
    n = np.maximum(visits, 1)[:, :, None]
    widths: Floats = 2 * np.sqrt(log_term * probability * (1 - probability) / n) + 14 * log_term / (3 * n)
    return widths


def script_widths(probability: Floats, visits: Counts, log_term: float) -> Floats:
    """[S, A, D] min{√(L P̂(1-P̂)/(n∨1)) + L/(n∨1), L/√(n∨1)}, the width in the inventory script of DOPE's authors."""
    n = np.maximum(visits, 1)[:, :, None]
    spread = np.sqrt(log_term * probability * (1 - probability) / n) + log_term / n
    widths: Floats = np.minimum(spread, log_term / np.sqrt(n))
    return widths


def script_total_width(widths: Floats, visits: Counts, possible: NDArray[np.bool_], log_term: float) -> Floats:
    """β̄(s, a) [S, A] of the factored script of DOPE's authors: over all S states, each impossible one 14 L/(3 (n∨1)).

    `widths` are those of `bernstein_widths`, which the script does not cut at 1.
    """
    impossible = len(visits) - possible.sum(axis=2)
    total: Floats = (widths * possible).sum(axis=2) + impossible * 14 * log_term / (3 * np.maximum(visits, 1))
    return total


def dope_plus_widths(probability: Floats, visits: Counts, log_term: float) -> Floats:
    """DOPE+'s ε(s'|s, a) [S, A, D] = 2 √(P̂ L/((n-1)∨1)) + 14 L/(3 ((n-1)∨1)) (reconstructed)."""
    n = np.maximum(visits - 1, 1)[:, :, None]
    widths: Floats = 2 * np.sqrt(log_term * probability / n) + 14 * log_term / (3 * n)
    return widths


def within_reach(widths: Floats, visits: Counts, possible: NDArray[np.bool_]) -> Floats:
    """Widths [S, A, D] of a difference of probabilities: at most 1, 1 where nothing was seen, 0 off the support."""
    seen = np.where(visits[:, :, None] > 0, np.minimum(widths, 1.0), 1.0)
    within: Floats = seen * possible
    return within


def dope_plus_bonus(
    visits: Counts, log_term: float, states: int, actions: int, horizon: float, episodes: int, last_term: bool = True
) -> Floats:
    """DOPE+'s bonus β⁺(s, a) [S, A] (reconstructed).

    ε̄ = √(4 S L/((n-1)∨1)) + 14 S L/(3 ((n-1)∨1)),
    β⁺ = 8 √H ε̄ + 2 L √(K H/A)/((n-1)∨1) + 4 S √(A H/K); `last_term` False leaves the last one out.
    """
    n = np.maximum(visits - 1, 1)
    width = np.sqrt(4 * states * log_term / n) + 14 * states * log_term / (3 * n)
    bonus: Floats = 8 * math.sqrt(horizon) * width + 2 * log_term * math.sqrt(episodes * horizon / actions) / n
    return bonus + (4 * states * math.sqrt(actions * horizon / episodes) if last_term else 0.0)


def hoeffding_width(visits: Counts, log_term: float) -> Floats:
    """OptPess-LP's β(s, a) = √(L/(n∨1)) [S, A]."""
    width: Floats = np.sqrt(log_term / np.maximum(visits, 1))
    return width


def warm_up_episodes(states: int, actions: int, horizon: float, margin: float) -> int:
    """K₀ = ⌈S²A H³/(C̄-C̄_b)²⌉ episodes of the safe policy, `margin` = C̄-C̄_b in units of one step's cost."""
    return math.ceil(states**2 * actions * horizon**3 / margin**2)
