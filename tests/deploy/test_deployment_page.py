"""The page of a deployment: what it says and draws is what the journal says."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import deployments
import numpy as np
import pytest
from deployments import fresh
from views import VIEWS

from surefoot.deploy import history
from surefoot.deploy.chain import read
from surefoot.deploy.charts import Frame, cards, nice
from surefoot.deploy.history import Decided, Thinned
from surefoot.deploy.page import deployment_page, read_history, render_page, share, view
from surefoot.deploy.replay import check_header, header
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import Possible
from surefoot.errors import ArtifactError
from surefoot.learning.learner import Learner
from surefoot.methods import learner

VOID = {"meta", "link", "path"}


class Checked(HTMLParser):
    """Every element that is opened is closed in order, every id is there once, nothing is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(given[name]) for name in ("href", "src") if name in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def drawn(path: Path) -> Any:
    found = read_history(path)
    return found, {card.title: card for card in cards(found, found.status(), None)}


def test_the_history_is_that_of_the_journal(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 40)
    found, pictures = drawn(tmp_path / "journal")
    rows = [(row.kind, row.data) for row in read(tmp_path / "journal")]
    told = [data for kind, data in rows if kind == "outcome"]
    costs = [0.5 ** np.arange(len(each["costs"])) @ np.array(each["costs"])[:, 0] for each in told]
    assert len(told) == found.costs[0].count == 34
    assert found.costs[0].mean == pytest.approx(np.mean(costs), rel=1e-12)
    assert [each.episode for each in found.means.values] == [each["episode"] + 1 for each in told]
    assert [each["episode"] for each in found.abandoned] == [1, 8, 15, 22, 29, 36]
    assert [each.surviving for each in found.decided.values] == [d["surviving"] for k, d in rows if k == "decision"]
    assert sum(found.ordered.values()) == 40
    assert f"observed mean {np.mean(costs):.3f}" in pictures["Cost against its budget"].picture
    assert f"no. 3: {found.ordered[3]:,}" in pictures["Policies ordered"].caption


def test_several_constraints_have_a_chart_each(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 20, "paper")
    found, pictures = drawn(tmp_path / "journal")
    assert list(pictures)[:2] == ["Cost 1 of 2 against its budget", "Cost 2 of 2 against its budget"]
    assert found.status().margin is not None
    page = view("journal", found)
    least = int(np.argmin(found.status().margin or []))
    assert f"of cost {least + 1}" in page.answers[0].beside


