"""The learning curves show what the summaries say, in colours that stay with a method."""

from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from surefoot.cmdp.policy import EpisodeMixture
from surefoot.errors import InvalidInput
from surefoot.methods import METHODS
from surefoot.report.figures import REFERENCE, learning_curves, panels_in_words, png, stroke
from surefoot.report.metrics import Summary, summarise
from surefoot.simulate.run import Run

BUDGET = 1.5

# Colours stay as they were in every figure published so far: methods that come later go to the end.
ORDER = (
    "certified",
    "published",
    "paper",
    "pce",
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
    "safe-meta-published",
    "dope-plus-published",
    "lb-sgd-published",
    "dope-published",
    "optpess-lp-published",
    "safe-meta-theory",
    "dope-plus-theory",
    "lb-sgd-theory",
    "dope-theory",
    "optpess-lp-theory",
    "pce-theory",
    "certified-signals",
)


def summary(name: str, gap: float, margin: float, *, certified: bool = True, episodes: int = 50) -> Summary:
    output = EpisodeMixture(("safe",), np.array([1.0]))
    return summarise(
        [
            Run(
                name,
                certified,
                np.cumsum(np.full(episodes, gap + task)),
                np.full(episodes, margin + 0.01 * task),
                np.zeros(episodes),
                10.0,
                output,
            )
            for task in range(3)
        ]
    )


@pytest.fixture
def four() -> dict[str, Summary]:
    return {
        "safe-only": summary("safe-only", 3.0, 0.5),
        "published": summary("published", 2.0, 0.1, certified=False),
        "certified": summary("certified", 1.0, 0.2),
        "pce": summary("pce", 0.5, -0.4, certified=False),
    }


def line(axes, label):
    (found,) = [each for each in axes.get_lines() if each.get_label() == label]
    return found


def test_two_panels_share_their_episodes_and_are_labelled(four):
    figure = learning_curves(four, budgets=[BUDGET], title="Ten tasks")
    regret, cost = figure.axes
    assert regret.get_shared_x_axes().joined(regret, cost)
    assert (regret.get_ylabel(), cost.get_ylabel(), cost.get_xlabel()) == (
        "reward regret",
        "expected discounted cost",
        "episode",
    )
    assert figure.get_suptitle() == "Ten tasks"
    assert len(regret.get_lines()) == 4
    assert len(regret.collections) == 4  # the bands
    assert len(cost.collections) == 4
    assert cost.get_xlim() == (0, 50)


def test_lines_are_means_and_the_lower_panel_shows_cost(four):
    regret, cost = learning_curves(four, budgets=[BUDGET]).axes
    np.testing.assert_allclose(line(regret, "certified").get_ydata(), np.cumsum(np.full(50, 2.0)))
    np.testing.assert_allclose(line(cost, "certified").get_ydata(), BUDGET - 0.21)
    np.testing.assert_allclose(line(cost, "budget").get_ydata(), BUDGET)
    assert line(cost, "budget").is_dashed()


def test_band_spans_the_quantiles(four):
    regret, cost = learning_curves({"certified": four["certified"]}, budgets=[BUDGET]).axes
    assert regret.collections[0].get_datalim(regret.transData).ymax == pytest.approx(50 * 2.8)  # 90 % of 1, 2, 3
    box = cost.collections[0].get_datalim(cost.transData)
    assert (box.ymin, box.ymax) == pytest.approx((BUDGET - 0.218, BUDGET - 0.202))


def test_uncertified_is_dashed_and_says_so(four):
    figure = learning_curves(four, budgets=[BUDGET])
    regret, _ = figure.axes
    assert line(regret, "published (uncertified)").is_dashed()
    assert not line(regret, "certified").is_dashed()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "safe-only",
        "published (uncertified)",
        "certified",
        "pce (uncertified)",
        "budget",
        "worst policy deployed",
    ]


def test_only_methods_that_exceeded_the_budget_get_a_cross(four):
    _, cost = learning_curves(four, budgets=[BUDGET]).axes
    crosses = [each for each in cost.get_lines() if each.get_marker() == "X"]
    assert [cross.get_label() for cross in crosses] == ["worst of pce"]
    assert crosses[0].get_ydata() == pytest.approx([BUDGET + 0.4])
    del four["pce"]
    figure = learning_curves(four, budgets=[BUDGET])
    assert "worst policy deployed" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_one_bad_episode_of_one_task_is_seen_in_the_lower_panel():
    margin = np.full(40_000, 0.5)
    margin[12_345] = -0.3
    output = EpisodeMixture(("safe",), np.array([1.0]))
    runs = [Run("dope", False, np.arange(40_000.0), each, margin * 0, 1.0, output) for each in (margin, margin * 0 + 1)]
    _, cost = learning_curves({"dope": summarise(runs)}, budgets=[BUDGET]).axes
    cross = line(cost, "worst of dope")
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (12_346, pytest.approx(BUDGET + 0.3))


