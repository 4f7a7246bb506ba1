"""The learning curves show what the summaries say, in colours that stay with a method; names at the ends of lines are
apart, in order, and as close to their lines as that allows."""

from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.optimize import minimize

from made_runs import made_run
from surefoot.errors import InvalidInput
from surefoot.methods import CONTROL_METHODS, METHODS, RIVALS
from surefoot.report.figures import is_clear, learning_curves, panels_in_words, png, spread, svg
from surefoot.report.metrics import Summary, summarise
from surefoot.report.palette import COLOURS, ON_DARK, PAPER, REFERENCE, stroke

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
    tasks = range(3)
    return summarise(
        [made_run(name, certified, np.full(episodes, -gap - task), margin + 0.01 * task) for task in tasks]
    )


@pytest.fixture(scope="module")
def four() -> dict[str, Summary]:
    return {
        "safe-only": summary("safe-only", 3.0, 0.5),
        "published": summary("published", 2.0, 0.1, certified=False),
        "certified": summary("certified", 1.0, 0.2),
        "pce": summary("pce", 0.5, -0.4, certified=False),
    }


@pytest.fixture(scope="module")
def drawn(four) -> Figure:
    return learning_curves(four, budgets=[BUDGET], title="Ten tasks")


def methods_drawn(axes):
    return [each for each in axes.get_lines() if not each.get_label().startswith("_")]


def names(axes):
    """At the ends of the lines, from top to bottom."""
    return [text.get_text() for text in sorted(axes.texts, key=lambda text: -text.xy[1])]


def without(methods, name):
    return {each: summary for each, summary in methods.items() if each != name}


def line(axes, label):
    (found,) = [each for each in axes.get_lines() if each.get_label() == label]
    return found


def test_two_panels_share_their_episodes_and_are_labelled(drawn):
    regret, cost = drawn.axes
    assert regret.get_shared_x_axes().joined(regret, cost)
    labels = regret.get_ylabel(), cost.get_ylabel(), cost.get_xlabel(), drawn.get_suptitle()
    assert labels == ("reward regret", "expected discounted cost", "episode", "Ten tasks")
    assert len(methods_drawn(regret)) == 4
    assert cost.get_xlim() == (0, 50)


def test_lines_are_means_and_the_lower_panel_shows_cost(drawn):
    regret, cost = drawn.axes
    np.testing.assert_allclose(line(regret, "certified").get_ydata(), np.cumsum(np.full(50, 2.0)))
    np.testing.assert_allclose(line(cost, "certified").get_ydata(), BUDGET - 0.21)
    np.testing.assert_allclose(line(cost, "budget").get_ydata(), BUDGET)
    assert line(cost, "budget").is_dashed()


def test_bands_are_drawn_where_no_other_line_runs_through_them(four, drawn):
    """Regrets per episode are 4, 3, 2 and 1.5, give or take 0.8: the bands of the last two hold each other's lines."""
    regret, cost = drawn.axes
    shown = [to_hex(band.get_facecolor()[0]) for band in regret.collections]
    assert shown == [stroke(name).colour for name in ("safe-only", "published")]
    assert len(cost.collections) == 4
    apart = {"safe-only": four["safe-only"], "pce": four["pce"]}
    assert all(is_clear(name, apart, "regret") for name in apart)
    same = {"paper": four["safe-only"], "safe-only": four["safe-only"]}  # never leaves the safe policy
    assert [is_clear(name, same, "regret") for name in same] == [False, True]


def test_band_spans_the_quantiles(four):
    regret, cost = learning_curves({"certified": four["certified"]}, budgets=[BUDGET]).axes
    assert regret.collections[0].get_datalim(regret.transData).ymax == pytest.approx(50 * 2.8)  # 90 % of 1, 2, 3
    box = cost.collections[0].get_datalim(cost.transData)
    assert (box.ymin, box.ymax) == pytest.approx((BUDGET - 0.218, BUDGET - 0.202))


