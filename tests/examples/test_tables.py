"""The lake as a table, and the families whose training is timed: they run, and adapting pays."""

from __future__ import annotations

import pytest

import families
import lake


def test_the_lake_is_crossed_better_and_safely(capsys: pytest.CaptureFixture[str]) -> None:
    run = lake.main(episodes=500)
    assert run.unsafe_episodes == 0
    assert run.events[0].message.startswith("certified-likelihood")
    assert run.regret[-1] < 0.05 * float(capsys.readouterr().out.split("never adapting ")[1].split()[0])


@pytest.mark.parametrize("name", ["lake4", "grid"])
def test_families_are_trained_without_a_hint(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    families.trained(name)
    assert "(affine), certified-likelihood" in capsys.readouterr().out
