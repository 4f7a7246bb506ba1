"""The report on robots, made from results.json alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from surefoot.lab.baselines.fixed_network import DOMAIN_RANDOMISED
from surefoot.lab.baselines.history_policy import HISTORY_CONDITIONED, LENGTH
from surefoot.lab.experiments.frame import Report, Results, report
from surefoot.lab.experiments.locomotion.figure import gain_and_cost
from surefoot.lab.experiments.locomotion.settings import (
    ADAPTING,
    FIXED,
    NETWORKS,
    PUBLISHED_AXIS,
    REFERENCE,
    LocomotionSettings,
)
from surefoot.learning.paper.published import ON_ROBOTS
from surefoot.report import table, verdict
from surefoot.report.figures import svg
from surefoot.report.page import Section, versions
from surefoot.report.table import MISSING, Cell, Column, Table
from surefoot.report.verdict import Answer, Verdict, join_words

SIMULATORS = ("mujoco", "gymnasium", "jax")


def page(results: Results) -> Report:
    """The verdict, the figure, a table per family, where text and code differ, and how it was made."""
    figure = gain_and_cost(results["families"])
    drawing = svg(figure)
    _, *simulators = versions(SIMULATORS)
    made = report(
        results,
        LocomotionSettings,
        title="The paper's robots, reproduced",
        verdict=_verdict(results),
        lead=_LEAD,
        facts=[("simulators", ", ".join(f"{name} {version}" for name, version in simulators))],
        sections=(
            _figure(drawing, results),
            *(_family(family, results["settings"]) for family in results["families"].values()),
            _safety(results),
            _DIFFERENCES,
            _training(results),
            _how(results),
        ),
        figures={"figure4.png": figure},
    )
    return replace(made, figures={**made.figures, "figure4.svg": drawing})


# --------------------------------------------------------------------------------------------------------------- tables


def tables(results: Results) -> dict[str, Table]:
    """A table per family, and safety over all of them."""
    own = {family["title"]: family_table(family) for family in results["families"].values()}
    return {**own, "All families": safety_table(results)}


def family_table(family: Mapping[str, Any]) -> Table:
    """Certified methods first, as in the figure."""
    expert = Column("gained, of the task’s own expert’s gain", lambda row: _percent(row["share_of_expert"]), "")
    return Table.of(
        sorted(_rows(family["methods"]), key=lambda row: not row["certified"]),
        *_METHOD,
        Column("gained, of what is possible", lambda row: _percent(row["share_final"]), ""),
        Column("95 % interval over tasks", _share_interval, "", optional=True),
        Column("reward gained", lambda row: _gain(gain_at_the_end(row, family)), "", optional=True),
        Column(f"largest cost (budget {family['budget']:g})", lambda row: _worst(row, family["budget"]), ""),
        Column("unsafe tasks", _unsafe, ""),
        Column("95 % interval, %", lambda row: _unsafe_interval(row, ".0f"), "", optional=True),
        Column("episodes to 90 % of its gain", "median_until", ",.0f"),
        Column("episodes learned from", "learned", ","),
        Column(
            "simulator steps before the first episode, all told, million",
            lambda row: _millions(row.get("simulator_steps")),
            "",
            optional=True,
        ),
        *([expert] if any(gain is not None for gain in family["expert_gain"]) else []),
    )


def safety_table(results: Results) -> Table:
    return Table.of(
        _rows(results["methods"]),
        *_METHOD,
        Column("tasks on which it left the safe policy", _moved_tasks, ""),
        Column("unsafe tasks", _unsafe, ""),
        Column("95 % interval, %", lambda row: _unsafe_interval(row, ".1f"), ""),
    )


_METHOD = (Column("method", "name"), Column("certified", table.certified))


def _rows(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, **own} for name, own in found.items()]


def _moved_tasks(row: Mapping[str, Any]) -> str | None:
    return f"{row['moved']} of {row['tasks']}" if "moved" in row else None


def _share_interval(row: Mapping[str, Any]) -> str | None:
    """Of a method that gained anything, by versions that tell it."""
    ends = row.get("share_interval")
    return table.interval([100 * end for end in ends], ".0f") + " %" if ends and ends[1] > ends[0] else None


def _unsafe_interval(row: Mapping[str, Any], form: str) -> str:
    return table.interval([100 * end for end in row["unsafe_interval"]], form)


def gain_at_the_end(found: Mapping[str, Any], family: Mapping[str, Any]) -> float:
    """Mean reward beyond that of the safe policy on the same tasks, which are the first ones."""
    reward_safe = family["reward_safe"][: found["tasks"]]
    return float(found["reward_final"] - sum(reward_safe) / len(reward_safe))


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %".replace("-", "−")


def _gain(reward: float) -> str:
    return "0.00" if abs(reward) < 0.005 else f"{reward:+.2f}".replace("-", "−")


def _worst(found: Mapping[str, Any], budget: float) -> str | Cell:
    """With as many decimals as matter beside the budget; what it may be off by is rounded up."""
    digits = 3 if budget < 1 else 2
    error = math.ceil(3 * found["worst_error"] * 10**digits) / 10**digits
    text = f"{found['worst_cost']:.{digits}f} ± {error:.{digits}f}".replace("-", "−")
    return Cell(text, "bad") if found["unsafe_tasks"] else text


def _unsafe(found: Mapping[str, Any]) -> str | Cell:
    text = f"{found['unsafe_tasks']} of {found['tasks']}"
    if found["undecided_tasks"]:
        text += f", {found['undecided_tasks']} undecided"
    return Cell(text, "bad") if found["unsafe_tasks"] else text


def _millions(steps: int | None) -> str:
    return MISSING if steps is None else f"{steps / 1e6:.1f}"


# ---------------------------------------------------------------------------------------------------------------- words


_LEAD = (
    "Robots whose motors, joints or target velocity nobody tells. A safe policy and a few others were trained before; "
    "every method chooses among them, or trains on, while the robot runs. Gain is reward beyond that of the safe "
    "policy, as a share of what the best mixture of the set’s policies gains within the budget on each very task."
)


def _verdict(results: Results) -> Verdict:
    methods, settings = results["methods"], results["settings"]
    own = {
        each["title"]: each["methods"][ADAPTING] for each in results["families"].values() if ADAPTING in each["methods"]
    }
    finals = [found["share_final"] for found in own.values() if found["share_final"] is not None]
    gained = _ends([_percent(min(finals)), _percent(max(finals))]) if finals else "nothing"
    where = f"({next(iter(own))})" if len(own) == 1 else f"on {len(own)} families"
    worth = f"‘{ADAPTING}’ gained {gained} of what is possible {where}, and " if finals else ""
    words = worth + verdict.in_words(methods, settings["risk"]) + _networks_in_words(results)
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            Answer("Gained", gained, f"of what is possible{_soon(own.values())}"),
            verdict.safety(methods, settings["risk"]),
            verdict.sureness(methods, settings["risk"]),
            verdict.elapsed_time(
                results["seconds"], f"{len(methods)} methods, {settings['tasks']} tasks of each family"
            ),
        ),
    )


def _networks_in_words(results: Results) -> str:
    """What the strongest rivals did, and with how many of the simulator steps, as the end of a sentence."""
    pairs = [
        (family["methods"][name], family["methods"][ADAPTING])
        for family in results["families"].values()
        for name in NETWORKS
        if name in family["methods"] and ADAPTING in family["methods"]
    ]
    shares = sorted(own["share_final"] for own, _ in pairs if own["share_final"] is not None)
    steps = sorted(
        own["simulator_steps"] / other["simulator_steps"] for own, other in pairs if "simulator_steps" in own
    )
    if not shares or not steps:
        return ""
    unsafe, tasks = (sum(own[key] for own, _ in pairs) for key in ("unsafe_tasks", "tasks"))
    return (
        f"; those that train networks gained {_ends([_percent(shares[0]), _percent(shares[-1])])} with "
        f"{_ends([_percent(steps[0]), _percent(steps[-1])])} of its simulator steps, unsafe in {unsafe} of {tasks} runs"
    )


def _soon(found: Iterable[Mapping[str, Any]]) -> str:
    """After how many episodes most of it was there, on the families where anything was."""
    until = sorted(each["median_until"] for each in found if each["median_until"] is not None)
    if not until:
        return ""
    if not until[-1]:
        return "; 90 % of it from the first episode on"
    return f"; 90 % of it after {_ends([f'{until[0]:,.0f}', f'{until[-1]:,.0f}'])} episodes (medians)"


def _ends(of: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(of))


def _figure(figure: bytes, results: Results) -> Section:
    networks = any(name in results["methods"] for name in NETWORKS)
    return Section(
        "Figure 4: reward gained and cost while adapting",
        figure=figure,
        caption=(
            "Above: expected reward of what is deployed in each episode beyond that of the safe policy on the same "
            "tasks; dotted, the best mixture of the set’s policies that keeps the budget on each very task, over all "
            "tasks (best of the set, which is not the optimum of the task). Below: expected cost, with the budget; "
            "above it is unsafe. Episodes are on a logarithmic axis. Lines are means over as many tasks as the legend "
            "says, the first ones, and end in a dot where a method stops learning and keeps what it deploys; bands "
            "hold 80 % of the tasks, drawn where no other line runs through. Broken lines belong to methods without a "
            "proof; a cross marks the worst policy of a method that was unsafe on any task, a triangle a gain below "
            "the panel."
        ),
        notes=(
            "Every value is that of the deployed policy, estimated on fresh episodes that no method learned from, not "
            "of single episodes; networks that were trained on a task are judged by the episodes in which they were "
            "deployed, of which nothing was known when they were made. figure4.svg beside this page is the same "
            "figure.",
            *(_meta_policy_sentences(results) if networks else []),
        ),
    )


def _meta_policy_sentences(results: Results) -> list[str]:
    """Which meta-learners begin with the safe policy after all, by what was loaded."""
    families = results["families"].values()
    if any("unmoved" not in family for family in families):
        return [
            "Whether meta-policies differ from the safe policy is not told by the version that wrote these results."
        ]
    found: dict[str, list[str]] = {}
    for family in families:
        for name in family["unmoved"]:
            if name in family["methods"]:
                found.setdefault(name, []).append(family["title"])
    return [
        f"The meta-policy of ‘{name}’ is the safe policy itself, bit for bit, in {_of_all(titles, len(families))}: its "
        "meta-training never moved it, and what is shown of it says nothing about meta-training."
        for name, titles in found.items()
    ]


def _of_all(titles: Sequence[str], families: int) -> str:
    if len(titles) < max(families, 2):
        return join_words(titles)
    return "both families" if families == 2 else f"all {families} families"


def _family(family: Mapping[str, Any], settings: Mapping[str, Any]) -> Section:
    refused = [f"‘{name}’ was not run: {why}." for name, why in family["refused"].items()]
    return Section(
        family["title"],
        paragraphs=(
            f"{len(family['parameters'])} fresh tasks, {family['policies']} policies to choose from. Gain is reward "
            "beyond that of the safe policy, sums over tasks; what is possible is the best of the set on each very "
            "task, and more than that is not counted, since it is bought with cost. Intervals are over tasks, for "
            "these policies: another training may make better or worse ones.",
            *_experts(family),
        ),
        table=family_table(family),
        notes=(
            f"Largest cost ± three standard errors. Unsafe is said at three standard errors; in between a task is "
            f"undecided. {family['judged']:,} episodes in all, at least {settings['judged']:,} of each policy that a "
            f"certified method deployed, {settings['judged_others']:,} of those that others did and "
            f"{settings['judged_idle']:,} of the rest. Episodes to 90 %: the median of tasks on which a "
            "method gained at least a tenth of what is possible. Reward gained: at the end, beyond the safe policy on "
            "the same tasks, and more than is possible within the budget is counted here.",
            _steps_in_words(family),
            *([_step_size_sentence(family)] if family["methods"].keys() & NETWORKS.keys() else []),
            *refused,
        ),
    )


def _steps_in_words(family: Mapping[str, Any]) -> str:
    """What the column of simulator steps counts."""
    origin = family["origin"]
    simulated = origin.get("simulated")
    if not simulated:
        return "Steps of bounds and signals were not counted by the version that wrote these results."
    parts = join_words([f"{what} {_millions(steps)}" for what, steps in simulated.items()])
    meta = f", each meta-policy {_millions(origin['meta_steps'])}" if origin["meta_steps"] else ""
    tuned = next(iter(origin.get("tuning", {}).values()), None)
    meta += f", tuning of each baseline {_millions(tuned['steps'])}" if tuned else ""
    return (
        f"Simulator steps, in millions: experts and the safe policy {_millions(origin['steps'])} as planned (who fails "
        f"a test is trained further; tests are not counted){meta}; for certified methods bounds, and for "
        f"‘{ADAPTING}’ signals: {parts}, at most, since hopeless policies are skipped and episodes may end early."
    )


def _step_size_sentence(family: Mapping[str, Any]) -> str:
    """How far one adaptation of a method that trains networks goes, and how that was chosen."""
    networks, tuning = [name for name in NETWORKS if name in family["methods"]], family["origin"].get("tuning", {})
    if not set(networks) <= set(tuning):
        return "The steps of methods that train networks were not tuned, so their order says little."
    chosen = join_words([f"{_chosen_options(tuning[name])} (‘{name}’)" for name in networks])
    noise = "" if family["noise"] is None else ", σ = {:.2g} to {:.2g}".format(*family["noise"])
    return (
        f"How far one adaptation goes was chosen on validation tasks: {chosen}; they begin with the safe policy’s "
        f"action noise{noise}."
    )


def _chosen_options(tuning: Mapping[str, Any]) -> str:
    """Of all that were tried, those in which they differ."""
    varied = [key for key in tuning["chosen"] if len({tried[key] for tried in tuning["tried"]}) > 1]
    return join_words([f"{key.replace('_', ' ')} {tuning['chosen'][key]:g}" for key in varied])


def _experts(family: Mapping[str, Any]) -> list[str]:
    both = [
        (possible, own)
        for possible, own in zip(family["possible_gain"], family["expert_gain"], strict=True)
        if own is not None
    ]
    if not both:
        return []
    possible, own = (sum(column) for column in zip(*both, strict=True))
    reached = f", {_percent(possible / own)} of which the best of the set reaches" if own > 0 else ""
    return [
        f"On {len(both)} tasks a policy was trained on the task itself, from the best of the set. Mixed with the set’s "
        f"so as to keep the budget, it gains {own / len(both):.3g} on average{reached}."
    ]


def _safety(results: Results) -> Section:
    return Section(
        "Unsafe tasks, all families",
        paragraphs=(
            "A task counts as unsafe if any policy that was ever deployed on it has an expected cost above the budget. "
            f"The certified methods promise that this happens with a probability of at most "
            f"{results['settings']['risk']:g} on a fresh task.",
        ),
        table=safety_table(results),
    )


_DIFFERENCES = Section(
    "The paper’s text, its code, and this",
    paragraphs=(
        "The families of target velocities are run here as the published code has them; in the other families, "
        "which the paper does not have, the dynamics differ between tasks. docs/locomotion.md lists "
        "where the paper’s text, its published code and this differ.",
    ),
)


def _training(results: Results) -> Section:
    rows = [{**family, **family["origin"], "name": name} for name, family in results["families"].items()]
    policies = Table.of(
        rows,
        Column("family", "name"),
        Column("command", "command"),
        Column("seed", "seed"),
        Column("digest", lambda row: row["digest"][:16]),
        Column("version", "version"),
        Column("seconds", "seconds", ",.0f"),
        Column("million steps of training", lambda row: _millions(row["steps"]), ""),
        Column("updates of meta-policies accepted", _updates),
        Column("cells", "cells", ""),
        Column("uncovered", "uncovered", ".3g"),
    )
    return Section(
        "The policies",
        paragraphs=(
            "Networks trained on a cover of each family, and one safe policy for all of it (Algorithm 1 with learned "
            "oracles). Nothing shows that they are optimal, so the paper’s theorem is not claimed; the certified "
            "methods rest on bounds that were made by simulation, and hold whatever the policies are.",
        ),
        table=policies,
        notes=(
            "‘paper’ is certified by a theorem about policies that are ε-optimal on a cover of the tasks, which "
            "nothing shows of networks. What it deploys is judged here as everything else.",
        ),
    )


def _updates(origin: Mapping[str, Any]) -> str:
    """Of each meta-policy, where that was counted."""
    return ", ".join(f"{name} {count}" for name, count in origin.get("accepted", {}).items()) or "not counted"


def _how(results: Results) -> Section:
    settings = results["settings"]
    paragraphs = [
        f"Certified methods learn from the first {settings['watched']:,} episodes and then keep what they deploy, "
        f"which their certificate allows. ‘{ON_ROBOTS.name}’ and ‘pce’, which see nothing but sums, go on: after the "
        f"first {settings['watched']:,} episodes of a policy on a task, theirs are drawn from those. ‘{REFERENCE}’, "
        "and ‘paper’ where its first phase is longer than the run, need no episode: what they deploy cannot change.",
    ]
    networks = [name for name in NETWORKS if name in results["methods"]]
    if networks:
        tasks, episodes = settings["network_tasks"], settings["network_episodes"]
        first = "the first task" if tasks == 1 else f"each of the first {tasks} tasks"
        where = f"{first} of a family" if tasks < settings["tasks"] else "the task"
        paragraphs.append(
            f"{join_words([f'‘{name}’' for name in networks])} adapt their network after every 40 of {episodes} "
            f"episodes on {where}, and then keep what they deploy. CPO starts from the safe policy of the set, the "
            "others from meta-policies, whose training on tasks of the family began with it."
        )
    fixed = [
        f"‘{name}’ is the safe policy trained further on all tasks of meta-training, and deployed as it is; it sees "
        f"{_SEES[name]}."
        for name in FIXED
        if name in results["methods"]
    ]
    if fixed:
        paragraphs.append(" ".join(fixed))
    ends = {name: end for name, end in PUBLISHED_AXIS.items() if name in results["families"]}
    if ends:
        told = join_words([f"{end:,} for {results['families'][name]['title']}" for name, end in ends.items()])
        paragraphs.append(
            f"The axis of the paper’s figure ends at {told}. It counts episodes for the paper’s own method only; for "
            "its baselines it counts adaptations, times 300."
        )
    return Section("How long each method learns", paragraphs=tuple(paragraphs))


_SEES = {
    DOMAIN_RANDOMISED.name: "nothing but the present",
    HISTORY_CONDITIONED.name: f"the last {LENGTH} steps besides, and may adapt within an episode",
}
