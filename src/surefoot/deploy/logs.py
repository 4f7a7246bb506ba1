"""Episodes that were logged elsewhere: a CSV or JSON-lines file, or outcomes in memory, as `Deployment.tell` takes it.

    episodes.csv      reward,cost,first_state        the discounted sums of one episode a line; cost_1, cost_2, … where
                      1.25,0.1,0                     there are several; further columns are not looked at
    episodes.jsonl    {"reward": 1.25, "cost": [0.1]}   what may be told of an episode, in any of its forms
    pump-7.journal    those in which one policy was ordered

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
from surefoot.deploy.chain import raise_as_damaged, read
from surefoot.deploy.forms import check_payload
from surefoot.deploy.outcomes import FIELDS, LIMITS, Episode, told_in
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import read_file
from surefoot.learning.method import SAFE

Log: TypeAlias = str | PathLike[str] | Outcomes | Sequence[Episode]

LARGEST_LOG = 2**28  # bytes
SQLITE = b"SQLite format 3\0"  # begins a journal


def episodes_of(log: Log, policy: int = SAFE) -> list[Episode]:
    """The episodes of a file, of outcomes, or as they are; of a journal those in which `policy` was ordered."""
    if isinstance(log, str | PathLike):
        return read_episodes(Path(log), policy)
    if isinstance(log, Outcomes):
        found = list(_of_outcomes(log))
    elif isinstance(log, Sequence) and all(isinstance(each, Mapping) for each in log):
        found = [_as_episode(cast(Mapping[str, Any], each), f"episode {k}") for k, each in enumerate(log)]
    else:
        raise InvalidInput(
            "episodes must be the path of a file, Outcomes, or a sequence of what Deployment.tell takes for each, got "
            f"{type(log).__name__}"
        )
    if not found:
        raise InvalidInput("episodes must hold at least one episode, got none")
    return found


def read_episodes(path: Path, policy: int = SAFE) -> list[Episode]:
    """The episodes of a file that ends in .csv or .jsonl, or of a journal."""
    if _is_journal(path):
        found = list(_journal_episodes(path, policy))
    else:
        readers = {".csv": _csv_episodes, ".jsonl": _json_episodes}
        if path.suffix.lower() not in readers:
            raise InvalidInput(f"a log must be a journal or end in {' or '.join(readers)}, got {str(path)!r}")
        content = read_file(path, LARGEST_LOG)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ArtifactError(f"{path}: must be text in UTF-8") from None
        found = list(readers[path.suffix.lower()](text, str(path)))
    if not found:
        raise ArtifactError(f"{path}: must hold at least one episode of the policy, found none")
    return found


def _is_journal(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return path.is_file() and stream.read(len(SQLITE)) == SQLITE
    except (OSError, ValueError):
        return False  # what is wrong with it will be said where it is read


def _journal_episodes(path: Path, policy: int) -> Iterator[Episode]:
    """Those that were told of the policy. It was ordered before they were run, so that their choice depends on none of
    them; one that was abandoned would have to be here too."""
    with raise_as_damaged(path):
        ordered = None
        for row in read(path):
            if row.kind not in ("order", "outcome", "abandoned"):
                continue
            data = check_payload(row)
            if row.kind == "order":
                ordered = data["policy"]
            elif ordered == policy:
                if row.kind == "abandoned" or data.get("breach"):
                    what = "abandoned" if row.kind == "abandoned" else "outside its declared ranges"
                    raise ArtifactError(f"{path}: no episode of the policy may be {what}, found {data['episode']}")
                yield told_in(data)


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
        yield _as_episode(told, f"{where}, line {k}")


def _as_episode(told: Mapping[str, Any], place: str) -> Episode:
    unknown = sorted(map(str, told.keys() - (FIELDS - {"breach"})))
    if unknown:
        raise InvalidInput(
            f"{place}: an episode must hold what Deployment.tell takes ({', '.join(sorted(FIELDS - {'breach'}))}), "
            f"got {unknown[0]!r}"[:300]
        )
    return cast(Episode, dict(told))


def _of_outcomes(outcomes: Outcomes) -> Iterator[Episode]:
    """Actions as they were taken: those who learn from drawn ones take no episodes from elsewhere."""
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