@pytest.mark.parametrize("margin", [-0.5, -0.02, 0.0, 0.5])
@pytest.mark.filterwarnings("error")
def test_budget_is_in_view_wherever_the_costs_are(margin):
    _, cost = learning_curves({"safe-only": summary("safe-only", 0.0, margin, episodes=1)}, budgets=[BUDGET]).axes
    low, high = cost.get_ylim()
    assert low < min(BUDGET, BUDGET - margin - 0.018)  # the lower end of the band
    assert high > max(BUDGET, BUDGET - margin)


def test_colours_never_change():
    assert [METHODS[name].colour for name in ORDER] == list(range(len(ORDER)))
    assert {REFERENCE, *ORDER} == set(METHODS)


def test_every_method_has_its_own_look_that_depends_on_the_name_alone(four):
    looks = {name: stroke(name) for name in (REFERENCE, *ORDER)}
    assert len(set(looks.values())) == len(looks)
    assert stroke("something new") == stroke("something new")
    red, green, blue = (int(stroke(REFERENCE).colour[k : k + 2], 16) for k in (1, 3, 5))
    assert red == green == blue
    alone = learning_curves({"pce": four["pce"]}, budgets=[BUDGET]).axes[0]
    together = learning_curves(four, budgets=[BUDGET]).axes[0]
    colours = {to_hex(line(axes, "pce (uncertified)").get_color()) for axes in (alone, together)}
    assert colours == {stroke("pce").colour.lower()}


def test_neighbouring_colours_differ_in_lightness_or_hue_for_colour_blind_readers():
    """The first eight looks differ pairwise in luminance or in the blue-yellow direction that deuteranopes see."""

    def seen(colour: str) -> np.ndarray:
        red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        return np.array([0.30 * red + 0.59 * green + 0.11 * blue, blue - (red + green) / 2])

    colours = [stroke(name).colour for name in (REFERENCE, *ORDER[:8])]
    gaps = [np.abs(seen(a) - seen(b)).max() for k, a in enumerate(colours) for b in colours[k + 1 :]]
    assert min(gaps) > 0.08


def test_several_constraints_share_one_panel(four):
    """Margins are the smallest over the constraints, so what is drawn is the largest excess, against 0."""
    figure = learning_curves(four, budgets=[2.0, 3.0])
    cost = figure.axes[1]
    assert cost.get_ylabel() == "largest cost − budget"
    assert list(line(cost, "budget").get_ydata()) == [0, 0]
    name = next(iter(four))
    shown = line(cost, name if four[name]["certified"] else f"{name} (uncertified)").get_ydata()
    np.testing.assert_allclose(shown, -np.array(four[name]["curve"]["margin_mean"]))
    words = panels_in_words(four, [2.0, 3.5])
    assert "Bottom: by how much the deployed policy's costs exceed their budgets 2, 3.5" in words
    assert panels_in_words(four, [1.5]) == (
        "Top: cumulative regret. Bottom: expected discounted cost of the deployed policy, with the budget 1.5."
    )


def test_all_methods_fit():
    methods = {name: summary(name, 1.0 + k, 0.3) for k, name in enumerate((REFERENCE, *ORDER))}
    figure = learning_curves(methods, budgets=[BUDGET])
    figure.draw_without_rendering()  # lays it out
    legend = figure.legends[0].get_window_extent()
    assert len(figure.legends[0].get_texts()) == len(ORDER) + 2  # the reference and the budget
    assert legend.y0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert legend.x0 >= figure.axes[0].get_window_extent().x1
    heights = [text.get_window_extent().y0 for text in figure.legends[0].get_texts()]
    assert all(upper > lower for upper, lower in pairwise(heights))


def test_short_legend_lies_below_and_fits_the_longest_names():
    longest = sorted(ORDER, key=len)[-6:]
    methods = {name: summary(name, 1.0 + k, -0.3, certified=False) for k, name in enumerate(longest)}
    figure = learning_curves(methods, budgets=[BUDGET])
    figure.draw_without_rendering()  # lays it out
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0
    assert legend.x1 <= figure.bbox.x1
    assert legend.y1 <= figure.axes[1].xaxis.label.get_window_extent().y0


def test_png_is_reproducible_and_leaves_settings_alone(four):
    before = dict(matplotlib.rcParams)
    first = png(learning_curves(four, budgets=[BUDGET]), dpi=60)
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    assert first == png(learning_curves(four, budgets=[BUDGET]), dpi=60)
    assert b"matplotlib" not in first.lower()
    assert dict(matplotlib.rcParams) == before
    assert first != png(Figure(), dpi=60)


def test_nothing_to_draw_is_refused():
    with pytest.raises(InvalidInput, match="methods"):
        learning_curves({}, budgets=[BUDGET])
