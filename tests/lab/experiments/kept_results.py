"""A results.json of everything that has a page: kept from short runs, curves thinned, or made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from surefoot.lab.experiments.promise.counts import Count
from surefoot.report.metrics import binomial_interval

KEPT = Path(__file__).parents[2] / "assets" / "results"


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return found


def families() -> dict[str, Any]:
    """Two families that both behave like the gridworld."""
    grid = kept("gridworld")
    family = {
        "methods": grid["methods"],
        "training": {**grid["training"], "budget": [1.5]},
        "settings": {"candidates": 9},
        "seconds_by_stage": {"training": 3.0},
        "cells": 300,
        "uncovered": 0.01,
        "seconds_per_run": dict.fromkeys(grid["methods"], 1.0),
    }
    settings = {**grid["settings"], "methods": list(grid["methods"])}
    both = {"windy": family, "maintenance": {**deepcopy(family), "training": {"samples": 1, "budget": [1.5, 2.0]}}}
    return {"experiment": "families", "version": "0", "seconds": 60.0, "settings": settings, "families": both}


def baselines() -> dict[str, Any]:
    """One benchmark, one baseline that is unsafe and one that never leaves the safe policy."""
    methods = {name: kept("gridworld")["methods"][name] for name in ("safe-only", "certified-likelihood")}
    methods["dope-theory"] = deepcopy(methods["safe-only"])
    methods["dope-published"] = {**deepcopy(methods["safe-only"]), "certified": False, "unsafe_tasks": 2}
    methods["dope-published"]["unsafe_episodes"] = 17
    benchmark = {
        "methods": methods,
        "training": {"budget": [1.5]},
        "growth": {name: {"exponent": 0.8, "interval": [0.7, 0.9]} for name in methods},
        "last": {name: {"gap": 0.1, "margin": 0.2} for name in methods},
        "seconds_per_run": dict.fromkeys(methods, 2.0),
        "optimum": 1.2,
        "safe_cost": [1.1],
        "settings": {"episodes": 40_000, "runs": 10},
    }
    settings = {"risk": 0.05, "seed": 0, "runs": None, "episodes": None, "benchmarks": ["media"], "methods": []}
    found = {"experiment": "baselines", "version": "0", "seconds": 60.0, "settings": settings}
    return {**found, "benchmarks": {"media": benchmark}}


def promise() -> dict[str, Any]:
    """Six promises kept, and two counts without power."""
    counts = [
        {
            "method": method,
            "risk": risk,
            **Count(2000, unsafe, 0 if method == "certified-model-free" else 1990, 60, 58).summary(risk),
            "unsafe_episodes": 20 * unsafe,
            "regret_mean": 2000.0,
        }
        for method, by_risk in (
            ("certified-likelihood", (9, 110)),
            ("certified-ball", (2, 40)),
            ("certified-returns", (11, 93)),
            ("certified-model-free", (0, 0)),
        )
        for risk, unsafe in zip((0.05, 0.5), by_risk, strict=True)
    ]
    settings = {"tasks": 2000, "episodes": 3000, "seed": 0, "families": "gridworld"}
    return {"experiment": "promise", "version": "0", "seconds": 480.0, "settings": settings, "counts": counts}


def covering() -> dict[str, Any]:
    rows = [
        {
            "family": family,
            "epsilon": 0.02 / (k + 1),
            "exact": 3 * k + 3 if known else None,
            "exact_as_left": 3 * k + 2 if known else None,
            "lower": 3 * k + 1,
            "upper": 3 * k + 5,
            "found": 3 * k + 3,
            "sampled": 20_000,
        }
        for family, known in (("gridworld", True), ("windy", False))
        for k in range(4)
    ]
    settings = {"delta": 0.05, "points": 20_000, "seed": 0}
    return {"experiment": "covering", "version": "0", "seconds": 20.0, "settings": settings, "rows": rows}


def glucose() -> dict[str, Any]:
    """Two patients, three methods, five days."""
    days, policies = 5, ["safe", "sensitivity 1.00, 55 min", "sensitivity 0.60, 50 min"]
    by_day = {"safe-only": [0.0] * days, "pce-days": [0.9] * days, "certified-signals": [0.0, 0.2, 0.5, 0.8, 0.9]}
    methods = {
        name: {
            "certified": name != "pce-days",
            "tasks": 2,
            "unsafe_tasks": 2 if name == "pce-days" else 0,
            "undecided_tasks": 0,
            "unsafe_interval": [0.0, 0.84],
            "unsafe_days": 0,
            "largest_below": 0.039,
            "largest_below_error": 0.0001,
            "share_early": sum(shares) / days,
            "share": sum(shares) / days,
            "share_by_day": shares,
            "in_range": 0.7,
            "counted": 2,
            "reached": 1,
            "median_days": 5.0 if shares[-1] else None,
            "median_moved": 2.0 if shares[-1] else None,
        }
        for name, shares in by_day.items()
    }
    weights = [[1.0, 0.0, 0.0], *[[0.4, 0.5, 0.1]] * (days - 1)]
    lines = {"in_range": [0.6] * days, "below": [0.01] * days, "weights": weights}
    shown = [{"parameter": [1.1, 50.0], "possible": [0.8, 0.039], "methods": dict.fromkeys(methods, lines)}]
    settings = {
        **{"patients": 2, "days": days, "risk": 0.05, "seed": 0, "candidates": 2, "methods": list(methods)},
        **{"cells": 40, "episodes": 100, "holdout": 100, "judged_days": 100, "compared_patients": 2},
    }
    return {
        **{"experiment": "glucose", "version": "0", "seconds": 60.0, "settings": settings, "methods": methods},
        **{"shown": shown, "policies": policies, "cell_known": {"share": 0.95, "unsafe_tasks": 0}, "refused": {}},
        "risks": {"0.4": methods["certified-signals"]},
        "errors": {"days": 1000, "most_days": 400, "below_near_budget": 0.001, "in_range": 0.002},
        "bounds": {"cells": 40, "uncovered": 0.02},
        "information": {
            **{"day_to_day": 0.1, "days": 100},
            "rows": [{"parameter": [1.0, 55.0], "policy": 0, "sums": 0.5, "signals": 0.2}],
        },
    }


def rivals() -> dict[str, Any]:
    """Two systems; a method without settings, one whose calibration passed, one too bold at every setting."""

    def row(unsafe: int, late: float, **more: Any) -> dict[str, Any]:
        told = {"tasks": 200, "unsafe": unsafe, "undecided": 0, "interval": list(binomial_interval(unsafe, 200))}
        told |= {"unsafe_episodes": unsafe / 400, "early": late / 2, "late": late, "late_error": 0.02}
        return {**told, "wait": 12.0 if late > 0.5 else None, **more}

    def found(
        certified: bool, default: dict[str, Any], *grid: dict[str, Any], passed: int | None = 0
    ) -> dict[str, Any]:
        calibrated = None if passed is None or not grid else grid[passed]
        told = {"hindsight": grid[0] if grid else None, "calibration": {"runs": 200} if grid else None}
        return {"certified": certified, "default": default, "grid": grid, "calibrated": calibrated, **told}

    methods = {
        "safe-only": found(True, row(0, 0.0)),
        "certified": found(True, row(0, 0.2), row(4, 0.6, setting=0.1), row(30, 0.7, setting=0.3)),
        "safe-opt": found(False, row(40, 0.5), row(0, 0.0, setting={"beta": 6.0, "length": 0.5}), passed=0),
        "titration": found(False, row(150, 0.9), row(6, 0.1, setting={"every": 90, "share": 0.2}), passed=None),
    }
    system = {"episodes": 90, "early": 30, "late": 90, "policies": 7, "seconds": 30.0, "possible": [0.2] * 200}
    systems = {name: {**system, "title": title, "methods": methods} for name, title in (("pump", "a pump"), ("a", "b"))}
    settings = {"systems": list(systems), "tasks": 200, "risk": 0.05, "seed": 0, "runs": 200, "grid": 2}
    return {"experiment": "rivals", "version": "0", "seconds": 60.0, "settings": settings, "systems": systems}


def water() -> dict[str, Any]:
    """Three towns, three methods, five days; the glucose's numbers will do."""
    pump, days = glucose(), 5
    names = {"safe-only": "safe-only", "certified-signals": "certified-signals", "posterior": "pce-days"}
    methods = {name: {**pump["methods"][like], "tasks": 3, "energy": 2500.0} for name, like in names.items()}
    towns = [
        {"parameter": [0.7, 1.0], "energy": [2000.0, 800.0, 1100.0], "below": [0.0, 0.01, 0.0], "possible": 800.0},
        {"parameter": [0.85, 0.9], "energy": [4000.0, 1800.0, 3000.0], "below": [0.01, 0.1, 0.02], "possible": 2700.0},
        {"parameter": [0.85, 0.87], "energy": [4600.0, 2100.0, 3300.0], "below": [0.01, 0.1, 0.05], "possible": 4000.0},
    ]
    settings = {
        **{"towns": 3, "days": days, "risk": 0.05, "seed": 0, "candidates": 2, "methods": list(methods)},
        **{"trained_on": "Net3", "grid": 0, "day_set": 500},
        **{"calibrated": 0, "episodes": 100, "holdout": 100, "judged_days": 100},
    }
    return {
        **{"experiment": "water", "version": "0", "seconds": 60.0, "settings": settings, "methods": methods},
        **{"policies": ["safe", "speed 0.7", "speed 0.9"], "towns": towns, "refused": {}, "calibrations": {}},
        **{"cell_known": pump["cell_known"], "bounds": pump["bounds"], "judged": {"days": 1000, "most_days": 400}},
    }


