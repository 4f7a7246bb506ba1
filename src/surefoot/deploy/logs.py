"""Episodes that were logged elsewhere: a CSV or JSON-lines file, or outcomes in memory, as `Deployment.tell` takes it.

    episodes.csv      reward,cost,first_state        the discounted sums of one episode a line; cost_1, cost_2, … where
                      1.25,0.1,0                     there are several; further columns are not looked at
    episodes.jsonl    {"reward": 1.25, "cost": [0.1]}   what may be told of an episode, in any of its forms

The lines are in the order in which the episodes were run.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

from surefoot.bounded_json import parse
from surefoot.cmdp.episode import Outcomes
from surefoot.deploy.outcomes import FIELDS, LIMITS, Episode
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import read_file

Log: TypeAlias = str | PathLike[str] | Outcomes | Sequence[Episode]

LARGEST_LOG = 2**28  # bytes


def episodes_of(log: Log) -> list[Episode]:
    """The episodes of a file, of outcomes, or as they are."""
    if isinstance(log, Outcomes):
        return list(_of_outcomes(log))
    if isinstance(log, str | PathLike):
        return read_episodes(log)
    if not isinstance(log, Sequence) or not all(isinstance(each, Mapping) for each in log):
        raise InvalidInput(
            "history must be the path of a file, Outcomes, or a sequence of what Deployment.tell takes for each "
            f"episode, got {type(log).__name__}"
        )
    return [_checked(cast(Mapping[str, Any], each), f"episode {k}") for k, each in enumerate(log)]


def read_episodes(path: str | PathLike[str]) -> list[Episode]:
    """The episodes of a file, by its ending .csv or .jsonl."""
    file = Path(path)
    readers = {".csv": _csv_episodes, ".jsonl": _json_episodes}
    if file.suffix.lower() not in readers:
        raise InvalidInput(f"a log must be a file ending in {' or '.join(readers)}, got {str(file)!r}")
    content = read_file(file, LARGEST_LOG)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ArtifactError(f"{file}: must be text in UTF-8") from None
    found = list(readers[file.suffix.lower()](text, str(file)))
    if not found:
        raise ArtifactError(f"{file}: must hold at least one episode, found none")
    return found


def _csv_episodes(text: str, where: str) -> Iterator[Episode]:
    """One line each, below a line of names."""
    lines = csv.reader(io.StringIO(text))
    try:
        names = [name.strip() for name in next(lines, [])]
        costs = _cost_columns(names, where)
        for line in lines:
            if not line:
                continue
            place = f"{where}, line {lines.line_num}"
            if len(line) != len(names):
                raise ArtifactError(f"{place}: must have {len(names)} columns as its first line, found {len(line)}")
            row = dict(zip(names, line, strict=True))
            told: dict[str, Any] = {"cost": [_number(row[name], name, place) for name in costs]}
            if "reward" in row:
                told["reward"] = _number(row["reward"], "reward", place)
            if "first_state" in row:
                told["first_state"] = _state(row["first_state"], place)
            yield cast(Episode, told)
    except csv.Error as error:
        raise ArtifactError(f"{where}: must be comma-separated values ({error})") from None


def _cost_columns(names: Sequence[str], where: str) -> list[str]:
    """`cost`, or `cost_1`, `cost_2`, …"""
    for name in {"reward", "cost", "first_state", *(each for each in names if each.startswith("cost_"))}:
        if names.count(name) > 1:
            raise ArtifactError(f"{where}: must name column {name!r} once, found it {names.count(name)} times")
    several = [f"cost_{k + 1}" for k in range(sum(name.startswith("cost_") for name in names))]
    if "cost" in names and not several:
        return ["cost"]
    if "cost" not in names and several and set(several) <= set(names):
        return several
    raise ArtifactError(f"{where}: must have a column cost, or cost_1, cost_2, …, found {', '.join(names)[:200]!r}")


def _number(text: str, name: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ArtifactError(f"{place}: {name} must be a finite number, found {text[:40]!r}")
    return value


def _state(text: str, place: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArtifactError(f"{place}: first_state must be a whole number, found {text[:40]!r}") from None


def _json_episodes(text: str, where: str) -> Iterator[Episode]:
    """An object a line, as `Deployment.tell` takes it."""
    for k, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            told = parse(line.encode(), LIMITS)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{where}, line {k}: must hold JSON: {error}") from None
        if not isinstance(told, Mapping):
            raise ArtifactError(f"{where}, line {k}: must hold an object, found {type(told).__name__}")
        yield _checked(told, f"{where}, line {k}")


def _checked(told: Mapping[str, Any], place: str) -> Episode:
    unknown = sorted(map(str, told.keys() - (FIELDS - {"breach"})))
    if unknown:
        raise InvalidInput(
            f"{place}: an episode must hold what Deployment.tell takes ({', '.join(sorted(FIELDS - {'breach'}))}), "
            f"got {unknown[0]!r}"[:300]
        )
    return cast(Episode, dict(told))


def _of_outcomes(outcomes: Outcomes) -> Iterator[Episode]:
    for k in range(len(outcomes)):
        told: dict[str, Any] = {"reward": float(outcomes.reward[k]), "cost": outcomes.cost[k].tolist()}
        if outcomes.signals is not None:
            told["signals"] = outcomes.signals[k].tolist()
        elif outcomes.observed is not None:
            seen, steps = outcomes.observed, int(outcomes.observed.steps[k])
            told |= {
                "observations": seen.observations[k, : steps + 1].tolist(),
                "actions": seen.actions[k, :steps].tolist(),
            }
        elif outcomes.states is not None and outcomes.actions is not None:
            told["transitions"] = {"states": outcomes.states[k].tolist(), "actions": outcomes.actions[k].tolist()}
        elif outcomes.states is not None:
            told["first_state"] = int(outcomes.states[k, 0])
        yield cast(Episode, told)
