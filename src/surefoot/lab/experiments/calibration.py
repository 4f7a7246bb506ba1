"""`surefoot reproduce calibration`: the gridworld with a level that simulated tasks allow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.calibration import calibrate
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import (
    Bench,
    Experiment,
    ExperimentSettings,
    Report,
    Results,
    episodes_option,
    option,
    report,
    risk_option,
    seed_option,
)
from surefoot.lab.experiments.gridworld import DELTA, EPSILON
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.learning.certified.choice import EVIDENCE
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.calibration import CAPTION, settings_figure, settings_table
from surefoot.report.figures import svg
from surefoot.report.metrics import binomial_interval
from surefoot.report.page import Section
from surefoot.report.table import Column, Table
from surefoot.report.verdict import Answer, Verdict, elapsed_time, percent
from surefoot.streams import Stream
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld
from surefoot.training.train import train


def _attempt(attempt: int) -> str:
    return str(attempt) if attempt else "as if there were no other"


@dataclass(frozen=True)
class CalibratedLevels(ExperimentSettings):
    """Attributes:
    levels: nominal levels that are tried, increasing. Those by default were chosen after earlier calibrations of this
        family, as `attempt` counts: by default the next after the four in docs/experiments.md.
    runs: simulated tasks at each level.
    fresh: tasks on which the promise is counted afterwards, none of them among the former.
    error: part of the risk for a calibration that goes wrong; 0 for the promise that is joint over the calibration.
    attempt: as for `calibrate`.
    """

    method: str = option("certified-likelihood", f"One of {', '.join(EVIDENCE)}.", choices=EVIDENCE, fact="method")
    episodes: int = episodes_option(40_000, "Episodes of every run.", fact="episodes")
    risk: float = risk_option()
    levels: tuple[float, ...] = option((0.1, 0.11), "Nominal levels to try, increasing, comma-separated.")
    runs: int = option(2000, "Simulated tasks at each level.", least=1, fact="runs at each level")
    fresh: int = option(2000, "Fresh tasks on which unsafe ones are counted.", least=1)
    error: float = option(0.0, "Part of the risk for a calibration that goes wrong; 0: only the joint promise.")
    attempt: int = option(
        5,
        "One more than calibrations before, all of them counted; 0 for the only one.",
        least=0,
        fact=("attempt", _attempt),
    )
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.error < self.risk:
            raise InvalidInput(f"error must be at least 0 and less than the risk, {self.risk:g}, got {self.error!r}")


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: CalibratedLevels, bench: Bench) -> dict[str, Any]:
    """Calibrate, compare and count.

    Fresh tasks are those of the calibrated method, or, where no level passed, of the method as it is proved.
    """
    began = time.perf_counter()
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=bench.progress)
    found = calibrate(
        policies,
        gridworld(),
        method=settings.method,
        episodes=settings.episodes,
        risk=settings.risk,
        runs=settings.runs,
        levels=settings.levels,
        error=settings.error,
        attempt=settings.attempt,
        seed=settings.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )
    seconds = time.perf_counter() - began
    published, fresh = _published_noises(settings), _fresh(settings)
    chosen = None if found.level is None else found

    def runs(what: str, calibration: Calibration | None, tasks: Sequence[tuple[float, int]]) -> list[dict[str, Any]]:
        return bench.map(what, adapt_once, [(policies, settings, calibration, *each) for each in tasks])

    regret = {"plain": runs("published noises", None, published)}
    if chosen is not None:
        regret["calibrated"] = runs("published noises, calibrated", chosen, published)
    return {
        "seconds_calibrating": seconds,
        "calibration": found.plain(),
        "published": {name: [row["regret"] for row in rows] for name, rows in regret.items()},
        "fresh": _count(runs("fresh tasks", chosen, fresh)),
    }


def _published_noises(settings: CalibratedLevels) -> list[tuple[float, int]]:
    """Noises and seeds of `surefoot reproduce gridworld`."""
    return [(noise, settings.seed + 1000 * (k + 1)) for k, noise in enumerate(PUBLISHED_TEST_NOISES)]


def _fresh(settings: CalibratedLevels) -> list[tuple[float, int]]:
    noises: Floats = gridworld().sample(settings.fresh, Stream.CALIBRATION_TASKS.rng(settings.seed))[:, 0]
    seeds = np.random.SeedSequence([settings.seed, Stream.CALIBRATION_RUNS]).generate_state(settings.fresh)
    return list(zip(noises.tolist(), seeds.tolist(), strict=True))


def adapt_once(
    policies: PolicyValueSet, settings: CalibratedLevels, calibration: Calibration | None, noise: float, seed: int
) -> dict[str, Any]:
    """Regret on one task, and whether anything unsafe was deployed."""
    found = adapt(
        policies,
        gridworld().task([noise]),
        method=settings.method,
        episodes=settings.episodes,
        risk=settings.risk,
        seed=seed,
        calibration=calibration,
    )
    return {"regret": float(found.regret[-1]), "unsafe": bool(found.unsafe_episodes)}


def _count(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Unsafe tasks, those with nothing feasible among them, and the mean regret on all others."""
    unsafe = sum(row["unsafe"] for row in rows)
    return {
        "tasks": len(rows),
        "unsafe": unsafe,
        "interval": list(binomial_interval(unsafe, len(rows))),
        "regret": float(np.nanmean([row["regret"] for row in rows])),
    }


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure = settings_figure(parse_calibration(results["calibration"]), fresh=results["fresh"])
    return report(
        results,
        CalibratedLevels,
        title="How much risk may really be taken",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            Section("Unsafe tasks by level", figure=svg(figure), caption=CAPTION),
            *(Section(title, table=table) for title, table in tables(results).items()),
        ),
        figures={"calibration.png": figure},
        facts=(
            ("promise", _part(results["calibration"]["error"])),
            ("time for calibrating", f"{results['seconds_calibrating']:.1f} s"),
        ),
    )