def buildings() -> dict[str, Any]:
    """As of the towns, with less energy."""
    towns = water()
    settings = {key: value for key, value in towns["settings"].items() if key not in ("towns", "trained_on", "day_set")}
    found = [
        {"parameter": [0.4, 2.5], "energy": [330.0, 280.0, 290.0], "below": [0.01, 0.07, 0.02], "possible": 285.0},
        {"parameter": [0.7, 1.0], "energy": [240.0, 205.0, 215.0], "below": [0.0, 0.01, 0.0], "possible": 205.0},
        {"parameter": [0.4, 1.0], "energy": [240.0, 206.0, 215.0], "below": [0.0, 0.04, 0.01], "possible": 209.0},
    ]
    shared = {key: towns[key] for key in ("methods", "refused", "calibrations", "cell_known", "bounds", "judged")}
    return {
        **{"experiment": "buildings", "version": "0", "seconds": 60.0, **shared, "buildings": found},
        **{"policies": ["safe", "restart 7:00", "restart 6:00"], "settings": {**settings, "buildings": 3}},
    }


BY_HAND: dict[str, Callable[[], dict[str, Any]]] = {
    each.__name__: each for each in (families, baselines, promise, covering, glucose, rivals, water, buildings)
}


def results_of(name: str) -> dict[str, Any]:
    return BY_HAND[name]() if name in BY_HAND else kept(name)
