"""The page of a deployment: what it draws is what the journal says."""

from __future__ import annotations

from pathlib import Path

import deployments
import numpy as np
from deployments import fresh

from surefoot.deploy.chain import read
from surefoot.deploy.page import deployment_page, gather, history_figure
from surefoot.deploy.session import Deployment
from surefoot.report.page import render


def test_the_history_is_that_of_the_journal(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 40)
    history = gather(read(tmp_path / "journal"))
    assert len(history.told) == 34
    assert [each["episode"] for each in history.abandoned] == [1, 8, 15, 22, 29, 36]
    outcome = next(row.data for row in read(tmp_path / "journal") if row.kind == "outcome")
    expected = 0.7 - 0.5 ** np.arange(len(outcome["costs"])) @ np.array(outcome["costs"])[:, 0]
    assert history.margin[0, 0] == expected
    assert history.decided[0] == 0
    assert (np.diff(history.decided) > 0).all()
    assert history.surviving[0] == 4
    margin, weight, surviving = history_figure(history).axes
    assert weight.lines[0].get_ydata()[-1] == history.weight[-1]
    assert surviving.lines[0].get_ydata()[0] == 4
    assert margin.lines[0].get_ydata()[0] == history.claimed[0, 0]


def test_an_alarm_is_on_the_page(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployment.tell(deployment.ask(), reward=99.0, cost=0.5, first_state=0, breach=True)
        deployment.ask()
    page = deployment_page(tmp_path / "journal")
    assert "certificate void" in page.lead
    assert "1 alarm on the way" in page.lead
    figure = history_figure(gather(read(tmp_path / "journal")))
    assert all(any(line.get_linestyle() == ":" for line in axes.lines) for axes in figure.axes)
    assert '<td class="bad">alarm</td>' in render(page)


def test_a_journal_without_an_order_has_a_page(tmp_path: Path) -> None:
    Deployment.open(tmp_path / "journal", fresh()).close()
    assert "0 episodes" in deployment_page(tmp_path / "journal").lead