def test_uncertified_is_dashed_and_says_so(drawn):
    regret, _ = drawn.axes
    assert line(regret, "published (uncertified)").is_dashed()
    assert not line(regret, "certified").is_dashed()
    assert names(regret) == ["safe-only", "published (uncertified)", "certified", "pce (uncertified)"]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["worst policy deployed"]


def test_only_methods_that_exceeded_the_budget_get_a_cross(four, drawn):
    _, cost = drawn.axes
    crosses = [each for each in cost.get_lines() if each.get_marker() == "X"]
    assert [cross.get_label() for cross in crosses] == ["worst of pce"]
    assert crosses[0].get_ydata() == pytest.approx([BUDGET + 0.4])
    assert learning_curves(without(four, "pce"), budgets=[BUDGET]).legends == []


def test_one_bad_episode_of_one_task_is_seen_in_the_lower_panel():
    margin = np.full(40_000, 0.5)
    margin[12_345] = -0.3
    runs = [made_run("dope", False, -1.0, each) for each in (margin, margin * 0 + 1)]
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
    places = [CONTROL_METHODS[name].colour for name in CONTROL_METHODS]
    assert [*places, METHODS["posterior"].colour] == list(range(len(ORDER), len(ORDER) + 5))
    assert [METHODS[name].colour for name in RIVALS] == list(range(len(ORDER) + 5, len(ORDER) + 5 + len(RIVALS)))
    assert {REFERENCE, *ORDER, "posterior", *RIVALS} == set(METHODS)


def test_every_method_has_its_own_look_that_depends_on_the_name_alone(four, drawn):
    assert stroke("something new") == stroke("something new")
    red, green, blue = (int(stroke(REFERENCE).colour[k : k + 2], 16) for k in (1, 3, 5))
    assert red == green == blue
    alone = learning_curves({"pce": four["pce"]}, budgets=[BUDGET]).axes[0]
    colours = {to_hex(line(axes, "pce (uncertified)").get_color()) for axes in (alone, drawn.axes[0])}
    assert colours == {stroke("pce").colour.lower()}


def test_no_two_methods_share_a_colour_on_white_or_on_dark():
    everybody = [REFERENCE, *ORDER, *CONTROL_METHODS, "posterior", *RIVALS]
    light = [stroke(name).colour for name in everybody]
    assert len(everybody) == len(METHODS) + len(CONTROL_METHODS)
    assert len(set(light)) == len(light)
    assert len({ON_DARK[colour] for colour in light}) == len(light)
    assert len(set(COLOURS)) == len(COLOURS)