_LEAD = (
    "A certified method is given a level, its risk, and is unsafe less often than that. Simulated tasks show how far "
    "the level may be raised for a declared number of episodes, the risk kept; fresh tasks show what that is worth."
)


def _part(error: float) -> str:
    return f"{error:g} of the risk for the calibration itself" if error else "jointly over the calibration and the task"


def tables(results: Results) -> dict[str, Table]:
    """Levels; and what the one that was found is worth."""
    found, fresh, means = results["calibration"], results["fresh"], _means(results)
    counted = {"fresh": fresh["regret"], "unsafe": f"{fresh['unsafe']:,} of {fresh['tasks']:,}"}
    plain = {"level": "as proved", "value": results["settings"]["risk"], "published": means["plain"]}
    if found["level"] is None:
        worth = [{**plain, **counted}, {"level": "calibrated: no level passed"}]
    else:
        worth = [
            plain,
            {"level": "calibrated", "value": found["level"], "published": means["calibrated"], **counted},
        ]
    return {
        "Levels": settings_table(parse_calibration(found)),
        "Regret and promise": Table.of(
            worth,
            Column("level", "level"),
            Column("value", lambda row: row.get("value"), "g"),
            Column("regret, published noises", lambda row: row.get("published"), ",.0f"),
            Column("regret, fresh tasks", lambda row: row.get("fresh"), ",.0f"),
            Column("unsafe fresh tasks", lambda row: row.get("unsafe"), ""),
        ),
    }


def _means(results: Results) -> dict[str, float]:
    """Of the regret on the published noises."""
    return {name: float(np.mean(regrets)) for name, regrets in results["published"].items()}


def _verdict(results: Results) -> Verdict:
    found, fresh, settings = results["calibration"], results["fresh"], results["settings"]
    (low, high), risk, level = fresh["interval"], settings["risk"], found["level"]
    answers = (
        _gain_answer(_means(results), level),
        Answer(
            "Unsafe",
            f"{fresh['unsafe']:,} of {fresh['tasks']:,}",
            f"fresh tasks{' as proved' if level is None else ''}; promised: at most {percent(risk)} of them",
            "bad" if low > risk else "" if fresh["unsafe"] else "good",
        ),
        Answer("How sure", f"{percent(low)} to {percent(high)}", "of fresh tasks are unsafe, 95 % interval"),
        elapsed_time(results["seconds"], f"of which {results['seconds_calibrating']:,.0f} s for calibrating"),
    )
    if level is None:
        return Verdict(
            f"No level passed: {settings['method']} is best used as it is proved, at level {risk:g}.", answers
        )
    kept = "more than the risk allows" if low > risk else f"the risk {risk:g} allows {risk * fresh['tasks']:,.0f}"
    return Verdict(
        f"For {settings['episodes']:,} episodes at risk {risk:g} simulated tasks allow {settings['method']} a level of "
        f"{level:g}; of {fresh['tasks']:,} fresh tasks {fresh['unsafe']:,} were then unsafe, {kept}.",
        answers,
    )


def _gain_answer(means: Mapping[str, float], level: float | None) -> Answer:
    if level is None:
        return Answer("Gained", "nothing", "no level above the risk passed")
    plain, raised = means["plain"], means["calibrated"]
    worth = f"of the regret on the published noises avoided: {raised:,.0f} instead of {plain:,.0f}"
    return Answer("Gained", percent(1 - raised / plain) if plain > 0 else "nothing", worth)


EXPERIMENT = Experiment(
    "calibration",
    CalibratedLevels,
    run,
    page,
    tables,
    "calibration.png and results.json beside it",
    quick={"episodes": 2000, "runs": 200, "fresh": 100, "levels": (0.1, 0.2)},
)
