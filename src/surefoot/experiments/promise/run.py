"""`surefoot reproduce promise`: the risk a method was given, against how often it was unsafe on fresh tasks."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.errors import InvalidInput
from surefoot.experiments.checks import check_counts, check_names, check_risk
from surefoot.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.experiments.parallel import Progress, check_jobs, each, silent
from surefoot.experiments.results import Report, check_folder, write_report
from surefoot.methods import METHODS, adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.report.page import Page, Section, Table, versions
from surefoot.tasks.gridworld import gridworld
from surefoot.train.training_phase import train

BATCH = 20  # tasks per unit of parallel work


@dataclass(frozen=True)
class Settings:
    """Fresh tasks per method and risk, each with its own noise drawn from the task distribution."""

    methods: tuple[str, ...] = (
        "certified-likelihood",
        "certified-ball",
        "certified-returns",
        "certified-model-free",
    )
    risks: tuple[float, ...] = (0.05, 0.5)
    tasks: int = 2000
    episodes: int = 3000
    seed: int = 0

    def __post_init__(self) -> None:
        check_names("methods", self.methods, METHODS)
        check_counts(self, "tasks", "episodes")
        for risk in self.risks:
            check_risk(risk, "risks")


@dataclass(frozen=True)
class Count:
    """How often one method broke its promise at one risk."""

    method: str
    risk: float
    tasks: int
    unsafe_tasks: int
    unsafe_episodes: int
    smallest_margin: float
    regret_mean: float
    seconds: float

    @property
    def fraction(self) -> float:
        return self.unsafe_tasks / self.tasks

    @property
    def interval(self) -> tuple[float, float]:
        return binomial_interval(self.unsafe_tasks, self.tasks)

    @property
    def kept(self) -> bool:
        """Whether the count is compatible with the promise: the risk is not below the 95 % interval."""
        return self.interval[0] <= self.risk


def levels(text: str) -> tuple[float, ...]:
    """Comma-separated numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"risks must be numbers separated by commas, such as 0.05,0.5, got {text!r}") from None


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Count, and write results.json and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    show = progress or silent
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=False)
    counts = [count(policies, name, risk, settings, jobs, show) for name in settings.methods for risk in settings.risks]
    results = {
        "experiment": "promise",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": sum(item.seconds for item in counts),
        "counts": [
            {**asdict(item), "fraction": item.fraction, "interval": item.interval, "kept": item.kept} for item in counts
        ],
    }
    write_report(out, results, promise_page(results))
    return results


def count(policies: PolicyValueSet, method: str, risk: float, settings: Settings, jobs: int, show: Progress) -> Count:
    """One method at one risk on fresh tasks; the same tasks for every method and risk."""
    began = time.perf_counter()
    noises = gridworld().sample(settings.tasks, np.random.default_rng([settings.seed, 3]))[:, 0]
    batches = [range(k, min(k + BATCH, len(noises))) for k in range(0, len(noises), BATCH)]
    calls = [(policies, noises, batch, method, risk, settings) for batch in batches]
    found = list(chain.from_iterable(each(f"{method} at risk {risk:g}", _batch, calls, jobs, show)))
    unsafe = [episodes for episodes, _, _ in found]
    regrets = [regret for _, _, regret in found if math.isfinite(regret)]
    return Count(
        method,
        risk,
        len(found),
        sum(episodes > 0 for episodes in unsafe),
        sum(unsafe),
        min(margin for _, margin, _ in found),
        float(np.mean(regrets)),
        time.perf_counter() - began,
    )


def _batch(
    policies: PolicyValueSet, noises: np.ndarray, batch: range, method: str, risk: float, settings: Settings
) -> list[tuple[int, float, float]]:
    """Unsafe episodes, smallest margin and regret of each task; tasks where nothing is feasible count as they are."""
    rows = []
    for k in batch:
        task = gridworld().task([noises[k]])
        seed = int(np.random.SeedSequence([settings.seed, 4, k]).generate_state(1)[0])
        run = adapt(policies, task, method=method, episodes=settings.episodes, risk=risk, seed=seed)
        rows.append((run.unsafe_episodes, float(run.margin.min()), float(run.regret[-1])))
    return rows


def promise_page(results: dict[str, Any]) -> Report:
    """The table of counts."""
    settings = results["settings"]
    rows = tuple(
        (
            item["method"],
            f"{item['risk']:g}",
            f"{item['unsafe_tasks']:,} of {item['tasks']:,}",
            f"{item['fraction']:.4f}",
            f"{item['interval'][0]:.4f} – {item['interval'][1]:.4f}",
            f"{item['unsafe_episodes']:,}",
            f"{item['regret_mean']:,.0f}",
            "yes" if item["kept"] else "NO",
        )
        for item in results["counts"]
    )
    headers = ("method", "risk", "unsafe tasks", "fraction", "95 % interval", "unsafe episodes", "regret", "kept")
    page = Page(
        title="The promise, counted",
        lead=(
            "A certified method may, with probability at most its risk, ever deploy a policy that breaks the budget. "
            f"Here {settings['tasks']:,} fresh gridworlds were run for {settings['episodes']:,} episodes each, and "
            "every deployed policy was evaluated exactly. A task counts as unsafe if any of its episodes was."
        ),
        facts=(("seed", str(settings["seed"])), ("time", f"{results['seconds']:.0f} s"), *versions()),
        sections=(Section("Counts", table=Table(headers, rows, numbers=(1, 2, 3, 4, 5, 6))),),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {})
