"""Whether the parts of a policy set, read from a file or about to be written to one, can belong together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import MAX_CELLS, Cells
from surefoot.errors import ArtifactError
from surefoot.policyset.contents import Contents
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

Bounded: TypeAlias = tuple[str, Floats, Floats]  # name, lower and upper [..., 1+m]; the same for a value


def check_fit(where: Path | str, policy_set: Contents) -> None:
    """Cells speak of the entries' parameters and the policies' tables, and all values are possible in the units."""
    if policy_set.cells is not None:
        _check_cells(where, policy_set, policy_set.cells)
    _check_values(where, policy_set)


def _check_cells(where: Path | str, policy_set: Contents, cells: Cells) -> None:
    if len(cells) > MAX_CELLS:
        raise ArtifactError(f"{where}: holds {len(cells)} cells, must hold at most {MAX_CELLS}")
    tables = [policy for policy in policy_set.policies if isinstance(policy, TabularPolicy | TimedPolicy)]
    pairs = [("low", cells.low.shape[1:], policy_set.entries[0].parameter.shape, "parameters of the entries")]
    if tables:  # all of the same states and actions
        table = tables[0].probabilities.shape[-2:]
        if cells.first_states is not None:
            last = int(cells.first_states[-1])
            if last >= table[0]:
                raise ArtifactError(f"{where}: first_states must be states of the policies, < {table[0]}, got {last}")
        elif cells.start_lower is not None:
            pairs.append(("start_lower", cells.start_lower.shape[3:], table[:1], "states of the policies"))
        if cells.model is not None:
            found = (cells.model.n_states, cells.model.n_actions)
            pairs.append(("model", found, table, "states and actions of the policies"))
    for name, found, expected, what in pairs:
        if found != expected:
            raise ArtifactError(f"{where}: {name} is for {list(found)} {what}, must be for {list(expected)}")


def _check_values(where: Path | str, policy_set: Contents) -> None:
    """No lower bound above, and no upper bound below, what rewards and costs in their ranges allow.

    Half of the check is left to tolerance: estimated values may miss the range, but hardly by as much as it reaches.
    Bounds may be as loose as they like.
    """
    least, most = policy_set.units.possible_values(ends=policy_set.may_end)
    room = np.maximum(np.abs(least), np.abs(most))
    for name, lower, upper in _bounded(policy_set):
        if (lower > most + room).any() or (upper < least - room).any():
            raise ArtifactError(
                f"{where}: {name} must be possible with rewards and costs in the ranges of units, that is lie between "
                f"{least.tolist()} and {most.tolist()} (reward, margins), got numbers from {upper.min():g} to "
                f"{lower.max():g}"
            )


def _bounded(policy_set: Contents) -> Iterator[Bounded]:
    entries, cells = policy_set.entries, policy_set.cells
    values = np.array([[entry.reward, *entry.margin] for entry in entries])
    yield "reward and margin of entries", values, values
    values = np.array([[entry.safe_reward, *entry.safe_margin] for entry in entries])
    yield "safe_reward and safe_margin of entries", values, values
    if cells is not None:
        yield "lower and upper", cells.lower, cells.upper
        if cells.start_lower is not None and cells.start_upper is not None:
            lower, upper = np.moveaxis(cells.start_lower, 2, 3), np.moveaxis(cells.start_upper, 2, 3)
            yield "start_lower and start_upper", lower, upper