def test_the_verdict_and_the_figures(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployments.drive(deployment, 10)
        order = deployment.ask()
        page = view("journal", read_history(tmp_path / "journal"))
        assert (page.word, page.tone) == ("Running", "good")
        assert page.verdict.startswith(
            "Adapting since episode 0: the safe policy is still used in under 0.1 % of episodes"
        )
        names = [each.name for each in page.answers]
        assert names == ["Certified cost", "Observed cost", "Gained", "Next order", "Alarms"]
        assert re.match(r"at most, of the budget \S+, .*, sure to \d+ %", page.answers[0].beside)
        assert page.answers[3].value == f"no. {order.policy_index}"
        assert page.answers[4].value == "0"
        deployment.tell(order, reward=99.0, cost=0.5, first_state=0, breach=True)
        deployment.ask()
    page = view("journal", read_history(tmp_path / "journal"))
    assert (page.word, page.tone) == ("Safe", "bad")
    assert page.verdict.startswith("Only the safe policy is ordered, since episode 11:")
    assert "certificate void" in page.verdict
    assert (page.answers[3].value, page.answers[4].value) == ("safe", "1")
    text = render_page(page)
    assert '<td class="bad">alarm</td>' in text
    assert text.count('<path class="alarm"') == len(page.cards)


def test_what_was_gained_is_told_by_the_episodes_of_the_safe_policy(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "safe", 5, "safe-only")
    assert view("", read_history(tmp_path / "safe")).answers[2].value == "nothing"
    deployments.deployed(tmp_path / "journal", 3)
    assert view("", read_history(tmp_path / "journal")).answers[2].value == "unknown", "it was never run"
    deployments.deployed(tmp_path / "mixed", 500, "paper")
    rows = [(row.kind, row.data) for row in read(tmp_path / "mixed")]
    ordered = {data["episode"]: data["policy"] for kind, data in rows if kind == "order"}
    discount = 0.1
    earned: dict[bool, list[float]] = {True: [], False: []}
    for kind, data in rows:
        if kind == "outcome":
            rewards = np.array(data["rewards"])
            earned[ordered[data["episode"]] == 0].append(float(rewards @ discount ** np.arange(len(rewards))))
    gained = np.mean(earned[False]) - np.mean(earned[True])
    answer = view("", read_history(tmp_path / "mixed")).answers[2]
    assert float(answer.value.replace("−", "-")) == pytest.approx(gained, abs=1e-3)
    assert f"in {len(earned[False]):,} of other policies" in answer.beside
    assert f"in {len(earned[True]):,} of the safe one" in answer.beside


def named(*names: str) -> Learner:
    return learner(replace(deployments.tiny_set(), names=names), method="certified-returns", risk=0.3, seed=5)


def test_policies_have_their_names_everywhere(tmp_path: Path) -> None:
    made = ["rest", "<b>fast</b> and bold", "slow", "middling"]
    many = len(deployments.tiny_set().policies)
    names = [*made, *(f"p{k}" for k in range(len(made), many))][:many]
    path = tmp_path / "journal"
    with Deployment.open(path, named(*names)) as deployment:
        for _ in range(8):
            order = deployment.ask()
            deployment.tell(order, reward=0.5, cost=0.1, first_state=0)
        order = deployment.ask()
    for name, reader in VIEWS.items():
        if name not in ("deployment", "protocol"):
            assert reader(path, None, lambda: named(*names)).next_order == order.policy_name, name
    text = deployment_page(path)
    assert "<b>fast" not in text
    assert "Policy numbers" not in text
    assert "safe: " not in text
    opened = dict(header(named(*names)))
    with pytest.raises(ArtifactError, match="was begun with names"):
        check_header({**opened, "names": ["another", *names[1:]]}, named(*names), "", None)
    del opened["names"]  # as journals were before
    check_header(opened, named(*names), "", None)


def test_the_interval_of_few_episodes_does_not_flatten_the_cost(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 6)
    found, pictures = drawn(tmp_path / "journal")
    budget, (low, high) = found.status().budget[0], found.costs[0].interval
    assert high - low > 2 * abs(budget), "wider than what is shown"
    card = pictures["Cost against its budget"]
    assert '<path class="band seen"' not in str(card.picture)
    told = re.search(r"narrower than the budget after about ([\d,]+) episodes", card.caption)
    assert told is not None
    assert int(told[1].replace(",", "")) > 6


def test_a_journal_without_an_order_has_a_page(tmp_path: Path) -> None:
    Deployment.open(tmp_path / "journal", fresh()).close()
    assert "nothing has been ordered yet" in deployment_page(tmp_path / "journal")


@pytest.mark.parametrize("method", ["certified-returns", "paper"])
def test_the_page_is_one_sound_document_without_outside_references(tmp_path: Path, method: str) -> None:
    path = tmp_path / "<b>journal"
    deployments.deployed(path, 12, method)
    text = deployment_page(path)
    found = Checked(text)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert all(link == "data:," or link[1:] in found.ids for link in found.links)
    assert "<b>" not in text
    assert "://" not in text
    assert "<script" not in text
    assert all(len(label) > 20 for label in re.findall('role="img" aria-label="([^"]*)"', text))


def test_parameters_that_are_possible_come_from_the_policy_set(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 40)
    followed = Possible(fresh())
    for row in read(tmp_path / "journal"):
        followed.add(row)
    cells = deployments.tiny_set().cells
    assert cells is not None
    assert followed.everything == ((cells.low.min(), cells.high.max()),)
    assert followed.ranges.values[0].episode == 0
    assert "Parameter of the system" in deployment_page(tmp_path / "journal", Possible(fresh()))
    with pytest.raises(ArtifactError, match="was begun with settings"):
        deployment_page(tmp_path / "journal", Possible(fresh(seed=6)))


def test_thinning_keeps_the_end_and_the_smallest_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "POINTS", 4)
    kept: Thinned[Decided] = Thinned(history._lower)
    margins = np.random.default_rng(0).random(100)
    for k, margin in enumerate(margins):
        kept.add(Decided(k, k / 100, 100 - k, (margin,)))
        assert len(kept.values) < 8
        assert kept.values[0].episode == 0
        assert kept.values[-1].weight == k / 100
        assert min(each.margin for each in kept.values if each.margin)[0] == margins[: k + 1].min()


def test_orders_are_counted_in_bounded_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 30)
    monkeypatch.setattr(history, "POINTS", 2)
    found = read_history(tmp_path / "journal")
    assert len(found.stretches) <= 4
    assert sum((each.ordered for each in found.stretches), start=type(found.ordered)()) == found.ordered
    assert sum(each.told for each in found.stretches) == found.reward.count


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.37, 0.41), (1e-9, 2e-9), (1e6, 3e7), (-1e300, 1e300)])
def test_ticks_are_few_and_within(low: float, high: float) -> None:
    ticks = nice(low, high)
    assert 1 <= len(ticks) <= 11
    assert all(low - 1e-12 <= tick <= high + 1e-12 for tick in ticks)


def test_what_lies_outside_is_cut_off_and_not_far_away() -> None:
    shown = Frame(10, 0.0, 1.0)
    assert shown.y(1e300) == shown.y(2.0)
    assert shown.x(1e300) == shown.x(10)


def test_shares_are_whole_only_if_they_are() -> None:
    assert [share(value) for value in (0, 1e-9, 0.1234, 1 - 1e-9, 1)] == [
        "0 %", "under 0.1 %", "12.3 %", "over 99.9 %", "100 %",
    ]  # fmt: skip