@pytest.mark.parametrize("dark", [False, True], ids=["on white", "on dark"])
def test_every_line_stands_out_from_its_paper(dark):
    """A contrast of 2 at least, by the formula of the Web Content Accessibility Guidelines; names are in ink."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for colour in [stroke(REFERENCE).colour, *COLOURS]:
        pair = sorted(luminance(ON_DARK[each] if dark else each) + 0.05 for each in (colour, PAPER))
        assert pair[1] / pair[0] > 2, colour


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
        "Top: cumulative regret. Bottom: expected discounted cost of the deployed policy, with the budget 1.5. "
        "A cross marks the worst policy deployed by a method that exceeded a budget."
    )
    assert panels_in_words(without(four, "pce"), [1.5], closer=True) == (
        "Top: cumulative regret. Middle: expected discounted cost of the deployed policy, with the budget 1.5. "
        "Bottom: the same regret on logarithmic axes."
    )


@pytest.mark.short_for(closer=[True])
@pytest.mark.parametrize("closer", [False, True])
def test_the_names_of_all_methods_fit_and_none_lies_upon_another(closer):
    methods = {name: summary(name, 1.0 + 0.01 * k, 0.3) for k, name in enumerate((REFERENCE, *ORDER))}
    figure = learning_curves(methods, budgets=[BUDGET], closer=closer)
    figure.draw_without_rendering()
    assert len(figure.axes) == 2 + closer
    assert not figure.legends
    for axes in figure.axes:
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
        assert len(boxes) >= len(methods)
        assert all(upper.y0 >= lower.y1 - 1 for lower, upper in pairwise(boxes))
        assert all(box.x0 > axes.get_window_extent().x1 for box in boxes)
        assert all(box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0 for box in boxes)


def test_certified_methods_are_told_apart_on_logarithmic_axes():
    """Regrets that differ by 12 %: on the paper's axes they lie on each other, beside one twenty times as large."""
    gaps = {"safe-only": 95.0, "certified-returns": 6.0, "certified-ball": 5.3, "certified-likelihood": 4.7}
    methods = {name: summary(name, gap, 0.3, episodes=4000) for name, gap in gaps.items()}
    limit = {"episode": [10, 4000], "mean": [20.0, 9000.0]}
    figure = learning_curves(methods, budgets=[BUDGET], limit=limit)
    figure.draw_without_rendering()
    linear, _, closer = figure.axes
    assert (closer.get_xscale(), closer.get_yscale()) == ("log", "log")
    assert names(closer) == [*gaps, "limit of any method"]

    def heights(axes):
        ends = [axes.transData.transform((4000, line(axes, name).get_ydata()[-1]))[1] for name in list(gaps)[1:]]
        return [72 / figure.dpi * (upper - lower) for upper, lower in pairwise(ends)]  # in points

    assert min(heights(closer)) > 1.8 > min(heights(linear))  # the width of a line


def test_files_are_reproducible_and_drawing_leaves_settings_alone(four, drawn):
    before = dict(matplotlib.rcParams)
    again = learning_curves(four, budgets=[BUDGET], title="Ten tasks")
    first, second = (png(figure, dpi=60) for figure in (drawn, again))
    assert dict(matplotlib.rcParams) == before
    assert first == second
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"matplotlib" not in first.lower()
    assert first != png(Figure(), dpi=60)
    assert svg(drawn) == svg(again)
    assert b"<text" in svg(drawn)  # found by searching


def test_nothing_to_draw_is_refused():
    with pytest.raises(InvalidInput, match="methods"):
        learning_curves({}, budgets=[BUDGET])


# ------------------------------------------------------------------------------------------- names at the ends of lines

PLACES = st.lists(st.floats(0, 100), min_size=1, max_size=8)


@given(PLACES)
def test_names_keep_their_order_their_distance_and_stay_inside(places: list[float]) -> None:
    found = spread(places, gap=10, low=0, high=100)
    order = sorted(range(len(places)), key=lambda k: (places[k], -k))
    assert all(found[after] - found[before] >= 10 - 1e-9 for before, after in pairwise(order))
    assert min(found) >= -1e-9
    assert max(found) <= 100 + 1e-9


def test_names_that_do_not_touch_stay_where_their_lines_end() -> None:
    assert spread([5.0, 40.0, 90.0], gap=10, low=0, high=100) == [5.0, 40.0, 90.0]


def test_of_equal_ends_the_first_is_the_highest() -> None:
    assert spread([50.0, 50.0, 50.0], gap=10, low=0, high=100) == [60.0, 50.0, 40.0]


@pytest.mark.parametrize("seed", range(5))
def test_they_are_moved_by_the_least_squares(seed: int) -> None:
    """Against a general solver, on distances alone."""
    places = np.sort(np.random.default_rng(seed).uniform(40, 60, 5))
    bounds = [{"type": "ineq", "fun": lambda y, k=k: y[k + 1] - y[k] - 8} for k in range(4)]
    best = minimize(lambda y: ((y - places) ** 2).sum(), places + 8 * np.arange(5), constraints=bounds, tol=1e-12)
    assert spread(list(places), gap=8, low=-1e3, high=1e3) == pytest.approx(best.x, abs=1e-4)
