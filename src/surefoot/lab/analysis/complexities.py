"""Table 1 of the paper: steps that methods need on the test task for an ε-optimal policy, without constants and
logarithms, in the paper's unit scale. Orders of magnitude: what they leave out decides between rows that are close.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from surefoot import theory
from surefoot.arrays import check_int, check_unit_interval, number
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.table import Column, Table
from surefoot.tabular.policy import TabularPolicy


@dataclass(frozen=True)
class Problem:
    """Attributes:
    states, actions: |S| and |A|.
    xi, epsilon: margin of the safe policy and accuracy, in the paper's unit scale.
    cover: C, how many tasks cover the distribution.
    """

    states: int
    actions: int
    discount: float
    xi: float
    epsilon: float
    cover: int

    def __post_init__(self) -> None:
        for name in ("states", "actions", "cover"):
            check_int(name, getattr(self, name))
        check_unit_interval("discount", self.discount)
        for name in ("xi", "epsilon"):
            if not number(name, getattr(self, name)) > 0:
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class ComplexityRow:
    """One method: whether it learns from training tasks, its formula, and what that is."""

    method: str
    trained: bool
    formula: str
    samples: float


def sample_complexities(problem: Problem) -> tuple[ComplexityRow, ...]:
    """The rows of the table, in its order."""
    margins = problem.epsilon, problem.xi, problem.discount
    size = problem.states, problem.actions
    return (
        ComplexityRow("OptPess-LP", False, "ξ⁻² ε⁻² (1-γ)⁻⁷ |S|³ |A|", theory.optpess_lp_complexity(*size, *margins)),
        ComplexityRow("DOPE", False, "ξ⁻² ε⁻² (1-γ)⁻⁷ |S|² |A|", theory.dope_complexity(*size, *margins)),
        ComplexityRow("DOPE+", False, "ξ⁻² ε⁻² (1-γ)⁻⁶ |S|² |A|", theory.dope_plus_complexity(*size, *margins)),
        ComplexityRow("LB-SGD", False, "(1-γ)⁻²² min{ξ, ε}⁻⁶", theory.lb_sgd_complexity(*margins)),
        ComplexityRow("this method", True, "ξ⁻² ε⁻² (1-γ)⁻⁵ C", theory.sample_complexity(problem.cover, *margins)),
    )


def complexity_table(rows: Sequence[ComplexityRow]) -> Table:
    """Table 1 of the paper; ours last, and how many times as many steps the others take."""
    ours = rows[-1].samples
    return Table.of(
        map(asdict, rows),
        Column("method", "method"),
        Column("trained", lambda row: "yes" if row["trained"] else "no"),
        Column("without constants", "formula"),
        Column("steps", "samples", ".3g"),
        Column("times ours", lambda row: row["samples"] / ours, ".3g"),
    )


def largest_useful_cover(problem: Problem) -> float:
    """C below which training beats learning from scratch, by this table: what the best of the others takes, divided by
    what this method takes for each of C."""
    *others, ours = sample_complexities(problem)
    return min(row.samples for row in others) * problem.cover / ours.samples


def problem(policies: PolicyValueSet | None, given: Mapping[str, Any]) -> Problem:
    """That of a policy set that was trained on tables, with what is given in place of its own; or all of it given."""
    known = {} if policies is None else _of_set(policies)
    numbers = {**known, **given}
    missing = [field.name for field in fields(Problem) if field.name not in numbers]
    if missing:
        raise InvalidInput(f"{', '.join(missing)} must be given where no policy set says it, got nothing")
    return Problem(**numbers)


def _of_set(policies: PolicyValueSet) -> dict[str, Any]:
    known = {"discount": policies.units.discount, "xi": policies.xi, "epsilon": policies.epsilon}
    known |= {"cover": len(policies.entries)} if policies.epsilon is not None else {}
    if isinstance(policies.safe_policy, TabularPolicy):
        known["states"], known["actions"] = policies.safe_policy.probabilities.shape
    return {name: value for name, value in known.items() if value is not None}
