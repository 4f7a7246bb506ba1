"""What a calibration covers, how it is known what it counted, and what happens if it is only claimed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from guarantees import mutants
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes
from surefoot.calibration import least_recount
from surefoot.deploy.calibration_files import read_calibration, write_calibration
from surefoot.deploy.replay import check_header, header, header_settings
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.learning.certified.evidence.returns import SETTLED_AGAINST
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution, family

KEY, OTHER = b"k" * 32, b"o" * 32
EPISODES = 10
OLDER = ("attempt", "seed", "tasks", "unsafe_runs", "standing")  # what files and journals of an older form do not have


@cache
def policies() -> PolicyValueSet:
    return mutants.rooms_policies()


@cache
def found() -> Calibration:
    return calibrate()


def calibrate(**changed: Any) -> Calibration:
    given = {"method": "certified-likelihood", "episodes": EPISODES, "risk": 0.3, "levels": [0.5, 0.9], "runs": 12}
    return sf.calibrate(policies(), mutants.rooms(), **{**given, "seed": 3, "jobs": 1, **changed})


def learner(calibration: Any, **changed: Any) -> sf.Learner:
    given = {"method": "certified-likelihood", "risk": 0.3, "seed": 1, **changed}
    return sf.learner(policies(), calibration=calibration, **given)


# ------------------------------------------------------------------------------------------------------ what it covers

WAIT, WORK = (sf.TabularPolicy(np.tile(row, (3, 1))) for row in ([1.0, 0.0], [0.0, 1.0]))


def beacon(lit: float, trouble: float) -> sf.TabularCMDP:
    """Waiting shows a lamp, working leads into trouble; how often depends on the task."""
    waited, worked = [1 - lit, lit, 0.0], [1 - trouble, 0.0, trouble]
    reward, cost = np.array([[0.0, 1.0]] * 3), np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    return sf.TabularCMDP([[waited, worked]] * 3, reward, cost, 0.2, [1.0, 0.0, 0.0], 0.3, (0.0, 1.0), (0.0, 1.0))


def beacons() -> TaskDistribution:
    """A mild task and a dangerous one whose lamps hardly differ; a distance of 0.05 takes one half-way to the other."""
    kinds = (beacon(0.3, 0.02), beacon(0.4, 0.9))
    return family(lambda parameter: kinds[int(parameter[0])], Finite([0, 1], [0.5, 0.5]))


def beacon_policies() -> PolicyValueSet:
    tasks = beacons()
    mild = tasks.task([0])
    work, wait = sf.evaluate(mild, WORK), sf.evaluate(mild, WAIT)
    entry = Entry(np.array([0.0]), WORK, work.reward, work.margin, wait.reward, wait.margin)
    bounds = build_cells(tasks, [WAIT, WORK], seed=0, envelopes=Envelopes())
    return PolicyValueSet((entry,), WAIT, mild.units, 0.01, 0.05, 0.0, tasks.digest(), {}, {}, bounds)


def test_a_shift_is_refused() -> None:
    """Runs on the distribution say nothing of a task at a distance: level 0.9 used to pass, and the dangerous task,
    moved towards the mild one by 0.05, was unsafe more often than the risk allows."""
    given = {"method": "certified-ball", "episodes": 20, "risk": 0.1, "runs": 40, "levels": [0.9], "seed": 0, "jobs": 1}
    with pytest.raises(InvalidInput, match=r"shift must be 0 with a calibration, .* got 0\.05"):
        sf.calibrate(beacon_policies(), beacons(), shift=0.05, **given)


def test_nor_is_it_deployed_with_one() -> None:
    passed = Calibration("certified-ball", 20, 0.1, 0.0, 0.9, 40, ((0.9, 0),), 12, beacon_policies().digest())
    asked = {"method": "certified-ball", "risk": 0.1, "horizon": 12, "calibration": passed}
    sf.learner(beacon_policies(), **asked)
    with pytest.raises(InvalidInput, match="shift must be 0 with a calibration"):
        sf.learner(beacon_policies(), shift=0.05, **asked)
    with pytest.raises(InvalidInput, match="shift must be 0 with a calibration"):
        parse_calibration({**asdict(passed), "options": {"shift": 0.05}})


def test_what_else_it_does_not_cover() -> None:
    with pytest.raises(InvalidInput, match="assume_safe must be False with a calibration"):
        calibrate(method="certified-ball", assume_safe=True)
    with pytest.raises(InvalidInput, match="takes no option"):
        calibrate(observes="sums")


def test_the_learner_is_the_one_that_was_counted_whatever_risk_is_asked_for() -> None:
    """A larger risk used to settle cells sooner than in the runs; only risks below e⁻⁵ show it."""
    tiny = Calibration("certified-returns", 20, 1e-4, 0.0, 0.5, 10**5, ((0.5, 0),), 62, policies().digest())
    asked = {"method": "certified-returns", "calibration": tiny}
    counted = sf.learner(policies(), risk=1e-4, **asked).method.method.evidence
    assert counted.settled_against > SETTLED_AGAINST
    assert sf.learner(policies(), risk=0.3, **asked).method.method.evidence.settled_against == counted.settled_against


# --------------------------------------------------------------------------------------------------------- what is kept


def test_it_says_where_it_comes_from() -> None:
    assert (found().attempt, found().seed, found().standing) == (1, 3, "counted")
    assert found().tasks == f"tasks without a recipe, digest {mutants.rooms().digest()}"
    assert [len(numbers) for numbers in found().unsafe_runs or ()] == [unsafe for _, unsafe in found().counts]
    assert calibrate(attempt=2, levels=[0.9]).unsafe_runs != calibrate(attempt=1, levels=[0.9]).unsafe_runs


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attempt": -1}, "attempt must be a whole number of at least 0"),
        ({"attempt": 10**30}, "attempt must be at most 1000"),
        ({"runs": 10**30}, "runs must be at most"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"tasks": 5}, "tasks must be a text"),
        ({"standing": "approved"}, "standing must be one of counted, sealed, recounted, claimed"),
        ({"unsafe_runs": [[99], []]}, "unsafe_runs must be as many numbers below 12"),
        ({"unsafe_runs": 7}, "calibration must hold what calibrate returns"),
        ({"counts": [[0.5, 13]]}, "unsafe tasks must be at most the runs"),
        ({"counts": 5}, "calibration must hold what calibrate returns"),
        ({"colour": "red"}, "calibration must hold method, episodes"),
    ],
)
def test_malformed_ones_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_calibration({**asdict(found()), **changed})


# ------------------------------------------------------------------------------------------------------------- standing


def forged() -> dict[str, Any]:
    """A file as one would like it to be."""
    plain = json.loads(json.dumps(asdict(found())))
    return {**plain, "level": 0.99, "counts": [[0.99, 0]], "unsafe_runs": [[]], "runs": 1_000_000, "gains": None}


def test_a_file_is_claimed_whatever_it_says(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({**forged(), "standing": "counted"}))
    read = read_calibration(tmp_path / "file")
    assert read.standing == "claimed"
    made = learner(read)
    assert not made.certified
    assert "claimed calibration" in made.method.note
    assert "recount" in made.method.note
    assert learner(found()).certified
    assert "claimed" not in learner(found()).method.note


def test_so_is_one_of_the_older_form(tmp_path: Path) -> None:
    plain = {name: value for name, value in asdict(found()).items() if name not in OLDER}
    (tmp_path / "file").write_text(json.dumps(plain))
    read = read_calibration(tmp_path / "file")
    assert (read.attempt, read.seed, read.standing) == (0, None, "claimed")
    with pytest.raises(InvalidInput, match="calibration must say its seed and unsafe_runs to be recounted"):
        sf.recount(read, policies(), mutants.rooms(), seed=0, jobs=1)


def test_a_recount_finds_a_forged_one_out() -> None:
    unsafe = calibrate(levels=[0.99]).counts[0][1]
    assert unsafe > 0, "nothing to find"
    with pytest.raises(ArtifactError, match=r"of \d+ runs computed again at level 0.99 are not as it says: run"):
        sf.recount(replace(parse_calibration(forged()), runs=12), policies(), mutants.rooms(), seed=0, jobs=1)


def test_a_recount_of_an_honest_one(tmp_path: Path) -> None:
    write_calibration(tmp_path / "file", found())
    again = sf.recount(read_calibration(tmp_path / "file"), policies(), mutants.rooms(), seed=5, jobs=1)
    assert again == replace(found(), standing="recounted")
    assert learner(again).certified
    with pytest.raises(InvalidInput, match="runs must be 4 to 12 to recount"):
        sf.recount(found(), policies(), mutants.rooms(), runs=2, seed=5, jobs=1)
    with pytest.raises(InvalidInput, match="tasks must be those"):
        sf.recount(found(), policies(), mutants.two_rooms(), seed=5, jobs=1)
    with pytest.raises(InvalidInput, match="calibration must be for this policy set"):
        sf.recount(replace(found(), digest="0" * 64), policies(), mutants.rooms(), seed=5, jobs=1)


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.3])
def test_how_many_runs_a_recount_takes(risk: float) -> None:
    least = least_recount(risk, 10**6)
    assert (1 - risk) ** least <= risk < (1 - risk) ** (least - 1)
    assert least_recount(risk, 2) == 2


def test_a_seal_proves_it(tmp_path: Path) -> None:
    content = write_calibration(tmp_path / "file", found(), KEY)
    assert read_calibration(tmp_path / "file", KEY) == replace(found(), standing="sealed")
    assert read_calibration(tmp_path / "file").standing == "claimed"
    assert learner(read_calibration(tmp_path / "file", KEY)).certified
    with pytest.raises(ArtifactError, match="has not the seal of this key"):
        read_calibration(tmp_path / "file", OTHER)
    (tmp_path / "file").write_text(json.dumps({**forged(), "seal": content["seal"]}))
    with pytest.raises(ArtifactError, match="has not the seal of this key"):
        read_calibration(tmp_path / "file", KEY)
    write_calibration(tmp_path / "file", found())
    assert read_calibration(tmp_path / "file", KEY).standing == "claimed"
    with pytest.raises(InvalidInput, match="got one that is claimed"):
        write_calibration(tmp_path / "file", replace(found(), standing="claimed"), KEY)


def test_a_file_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("null")
    with pytest.raises(ArtifactError, match="must hold an object, as calibrate writes it, got None"):
        read_calibration(tmp_path / "file")


@pytest.mark.parametrize("standing", ["counted", "claimed"])
def test_a_journal_keeps_the_standing(standing: Any, tmp_path: Path) -> None:
    begun = replace(found(), standing=standing)
    with sf.Deployment.open(tmp_path / "journal", learner(begun)) as deployment:
        deployment.ask()
    settings = header_settings(read_header(tmp_path / "journal"))
    again = sf.learner(policies(), **settings)
    assert again.certified == (standing == "counted")
    assert verify(tmp_path / "journal", again).holds


def test_a_journal_from_before_there_were_standings_opens_as_it_was_begun() -> None:
    """It was certified then, and its rows say so."""
    begun = header(learner(replace(found(), attempt=0, seed=None, tasks=None, unsafe_runs=None, standing="counted")))
    for name in OLDER:
        del begun["settings"]["calibration"][name]
    again = sf.learner(policies(), **header_settings(begun))
    assert again.certified
    check_header(begun, again, "journal", None)
    with pytest.raises(ArtifactError, match="was begun with settings"):
        check_header(header(learner(found())), again, "journal", None)
